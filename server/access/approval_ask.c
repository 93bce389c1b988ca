// SPDX-License-Identifier: Apache-2.0
// Calls that need an approval: what there is for them, and what is made. See approval.h.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "approval_private.h"
#include "proto/auto.h"
#include "proto/container_of.h"
#include "proto/validate.h"
#include "server/state/state.h"

#define KEPT_MS   (INT64_C(30) * 24 * 3600 * 1000)
#define DENIED_MS (INT64_C(10) * 60 * 1000) // a denial also answers the same call without an id

// ---- making one

static bool
may_forget(const struct approval *a, int64_t now)
{
    return !approval_is_pending(a) && a->writing == NULL &&
           (!approval_is_approved(a) || a->valid_until_ms <= now);
}

static bool
forget(struct approval *a)
{
    struct err e;
    const struct state_value value[] = {STATE_OF_TEXT(a->id.id)};
    if (state_write(a->all->state, STATE_APPROVAL_FORGET, value, NULL, NULL, &e) < 0)
        return false;
    approval_count(a->all, a, -1);
    approval_drop(a);
    return true;
}

// Removes what ended long ago, and then the oldest of the tenant and of all that are too many.
static void
forget_old(struct approvals *all, const char *tenant)
{
    const int64_t now = access_now_ms(all->access);
    uint32_t own = 0;
    list_each(at, &all->made)
    {
        const struct approval *a = container_of(at, struct approval, node);
        own += strcmp(a->tenant, tenant) == 0;
    }
    list_each(at, &all->made)
    {
        struct approval *a = container_of(at, struct approval, node);
        const bool is_own = strcmp(a->tenant, tenant) == 0;
        const bool too_many =
            all->kept >= APPROVALS_KEPT_MAX || (is_own && own >= APPROVALS_KEPT_OF_TENANT);
        if (!may_forget(a, now) || (!too_many && a->ended_ms > now - KEPT_MS))
            continue;
        if (!forget(a))
            return;
        own -= is_own;
    }
}

// The bounds of a tenant come first: one tenant alone never reaches those of all.
static int
check_room(struct approvals *all, const char *tenant, struct err *e)
{
    uint32_t pending = 0, kept = 0;
    forget_old(all, tenant);
    list_each(at, &all->made)
    {
        const struct approval *a = container_of(at, struct approval, node);
        const bool own = strcmp(a->tenant, tenant) == 0;
        pending += own && (approval_is_pending(a) || !a->shown);
        kept += own;
    }
    const struct {
        uint32_t used, most;
        const char *rule, *what, *hint;
    } bounds[] = {
        {pending, APPROVALS_PENDING_OF_TENANT, "approvals.pending_of_tenant", "pending",
         "wait until some are answered, or withdraw some"},
        {kept, APPROVALS_KEPT_OF_TENANT, "approvals.kept_of_tenant", "pending or still valid",
         "withdraw some that are not needed any more: 'stockade approvals cancel'"},
        {all->pending, APPROVALS_PENDING_MAX, "approvals.pending", "pending, of all tenants",
         "try again when some were answered"},
        {all->kept, APPROVALS_KEPT_MAX, "approvals.kept", "pending or still valid, of all tenants",
         "try again when some have ended"},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        char allowed[64];
        if (bounds[i].used < bounds[i].most)
            continue;
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%u approvals are %s; at most %u may be",
                        bounds[i].used, bounds[i].what, bounds[i].most);
        (void)snprintf(allowed, sizeof allowed, "at most %u approvals", bounds[i].most);
        err_detail(e, "APPROVALS", tenant, bounds[i].hint);
        err_rule(e, bounds[i].rule, allowed);
        return r;
    }
    return 0;
}

static int
fill(struct approval *a, const struct approval_ask *ask, struct err *e)
{
    uint8_t bytes[ID_BYTES];
    char id[ID_TEXT_MAX + 1];
    struct arena *auto_arena arena = arena_new(APPROVAL_ARENA);
    id_make("", bytes, id);
    const Stockade__V1__Approval *m =
        arena != NULL ? approval_first(ask, id, access_now_ms(a->all->access), arena) : NULL;
    if (m == NULL || !approval_summarize(a, m))
        return err_sys(e, ENOMEM, "make an approval");
    if (validate_message(&m->base, e) < 0)
        return err_wrap(e, "make an approval");
    a->packed_n = stockade__v1__approval__get_packed_size(m);
    a->packed = malloc(a->packed_n);
    if (a->packed == NULL)
        return err_sys(e, ENOMEM, "make an approval");
    (void)stockade__v1__approval__pack(m, a->packed);
    a->has_command = ask->call->has_command;
    memcpy(a->around, ask->call->around, sizeof a->around);
    return 0;
}

static int
make(struct approvals *all, const struct approval_ask *ask, struct approval_op *op,
     struct approval_op **out, struct err *e)
{
    struct approval *a = op != NULL ? approval_new(all) : NULL;
    int r =
        a != NULL ? check_room(all, ask->who->tenant, e) : err_sys(e, ENOMEM, "make an approval");
    if (r == 0 && a != NULL)
        r = fill(a, ask, e);
    if (r < 0 || a == NULL) {
        if (a != NULL) {
            a->id.id[0] = '\0';
            approval_drop(a);
        }
        free(op);
        return r;
    }
    a->order = ++all->order;
    idtable_add(&all->ids, &a->id);
    list_append(&all->made, &a->node);
    r = approval_begin(a, op, out, e);
    if (r < 0)
        approval_drop(a);
    return r;
}

