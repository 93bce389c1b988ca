// SPDX-License-Identifier: Apache-2.0
// See simulate.h. The sandbox is found again by its id at each step, since it may end at any time: its owner can delete it, as it can any
// other. An operation that cannot be taken back (the seal of a fresh sandbox) holds what is left of the simulation until it ends.
#include "simulate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/sandbox/mounts.h"
#include "server/sandbox/pool.h"
#include "server/sandbox/sandbox.h"
#include "server/sandbox/simulation.h"
#include "compare.h"
#include "fork.h"
#include "snapshots_private.h"

enum { AGAIN_MS = 5 };
#define AGAIN_MOST_NS UINT64_C(10000000000)

struct simulate {
    struct server *srv;
    char id[ID_TEXT_MAX + 1], tenant[32]; // id "": there is no sandbox yet
    struct simulation *simulation;        // counted
    struct simulate_want want;
    void (*done)(void *cookie);
    // ---- of a fork, until it has begun
    char parent[ID_TEXT_MAX + 1];
    struct loop_timer *again;
    uint64_t until_ns;
    // ---- what is in progress
    bool begins; // fork_begin() or pool_acquire() has not returned
    struct fork_op *forking;
    struct pool_request *request;
    struct snapshot_op *sealing;
    struct compare *comparing;
    struct sandbox_waiter gone;
    bool forked;  // on_forked() was called
    bool dropped; // while it began
    // ----
    uint32_t base; // the layer of its begin
    uint8_t *changes;
    size_t changes_n;
    struct err unknown;
};

static struct sandbox *
find(const struct simulate *x)
{
    struct err ignored;
    return x->id[0] == '\0' ? NULL : sandbox_find(x->srv->sandboxes, x->tenant, x->id, &ignored);
}

static struct simulate *
simulate_new(struct server *s, const char *tenant, const struct simulate_want *want)
{
    struct simulate *x = calloc(1, sizeof *x);
    if (x == NULL)
        return NULL;
    *x = (struct simulate){
        .srv = s, .simulation = simulation_ref(want->simulation), .want = *want, .begins = true};
    list_init(&x->gone.node);
    (void)snprintf(x->tenant, sizeof x->tenant, "%s", tenant);
    metrics_add(METRIC_SIMULATIONS_BEGUN, 1);
    metrics_move(METRIC_SIMULATIONS, 0, 1);
    return x;
}

static void
simulate_free(struct simulate *x)
{
    metrics_move(METRIC_SIMULATIONS, 0, -1);
    simulation_unref(x->simulation);
    free(x->changes);
    free(x);
}

// ---- its end

static void
destroy(const struct simulate *x, const char *why, struct sandbox_waiter *w)
{
    struct err e;
    struct sandbox *s = find(x);
    (void)err_set(&e, ERR_CANCELLED, "%s", why);
    if (s != NULL)
        sandbox_destroy(s, &e, w);
}

void
simulate_drop(struct simulate *x)
{
    if (x == NULL)
        return;
    loop_timer_stop(&x->again);
    sandbox_unwait(&x->gone);
    compare_drop(x->comparing);
    if (x->sealing != NULL)
        snapshot_unwait(x->sealing);
    if (x->request != NULL)
        pool_cancel(x->request);
    if (x->forking != NULL)
        fork_cancel(x->forking);
    destroy(x, "nobody waits for its simulation", NULL);
    x->dropped = true;
    if (!x->begins)
        simulate_free(x);
}

static void
on_gone(void *cookie, struct sandbox *s, const struct err *e)
{
    struct simulate *x = cookie;
    (void)s;
    (void)e; // the spawner says what it could not remove, and the broker logs it
    x->done(x->want.cookie);
}

static void
leave(struct simulate *x)
{
    if (find(x) == NULL) {
        x->done(x->want.cookie);
        return;
    }
    x->gone = (struct sandbox_waiter){.done = on_gone, .cookie = x};
    destroy(x, "its simulation has ended", &x->gone);
}

static void
on_changes(void *cookie, const struct compare_page *page, const struct err *failed)
{
    struct simulate *x = cookie;
    x->comparing = NULL;
    if (failed != NULL) {
        x->unknown = *failed;
    } else if ((x->changes = malloc(page->n + 1)) == NULL) {
        (void)err_sys(&x->unknown, ENOMEM, "list the changes");
    } else {
        memcpy(x->changes, page->bytes, page->n);
        x->changes_n = page->n;
    }
    leave(x);
}

void
simulate_end(struct simulate *x, void (*done)(void *cookie))
{
    const struct compare_want want = {.from = x->base, .changes_max = SIMULATE_CHANGES};
    struct sandbox *s = find(x);
    x->done = done;
    if (s == NULL || s->state == SANDBOX_DELETING)
        (void)err_set(&x->unknown, ERR_ABORTED, "the sandbox of the simulation was deleted");
    else if (compare_begin(s, &want, on_changes, x, &x->comparing, &x->unknown) == 0)
        return;
    leave(x);
}

