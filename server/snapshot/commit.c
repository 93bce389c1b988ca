// SPDX-License-Identifier: Apache-2.0
// See transaction.h: transaction_commit().
//
//   seal the fork -> seal the sandbox -> graft the fork's layers, the lowest first -> [look for conflicts] -> seal the sandbox
//   again -> was it unchanged? restore the last grafted layer : graft again on what is there now
//
// Jobs may run in the sandbox while conflicts are looked for; the second seal sees what they wrote. Layers that were grafted in
// vain are dropped when nothing needs them (layers_prune()). Until RESTORE, a failure leaves both sandboxes with the files that they had.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/sandbox/sandbox.h"
#include "server/sandbox/template.h"
#include "snapshots_private.h"
#include "transaction_private.h"

enum { TRIES = 3, TEXT_PATHS = 4, TEXT_PATH = 72 };

struct commit {
    struct transaction *t;                 // held
    unsigned stop;                         // enum transaction_stop
    uint32_t chain[LAYERS_DEPTH], chain_n; // of the fork, the lowest first
    uint32_t top;                          // of the sandbox, which the grafted ones lie on
    uint32_t grafted, grafted_n;           // the highest so far, and their number
    unsigned tries;
    uint64_t began_ns;
    bool holds_inside, holds_outside; // `busy` of their layers
    struct sandbox_swap swap;
    transaction_done *done; // NULL: nobody waits
    void *cookie;
};

static struct sandbox *
outside(const struct commit *c, struct err *e)
{
    const struct transaction *t = c->t;
    struct sandbox *s = transaction_sandbox(t->all, t->tenant, t->sandbox);
    if (s == NULL)
        (void)err_set(e, ERR_ABORTED, "the sandbox was deleted meanwhile");
    return s;
}

// ---- the end

static void
let_go(const struct transaction *t, const char *id, bool holds)
{
    struct sandbox *s = transaction_sandbox(t->all, t->tenant, id);
    if (!holds || s == NULL || s->snapshots == NULL)
        return;
    s->snapshots->busy--;
    layers_prune(s, s->snapshots);
}

static void
end(struct commit *c, const struct err *failed)
{
    struct transaction *t = c->t;
    t->commit = NULL;
    let_go(t, t->id, c->holds_inside);
    let_go(t, t->sandbox, c->holds_outside);
    t->refused = (struct err){0};
    if (failed != NULL) {
        metrics_add(METRIC_TRANSACTIONS_REFUSED, 1);
        t->refused = *failed;
        (void)err_wrap(&t->refused, "commit transaction %s", t->id);
    } else {
        metrics_observe(METRIC_TRANSACTION_COMMIT, 0, uv_hrtime() - c->began_ns);
        transaction_end(t, TRANSACTION_COMMITTED, "its transaction was committed");
    }
    if (c->done != NULL)
        c->done(c->cookie, t, failed != NULL ? &t->refused : NULL);
    free(c);
    transaction_let_go(t);
}

// ---- conflicts

static size_t
say_path(const struct conflict_path *p, char out[TEXT_PATH])
{
    size_t at = 0;
    for (size_t i = 0; i < p->n; i++) {
        const uint8_t c = p->bytes[i];
        if (at + sizeof "..." + 4 > TEXT_PATH) {
            at += (size_t)snprintf(out + at, TEXT_PATH - at, "...");
            break;
        }
        at +=
            (size_t)snprintf(out + at, TEXT_PATH - at, c >= ' ' && c < 0x7f ? "%c" : "\\x%02x", c);
    }
    return at;
}

static void
say_conflicts(const struct transaction *t, struct err *e)
{
    char text[TEXT_PATHS * (TEXT_PATH + 2) + 1] = "";
    size_t at = 0;
    const uint32_t n = t->conflicts.n;
    for (uint32_t i = 0; i < n && i < TEXT_PATHS; i++) {
        char path[TEXT_PATH] = "";
        (void)say_path(&t->conflicts.path[i], path);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i > 0 ? ", " : "", path);
    }
    (void)err_set(e, ERR_ABORTED, "sandbox %s has changed since its begin, too: %s%s", t->sandbox,
                  text, n > TEXT_PATHS ? ", and others" : "");
    err_detail(e, "TRANSACTION_CONFLICT", "conflicts",
               "'stockade transaction diff' shows its changes; discard it, and begin again");
}

