// SPDX-License-Identifier: Apache-2.0
// Asks people about calls: what a policy decides with the verdict `ask` (server/access/policy.h), joined with approvals
// (server/access/approval.h).
//
//   question --> all approvals there? --yes--> each use is written --> the call goes on
//                  |                            '--> refused
//                  '--no--> one is made, or pending --> no "approval-wait": the call fails, with its id
//                                                   '--> waits for a change of it, and begins again
//
// What the policy says is copied, because a reload may free it while the call waits.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "approval_call.h"
#include "convert.h"
#include "server/access/access.h"
#include "server/access/policy.h"
#include "server/base/loop.h"
#include "server/base/server.h"

enum { WAIT_MAX_MS = 600000 };

struct gate {
    struct server *s;
    struct arena *arena; // owned
    struct principal who;
    struct approval_call call;
    struct approval_ask ask[POLICY_ASKS_MAX], *open; // the one in progress
    uint32_t asks_n, used;                           // approvals whose use is on the disk
    policy_answer *done;
    void *cookie;
    struct approval_op *op; // in progress; NULL: none
    bool makes;             // it makes an approval, and uses none
    // ---- waiting
    uint64_t until_ns;                          // 0: it does not wait
    char id[ID_TEXT_MAX + 1];                   // of the approval that it waits for
    char ids[POLICY_ASKS_MAX][ID_TEXT_MAX + 1]; // that it has waited for, for each question
    struct approval_watcher watcher;
    struct loop_timer *timer;
};

static void
gate_free(struct gate *g)
{
    if (g->op != NULL)
        approval_unwait(g->op);
    list_remove(&g->watcher.node);
    loop_timer_stop(&g->timer);
    arena_free(g->arena);
    free(g);
}

static void
finish(struct gate *g, const struct err *e)
{
    policy_answer *done = g->done;
    void *cookie = g->cookie;
    gate_free(g);
    done(cookie, e);
}

static int step(struct gate *g, struct err *e);

// The next step, when the function that asked has returned already.
static void
go_on(struct gate *g)
{
    struct err e;
    const int r = step(g, &e);
    if (r <= 0)
        finish(g, r < 0 ? &e : NULL);
}

// ---- waiting for a change

static void
on_wait_end(void *cookie)
{
    struct gate *g = cookie;
    g->until_ns = 0;
    list_remove(&g->watcher.node);
    go_on(g);
}

static void
on_changed(void *cookie, const struct approval *a)
{
    struct gate *g = cookie;
    struct err e;
    if (a == NULL) {
        (void)err_set(&e, ERR_UNAVAILABLE, "the broker is shutting down; approval %s stays", g->id);
        err_detail(&e, "DRAINING", g->id, "repeat the call when the broker was started again");
        finish(g, &e);
        return;
    }
    if (strcmp(a->id.id, g->id) != 0 ||
        a->state == STOCKADE__V1__APPROVAL_STATE__APPROVAL_STATE_PENDING)
        return;
    list_remove(&g->watcher.node);
    loop_timer_stop(&g->timer);
    go_on(g);
}

// 1: it waits, and from then on this approval alone counts. Otherwise the call fails with *e, which says what is pending.
static int
wait_for(struct gate *g, struct err *e)
{
    const uint64_t now = uv_hrtime();
    if (g->until_ns <= now || g->s->draining || strcmp(e->reason, "APPROVAL_PENDING") != 0)
        return err_errno(e);
    memcpy(g->id, e->subject, sizeof g->id - 1);
    char *own = g->ids[g->open - g->ask];
    memcpy(own, g->id, sizeof g->id);
    g->open->id = own;
    const uint64_t left_ms = (g->until_ns - now) / 1000000 + 1;
    if (loop_timer_start(g->s->loop, &g->timer, left_ms, on_wait_end, g) < 0)
        return err_sys(e, ENOMEM, "wait for an approval");
    approvals_watch(g->s->approvals, &g->watcher);
    return 1;
}

// ---- asking

static void
on_op(void *cookie, const struct approval *a, const struct err *why)
{
    struct gate *g = cookie;
    struct err e;
    (void)a;
    g->op = NULL;
    if (why == NULL) {
        g->used++;
        go_on(g);
        return;
    }
    e = *why;
    if (!g->makes || wait_for(g, &e) <= 0)
        finish(g, &e);
}