const uint8_t *
simulate_changes(const struct simulate *x, size_t *n, const struct err **unknown)
{
    *n = x->changes_n;
    *unknown = &x->unknown;
    return x->changes;
}

const struct simulation *
simulate_sent(const struct simulate *x)
{
    return x->simulation;
}

// ---- its begin

static void
ready(struct simulate *x, struct sandbox *s, const struct err *e)
{
    struct err none;
    if (e == NULL && (s == NULL || s->snapshots == NULL)) {
        (void)err_set(&none, ERR_ABORTED, "the sandbox of the simulation ended at once");
        e = &none;
    }
    if (e == NULL)
        x->base = s->snapshots->top;
    x->want.ready(x->want.cookie, e == NULL ? s : NULL, e);
}

// When the function that begins it returns. The one who waits may have dropped it in the callback.
static int
begun(struct simulate *x, int r, struct simulate **out)
{
    x->begins = false;
    if (r < 0)
        *out = NULL;
    if (r < 0 || x->dropped)
        simulate_free(x);
    return r;
}

static void
on_forked(void *cookie, const struct fork_result *r, const struct err *failed)
{
    struct simulate *x = cookie;
    struct sandbox *s = failed == NULL && r->n == 1 ? r->forks[0] : NULL;
    x->forking = NULL;
    x->forked = true;
    if (s != NULL)
        (void)snprintf(x->id, sizeof x->id, "%s", s->id.id);
    ready(x, s, failed);
}

static void on_again(void *cookie);

// Another operation has the files of the parent for some milliseconds: its layers change, or are being copied.
static bool
is_busy(const struct sandbox *s)
{
    return s->state == SANDBOX_SWAPPING || s->state == SANDBOX_COPYING;
}

static int
begin_fork(struct simulate *x, struct sandbox *parent, struct err *e)
{
    const struct fork_request q = {
        .snapshot = "", .count = 1, .how = {.copy = true}, .simulation = x->simulation};
    struct fork_op *op = NULL;
    if (is_busy(parent) && uv_hrtime() < x->until_ns)
        return loop_timer_start(x->srv->loop, &x->again, AGAIN_MS, on_again, x) == 0
                   ? 0
                   : err_sys(e, ENOMEM, "simulate a job");
    int r = fork_begin(parent, x->srv->pool, &q, on_forked, x, &op, e);
    x->forking = r == 0 && !x->forked ? op : NULL;
    return r < 0 ? err_wrap(e, "simulate a job") : 0;
}

static void
on_again(void *cookie)
{
    struct simulate *x = cookie;
    struct err e;
    struct sandbox *parent = sandbox_find(x->srv->sandboxes, x->tenant, x->parent, &e);
    loop_timer_stop(&x->again);
    x->begins = true;
    int r = parent == NULL ? -1 : begin_fork(x, parent, &e);
    if (r < 0)
        ready(x, NULL, &e);
    x->begins = false;
    if (x->dropped)
        simulate_free(x);
}

int
simulate_fork(struct sandbox *parent, const struct simulate_want *want, struct simulate **out,
              struct err *e)
{
    struct server *srv = sandboxes_server(parent->all);
    struct simulate *x = simulate_new(srv, parent->tenant->name, want);
    *out = x;
    if (x == NULL)
        return err_sys(e, ENOMEM, "simulate a job");
    (void)snprintf(x->parent, sizeof x->parent, "%s", parent->id.id);
    x->until_ns = uv_hrtime() + AGAIN_MOST_NS;
    return begun(x, begin_fork(x, parent, e), out);
}

static void
on_sealed(void *cookie, struct sandbox *s, const struct snapshot *p, const struct err *failed)
{
    struct simulate *x = cookie;
    (void)p;
    x->sealing = NULL;
    ready(x, s, failed);
}

// What its template brought, or its birth, is no change of the job.
static void
on_sandbox(void *cookie, struct sandbox *s, const struct err *failed)
{
    struct simulate *x = cookie;
    struct err e;
    x->request = NULL;
    if (failed != NULL) {
        ready(x, NULL, failed);
        return;
    }
    (void)snprintf(x->id, sizeof x->id, "%s", s->id.id);
    if (snapshots_seal(s, false, on_sealed, x, &x->sealing, &e) < 0)
        ready(x, NULL, &e);
}

int
simulate_fresh(struct server *s, const char *tenant, struct sandbox_spec *spec,
               const struct simulate_want *want, struct simulate **out, struct err *e)
{
    struct mounts *narrow = spec->mounts != NULL ? mounts_read_only(spec->mounts) : NULL;
    const bool whole = spec->mounts == NULL || narrow != NULL;
    struct simulate *x = whole ? simulate_new(s, tenant, want) : NULL;
    mounts_unref(spec->mounts);
    spec->mounts = narrow;
    spec->simulation = simulation_ref(want->simulation);
    *out = x;
    int r = x != NULL ? pool_acquire(s->pool, tenant, spec, on_sandbox, x, &x->request, e)
                      : err_sys(e, ENOMEM, "simulate a job");
    if (r < 0)
        sandbox_spec_clear(spec);
    return x != NULL ? begun(x, r, out) : r;
}