static void again(struct commit *c);

static void
on_conflicts(void *cookie, struct conflict_list *found, const struct err *failed)
{
    struct commit *c = cookie;
    struct err e;
    if (failed != NULL) {
        end(c, failed);
    } else if (found->n > 0) {
        metrics_add(METRIC_TRANSACTION_CONFLICTS, 1);
        c->t->conflicts = *found;
        found->n = 0; // they are the transaction's now
        say_conflicts(c->t, &e);
        end(c, &e);
    } else {
        again(c);
    }
}

static int
look_for_conflicts(struct commit *c, const struct sandbox *s, struct err *e)
{
    const struct transaction *t = c->t;
    struct conflicts *looking = NULL;
    if (s->spec.template->root_writable) {
        int r =
            err_set(e, ERR_FAILED_PRECONDITION,
                    "sandbox %s has changed since its begin, and its root is writable", t->sandbox);
        err_detail(e, "ROOT_WRITABLE", "sandbox",
                   "changes of /usr cannot be compared: discard it and begin again");
        return r;
    }
    const struct conflicts_want want = {.tenant = t->tenant,
                                        .inside = t->id,
                                        .outside = t->sandbox,
                                        .begin_inside = t->base_inside,
                                        .end_inside = c->chain[c->chain_n - 1],
                                        .begin_outside = t->base,
                                        .end_outside = c->top,
                                        .result = c->grafted};
    return conflicts_begin(t->all->srv, &want, on_conflicts, c, &looking, e);
}

// ---- the steps

static void
on_restored(void *cookie, struct sandbox *s, const struct err *failed)
{
    struct commit *c = cookie;
    if (failed == NULL)
        s->snapshots->top = c->swap.layer;
    end(c, failed);
}

static int graft_next(struct commit *c, struct err *e);

static int
show(struct commit *c, struct sandbox *s, struct err *e)
{
    list_init(&c->swap.waiter.node);
    c->swap.waiter.done = on_restored;
    c->swap.waiter.cookie = c;
    return sandbox_restore(s, c->grafted, &c->swap, e);
}

// What lies on top of the sandbox is sealed now, and no job has begun since.
static void
on_sealed_again(void *cookie, struct sandbox *s, const struct snapshot *p, const struct err *failed)
{
    struct commit *c = cookie;
    struct err e;
    int r = -EAGAIN;
    (void)p;
    if (failed != NULL || s == NULL) {
        (void)err_set(&e, ERR_ABORTED, "the sandbox was deleted meanwhile");
        end(c, failed != NULL ? failed : &e);
        return;
    }
    if (s->snapshots->top == c->top && c->grafted_n == c->chain_n)
        r = show(c, s, &e);
    else if (c->tries++ < TRIES) {
        c->top = c->grafted = s->snapshots->top;
        c->grafted_n = 0;
        r = graft_next(c, &e);
    } else
        r = err_set(&e, ERR_ABORTED, "the files of sandbox %s change all the time", s->id.id);
    if (r < 0)
        end(c, &e);
}

static void
seal_outside(struct commit *c)
{
    struct snapshot_op *sealing = NULL;
    struct err e;
    struct sandbox *s = outside(c, &e);
    if (s == NULL || snapshots_seal_for(s, c->chain_n - c->grafted_n + 1,
                                        (c->stop & TRANSACTION_STOP_OUTSIDE) != 0, on_sealed_again,
                                        c, &sealing, &e) < 0)
        end(c, &e);
}

static void
again(struct commit *c)
{
    seal_outside(c);
}

static void
on_grafted(void *cookie, struct sandbox *s, uint32_t layer, uint64_t copied,
           const struct err *failed)
{
    struct commit *c = cookie;
    struct err e;
    (void)copied;
    struct sandbox *from = transaction_inside(c->t, &e);
    if (failed != NULL || from == NULL) {
        end(c, failed != NULL ? failed : &e);
        return;
    }
    layers_grafted(s, from, c->chain[c->grafted_n++], layer, c->grafted);
    c->grafted = layer;
    int r = 0;
    if (c->grafted_n < c->chain_n)
        r = graft_next(c, &e);
    else if (c->top != c->t->base)
        r = look_for_conflicts(c, s, &e);
    else
        again(c);
    if (r < 0)
        end(c, &e);
}

