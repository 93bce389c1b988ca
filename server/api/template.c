// SPDX-License-Identifier: Apache-2.0
// stockade.v1.TemplateService: translation between its messages and server/snapshot/made.h; and the templates of the
// configuration.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "convert.h"
#include "page.h"
#include "pending.h"
#include "proto/auto.h"
#include "proto/wire.h"
#include "server/base/server.h"
#include "server/config/config.h"
#include "server/sandbox/sandbox.h"
#include "server/sandbox/template.h"
#include "server/snapshot/made.h"
#include "server/snapshot/work.h"
#include "server/store/store.h"
#include "stockade/v1/template_service.pb-c.h"
#include "template_message.h"

static Stockade__V1__SandboxTemplate *
convert_host(struct arena *a, const struct template *t)
{
    Stockade__V1__SandboxTemplate *m = wire_make(a, &stockade__v1__sandbox_template__descriptor);
    if (m == NULL)
        return NULL;
    m->name = m->host_template = t->name;
    m->of_host = true;
    m->user_root = t->user_root;
    m->root_writable = t->root_writable;
    return m;
}

static bool
add_env(struct arena *a, const struct image *i, Stockade__V1__SandboxTemplate *m)
{
    m->env = arena_alloc(a, sizeof(void *) * (i->env_n + 1));
    for (uint32_t k = 0; m->env != NULL && k < i->env_n; k++) {
        Stockade__V1__EnvironmentVariable *v =
            wire_make(a, &stockade__v1__environment_variable__descriptor);
        if (v == NULL)
            return false;
        v->name = i->env[k].name;
        v->value = i->env[k].value;
        m->env[m->n_env++] = v;
    }
    return m->env != NULL;
}

static Stockade__V1__TemplateStep *
convert_step(struct arena *a, const struct work_step *s, const uint8_t layer[SPAWN_DIGEST_BYTES])
{
    char digest[STORE_DIGEST_TEXT];
    Stockade__V1__TemplateStep *m = wire_make(a, &stockade__v1__template_step__descriptor);
    if (m == NULL)
        return NULL;
    store_digest_text(layer, digest);
    m->command = s->command;
    m->digest = arena_copy(a, digest, strlen(digest));
    m->destinations = (const char **)(uintptr_t)s->reached; // the type of protobuf-c
    m->n_destinations = s->reached_n;
    m->connections = s->connections;
    m->end_time = convert_wall(a, s->end_ms);
    m->outcome = (Stockade__V1__Outcome)s->outcome;
    m->exit_code = s->exit_code;
    return m->digest != NULL && m->end_time != NULL ? m : NULL;
}

Stockade__V1__TemplateStep **
template_steps(struct arena *a, const struct made *from, uint32_t layer, size_t *n)
{
    const struct work *w = from->work[layer];
    const uint32_t most = w != NULL ? w->n : 0;
    Stockade__V1__TemplateStep **all = arena_alloc(a, sizeof(void *) * (most + 1));
    *n = 0;
    while (all != NULL && *n < most && *n < TEMPLATE_STEPS_MAX) {
        Stockade__V1__TemplateStep *one = convert_step(a, &w->step[*n], from->layer[layer]);
        if (one == NULL)
            return NULL;
        all[(*n)++] = one;
    }
    return all;
}

static bool
add_steps(struct arena *a, const struct made *from, Stockade__V1__SandboxTemplate *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < from->layers_n; i++)
        n += from->work[i] != NULL ? from->work[i]->n : 0;
    m->steps = arena_alloc(a, sizeof(void *) * (n + 1));
    for (uint32_t i = 0; m->steps != NULL && i < from->layers_n; i++) {
        const struct work *w = from->work[i];
        for (uint32_t k = 0; w != NULL && k < w->n && m->n_steps < TEMPLATE_STEPS_MAX; k++)
            if ((m->steps[m->n_steps++] = convert_step(a, &w->step[k], from->layer[i])) == NULL)
                return false;
        m->steps_omitted += w != NULL ? w->omitted : 0;
    }
    m->steps_omitted += n - m->n_steps;
    return m->steps != NULL;
}

