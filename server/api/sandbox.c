// SPDX-License-Identifier: Apache-2.0
// stockade.v1.SandboxService: translation between its messages and server/sandbox/sandbox.h, pool.h.
#include "api.h"

#include <inttypes.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/quantity.h"
#include "server/config/config.h"
#include "server/sandbox/pool.h"
#include "server/sandbox/sandbox.h"
#include "server/snapshot/kept.h"
#include "server/base/server.h"
#include "server/sleep/sleepers.h"
#include "convert.h"
#include "page.h"
#include "fork.h"
#include "forward.h"
#include "sleep.h"

// A call that waits: for a sandbox (Create) or for a change of state (Delete, Pause, Resume, Update).
struct pending {
    struct server *s;
    struct call *call;
    struct pool_request *request;
    struct sandbox_waiter waiter;
    const ProtobufCMessageDescriptor *answer;
    const Stockade__V1__SandboxServiceUpdateRequest *update; // Update: borrowed from the call
    char snapshot[ID_TEXT_MAX + 1]; // Create: the id of a kept one; "": none
    struct kept_op *kept;           // its files are on their way into the sandbox
    char sandbox[ID_TEXT_MAX + 1];
};

// Create, Get, Update, Pause and Resume respond with a message of one field: the sandbox.
static void
reply_sandbox(struct call *c, const ProtobufCMessageDescriptor *answer, const struct sandbox *s)
{
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    Stockade__V1__Sandbox *m = a != NULL ? convert_sandbox(a, s) : NULL;
    if (m == NULL) {
        convert_no_memory(c);
        return;
    }
    Stockade__V1__SandboxServiceGetResponse response;
    _Static_assert(sizeof response == sizeof(Stockade__V1__SandboxServiceCreateResponse) &&
                       sizeof response == sizeof(Stockade__V1__SandboxServicePauseResponse) &&
                       sizeof response == sizeof(Stockade__V1__SandboxServiceResumeResponse) &&
                       sizeof response == sizeof(Stockade__V1__SandboxServiceUpdateResponse),
                   "they are filled in the same way");
    answer->message_init((ProtobufCMessage *)&response);
    response.sandbox = m;
    call_reply(c, &response.base);
}

// Create: a sandbox without the files that it was to begin with.
static void
remove_created(struct server *s, const char *tenant, const char *id)
{
    struct err why;
    struct sandbox *sb = sandbox_find(s->sandboxes, tenant, id, &why);
    (void)err_set(&why, ERR_CANCELLED, "it is of a request that failed");
    if (sb != NULL)
        sandbox_destroy(sb, &why, NULL);
}

static void
abandon(struct pending *p)
{
    kept_unwait(p->kept);
    remove_created(p->s, call_tenant(p->call), p->sandbox);
}

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct pending *p = cookie;
    (void)why;
    if (p->kept != NULL)
        abandon(p);
    else if (p->request != NULL)
        pool_cancel(p->request);
    else
        sandbox_unwait(&p->waiter);
    free(p);
}

static struct pending *
pending_new(struct server *s, struct call *c, const ProtobufCMessageDescriptor *answer)
{
    struct pending *p = calloc(1, sizeof *p);
    if (p == NULL) {
        convert_no_memory(c);
        return NULL;
    }
    *p = (struct pending){.s = s, .call = c, .answer = answer};
    list_init(&p->waiter.node);
    p->waiter.cookie = p;
    return p;
}

static void
pending_fail(struct pending *p, const struct err *e)
{
    call_fail(p->call, e);
    free(p);
}

static void
on_changed(void *cookie, struct sandbox *s, const struct err *e)
{
    struct pending *p = cookie;
    if (e != NULL)
        call_fail(p->call, e);
    else
        reply_sandbox(p->call, p->answer, s);
    free(p);
}

static void
on_laid(void *cookie, struct sandbox *s, const struct err *e)
{
    struct pending *p = cookie;
    if (e != NULL)
        remove_created(p->s, call_tenant(p->call), p->sandbox);
    else
        sandbox_rest_soon(s);
    on_changed(p, s, e);
}

