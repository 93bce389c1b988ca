// SPDX-License-Identifier: Apache-2.0
// See transaction.h. An observer must not change a sandbox, so the end of a sandbox with transactions ends them from a timer.
#include "transaction_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/container_of.h"
#include "proto/now.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/sandbox/observers.h"
#include "server/sandbox/pool.h"
#include "server/sandbox/sandbox.h"
#include "fork.h"
#include "snapshots_private.h"

struct transaction_begin {
    struct transactions *all;
    struct transaction *t;
    uint64_t ttl_ms;
    struct fork_op *forking;
    bool sealing, forked;   // forked: done was called before fork_begin() returned
    transaction_done *done; // NULL: nobody waits
    void *cookie;
};

struct sandbox *
transaction_sandbox(const struct transactions *all, const char *tenant, const char *id)
{
    struct err ignored;
    struct sandbox *s =
        id[0] == '\0' ? NULL : sandbox_find(all->srv->sandboxes, tenant, id, &ignored);
    return s == NULL || s->state == SANDBOX_DELETING ? NULL : s;
}

// ---- which there are

struct transaction *
transaction_hold(struct transaction *t)
{
    t->refs++;
    return t;
}

void
transaction_let_go(struct transaction *t)
{
    if (t == NULL || --t->refs > 0)
        return;
    transaction_unsettle(t);
    conflict_list_clear(&t->conflicts);
    free(t->changes);
    free(t);
}

// It is found by nobody any more.
static void
forget(struct transaction *t)
{
    list_remove(&t->node);
    transaction_let_go(t);
}

struct list *
transactions_list(struct transactions *all)
{
    return &all->list;
}

uint32_t
transactions_open(const struct transactions *all, const struct sandbox *s)
{
    uint32_t n = 0;
    for (struct list *it = all == NULL ? NULL : all->list.next; all != NULL && it != &all->list;
         it = it->next) {
        const struct transaction *t = list_entry(it, struct transaction, node);
        n += t->state == TRANSACTION_OPEN &&
             (strcmp(t->id, s->id.id) == 0 || strcmp(t->sandbox, s->id.id) == 0);
    }
    return n;
}

struct transaction *
transaction_find(const struct transactions *all, const char *tenant, const char *id, struct err *e)
{
    for (struct list *it = all->list.next; it != &all->list; it = it->next) {
        struct transaction *t = list_entry(it, struct transaction, node);
        if (strcmp(t->id, id) == 0 && strcmp(t->tenant, tenant) == 0)
            return t;
    }
    (void)err_set(e, ERR_NOT_FOUND, "there is no transaction %s", id);
    err_detail(e, "TRANSACTION_UNKNOWN", "id", "'stockade transaction ls' lists them");
    return NULL;
}

struct sandbox *
transaction_inside(const struct transaction *t, struct err *e)
{
    struct sandbox *s = transaction_sandbox(t->all, t->tenant, t->id);
    if (s == NULL)
        (void)err_set(e, ERR_ABORTED, "transaction %s has ended", t->id);
    return s;
}

static void
forget_oldest_ended(struct transactions *all, const struct transaction *like)
{
    struct transaction *oldest = NULL;
    uint32_t n = 0;
    list_each(it, &all->list)
    {
        struct transaction *t = list_entry(it, struct transaction, node);
        if (t->state == TRANSACTION_OPEN || strcmp(t->sandbox, like->sandbox) != 0)
            continue;
        oldest = oldest == NULL ? t : oldest;
        n++;
    }
    if (n > TRANSACTIONS_ENDED)
        forget(oldest);
}

// ---- the end of one

static void
unpin(const struct transaction *t)
{
    struct sandbox *s = transaction_sandbox(t->all, t->tenant, t->sandbox);
    struct layer *l = s == NULL || s->snapshots == NULL ? NULL : layer_of(s->snapshots, t->base);
    if (l == NULL || l->pins == 0)
        return;
    l->pins--;
    layers_prune(s, s->snapshots);
}