static bool
is_readable(const struct made *m)
{
    const struct store *store = made_store(m);
    const struct stored *r =
        store == NULL ? NULL : store_find(store, m->tenant, STORE_TEMPLATE, m->record);
    return r == NULL || stored_can_be_read(r);
}

Stockade__V1__SandboxTemplate *
template_message(struct arena *a, const struct made *from, bool whole)
{
    const struct template *t = made_template(from);
    Stockade__V1__SandboxTemplate *m = wire_make(a, &stockade__v1__sandbox_template__descriptor);
    if (m == NULL)
        return NULL;
    m->name = from->image.name;
    m->host_template = from->host_template;
    m->user_root = t != NULL && t->user_root;
    m->root_writable = t != NULL && t->root_writable;
    m->digest = from->digest;
    m->unreadable = !is_readable(from);
    m->principal = from->principal;
    m->loaded_by = from->loaded_by;
    m->made_on = from->made_on;
    m->sandbox_id = from->sandbox;
    m->snapshot = from->snapshot;
    m->create_time = convert_wall(a, from->created_ms);
    m->bytes = from->bytes;
    m->inodes = from->inodes;
    m->workdir = from->image.workdir;
    m->network = from->network;
    bool good = m->create_time != NULL && add_env(a, &from->image, m);
    return good && (!whole || add_steps(a, from, m)) ? m : NULL;
}

static void
reply(struct call *c, const ProtobufCMessageDescriptor *answer, const struct made *m,
      const struct template *t)
{
    Stockade__V1__TemplateServiceGetResponse response;
    _Static_assert(sizeof response == sizeof(Stockade__V1__TemplateServiceCreateResponse),
                   "both are filled in the same way");
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    answer->message_init((ProtobufCMessage *)&response);
    response.template_ = NULL;
    if (a != NULL && m != NULL)
        response.template_ = template_message(a, m, true);
    else if (a != NULL && t != NULL)
        response.template_ = convert_host(a, t);
    if (response.template_ == NULL)
        convert_no_memory(c);
    else
        call_reply(c, &response.base);
}

// ---- Create

static void
unwait(void *op)
{
    made_unwait(op);
}

static void
on_made(void *cookie, const struct made *m, const struct err *e)
{
    struct pending *p = cookie;
    if (e == NULL)
        reply(p->call, &stockade__v1__template_service_create_response__descriptor, m, NULL);
    pending_end(p, e);
}

// *env is owned by the caller of this function.
static int
read_env(const Stockade__V1__TemplateServiceCreateRequest *m, struct template_env **env,
         struct err *e)
{
    *env = calloc(m->n_env + 1, sizeof **env);
    if (*env == NULL)
        return err_sys(e, ENOMEM, "keep the template's environment");
    for (size_t i = 0; i < m->n_env; i++) {
        struct template_env *v = &(*env)[i];
        if (strlen(m->env[i]->value) >= sizeof v->value)
            return err_field(e, "env", "%s: longer than %zu bytes", m->env[i]->name,
                             sizeof v->value - 1);
        (void)snprintf(v->name, sizeof v->name, "%s", m->env[i]->name);
        (void)snprintf(v->value, sizeof v->value, "%s", m->env[i]->value);
    }
    return 0;
}

static int
check_name(const struct server *s, const char *name, struct err *e)
{
    if (config_template(s->config, name) == NULL)
        return 0;
    int r = err_set(e, ERR_ALREADY_EXISTS, "the host has a template with the name %s", name);
    err_detail(e, "NAME_TAKEN", "name", "choose another name");
    return r;
}

static void
create(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__TemplateServiceCreateRequest *m =
        (const Stockade__V1__TemplateServiceCreateRequest *)req;
    struct err e;
    struct made_op *op = NULL;
    struct template_env *env = NULL;
    struct sandbox *from = NULL;
    struct pending *p = pending_new(s, c, NULL, unwait);
    if (p == NULL)
        return;
    int r = check_name(s, m->name, &e);
    if (r == 0 && (from = sandbox_find(s->sandboxes, call_tenant(c), m->sandbox, &e)) == NULL)
        r = err_errno(&e);
    if (r == 0)
        r = read_env(m, &env, &e);
    if (r == 0) {
        const struct made_spec spec = {.name = m->name,
                                       .snapshot = m->snapshot,
                                       .workdir = m->workdir,
                                       .stop = m->stop,
                                       .replace = m->replace,
                                       .env = env,
                                       .env_n = (uint32_t)m->n_env};
        r = made_create(s->made, from, &spec, on_made, p, &op, &e);
    }
    free(env);
    pending_begun(p, r, op, &e);
}