// The files of a kept snapshot, before the caller knows the sandbox.
static void
lay(struct pending *p, struct sandbox *s)
{
    struct err e;
    struct stored *r = kept_find(p->s, call_tenant(p->call), p->snapshot, &e);
    (void)snprintf(p->sandbox, sizeof p->sandbox, "%s", s->id.id);
    if (r != NULL && kept_lay(s, r, false, on_laid, p, &p->kept, &e) == 0)
        return;
    remove_created(p->s, call_tenant(p->call), p->sandbox);
    on_changed(p, NULL, &e);
}

static void
on_created(void *cookie, struct sandbox *s, const struct err *e)
{
    struct pending *p = cookie;
    if (s != NULL && p->snapshot[0] != '\0') {
        lay(p, s);
        return;
    }
    if (s != NULL)
        sandbox_rest_soon(s);
    on_changed(cookie, s, e);
}

static int
check_ttl(const struct server *s, uint64_t ttl_ms, struct err *e)
{
    uint64_t most = s->config->ttl_max_ms;
    if (ttl_ms <= most)
        return 0;
    char asked[32], bound[32];
    int r = err_field(e, "ttl_ms", "%s requested, at most %s allowed",
                      quantity_show("ttl_ms", ttl_ms, asked, sizeof asked),
                      quantity_show("ttl_ms", most, bound, sizeof bound));
    err_detail(e, "LIMIT_ABOVE_MAXIMUM", NULL,
               "request less, or raise ttl.max in the broker's configuration and reload it");
    char allowed[64];
    (void)snprintf(allowed, sizeof allowed, "a ttl of up to %s", bound);
    err_rule(e, "ttl.max", allowed);
    return r;
}

// The kept snapshot that a request names, if it names one (*r NULL otherwise), and the template.
static int
read_snapshot(const struct server *s, const char *tenant,
              const Stockade__V1__SandboxServiceCreateRequest *m, const struct stored **r,
              const char **template, struct err *e)
{
    *r = NULL;
    *template = m->template_;
    if (m->snapshot[0] == '\0')
        return 0;
    *r = kept_find(s, tenant, m->snapshot, e);
    if (*r == NULL) {
        err_detail(e, NULL, "snapshot", NULL);
        return err_errno(e);
    }
    if (m->template_[0] == '\0')
        *template = (*r)->template;
    if (strcmp(*template, (*r)->template) == 0)
        return 0;
    int rc = err_set(e, ERR_FAILED_PRECONDITION, "snapshot %s comes from a sandbox of template %s",
                     m->snapshot, (*r)->template);
    err_detail(e, "OTHER_TEMPLATE", "snapshot", "leave the template out");
    return rc;
}

static int
read_create(struct server *s, const char *tenant,
            const Stockade__V1__SandboxServiceCreateRequest *m, const char *template,
            struct sandbox_spec *spec, struct err *e)
{
    int r = convert_spec(s, tenant, template, m->limits, m->network, spec, e);
    (void)snprintf(spec->name, sizeof spec->name, "%s", m->name);
    spec->ttl_ms = m->ttl_ms != 0 ? m->ttl_ms : s->config->ttl_default_ms;
    if (r == 0)
        spec->sleep_after_ms =
            m->sleep_after_ms != 0 ? m->sleep_after_ms : spec->template->sleep_after_ms;
    if (r == 0)
        r = check_ttl(s, spec->ttl_ms, e);
    if (r == 0)
        r = convert_mounts(s, tenant, m->n_volumes, m->volumes, spec, e);
    if (r == 0)
        r = convert_labels_begin(spec, m->n_metadata, e);
    for (size_t i = 0; r == 0 && i < m->n_metadata; i++)
        convert_label(spec, m->metadata[i]->key, m->metadata[i]->value);
    if (r < 0)
        sandbox_spec_clear(spec);
    return r;
}

