// SPDX-License-Identifier: Apache-2.0
// What approvers and requesters do with an approval. See approval.h.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "approval_private.h"
#include "caveats.h"

#define ONCE_TTL_MS   (UINT64_C(10) * 60 * 1000)
#define LONGER_TTL_MS (UINT64_C(8) * 3600 * 1000)

// The approvers that it names; none: operators, and each principal of its own tenant with the right.
static bool
may_answer(const struct approval *a, const struct approval_vote *v, const char *name)
{
    struct err e;
    struct arena *auto_arena arena = arena_new(APPROVAL_ARENA);
    const Stockade__V1__Approval *m = arena != NULL ? approval_unpack(a, arena, &e) : NULL;
    if (m == NULL)
        return false;
    return m->n_approvers == 0 ? v->whose == NULL || strcmp(v->whose, a->tenant) == 0
                               : approval_names(a, name);
}

static int
check_approver(const struct approval *a, const struct approval_vote *v, struct err *e)
{
    char name[PRINCIPAL_NAME];
    principal_name(v->who, name);
    if (strcmp(name, a->requester) == 0) {
        int r =
            err_set(e, ERR_PERMISSION_DENIED, "%s is the requester of approval %s", name, a->id.id);
        err_detail(e, "APPROVAL_OWN", a->id.id, "another approver must answer it");
        return r;
    }
    if (!may_answer(a, v, name)) {
        int r = err_set(e, ERR_PERMISSION_DENIED, "%s is not an approver of %s", name, a->id.id);
        err_detail(e, "APPROVAL_NOT_APPROVER", a->id.id, "'stockade approvals show' lists them");
        return r;
    }
    if (v->digest == NULL || memcmp(v->digest, a->digest, APPROVAL_DIGEST) == 0)
        return 0;
    int r = err_set(e, ERR_FAILED_PRECONDITION, "approval %s is for another call", a->id.id);
    err_detail(e, "APPROVAL_MISMATCH", a->id.id, "look at it again");
    return r;
}

// A pattern that does not match the call of its own approval is a mistake of the caller.
static int
check_pattern(const struct approval *a, const char *pattern, struct err *e)
{
    struct arena *auto_arena arena = arena_new(APPROVAL_ARENA);
    const Stockade__V1__Approval *m = arena != NULL ? approval_unpack(a, arena, e) : NULL;
    if (m == NULL)
        return arena != NULL ? err_errno(e) : err_sys(e, ENOMEM, "answer an approval");
    return caveats_match(pattern, m->subject)
               ? 0
               : err_field(e, "grant.pattern",
                           "does not match the command line of this call: %.200s", m->subject);
}

static int
take_grant(struct approval_op *op, const struct approval *a, const Stockade__V1__ApprovalGrant *g,
           struct err *e)
{
    const bool pattern =
        g != NULL && g->reach == STOCKADE__V1__APPROVAL_REACH__APPROVAL_REACH_PATTERN;
    op->grant.reach = STOCKADE__V1__APPROVAL_REACH__APPROVAL_REACH_ONCE;
    op->grant.ttl_ms = ONCE_TTL_MS;
    if (g == NULL)
        return 0;
    if (g->reach > STOCKADE__V1__APPROVAL_REACH__APPROVAL_REACH_PATTERN)
        return err_field(e, "grant.reach", "there is no reach %d", (int)g->reach);
    if (pattern && !a->has_command)
        return err_field(e, "grant.reach", "a pattern needs a call with a command line");
    if (pattern == (g->pattern[0] == '\0'))
        return err_field(e, "grant.pattern", "belongs to the reach PATTERN, which needs it");
    if (pattern && check_pattern(a, g->pattern, e) < 0)
        return err_errno(e);
    if (g->reach > STOCKADE__V1__APPROVAL_REACH__APPROVAL_REACH_ONCE) {
        op->grant.reach = g->reach;
        op->grant.ttl_ms = LONGER_TTL_MS;
    }
    if (g->ttl_ms != 0)
        op->grant.ttl_ms = g->ttl_ms;
    (void)snprintf(op->grant.pattern, sizeof op->grant.pattern, "%s", g->pattern);
    return 0;
}

int
approvals_answer(struct approvals *all, const struct approval_vote *v, approval_done *done,
                 void *cookie, struct approval_op **op, struct err *e)
{
    struct approval *a =
        (struct approval *)(uintptr_t)approvals_find(all, v->who, v->whose, v->id, e);
    int r = a != NULL ? check_approver(a, v, e) : err_errno(e);
    if (r < 0 || a == NULL)
        return r;
    struct approval_op *one = approval_op_new(CHANGE_VOTE, v->who, done, cookie);
    if (one == NULL)
        return err_sys(e, ENOMEM, "answer an approval");
    one->agrees = v->agrees;
    (void)snprintf(one->comment, sizeof one->comment, "%s", v->comment);
    r = take_grant(one, a, v->grant, e);
    if (r == 0)
        return approval_begin(a, one, op, e);
    approval_op_free(one);
    return r;
}

int
approvals_cancel(struct approvals *all, const struct approval_vote *by, approval_done *done,
                 void *cookie, struct approval_op **op, struct err *e)
{
    char name[PRINCIPAL_NAME];
    struct approval *a =
        (struct approval *)(uintptr_t)approvals_find(all, by->who, by->whose, by->id, e);
    if (a == NULL)
        return err_errno(e);
    principal_name(by->who, name);
    if (by->whose != NULL && strcmp(name, a->requester) != 0) {
        int r = err_set(e, ERR_PERMISSION_DENIED, "%s is not the requester of approval %s", name,
                        by->id);
        err_detail(e, "APPROVAL_NOT_REQUESTER", by->id, "approvers deny it instead");
        return r;
    }
    struct approval_op *one = approval_op_new(CHANGE_CANCEL, by->who, done, cookie);
    return one != NULL ? approval_begin(a, one, op, e) : err_sys(e, ENOMEM, "withdraw an approval");
}
