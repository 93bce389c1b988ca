// SPDX-License-Identifier: Apache-2.0
// The changes of an approval: what a vote, a withdrawal, a use and the end of its time make of it.
//
//                 enough votes                 use: counted
//   PENDING ----------------------> APPROVED ---------------.
//      |  one refuses: DENIED          ^--------------------'
//      |  time: EXPIRED                | withdrawn
//      '- withdrawn: CANCELLED <-------'
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "approval_private.h"
#include "proto/wire.h"

#define MINUTE_MS (UINT64_C(60) * 1000)
#define HOUR_MS   (60 * MINUTE_MS)

static const uint64_t usual_timeout_ms = 10 * MINUTE_MS;

static Google__Protobuf__Timestamp *
make_time(struct arena *arena, int64_t ms)
{
    return wire_make_time(arena, ms / 1000, (int32_t)(ms % 1000) * 1000000);
}

int64_t
approval_time_ms(const Google__Protobuf__Timestamp *t)
{
    return t != NULL ? t->seconds * 1000 + t->nanos / 1000000 : 0;
}

static int
no_memory(struct err *e)
{
    return err_sys(e, ENOMEM, "change an approval");
}

static int
ended(const Stockade__V1__Approval *m, struct err *e)
{
    int r = err_set(e, ERR_FAILED_PRECONDITION, "approval %s is not pending any more", m->id);
    err_detail(e, "APPROVAL_ENDED", m->id, "'stockade approvals show' shows how it ended");
    return r;
}

static int
end(Stockade__V1__Approval *m, Stockade__V1__ApprovalState state, int64_t now_ms,
    struct arena *arena, struct err *e)
{
    m->state = state;
    m->end_time = make_time(arena, now_ms);
    if (state != STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_APPROVED)
        m->request = (ProtobufCBinaryData){0}; // nobody needs to read it any more
    return m->end_time != NULL ? 0 : no_memory(e);
}

// The narrowest grant so far: the smaller reach, the shorter time, and of two patterns both must match, so they must be the same.
static int
narrow(Stockade__V1__ApprovalGrant *have, const struct approval_op *op, bool first,
       struct arena *arena, struct err *e)
{
    if (first || op->grant.reach < have->reach) {
        have->reach = op->grant.reach;
        have->pattern = arena_copy(arena, op->grant.pattern, strlen(op->grant.pattern));
        if (have->pattern == NULL)
            return no_memory(e);
    } else if (op->grant.reach == have->reach && strcmp(have->pattern, op->grant.pattern) != 0) {
        return err_field(e, "grant.pattern", "an approver before has agreed to another one: %.200s",
                         have->pattern);
    }
    if (first || op->grant.ttl_ms < have->ttl_ms)
        have->ttl_ms = op->grant.ttl_ms;
    return 0;
}

static int
add_vote(const struct approval_op *op, int64_t now_ms, Stockade__V1__Approval *m,
         struct arena *arena, struct err *e)
{
    Stockade__V1__ApprovalVote *v = wire_make(arena, &stockade__v1__approval_vote__descriptor);
    Stockade__V1__ApprovalVote **all = arena_alloc(arena, (m->n_votes + 1) * sizeof(void *));
    if (v == NULL || all == NULL)
        return no_memory(e);
    v->approver = op->who;
    v->comment = op->comment;
    v->agreed = op->agrees;
    v->time = make_time(arena, now_ms);
    for (size_t i = 0; i < m->n_votes; i++)
        all[i] = m->votes[i];
    all[m->n_votes++] = v;
    m->votes = all;
    return v->time != NULL ? 0 : no_memory(e);
}

static int
approve(const struct approval_op *op, int64_t now_ms, Stockade__V1__Approval *m,
        struct arena *arena, struct err *e)
{
    uint32_t agreed = 0;
    const bool first = m->grant == NULL;
    if (first)
        m->grant = wire_make(arena, &stockade__v1__approval_grant__descriptor);
    if (m->grant == NULL)
        return no_memory(e);
    int r = narrow(m->grant, op, first, arena, e);
    if (r < 0)
        return r;
    for (size_t i = 0; i < m->n_votes; i++)
        agreed += m->votes[i]->agreed ? 1 : 0;
    if (agreed < m->needed)
        return 0;
    m->valid_until = make_time(arena, now_ms + (int64_t)m->grant->ttl_ms);
    if (m->valid_until == NULL)
        return no_memory(e);
    return end(m, STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_APPROVED, now_ms, arena, e);
}