// Sets its state. A transaction counts as open from the moment when a caller can find it.
static void
end_count(struct transaction *t, enum transaction_state state)
{
    t->state = state;
    if (!t->counted)
        return;
    t->counted = false;
    metrics_move(METRIC_TRANSACTIONS, 0, -1);
    if (state == TRANSACTION_DISCARDED)
        metrics_add(METRIC_TRANSACTIONS_DISCARDED, 1);
}

static void
end_fork(const struct transaction *t, const char *why)
{
    struct err e;
    struct sandbox *s = transaction_sandbox(t->all, t->tenant, t->id);
    (void)err_set(&e, ERR_CANCELLED, "%s", why);
    if (s != NULL)
        sandbox_destroy(s, &e, NULL);
}

void
transaction_end(struct transaction *t, enum transaction_state state, const char *why)
{
    end_count(t, state);
    unpin(t);
    end_fork(t, why);
    forget_oldest_ended(t->all, t);
}

int
transaction_discard(struct transaction *t, struct err *e)
{
    if (t->state == TRANSACTION_DISCARDED)
        return 0;
    if (t->commit != NULL || t->state == TRANSACTION_COMMITTED) {
        int r = err_set(e, ERR_FAILED_PRECONDITION, "transaction %s %s committed", t->id,
                        t->commit != NULL ? "is being" : "was");
        err_detail(e, "TRANSACTION_COMMITTED", "id", "snapshots can roll a sandbox back");
        return r;
    }
    transaction_end(t, TRANSACTION_DISCARDED, "its transaction was discarded");
    return 0;
}

// ---- with the sandboxes

static void
on_timer(void *cookie)
{
    struct transactions *all = cookie;
    struct list *next = NULL;
    loop_timer_stop(&all->timer);
    for (struct list *it = all->list.next; it != &all->list; it = next) {
        struct transaction *t = list_entry(it, struct transaction, node);
        next = it->next;
        if (t->fork_gone && !t->orphaned)
            unpin(t);
        t->fork_gone = false;
        if (!t->orphaned)
            continue;
        end_fork(t, "the sandbox of its transaction has ended");
        forget(t);
    }
}

// A sandbox has gone: the transactions of its files go, or, if it is a fork, its transaction is discarded.
static void
on_gone(void *cookie, struct sandbox *s)
{
    struct transactions *all = cookie;
    bool any = false;
    list_each(it, &all->list)
    {
        struct transaction *t = list_entry(it, struct transaction, node);
        const bool inside = strcmp(t->id, s->id.id) == 0;
        if (!inside && strcmp(t->sandbox, s->id.id) != 0)
            continue;
        t->orphaned |= !inside;
        t->fork_gone |= inside && t->state == TRANSACTION_OPEN;
        if (t->state == TRANSACTION_OPEN)
            end_count(t, TRANSACTION_DISCARDED);
        any = true;
    }
    if (any)
        (void)loop_timer_start(all->srv->loop, &all->timer, 0, on_timer, all);
}

struct transactions *
transactions_new(struct server *srv)
{
    struct transactions *all = calloc(1, sizeof *all);
    if (all == NULL)
        return NULL;
    all->srv = srv;
    list_init(&all->list);
    const struct observer o = {.gone = on_gone, .cookie = all};
    (void)observers_add(sandboxes_observers(srv->sandboxes), &o);
    return all;
}

void
transactions_free(struct transactions *all)
{
    if (all == NULL)
        return;
    loop_timer_stop(&all->timer);
    list_each(it, &all->list) forget(list_entry(it, struct transaction, node));
    free(all);
}

// ---- begin

static void
begin_end(struct transaction_begin *b, const struct err *e)
{
    struct transaction *t = b->t;
    if (e == NULL && b->done != NULL) {
        t->order = ++b->all->order;
        t->created_ms = now_wall_ms();
        list_append(&b->all->list, &t->node);
        metrics_add(METRIC_TRANSACTIONS_BEGUN, 1);
        metrics_move(METRIC_TRANSACTIONS, 0, 1);
        t->counted = true;
        b->done(b->cookie, t, NULL);
    } else {
        if (t->base != 0)
            transaction_end(t, TRANSACTION_DISCARDED, "nobody waits for its transaction");
        if (b->done != NULL)
            b->done(b->cookie, NULL, e);
        transaction_let_go(t);
    }
    if (b->forking == NULL && !b->sealing)
        b->forked = true; // fork_begin() has not returned
    else
        free(b);
}

