// SPDX-License-Identifier: Apache-2.0
// stockade.v1.ApprovalService: translation between its messages and server/access/approval.h.
#include "server/access/approval.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "approval_call.h"
#include "convert.h"
#include "page.h"
#include "pending.h"
#include "proto/validate.h"
#include "server/base/server.h"
#include "server/base/stopping.h"

static void
unwait(void *op)
{
    approval_unwait(op);
}

// A request has variables and input, which may be secrets: they are for its tenant, and for who answers. Accounts that only read what
// belongs to all tenants see the rest.
static bool
may_see_request(const struct call *c, const struct approval *a)
{
    const struct principal *who = call_principal(c);
    return principal_has(who, SCOPE_APPROVAL_ANSWER) || approval_is_visible(a, who, who->tenant);
}

// All responses but that of List have one field.
static void
reply(struct call *c, const ProtobufCMessageDescriptor *answer, const struct approval *a)
{
    Stockade__V1__ApprovalServiceGetResponse response;
    _Static_assert(sizeof response == sizeof(Stockade__V1__ApprovalServiceCreateResponse) &&
                       sizeof response == sizeof(Stockade__V1__ApproveResponse) &&
                       sizeof response == sizeof(Stockade__V1__DenyResponse) &&
                       sizeof response == sizeof(Stockade__V1__ApprovalServiceCancelResponse),
                   "they are filled in the same way");
    struct arena *auto_arena arena = arena_new(CONVERT_ARENA_MAX);
    answer->message_init((ProtobufCMessage *)&response);
    response.approval = arena != NULL ? approval_message(a, may_see_request(c, a), arena) : NULL;
    if (response.approval == NULL)
        convert_no_memory(c);
    else
        call_reply(c, &response.base);
}

static void
on_done(void *cookie, const struct approval *a, const struct err *e)
{
    struct pending *p = cookie;
    if (e == NULL)
        reply(p->call, p->answer, a);
    pending_end(p, e);
}

// ---- Create

static int
read_call(struct server *s, const Stockade__V1__ApprovalServiceCreateRequest *m, struct arena *a,
          struct approval_call *out, struct err *e)
{
    char path[128];
    ProtobufCMessage *request = NULL;
    (void)snprintf(path, sizeof path, "/stockade.v1.%s", m->method);
    const ProtobufCMessageDescriptor *type = dispatch_input(s->dispatch, path);
    if (type == NULL)
        return err_field(e, "method", "there is no method %s", m->method);
    int r = wire_unpack(type, m->request.data, m->request.len, a, &request, e);
    if (r == 0)
        r = validate_message(request, e);
    return r == 0 ? approval_call_read(m->method, request, a, out, e) : err_wrap(e, "request");
}