// Several questions: none is used before all can be.
static struct approval_ask *
first_open(struct gate *g)
{
    struct err none;
    for (uint32_t i = 0; g->asks_n > 1 && g->used == 0 && i < g->asks_n; i++)
        if (approvals_permit(g->s->approvals, &g->ask[i], &none) < 0)
            return &g->ask[i];
    return &g->ask[g->used];
}

// 0: all are approved; 1: it takes time; negative: refused.
static int
step(struct gate *g, struct err *e)
{
    if (g->used == g->asks_n)
        return 0;
    g->open = first_open(g);
    g->makes = approvals_permit(g->s->approvals, g->open, e) < 0;
    const int r = approvals_ask(g->s->approvals, g->open, on_op, g, &g->op, e);
    return r < 0 ? wait_for(g, e) : r;
}

// False: out of memory.
static bool
copy_ask(struct gate *g, const struct policy_asked *from, const char *id)
{
    const char **approvers = arena_alloc(g->arena, (from->ask->n_approvers + 1) * sizeof(void *));
    char *rule = arena_copy(g->arena, from->rule, strlen(from->rule));
    char *reason = arena_copy(g->arena, from->reason, strlen(from->reason));
    bool whole = approvers != NULL && rule != NULL && reason != NULL;
    for (size_t i = 0; whole && i < from->ask->n_approvers; i++) {
        const char *name = from->ask->approvers[i];
        approvers[i] = arena_copy(g->arena, name, strlen(name));
        whole = approvers[i] != NULL;
    }
    g->ask[g->asks_n++] = (struct approval_ask){
        .who = &g->who,
        .call = &g->call,
        .rule = rule,
        .reason = reason,
        .approvers_n = from->ask->n_approvers,
        .approvers = approvers,
        .needed = from->ask->need,
        .timeout_ms = from->timeout_ms,
        .id = id,
    };
    return whole;
}

// The metadata "approval" and "approval-wait".
static int
read_metadata(struct gate *g, const struct call *c, const char **id, struct err *e)
{
    const char *text = call_metadata(c, "approval-wait"), *named = call_metadata(c, "approval");
    if (named != NULL) {
        *id = arena_copy(g->arena, named, strlen(named));
        if (*id == NULL)
            return err_sys(e, ENOMEM, "ask for approval");
    }
    if (text == NULL)
        return 0;
    char *end = NULL;
    const unsigned long ms = strtoul(text, &end, 10);
    if (text[strspn(text, "0123456789")] != '\0' || end == text || ms > WAIT_MAX_MS)
        return err_field(e, "metadata.approval-wait", "must be 0 to %d milliseconds", WAIT_MAX_MS);
    g->until_ns = ms > 0 ? uv_hrtime() + (uint64_t)ms * 1000000 : 0;
    return 0;
}

static int
fill(struct gate *g, const struct policy_question *q, struct err *e)
{
    const struct policy_decision *d = q->decision;
    const char *id = NULL;
    g->who = *call_principal(q->call);
    int r = read_metadata(g, q->call, &id, e);
    if (r == 0)
        r = approval_call_read(q->method, q->request, g->arena, &g->call, e);
    for (uint32_t i = 0; r == 0 && i < d->asks_n; i++)
        if (!copy_ask(g, &d->ask[i], d->asks_n == 1 ? id : NULL)) // one id names one approval
            r = err_sys(e, ENOMEM, "ask for approval");
    return r;
}

static int
ask(void *asker, const struct policy_question *q, policy_answer *done, void *cookie, void **asked,
    struct err *e)
{
    struct gate *g = calloc(1, sizeof *g);
    if (g == NULL)
        return err_sys(e, ENOMEM, "ask for approval");
    g->s = asker;
    g->done = done;
    g->cookie = cookie;
    g->watcher.changed = on_changed;
    g->watcher.cookie = g;
    list_init(&g->watcher.node);
    g->arena = arena_new(CONVERT_ARENA_MAX);
    int r = g->arena != NULL ? fill(g, q, e) : err_sys(e, ENOMEM, "ask for approval");
    if (r == 0)
        r = step(g, e);
    if (r <= 0)
        gate_free(g);
    else
        *asked = g;
    return r;
}

static void
unask(void *asker, void *asked)
{
    (void)asker;
    gate_free(asked);
}

void
approval_gate_open(struct server *s)
{
    const struct policy_asker asker = {.cookie = s, .ask = ask, .unask = unask};
    access_set_asker(s->access, &asker);
}