// ---- asking

static int
use(struct approval *a, approval_done *done, void *cookie, struct approval_op **op, struct err *e)
{
    struct approval_op *one = approval_op_new(CHANGE_USE, NULL, done, cookie);
    return one != NULL ? approval_begin(a, one, op, e) : err_sys(e, ENOMEM, "use an approval");
}

static bool
denies(const struct approval *a, int64_t now)
{
    return a->state == STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_DENIED &&
           a->ended_ms + DENIED_MS > now;
}

// The best that there is for this call: one that permits it, or else the newest that waits for answers, also if it is not on the disk yet,
// or was denied lately. *permits says which.
static struct approval *
look_up(const struct approvals *all, const struct approval_ask *ask, bool *permits)
{
    const int64_t now = access_now_ms(all->access);
    struct approval *found = NULL;
    *permits = false;
    for (struct list *at = all->made.prev; at != &all->made; at = at->prev) {
        struct approval *a = container_of(at, struct approval, node);
        struct err e;
        if (strcmp(a->tenant, ask->who->tenant) != 0 ||
            (!approval_is_pending(a) && !approval_is_approved(a) && !denies(a, now)) ||
            (approval_is_approved(a) && a->valid_until_ms <= now))
            continue;
        struct arena *auto_arena arena = arena_new(APPROVAL_ARENA);
        const Stockade__V1__Approval *m = arena != NULL ? approval_unpack(a, arena, &e) : NULL;
        if (m == NULL)
            continue;
        if (approval_is_approved(a) && approval_permits(a, m, ask, now, &e) == 0) {
            *permits = true;
            return a;
        }
        if (found == NULL && !approval_is_approved(a) && approval_is_for(a, m, ask))
            found = a;
    }
    return found;
}

int
approval_say(const struct approval *a, struct err *e)
{
    struct arena *auto_arena arena = arena_new(APPROVAL_ARENA);
    const Stockade__V1__Approval *m = arena != NULL ? approval_unpack(a, arena, e) : NULL;
    return m != NULL ? approval_refuse(a, m, e) : err_sys(e, ENOMEM, "read an approval");
}

// The caller has named one: only that counts. NULL: it does not exist, or does not permit the call.
static struct approval *
named(const struct approvals *all, const struct approval_ask *ask, struct err *e)
{
    struct arena *auto_arena arena = arena_new(APPROVAL_ARENA);
    struct approval *a = approval_by_id(all, ask->id);
    if (a == NULL || strcmp(a->tenant, ask->who->tenant) != 0) {
        (void)id_not_found("approval", "", ask->id, e);
        return NULL;
    }
    const Stockade__V1__Approval *m = arena != NULL ? approval_unpack(a, arena, e) : NULL;
    if (m == NULL) {
        (void)err_sys(e, ENOMEM, "read an approval");
        return NULL;
    }
    return approval_permits(a, m, ask, access_now_ms(all->access), e) == 0 ? a : NULL;
}

int
approvals_permit(const struct approvals *all, const struct approval_ask *ask, struct err *e)
{
    bool permits = false;
    if (ask->id != NULL)
        return named(all, ask, e) != NULL ? 0 : err_errno(e);
    (void)look_up(all, ask, &permits);
    return permits ? 0 : err_set(e, ERR_FAILED_PRECONDITION, "it needs an approval");
}

struct wish {
    bool asks; // see approval_op
    approval_done *done;
    void *cookie;
};

// being_made: one for the same call; NULL: there is none. Calls that come at the same time get one approval.
static int
make_or_join(struct approvals *all, const struct approval_ask *ask, struct approval *being_made,
             const struct wish *w, struct approval_op **out, struct err *e)
{
    struct approval_op *op =
        approval_op_new(being_made != NULL ? CHANGE_JOIN : CHANGE_MAKE, NULL, w->done, w->cookie);
    if (op == NULL)
        return err_sys(e, ENOMEM, "ask for approval");
    op->asks = w->asks;
    return being_made != NULL ? approval_begin(being_made, op, out, e) : make(all, ask, op, out, e);
}

int
approvals_ask(struct approvals *all, const struct approval_ask *ask, approval_done *done,
              void *cookie, struct approval_op **op, struct err *e)
{
    bool permits = false;
    struct approval *a = ask->id != NULL ? named(all, ask, e) : NULL;
    if (ask->id != NULL)
        return a != NULL ? use(a, done, cookie, op, e) : err_errno(e);
    a = look_up(all, ask, &permits);
    if (a != NULL && a->shown)
        return permits ? use(a, done, cookie, op, e) : approval_say(a, e);
    return make_or_join(all, ask, a, &(struct wish){true, done, cookie}, op, e);
}

int
approvals_make(struct approvals *all, const struct approval_ask *ask, approval_done *done,
               void *cookie, struct approval_op **op, const struct approval **found, struct err *e)
{
    bool permits = false;
    struct approval *a = look_up(all, ask, &permits);
    const bool pending = a != NULL && !permits && approval_is_pending(a);
    if (pending && a->shown) {
        *found = a;
        return 0;
    }
    return make_or_join(all, ask, pending ? a : NULL, &(struct wish){false, done, cookie}, op, e);
}