static void
on_forked(void *cookie, const struct fork_result *r, const struct err *failed)
{
    struct sandbox *const *forks = r->forks;
    struct transaction_begin *b = cookie;
    struct transaction *t = b->t;
    struct err e;
    if (failed != NULL) {
        e = *failed;
    } else if (r->n != 1 || forks[0]->snapshots == NULL) {
        (void)err_set(&e, ERR_ABORTED, "the fork ended at once");
    } else {
        (void)snprintf(t->id, sizeof t->id, "%s", forks[0]->id.id);
        t->base_inside = forks[0]->snapshots->top;
        if (layer_of(forks[0]->snapshots, t->base_inside) != NULL)
            layer_of(forks[0]->snapshots, t->base_inside)->pins++; // as long as the fork is there
        if (snapshots_name(forks[0], TRANSACTION_SNAPSHOT, t->base_inside) != NULL) {
            begin_end(b, NULL);
            return;
        }
        (void)err_sys(&e, ENOMEM, "begin a transaction");
    }
    begin_end(b, &e);
}

static void
on_sealed(void *cookie, struct sandbox *s, const struct snapshot *p, const struct err *failed)
{
    struct transaction_begin *b = cookie;
    struct transaction *t = b->t;
    struct err e;
    (void)p;
    if (failed != NULL || s == NULL || b->done == NULL) {
        (void)err_set(&e, ERR_CANCELLED, "nobody waits for it");
        begin_end(b, failed != NULL ? failed : &e);
        return;
    }
    t->base = s->snapshots->top;
    layer_of(s->snapshots, t->base)->pins++;
    const struct fork_request q = {
        .snapshot = "", .layer = t->base, .count = 1, .ttl_ms = b->ttl_ms};
    struct fork_op *forking = NULL; // not b->forking, which begin_end() reads
    b->sealing = false;
    int r = fork_begin(s, b->all->srv->pool, &q, on_forked, b, &forking, &e);
    if (b->forked) {
        free(b);
    } else if (r < 0) {
        b->sealing = true;
        begin_end(b, &e);
    } else {
        b->forking = forking;
    }
}

int
transaction_begin(struct transactions *all, struct sandbox *s, const struct transaction_want *want,
                  transaction_done *done, void *cookie, struct transaction_begin **out,
                  struct err *e)
{
    struct snapshot_op *sealing = NULL;
    struct transaction_begin *b = calloc(1, sizeof *b);
    struct transaction *t = calloc(1, sizeof *t);
    if (b == NULL || t == NULL) {
        free(b);
        free(t);
        return err_sys(e, ENOMEM, "begin a transaction");
    }
    *t = (struct transaction){
        .all = all, .refs = 1, .policy = want->policy, .state = TRANSACTION_OPEN};
    list_init(&t->node);
    (void)snprintf(t->sandbox, sizeof t->sandbox, "%s", s->id.id);
    (void)snprintf(t->tenant, sizeof t->tenant, "%s", s->tenant->name);
    *b = (struct transaction_begin){.all = all,
                                    .t = t,
                                    .ttl_ms = want->ttl_ms,
                                    .sealing = true,
                                    .done = done,
                                    .cookie = cookie};
    *out = b;
    int r = snapshots_seal(s, want->stop, on_sealed, b, &sealing, e);
    if (r == 0)
        return 0;
    (void)err_wrap(e, "begin a transaction");
    *out = NULL;
    transaction_let_go(t);
    free(b);
    return r;
}

void
transaction_begin_cancel(struct transaction_begin *b)
{
    b->done = NULL;
    if (b->sealing)
        return; // it ends when the files are sealed
    fork_cancel(b->forking);
    transaction_end(b->t, TRANSACTION_DISCARDED, "nobody waits for its transaction");
    transaction_let_go(b->t);
    free(b);
}