static void
create(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SandboxServiceCreateRequest *m =
        (const Stockade__V1__SandboxServiceCreateRequest *)req;
    struct err e;
    struct sandbox_spec spec = {0};
    const struct stored *r = NULL;
    const char *template = NULL;
    if (read_snapshot(s, call_tenant(c), m, &r, &template, &e) < 0 ||
        read_create(s, call_tenant(c), m, template, &spec, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    struct pending *p =
        pending_new(s, c, &stockade__v1__sandbox_service_create_response__descriptor);
    if (p == NULL) {
        sandbox_spec_clear(&spec);
        return;
    }
    if (r != NULL)
        (void)snprintf(p->snapshot, sizeof p->snapshot, "%s", r->id);
    call_watch(c, on_cancel, NULL, p);
    if (pool_acquire(s->pool, call_tenant(c), &spec, on_created, p, &p->request, &e) < 0) {
        sandbox_spec_clear(&spec);
        pending_fail(p, &e);
    }
}

static void
get(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SandboxServiceGetRequest *m =
        (const Stockade__V1__SandboxServiceGetRequest *)req;
    struct err e;
    if (sleep_reply(s, c, m->id, &stockade__v1__sandbox_service_get_response__descriptor))
        return;
    struct sandbox *sb = sandbox_find(s->sandboxes, call_tenant(c), m->id, &e);
    if (sb == NULL)
        call_fail(c, &e);
    else
        reply_sandbox(c, &stockade__v1__sandbox_service_get_response__descriptor, sb);
}

static bool
has_labels(const struct sandbox *sb, const Stockade__V1__SandboxServiceListRequest *m)
{
    for (size_t i = 0; i < m->n_metadata; i++) {
        bool found = false;
        for (uint32_t k = 0; k < sb->spec.labels_n && !found; k++)
            found = strcmp(sb->spec.labels[k].key, m->metadata[i]->key) == 0 &&
                    strcmp(sb->spec.labels[k].value, m->metadata[i]->value) == 0;
        if (!found)
            return false;
    }
    return true;
}

static bool
message_has_labels(const Stockade__V1__Sandbox *sb,
                   const Stockade__V1__SandboxServiceListRequest *m)
{
    for (size_t i = 0; i < m->n_metadata; i++) {
        bool found = false;
        for (size_t k = 0; k < sb->n_metadata && !found; k++)
            found = strcmp(sb->metadata[k]->key, m->metadata[i]->key) == 0 &&
                    strcmp(sb->metadata[k]->value, m->metadata[i]->value) == 0;
        if (!found)
            return false;
    }
    return true;
}

// Those that are asleep, up to this order. False: the page ends here.
static bool
list_sleepers(const struct server *s, struct page *p, const char *tenant, uint64_t before,
              const Stockade__V1__SandboxServiceListRequest *m)
{
    const struct sleeper *sl = NULL;
    while ((sl = sleepers_next(s->sleepers, tenant, p->last)) != NULL && sl->order < before) {
        if (!page_has_room(p))
            return false;
        Stockade__V1__Sandbox *sb = sleeper_message(p->arena, sl);
        if (sb != NULL && !message_has_labels(sb, m))
            p->last = sl->order;
        else if (!page_add(p, sl->order, sb))
            return false;
    }
    return true;
}

static void
list(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SandboxServiceListRequest *m =
        (const Stockade__V1__SandboxServiceListRequest *)req;
    Stockade__V1__SandboxServiceListResponse response =
        STOCKADE__V1__SANDBOX_SERVICE_LIST_RESPONSE__INIT;
    struct page auto_page p = {0};
    if (!page_open(&p, c, m->page_size, m->page_token))
        return;
    bool more = true;
    list_each(it, sandboxes_owned(s->sandboxes))
    {
        const struct sandbox *sb = list_entry(it, struct sandbox, node);
        if (!more || sb->order <= p.last || strcmp(sb->tenant->name, call_tenant(c)) != 0 ||
            !has_labels(sb, m) || sleepers_find(s->sleepers, call_tenant(c), sb->id.id) != NULL)
            continue;
        more = list_sleepers(s, &p, call_tenant(c), sb->order, m) && page_has_room(&p) &&
               page_add(&p, sb->order, convert_sandbox(p.arena, sb));
    }
    if (more)
        (void)list_sleepers(s, &p, call_tenant(c), UINT64_MAX, m);
    response.sandboxes = p.elements;
    response.n_sandboxes = p.n;
    response.next_page_token = p.token;
    page_reply(&p, c, &response.base);
}

// Sets or removes the labels of an update.
static int
change_labels(struct sandbox_spec *spec, const Stockade__V1__SandboxServiceUpdateRequest *m,
              bool go, struct err *e)
{
    int r = 0;
    for (size_t i = 0; i < m->n_metadata && r == 0; i++)
        if ((m->metadata[i]->value[0] == '\0') == go)
            r = sandbox_set_label(spec, m->metadata[i]->key, m->metadata[i]->value, e);
    return r;
}

// Makes a copy (*owned*) of the spec with the labels of an update, so that a refused update changes nothing. Labels
// are removed first, because a map has no order.
static int
read_labels(const struct sandbox *sb, const Stockade__V1__SandboxServiceUpdateRequest *m,
            struct sandbox_spec *out, struct err *e)
{
    *out = sb->spec;
    int r = sandbox_copy_labels(out, m->n_metadata, e);
    if (r < 0)
        return r;
    r = change_labels(out, m, true, e);
    if (r == 0)
        r = change_labels(out, m, false, e);
    if (r < 0)
        free(out->labels);
    return r;
}

// Applies an update, except for the network.
static int
apply_update(struct sandbox *sb, const Stockade__V1__SandboxServiceUpdateRequest *m, struct err *e)
{
    struct sandbox_spec spec;
    int r = read_labels(sb, m, &spec, e);
    if (r < 0)
        return r;
    sandbox_take_labels(sb, &spec);
    if (m->ttl_ms != 0)
        sandbox_set_ttl(sb, m->ttl_ms);
    return 0;
}

static void
finish_update(struct call *c, struct sandbox *sb,
              const Stockade__V1__SandboxServiceUpdateRequest *m)
{
    struct err e;
    if (apply_update(sb, m, &e) < 0)
        call_fail(c, &e);
    else
        reply_sandbox(c, &stockade__v1__sandbox_service_update_response__descriptor, sb);
}

static void
on_network(void *cookie, struct sandbox *s, const struct err *e)
{
    struct pending *p = cookie;
    if (e != NULL)
        call_fail(p->call, e);
    else
        finish_update(p->call, s, p->update);
    free(p);
}

static int
check_update(const struct server *s, const struct sandbox *sb,
             const Stockade__V1__SandboxServiceUpdateRequest *m, struct err *e)
{
    if (sb->state == SANDBOX_DELETING)
        return err_set(e, ERR_FAILED_PRECONDITION, "sandbox %s is being deleted", sb->id.id);
    int r = check_ttl(s, m->ttl_ms, e);
    if (r < 0)
        return r;
    struct sandbox_spec spec; // only to check that the labels fit
    r = read_labels(sb, m, &spec, e);
    if (r == 0)
        free(spec.labels);
    return r;
}

// Changes the network first, because that may wait and may fail; the rest of a checked update does neither.
static void
update_network(struct server *s, struct call *c, struct sandbox *sb,
               const Stockade__V1__SandboxServiceUpdateRequest *m)
{
    struct network *n = NULL;
    struct err e;
    struct pending *p = pending_new(s, c, NULL);
    if (p == NULL)
        return;
    p->update = m;
    p->waiter.done = on_network;
    call_watch(c, on_cancel, NULL, p);
    int r = convert_network(s, sb->spec.template, m->network, &n, &e);
    if (r == 0)
        r = sandbox_network(sb, n, &p->waiter, &e);
    network_unref(n);
    if (r < 0) {
        pending_fail(p, &e);
    } else if (r > 0) {
        finish_update(c, sb, m);
        free(p);
    }
}

static void
update(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SandboxServiceUpdateRequest *m =
        (const Stockade__V1__SandboxServiceUpdateRequest *)req;
    struct err e;
    struct sandbox *sb = sandbox_find(s->sandboxes, call_tenant(c), m->id, &e);
    if (sb == NULL || check_update(s, sb, m, &e) < 0)
        call_fail(c, &e);
    else if (m->network != NULL)
        update_network(s, c, sb, m);
    else
        finish_update(c, sb, m);
}

static void
on_deleted(void *cookie, struct sandbox *s, const struct err *e)
{
    struct pending *p = cookie;
    Stockade__V1__SandboxServiceDeleteResponse response =
        STOCKADE__V1__SANDBOX_SERVICE_DELETE_RESPONSE__INIT;
    (void)s;
    if (e != NULL)
        call_fail(p->call, e);
    else
        call_reply(p->call, &response.base);
    free(p);
}

static void
delete_box(struct server *s, struct call *c, const char *id)
{
    struct err e;
    struct sandbox *sb = sandbox_find(s->sandboxes, call_tenant(c), id, &e);
    if (sb == NULL) {
        call_fail(c, &e);
        return;
    }
    struct pending *p = pending_new(s, c, NULL);
    if (p == NULL)
        return;
    p->waiter.done = on_deleted;
    call_watch(c, on_cancel, NULL, p);
    (void)err_set(&e, ERR_CANCELLED, "its sandbox was deleted");
    sandbox_destroy(sb, &e, &p->waiter);
}

static void delete (struct server *s, struct call *c, const ProtobufCMessage *req)
{
    sleep_delete(s, c, ((const Stockade__V1__SandboxServiceDeleteRequest *)req)->id, delete_box);
}

// Pause and Resume differ only in direction; both requests are an id.
static void
change(struct server *s, struct call *c, const char *id, const ProtobufCMessageDescriptor *answer,
       int (*begin)(struct sandbox *, struct sandbox_waiter *, struct err *))
{
    struct err e;
    struct sandbox *sb = sandbox_find(s->sandboxes, call_tenant(c), id, &e);
    if (sb == NULL) {
        call_fail(c, &e);
        return;
    }
    struct pending *p = pending_new(s, c, answer);
    if (p == NULL)
        return;
    p->waiter.done = on_changed;
    call_watch(c, on_cancel, NULL, p);
    if (begin(sb, &p->waiter, &e) < 0)
        pending_fail(p, &e);
}

static void
pause_it(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    change(s, c, ((const Stockade__V1__SandboxServicePauseRequest *)req)->id,
           &stockade__v1__sandbox_service_pause_response__descriptor, sandbox_pause);
}

static void
resume_it(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    change(s, c, ((const Stockade__V1__SandboxServiceResumeRequest *)req)->id,
           &stockade__v1__sandbox_service_resume_response__descriptor, sandbox_resume);
}

#define METHOD(name, message, handler)                                                             \
    {                                                                                              \
        "/stockade.v1.SandboxService/" name,                                                       \
            &stockade__v1__sandbox_service_##message##_request__descriptor,                        \
            &stockade__v1__sandbox_service_##message##_response__descriptor, handler               \
    }

const struct call_method sandbox_methods[] = {
    METHOD("Create", create, create),
    METHOD("Get", get, get),
    METHOD("List", list, list),
    METHOD("Update", update, update),
    METHOD("Delete", delete, delete),
    METHOD("Pause", pause, pause_it),
    METHOD("Resume", resume, resume_it),
    METHOD("Sleep", sleep, sandbox_sleep),
    METHOD("Wake", wake, sandbox_wake),
    METHOD("Fork", fork, sandbox_fork),
    METHOD("Forward", forward, sandbox_forward),
    METHOD("ForwardInput", forward_input, sandbox_forward_input),
    METHOD("ForwardClose", forward_close, sandbox_forward_close),
    {0},
};