static int
vote(const struct approval_op *op, int64_t now_ms, Stockade__V1__Approval *m, struct arena *arena,
     struct err *e)
{
    if (m->state != STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_PENDING ||
        approval_time_ms(m->expire_time) <= now_ms)
        return ended(m, e);
    for (size_t i = 0; i < m->n_votes; i++)
        if (op->agrees && strcmp(m->votes[i]->approver, op->who) == 0) {
            int r = err_set(e, ERR_ALREADY_EXISTS, "%s has answered approval %s before", op->who,
                            m->id);
            err_detail(e, "APPROVAL_ANSWERED", m->id, "another approver is needed");
            return r;
        }
    int r = add_vote(op, now_ms, m, arena, e);
    if (r < 0)
        return r;
    return op->agrees
               ? approve(op, now_ms, m, arena, e)
               : end(m, STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_DENIED, now_ms, arena, e);
}

static int
cancel(const struct approval_op *op, int64_t now_ms, Stockade__V1__Approval *m, struct arena *arena,
       struct err *e)
{
    (void)op;
    const bool permits = m->state == STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_APPROVED &&
                         approval_time_ms(m->valid_until) > now_ms;
    if (m->state != STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_PENDING && !permits)
        return ended(m, e);
    return end(m, STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_CANCELLED, now_ms, arena, e);
}

static int
expire(const struct approval_op *op, int64_t now_ms, Stockade__V1__Approval *m, struct arena *arena,
       struct err *e)
{
    (void)op;
    if (m->state != STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_PENDING)
        return ended(m, e);
    return end(m, STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_EXPIRED, now_ms, arena, e);
}

// What approval_permits() has found may have changed while other changes were written.
static int
use(const struct approval_op *op, int64_t now_ms, Stockade__V1__Approval *m, struct arena *arena,
    struct err *e)
{
    (void)arena;
    const bool once =
        m->grant != NULL && m->grant->reach <= STOCKADE__V1__APPROVAL_REACH__APPROVAL_REACH_ONCE;
    if (m->state != STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_APPROVED ||
        approval_time_ms(m->valid_until) <= now_ms)
        return approval_refuse(op->a, m, e);
    if (m->uses >= (once ? 1 : APPROVAL_USES_MAX)) {
        int r = err_set(e, ERR_PERMISSION_DENIED, "approval %s was used already", m->id);
        err_detail(e, "APPROVAL_USED", m->id, "repeat the call without its id to ask again");
        return r;
    }
    m->uses++;
    return 0;
}

int
approval_change(const struct approval_op *op, int64_t now_ms, Stockade__V1__Approval *m,
                struct arena *arena, struct err *e)
{
    static int (*const changes[])(const struct approval_op *op, int64_t now_ms,
                                  Stockade__V1__Approval *m, struct arena *arena, struct err *e) = {
        [CHANGE_VOTE] = vote,
        [CHANGE_CANCEL] = cancel,
        [CHANGE_EXPIRE] = expire,
        [CHANGE_USE] = use,
    };
    return op->kind == CHANGE_MAKE ? 0 : changes[op->kind](op, now_ms, m, arena, e);
}

Stockade__V1__Approval *
approval_first(const struct approval_ask *ask, const char *id, int64_t now_ms, struct arena *arena)
{
    const uint64_t timeout_ms = ask->timeout_ms != 0 ? ask->timeout_ms : usual_timeout_ms;
    const struct approval_call *call = ask->call;
    Stockade__V1__Approval *m = wire_make(arena, &stockade__v1__approval__descriptor);
    char *requester = arena_alloc(arena, PRINCIPAL_NAME);
    if (m == NULL || requester == NULL)
        return NULL;
    principal_name(ask->who, requester);
    m->id = id;
    m->tenant = ask->who->tenant;
    m->requester = requester;
    m->method = call->method;
    m->subject = call->subject;
    m->request_bytes = call->request_n;
    if (call->request != NULL)
        m->request = (ProtobufCBinaryData){call->request_n, (uint8_t *)(uintptr_t)call->request};
    m->digest = (ProtobufCBinaryData){APPROVAL_DIGEST, (uint8_t *)(uintptr_t)call->digest};
    m->rule = ask->rule != NULL ? ask->rule : "";
    m->reason = ask->reason != NULL ? ask->reason : "";
    m->n_approvers = ask->approvers_n;
    m->approvers = (const char **)(uintptr_t)ask->approvers;
    m->needed = ask->needed != 0 ? ask->needed : 1;
    m->state = STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_PENDING;
    m->create_time = make_time(arena, now_ms);
    m->expire_time = make_time(arena, now_ms + (int64_t)timeout_ms);
    return m->create_time != NULL && m->expire_time != NULL ? m : NULL;
}
