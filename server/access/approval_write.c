// SPDX-License-Identifier: Apache-2.0
// How a change of an approval is made: compute the next version, write it, let it take effect. See approval.h.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "approval_private.h"
#include "proto/container_of.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/state/state.h"

enum { AGAIN_MS = 10 * 1000 }; // after the disk has failed
#define NS_PER_MS    UINT64_C(1000000)
#define TIMER_MAX_MS (INT64_C(24) * 3600 * 1000)

// Ends it when its time has come. The clock of approvals counts while the host sleeps, that of timers does not: approval_on_time() looks again.
void
approval_set_timer(struct approval *a, int64_t in_ms)
{
    const int64_t ms = in_ms < 0 ? 0 : in_ms > TIMER_MAX_MS ? TIMER_MAX_MS : in_ms;
    if (timers_set(a->all->timers, &a->timer, uv_hrtime() + (uint64_t)ms * NS_PER_MS) < 0)
        log_event(LOG_ERROR, "approvals", "out of memory: %s does not expire by itself", a->id.id);
}

void
approval_op_free(struct approval_op *op)
{
    free(op->next);
    free(op);
}

// NULL e: it is on the disk.
static void
finish(struct approval_op *op, const struct err *e)
{
    struct err pending;
    if (e == NULL && op->asks && op->done != NULL) {
        (void)approval_say(op->a, &pending);
        e = &pending;
    }
    if (op->done != NULL)
        op->done(op->cookie, e == NULL ? op->a : NULL, e);
    approval_op_free(op);
}

static void
take_effect(struct approval_op *op)
{
    struct approval *a = op->a;
    struct err e;
    struct arena *auto_arena arena = arena_new(APPROVAL_ARENA);
    free(a->packed);
    a->packed = op->next;
    a->packed_n = op->next_n;
    op->next = NULL;
    const bool was_shown = a->shown, was_pending = was_shown && approval_is_pending(a);
    if (was_shown)
        approval_count(a->all, a, -1);
    const Stockade__V1__Approval *m = arena != NULL ? approval_unpack(a, arena, &e) : NULL;
    if (m == NULL ||
        !approval_summarize(a, m)) { // without memory: it permits nothing until the next start
        a->state = STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_CANCELLED;
        log_event(LOG_ERROR, "approvals", "out of memory: %s is withdrawn", a->id.id);
    }
    a->shown = true;
    approval_count(a->all, a, 1);
    list_remove(&a->changed);
    list_append(&a->all->changed, &a->changed);
    if (approval_is_pending(a)) {
        approval_set_timer(a, a->expires_ms - access_now_ms(a->all->access));
        return;
    }
    timers_clear(a->all->timers, &a->timer);
    if (was_pending) {
        metrics_add_by(METRIC_APPROVALS_ANSWERED, (uint32_t)a->state, 0, 1);
        metrics_observe(METRIC_APPROVAL_WAIT, 0,
                        (uint64_t)(a->ended_ms - a->created_ms) * NS_PER_MS);
    }
}

static void run_next(struct approval *a);

static void
on_written(void *cookie, uint64_t rows, const struct err *e)
{
    struct approval_op *op = cookie;
    struct approval *a = op->a;
    (void)rows;
    if (e == NULL)
        take_effect(op);
    a->writing = NULL;
    if (e != NULL && op->kind == CHANGE_EXPIRE)
        approval_set_timer(a, AGAIN_MS);
    run_next(a);
    if (e == NULL)
        approval_notify(a->all, a);
    const bool failed = !a->shown;
    finish(op, e);
    if (failed)
        approval_drop(a);
}

static int
write_version(struct approval_op *op, Stockade__V1__Approval *m, struct err *e)
{
    const struct approval *a = op->a;
    struct approvals *all = a->all;
    m->revision = ++all->revision;
    op->next_n = stockade__v1__approval__get_packed_size(m);
    op->next = malloc(op->next_n);
    if (op->next == NULL)
        return err_sys(e, ENOMEM, "change an approval");
    (void)stockade__v1__approval__pack(m, op->next);
    const struct state_value value[] = {
        STATE_OF_TEXT(m->id),
        STATE_OF_NUMBER(a->order),
        STATE_OF_TEXT(m->tenant),
        STATE_OF_BYTES(a->around, a->has_command ? APPROVAL_DIGEST : 0),
        STATE_OF_BYTES(op->next, op->next_n),
    };
    return state_write(all->state, STATE_APPROVAL_PUT, value, on_written, op, e);
}

// 0: it is being written; 1: there is nothing to write.
static int
run(struct approval_op *op, struct err *e)
{
    if (op->kind == CHANGE_JOIN)
        return op->a->shown ? 1 : err_set(e, ERR_UNAVAILABLE, "the approval could not be written");
    struct arena *auto_arena arena = arena_new(APPROVAL_ARENA);
    if (arena == NULL)
        return err_sys(e, ENOMEM, "change an approval");
    Stockade__V1__Approval *m =
        (Stockade__V1__Approval *)(uintptr_t)approval_unpack(op->a, arena, e);
    if (m == NULL)
        return err_wrap(e, "change approval %s", op->a->id.id);
    int r = approval_change(op, access_now_ms(op->a->all->access), m, arena, e);
    return r == 0 ? write_version(op, m, e) : r;
}

static struct approval_op *
take_first(struct approval *a)
{
    struct approval_op *op = a->waiting;
    a->waiting = op->after;
    if (a->waiting == NULL)
        a->waiting_last = &a->waiting;
    return op;
}

// Begins the next change, unless a callback has begun one; those that are refused end here.
static void
run_next(struct approval *a)
{
    while (a->writing == NULL && a->waiting != NULL) {
        struct approval_op *op = take_first(a);
        struct err e;
        const int r = run(op, &e);
        if (r == 0)
            a->writing = op;
        else
            finish(op, r < 0 ? &e : NULL);
    }
}

// Takes ownership of op. 1: `done` follows.
int
approval_begin(struct approval *a, struct approval_op *op, struct approval_op **out, struct err *e)
{
    const bool now = a->writing == NULL && a->waiting == NULL;
    op->a = a;
    int r = now ? run(op, e) : 0;
    if (r < 0) {
        approval_op_free(op);
        return r;
    }
    if (now) {
        a->writing = op;
    } else {
        *a->waiting_last = op;
        a->waiting_last = &op->after;
    }
    if (out != NULL)
        *out = op;
    return 1;
}

struct approval_op *
approval_op_new(enum approval_kind kind, const struct principal *who, approval_done *done,
                void *cookie)
{
    struct approval_op *op = calloc(1, sizeof *op);
    if (op == NULL)
        return NULL;
    op->kind = kind;
    op->done = done;
    op->cookie = cookie;
    if (who != NULL)
        principal_name(who, op->who);
    return op;
}

void
approval_unwait(struct approval_op *op)
{
    op->done = NULL;
}

void
approval_on_time(struct timer *t)
{
    struct approval *a = container_of(t, struct approval, timer);
    struct err e;
    const int64_t left = a->expires_ms - access_now_ms(a->all->access);
    if (left > 0) {
        approval_set_timer(a, left);
        return;
    }
    struct approval_op *op = approval_op_new(CHANGE_EXPIRE, NULL, NULL, NULL);
    if (op == NULL || approval_begin(a, op, NULL, &e) < 0)
        approval_set_timer(a, AGAIN_MS);
}