// ---- the others

static void
get(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__TemplateServiceGetRequest *m =
        (const Stockade__V1__TemplateServiceGetRequest *)req;
    struct err e;
    const struct template *t = config_template(s->config, m->name);
    const struct made *made = t == NULL ? made_find(s->made, call_tenant(c), m->name) : NULL;
    if (t != NULL || made != NULL) {
        reply(c, &stockade__v1__template_service_get_response__descriptor, made, t);
        return;
    }
    (void)convert_no_template(m->name, &e);
    call_fail(c, &e);
}

// Their numbers in a list: those of the host come first.
static uint64_t
order_of(const struct made *m)
{
    return TEMPLATES_MAX + m->order;
}

static void
list(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__TemplateServiceListRequest *m =
        (const Stockade__V1__TemplateServiceListRequest *)req;
    Stockade__V1__TemplateServiceListResponse response =
        STOCKADE__V1__TEMPLATE_SERVICE_LIST_RESPONSE__INIT;
    struct page auto_page p = {0};
    if (!page_open(&p, c, m->page_size, m->page_token))
        return;
    bool more = true;
    for (uint32_t i = 0; i < s->config->sandbox.templates_n && more; i++) {
        const struct template *t = &s->config->sandbox.template[i];
        if (!t->removed && i + 1 > p.last)
            more = page_has_room(&p) && page_add(&p, i + 1, convert_host(p.arena, t));
    }
    for (struct list *it = made_list(s->made)->next; it != made_list(s->made) && more;
         it = it->next) {
        const struct made *one = list_entry(it, struct made, node);
        if (one->ready && order_of(one) > p.last && strcmp(one->tenant, call_tenant(c)) == 0)
            more = page_has_room(&p) &&
                   page_add(&p, order_of(one), template_message(p.arena, one, false));
    }
    response.templates = p.elements;
    response.n_templates = p.n;
    response.next_page_token = p.token;
    page_reply(&p, c, &response.base);
}

static void
on_deleted(void *cookie, const struct made *none, const struct err *e)
{
    struct pending *p = cookie;
    Stockade__V1__TemplateServiceDeleteResponse response =
        STOCKADE__V1__TEMPLATE_SERVICE_DELETE_RESPONSE__INIT;
    (void)none;
    if (e == NULL)
        call_reply(p->call, &response.base);
    pending_end(p, e);
}

static void delete (struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__TemplateServiceDeleteRequest *m =
        (const Stockade__V1__TemplateServiceDeleteRequest *)req;
    struct err e;
    struct made_op *op = NULL;
    struct made *made = made_find(s->made, call_tenant(c), m->name);
    struct pending *p = pending_new(s, c, NULL, unwait);
    if (p == NULL)
        return;
    int r = 0;
    if (made != NULL) {
        r = made_delete(made, on_deleted, p, &op, &e);
    } else if (config_template(s->config, m->name) != NULL) {
        r = err_set(&e, ERR_FAILED_PRECONDITION, "the template %s is the host's", m->name);
        err_detail(&e, "OF_HOST", "name", "the configuration lists it");
    } else {
        r = convert_no_template(m->name, &e);
    }
    pending_begun(p, r, op, &e);
}

#define METHOD(name, message, handler)                                                             \
    {                                                                                              \
        "/stockade.v1.TemplateService/" name,                                                      \
            &stockade__v1__template_service_##message##_request__descriptor,                       \
            &stockade__v1__template_service_##message##_response__descriptor, handler              \
    }

const struct call_method template_methods[] = {
    METHOD("Create", create, create),
    METHOD("Get", get, get),
    METHOD("List", list, list),
    METHOD("Delete", delete, delete),
    METHOD("Push", push, template_push),
    METHOD("Load", load, template_load),
    {0},
};
