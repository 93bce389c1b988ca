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
#include "proto/wire.h"
#include "server/base/server.h"
#include "server/config/config.h"
#include "server/snapshot/made.h"
#include "stockade/v1/template_service.pb-c.h"

// Create, until it is done.
struct pending {
    struct call *call;
    struct made_op *op;
    bool over; // done was called before made_create() returned
};

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

static bool
add_steps(struct arena *a, const struct made *from, Stockade__V1__SandboxTemplate *m)
{
    m->steps = arena_alloc(a, sizeof(void *) * (from->steps_n + 1));
    for (uint32_t k = 0; m->steps != NULL && k < from->steps_n; k++) {
        const struct made_step *s = &from->steps[k];
        Stockade__V1__TemplateStep *step = wire_make(a, &stockade__v1__template_step__descriptor);
        if (step == NULL)
            return false;
        step->command = s->command;
        step->digest = s->digest;
        step->destinations = (const char **)(uintptr_t)s->destinations; // the type of protobuf-c
        step->n_destinations = s->destinations_n;
        m->steps[m->n_steps++] = step;
    }
    return m->steps != NULL;
}

static Stockade__V1__SandboxTemplate *
convert_made(struct arena *a, const struct made *from, bool whole)
{
    Stockade__V1__SandboxTemplate *m = convert_host(a, from->template);
    if (m == NULL)
        return NULL;
    m->name = from->image.name;
    m->of_host = false;
    m->made_on = from->made_on;
    m->sandbox_id = from->sandbox;
    m->snapshot = from->snapshot;
    m->create_time =
        wire_make_time(a, from->created_ms / 1000, (int32_t)(from->created_ms % 1000) * 1000000);
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
        response.template_ = convert_made(a, m, true);
    else if (a != NULL && t != NULL)
        response.template_ = convert_host(a, t);
    if (response.template_ == NULL)
        convert_no_memory(c);
    else
        call_reply(c, &response.base);
}

// ---- Create

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct pending *p = cookie;
    (void)why;
    made_cancel(p->op);
    free(p);
}

static void
on_done(void *cookie, const struct made *m, const struct err *e)
{
    struct pending *p = cookie;
    if (e != NULL)
        call_fail(p->call, e);
    else
        reply(p->call, &stockade__v1__template_service_create_response__descriptor, m, NULL);
    if (p->op == NULL)
        p->over = true;
    else
        free(p);
}

static bool
copy_step(const Stockade__V1__TemplateStep *from, struct made_step *to)
{
    to->command = strdup(from->command);
    to->digest = strdup(from->digest);
    to->destinations = calloc(from->n_destinations + 1, sizeof *to->destinations);
    bool good = to->command != NULL && to->digest != NULL && to->destinations != NULL;
    for (size_t i = 0; good && i < from->n_destinations; i++) {
        good = (to->destinations[i] = strdup(from->destinations[i])) != NULL;
        to->destinations_n++;
    }
    return good;
}

static int
read_env(const Stockade__V1__TemplateServiceCreateRequest *m, struct made_spec *spec, struct err *e)
{
    for (size_t i = 0; i < m->n_env; i++) {
        struct template_env *v = &spec->env[spec->env_n++];
        if (strlen(m->env[i]->value) >= sizeof v->value)
            return err_field(e, "env", "%s: longer than %zu bytes", m->env[i]->name,
                             sizeof v->value - 1);
        (void)snprintf(v->name, sizeof v->name, "%s", m->env[i]->name);
        (void)snprintf(v->value, sizeof v->value, "%s", m->env[i]->value);
    }
    return 0;
}

static int
read_spec(const Stockade__V1__TemplateServiceCreateRequest *m, struct made_spec *spec,
          struct err *e)
{
    *spec = (struct made_spec){
        .name = m->name, .snapshot = m->snapshot, .workdir = m->workdir, .stop = m->stop};
    spec->env = calloc(m->n_env + 1, sizeof *spec->env);
    spec->steps = calloc(m->n_steps + 1, sizeof *spec->steps);
    if (spec->env == NULL || spec->steps == NULL)
        return err_sys(e, ENOMEM, "keep the template's description");
    for (size_t i = 0; i < m->n_steps; i++) {
        spec->steps_n++;
        if (!copy_step(m->steps[i], &spec->steps[i]))
            return err_sys(e, ENOMEM, "keep the template's steps");
    }
    return read_env(m, spec, e);
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
    struct made_spec spec = {0};
    struct pending *p = calloc(1, sizeof *p);
    struct sandbox *from = NULL;
    int r = p == NULL ? err_sys(&e, ENOMEM, "answer") : check_name(s, m->name, &e);
    if (r == 0 && (from = sandbox_find(s->sandboxes, call_tenant(c), m->sandbox, &e)) == NULL)
        r = err_errno(&e);
    if (r == 0)
        r = read_spec(m, &spec, &e);
    if (r == 0) {
        p->call = c;
        r = made_create(s->made, from, &spec, on_done, p, &op, &e);
    }
    made_steps_free(spec.steps, spec.steps_n);
    free(spec.env);
    if (r < 0) {
        call_fail(c, &e);
        free(p);
    } else if (p->over) {
        free(p);
    } else {
        p->op = op;
        call_watch(c, on_cancel, NULL, p);
    }
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
    struct err e;
    if (page_begin(&p, m->page_size, m->page_token, &e) < 0) {
        call_fail(c, &e);
        return;
    }
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
            more =
                page_has_room(&p) && page_add(&p, order_of(one), convert_made(p.arena, one, false));
    }
    response.templates = p.elements;
    response.n_templates = p.n;
    response.next_page_token = p.token;
    page_reply(&p, c, &response.base);
}

static void delete (struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__TemplateServiceDeleteRequest *m =
        (const Stockade__V1__TemplateServiceDeleteRequest *)req;
    Stockade__V1__TemplateServiceDeleteResponse response =
        STOCKADE__V1__TEMPLATE_SERVICE_DELETE_RESPONSE__INIT;
    struct err e;
    struct made *made = made_find(s->made, call_tenant(c), m->name);
    if (made != NULL) {
        made_delete(made);
        call_reply(c, &response.base);
        return;
    }
    if (config_template(s->config, m->name) != NULL) {
        (void)err_set(&e, ERR_FAILED_PRECONDITION, "the template %s is the host's", m->name);
        err_detail(&e, "OF_HOST", "name", "the configuration lists it");
    } else {
        (void)convert_no_template(m->name, &e);
    }
    call_fail(c, &e);
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
    {0},
};