static void
create(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ApprovalServiceCreateRequest *m =
        (const Stockade__V1__ApprovalServiceCreateRequest *)req;
    struct arena *auto_arena arena = arena_new(CONVERT_ARENA_MAX);
    const struct approval *found = NULL;
    struct approval_op *op = NULL;
    struct approval_call call;
    struct err e;
    const struct approval_ask ask = {
        .who = call_principal(c),
        .call = &call,
        .reason = m->reason,
        .approvers_n = m->n_approvers,
        .approvers = m->approvers,
        .needed = m->needed,
        .timeout_ms = m->timeout_ms,
    };
    if (arena == NULL) {
        convert_no_memory(c);
        return;
    }
    if (read_call(s, m, arena, &call, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    struct pending *p =
        pending_new(s, c, &stockade__v1__approval_service_create_response__descriptor, unwait);
    if (p == NULL)
        return;
    int r = approvals_make(s->approvals, &ask, on_done, p, &op, &found, &e);
    if (r != 0) {
        pending_begun(p, r, op, &e);
        return;
    }
    reply(c, p->answer, found);
    free(p);
}

// ---- Get, List

static void
get(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const char *id = ((const Stockade__V1__ApprovalServiceGetRequest *)req)->id;
    struct err e;
    const struct approval *a =
        approvals_find(s->approvals, call_principal(c), call_whose(c), id, &e);
    if (a == NULL)
        call_fail(c, &e);
    else
        reply(c, &stockade__v1__approval_service_get_response__descriptor, a);
}

// tenant: of the request.
static bool
is_wanted(const struct call *c, const struct approval *a, const char *tenant)
{
    const bool one = tenant[0] != '\0' && strcmp(tenant, "*") != 0;
    return one ? strcmp(a->tenant, tenant) == 0
               : approval_is_visible(a, call_principal(c), call_whose(c));
}

static void
list(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ApprovalServiceListRequest *m =
        (const Stockade__V1__ApprovalServiceListRequest *)req;
    Stockade__V1__ApprovalServiceListResponse response =
        STOCKADE__V1__APPROVAL_SERVICE_LIST_RESPONSE__INIT;
    struct page auto_page p = {0};
    struct err e;
    int r = m->state > STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_CANCELLED
                ? err_field(&e, "state", "there is no state %d", (int)m->state)
                : page_begin(&p, m->page_size, m->page_token, &e);
    if (r < 0) {
        call_fail(c, &e);
        return;
    }
    for (const struct approval *a = approvals_next(s->approvals, NULL); a != NULL;
         a = approvals_next(s->approvals, a)) {
        if (a->order <= p.last || (m->state != 0 && m->state != a->state) ||
            !is_wanted(c, a, m->tenant))
            continue;
        if (!page_has_room(&p) || !page_add(&p, a->order, approval_message(a, false, p.arena)))
            break;
    }
    response.approvals = p.elements;
    response.n_approvals = p.n;
    response.next_page_token = p.token;
    page_reply(&p, c, &response.base);
}

// ---- Approve, Deny, Cancel

static void
answer(struct server *s, struct call *c, const struct approval_vote *vote,
       const ProtobufCMessageDescriptor *response)
{
    struct approval_op *op = NULL;
    struct err e;
    struct pending *p = pending_new(s, c, response, unwait);
    if (p != NULL) {
        const int r = approvals_answer(s->approvals, vote, on_done, p, &op, &e);
        pending_begun(p, r, op, &e);
    }
}

static void
approve(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ApproveRequest *m = (const Stockade__V1__ApproveRequest *)req;
    const struct approval_vote vote = {
        .who = call_principal(c),
        .whose = call_whose(c),
        .id = m->id,
        .agrees = true,
        .grant = m->grant,
        .comment = m->comment,
        .digest = m->digest.len == APPROVAL_DIGEST ? m->digest.data : NULL,
    };
    struct err e;
    if (m->digest.len != 0 && m->digest.len != APPROVAL_DIGEST) {
        (void)err_field(&e, "digest", "must have %d bytes", APPROVAL_DIGEST);
        call_fail(c, &e);
        return;
    }
    answer(s, c, &vote, &stockade__v1__approve_response__descriptor);
}

static void
deny(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__DenyRequest *m = (const Stockade__V1__DenyRequest *)req;
    const struct approval_vote vote = {
        .who = call_principal(c), .whose = call_whose(c), .id = m->id, .comment = m->comment};
    answer(s, c, &vote, &stockade__v1__deny_response__descriptor);
}

static void
cancel(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const struct approval_vote by = {
        .who = call_principal(c),
        .whose = call_whose(c),
        .id = ((const Stockade__V1__ApprovalServiceCancelRequest *)req)->id,
    };
    struct approval_op *op = NULL;
    struct err e;
    struct pending *p =
        pending_new(s, c, &stockade__v1__approval_service_cancel_response__descriptor, unwait);
    if (p == NULL)
        return;
    const int r = approvals_cancel(s->approvals, &by, on_done, p, &op, &e);
    pending_begun(p, r, op, &e);
}

// ---- Watch

struct watching {
    struct server *s;
    struct call *call;
    const Stockade__V1__ApprovalServiceWatchRequest *request;
    struct approval_watcher watcher;
    uint64_t last;  // the watch has handled all revisions up to this one
    uint64_t start; // up to this one only pending approvals are sent
};

static void
watching_free(struct watching *w)
{
    list_remove(&w->watcher.node);
    free(w);
}

static bool
is_pending(const struct approval *a)
{
    return a->state == STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_PENDING;
}

static bool
is_followed(const struct watching *w, const struct approval *a)
{
    const Stockade__V1__ApprovalServiceWatchRequest *m = w->request;
    if (m->id[0] != '\0')
        return strcmp(a->id.id, m->id) == 0;
    return (a->revision > w->start || is_pending(a)) && is_wanted(w->call, a, m->tenant);
}

static int
send_one(const struct watching *w, const struct approval *a)
{
    Stockade__V1__ApprovalServiceWatchResponse response =
        STOCKADE__V1__APPROVAL_SERVICE_WATCH_RESPONSE__INIT;
    struct arena *auto_arena arena = arena_new(CONVERT_ARENA_MAX);
    response.approval = arena != NULL ? approval_message(a, false, arena) : NULL;
    return response.approval != NULL ? call_send(w->call, &response.base) : -ENOMEM;
}

// Sends what has changed, as far as the caller reads. Frees the watch if its approval has ended.
static void
pump(struct watching *w)
{
    const struct approval *a = approvals_changed_after(w->s->approvals, w->last);
    for (; a != NULL; a = approvals_next_changed(w->s->approvals, a)) {
        int r = is_followed(w, a) ? send_one(w, a) : 0;
        if (r == -EAGAIN)
            return;
        if (r < 0) {
            convert_no_memory(w->call);
            watching_free(w);
            return;
        }
        w->last = a->revision;
        if (w->request->id[0] != '\0' && strcmp(a->id.id, w->request->id) == 0 && !is_pending(a)) {
            call_end(w->call);
            watching_free(w);
            return;
        }
    }
}

static void
on_writable(void *cookie)
{
    pump(cookie);
}

static void
on_changed(void *cookie, const struct approval *a)
{
    struct watching *w = cookie;
    struct err e;
    if (a != NULL) {
        pump(w);
        return;
    }
    (void)stopping_say(&e, ERR_UNAVAILABLE);
    call_fail(w->call, &e);
    watching_free(w);
}

static void
on_cancel(void *cookie, enum call_cancel why)
{
    (void)why;
    watching_free(cookie);
}

static void
watch(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ApprovalServiceWatchRequest *m =
        (const Stockade__V1__ApprovalServiceWatchRequest *)req;
    const uint64_t newest = approvals_revision(s->approvals);
    const struct approval *one = NULL;
    struct err e;
    if (m->id[0] != '\0') {
        one = approvals_find(s->approvals, call_principal(c), call_whose(c), m->id, &e);
        if (one == NULL) {
            call_fail(c, &e);
            return;
        }
    }
    if (s->draining) {
        (void)stopping_say(&e, ERR_UNAVAILABLE);
        call_fail(c, &e);
        return;
    }
    struct watching *w = calloc(1, sizeof *w);
    if (w == NULL) {
        convert_no_memory(c);
        return;
    }
    const bool resumes = m->after_revision > 0 && m->after_revision <= newest && one == NULL;
    *w = (struct watching){.s = s, .call = c, .request = m};
    w->last = resumes ? m->after_revision : one != NULL ? one->revision - 1 : 0;
    w->start = resumes ? 0 : newest;
    w->watcher.changed = on_changed;
    w->watcher.cookie = w;
    approvals_watch(s->approvals, &w->watcher);
    call_watch(c, on_cancel, on_writable, w);
    call_only_watches(c);
    pump(w);
}

#define OWN(name, message, handler)                                                                \
    {                                                                                              \
        "/stockade.v1.ApprovalService/" name,                                                      \
            &stockade__v1__approval_service_##message##_request__descriptor,                       \
            &stockade__v1__approval_service_##message##_response__descriptor, handler              \
    }

const struct call_method approval_methods[] = {
    OWN("Create", create, create),
    OWN("Get", get, get),
    OWN("List", list, list),
    {"/stockade.v1.ApprovalService/Approve", &stockade__v1__approve_request__descriptor,
     &stockade__v1__approve_response__descriptor, approve},
    {"/stockade.v1.ApprovalService/Deny", &stockade__v1__deny_request__descriptor,
     &stockade__v1__deny_response__descriptor, deny},
    OWN("Cancel", cancel, cancel),
    OWN("Watch", watch, watch),
    {0},
};