static int
graft_next(struct commit *c, struct err *e)
{
    struct sandbox *to = outside(c, e);
    const struct sandbox *from = to == NULL ? NULL : transaction_inside(c->t, e);
    if (from == NULL)
        return err_errno(e);
    const struct layer *l = layer_of(from->snapshots, c->chain[c->grafted_n]);
    const struct sandbox_graft g = {.from = from,
                                    .layer = c->chain[c->grafted_n],
                                    .below = c->grafted,
                                    .bytes = l != NULL ? l->bytes : 0,
                                    .inodes = l != NULL ? l->inodes : 0,
                                    .copy_max = UINT64_MAX, // what fits on its disk
                                    .ms = JOIN_MS,
                                    .done = on_grafted,
                                    .cookie = c};
    return sandbox_graft(to, &g, e);
}

// The layers that were written since the begin.
static int
list_chain(struct commit *c, struct snapshots_box *b, struct err *e)
{
    uint32_t down[LAYERS_DEPTH], n = 0, at = b->top;
    const struct layer *l = NULL;
    while (at != c->t->base_inside && n < LAYERS_DEPTH && (l = layer_of(b, at)) != NULL) {
        down[n++] = at;
        at = l->below;
    }
    if (at != c->t->base_inside) {
        int r = err_set(e, ERR_FAILED_PRECONDITION,
                        "its files are those of a kept snapshot, which was restored in it");
        err_detail(e, "OTHER_FILES", "id", "discard it");
        return r;
    }
    while (n > 0)
        c->chain[c->chain_n++] = down[--n];
    return 0;
}

static void
on_inside_sealed(void *cookie, struct sandbox *s, const struct snapshot *p,
                 const struct err *failed)
{
    struct commit *c = cookie;
    struct err e;
    struct sandbox *to = outside(c, &e);
    (void)p;
    if (failed == NULL && s == NULL)
        (void)transaction_inside(c->t, &e);
    if (failed != NULL || s == NULL || to == NULL || list_chain(c, s->snapshots, &e) < 0) {
        end(c, failed != NULL ? failed : &e);
        return;
    }
    if (c->chain_n == 0) { // nothing was written
        end(c, NULL);
        return;
    }
    s->snapshots->busy++;
    to->snapshots->busy++;
    c->holds_inside = c->holds_outside = true;
    if (layers_share(s, c->chain[c->chain_n - 1], &e) < 0)
        end(c, &e);
    else
        seal_outside(c);
}

int
transaction_commit(struct transaction *t, unsigned stop, transaction_done *done, void *cookie,
                   struct err *e)
{
    struct snapshot_op *sealing = NULL;
    if (t->state != TRANSACTION_OPEN || t->commit != NULL) {
        int r = err_set(e, ERR_FAILED_PRECONDITION, "transaction %s %s", t->id,
                        t->commit != NULL                   ? "is being committed"
                        : t->state == TRANSACTION_COMMITTED ? "was committed"
                                                            : "was discarded");
        err_detail(e, "TRANSACTION_ENDED", "id", NULL);
        return r;
    }
    struct sandbox *s = transaction_inside(t, e);
    struct commit *c = s == NULL ? NULL : calloc(1, sizeof *c);
    if (c == NULL)
        return s == NULL ? err_errno(e) : err_sys(e, ENOMEM, "commit a transaction");
    *c = (struct commit){
        .t = t, .stop = stop, .began_ns = uv_hrtime(), .done = done, .cookie = cookie};
    conflict_list_clear(&t->conflicts);
    int r = snapshots_seal_for(s, LAYERS_DEPTH - JOIN_DEPTH, (stop & TRANSACTION_STOP_INSIDE) != 0,
                               on_inside_sealed, c, &sealing, e);
    if (r < 0) {
        free(c);
        metrics_add(METRIC_TRANSACTIONS_REFUSED, 1);
        (void)err_wrap(e, "commit transaction %s", t->id);
        t->refused = *e;
        return r;
    }
    t->commit = c;
    (void)transaction_hold(t);
    return 0;
}

void
transaction_unwait(struct transaction *t)
{
    if (t->commit != NULL)
        t->commit->done = NULL;
}
