// SPDX-License-Identifier: Apache-2.0
// See fork.h. The parent may end at any time: it is found again by its id, and its layers stay as long as `busy` is set. The
// operation ends when each of its children has got its files or has failed; nothing is freed before.
#include "fork.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/container_of.h"
#include "server/base/server.h"
#include "server/policy/network.h"
#include "server/sandbox/image.h"
#include "server/sandbox/mounts.h"
#include "server/sandbox/pool.h"
#include "server/sandbox/sandbox.h"
#include "server/sandbox/simulation.h"
#include "snapshots_private.h"

struct child {
    struct fork_op *op;
    struct pool_request *request;
    struct sandbox_swap swap;
    char id[ID_TEXT_MAX + 1]; // "": there is none
    bool waits;               // until the layers of those before it have been copied
};

struct fork_op {
    struct server *srv;
    struct pool *pool;
    char parent[ID_TEXT_MAX + 1], tenant[32];
    uint32_t layer, count, waiting;
    uint64_t ttl_ms;
    bool holds;   // the parent's layers
    bool copying; // them, for one of the children
    uint64_t copy_bytes_max;
    uint32_t copy_ms_max;
    bool failed;
    struct err e; // the first failure
    struct copied_cost cost;
    struct simulation *simulation; // counted
    fork_done *done;               // NULL: nobody waits
    void *cookie;
    struct child child[];
};

static struct sandbox *
find(const struct fork_op *op, const char *id)
{
    struct err ignored;
    struct sandbox *s =
        id[0] == '\0' ? NULL : sandbox_find(op->srv->sandboxes, op->tenant, id, &ignored);
    return s == NULL || s->state == SANDBOX_DELETING ? NULL : s;
}

// ---- the end

static void
remove_children(const struct fork_op *op)
{
    struct err why;
    (void)err_set(&why, ERR_CANCELLED, "it is a fork of a request that failed");
    for (uint32_t i = 0; i < op->count; i++) {
        struct sandbox *s = find(op, op->child[i].id);
        if (s != NULL)
            sandbox_destroy(s, &why, NULL);
    }
}

static void
let_parent_go(struct fork_op *op)
{
    struct sandbox *s = find(op, op->parent);
    if (!op->holds || s == NULL || s->snapshots == NULL)
        return;
    s->snapshots->busy--;
    layers_prune(s, s->snapshots);
}

static void
op_free(struct fork_op *op)
{
    simulation_unref(op->simulation);
    free(op);
}

static void
end(struct fork_op *op)
{
    struct sandbox *forks[FORKS_MAX];
    size_t n = 0;
    let_parent_go(op);
    if (op->failed && op->e.code == ERR_INTERNAL && find(op, op->parent) == NULL)
        (void)err_set(&op->e, ERR_ABORTED, // the spawner ended a child because of that
                      "fork sandbox %s: the sandbox was deleted meanwhile", op->parent);
    for (uint32_t i = 0; i < op->count; i++)
        if ((forks[n] = find(op, op->child[i].id)) != NULL)
            n++;
    if (op->failed || op->done == NULL)
        remove_children(op);
    if (op->done != NULL)
        op->done(op->cookie, &(struct fork_result){forks, op->failed ? 0 : n, op->cost},
                 op->failed ? &op->e : NULL);
    op_free(op);
}

// What still waits for a sandbox of the pool needs none any more.
static void
cancel_requests(struct fork_op *op)
{
    for (uint32_t i = 0; i < op->count; i++) {
        if (op->child[i].request == NULL)
            continue;
        pool_cancel(op->child[i].request);
        op->child[i].request = NULL;
        op->waiting--;
    }
}

// One child less to wait for; e: it failed. The operation may be freed when it returns.
static void
child_done(struct fork_op *op, const struct err *e)
{
    if (e != NULL && !op->failed) {
        op->failed = true;
        op->e = *e;
        (void)err_wrap(&op->e, "fork sandbox %s", op->parent);
        cancel_requests(op);
    }
    if (--op->waiting == 0)
        end(op);
}

// ---- what the children inherit

static void
on_inherited(void *cookie, struct sandbox *s, const struct err *failed)
{
    struct child *c = cookie;
    struct fork_op *op = c->op;
    struct err e;
    struct sandbox *parent = find(op, op->parent);
    if (failed != NULL)
        e = *failed;
    else if (parent == NULL || parent->snapshots == NULL)
        (void)err_set(&e, ERR_ABORTED, "the sandbox was deleted meanwhile");
    else if (layers_write_down(s, parent, op->layer, c->swap.layer, &e) == 0) {
        sandbox_rest_soon(s);
        child_done(op, NULL);
        return;
    }
    child_done(op, &e);
}

static void copy_next(struct fork_op *op);

static void
on_brought(void *cookie, struct sandbox *s, uint64_t copied, const struct err *failed)
{
    struct fork_op *op = ((struct child *)cookie)->op;
    op->copying = false;
    op->cost.bytes += copied;
    if (failed == NULL)
        sandbox_rest_soon(s);
    op->waiting++; // until this returns
    child_done(op, failed);
    copy_next(op);
    child_done(op, NULL);
}

static int
copy_to(struct fork_op *op, struct child *c, struct err *e)
{
    const struct sandbox *parent = find(op, op->parent);
    struct sandbox *s = find(op, c->id);
    if (parent == NULL || s == NULL)
        return err_set(e, ERR_ABORTED, "the sandbox was deleted meanwhile");
    const struct bring_want want = {op->layer, op->copy_bytes_max, op->copy_ms_max};
    return bring_begin(s, parent, &want, on_brought, c, e);
}

// One child after the other: keepers are few, and others need them, too.
static void
copy_next(struct fork_op *op)
{
    struct err e;
    for (uint32_t i = 0; i < op->count && !op->copying; i++) {
        struct child *c = &op->child[i];
        if (!c->waits)
            continue;
        c->waits = false;
        e = op->e;
        op->copying = !op->failed && copy_to(op, c, &e) == 0;
        if (!op->copying)
            child_done(op, &e);
    }
}

static void
copy_later(struct fork_op *op, struct child *c)
{
    c->waits = true;
    op->waiting++;
    copy_next(op);
    child_done(op, NULL);
}

static void
on_child(void *cookie, struct sandbox *s, const struct err *failed)
{
    struct child *c = cookie;
    struct fork_op *op = c->op;
    struct err e;
    c->request = NULL;
    if (s == NULL) {
        child_done(op, failed);
        return;
    }
    (void)snprintf(c->id, sizeof c->id, "%s", s->id.id);
    const struct sandbox *parent = find(op, op->parent);
    if (parent != NULL && layers_are_copied(parent)) {
        copy_later(op, c);
        return;
    }
    c->swap.waiter.done = on_inherited;
    c->swap.waiter.cookie = c;
    if (parent == NULL)
        (void)err_set(&e, ERR_ABORTED, "the sandbox was deleted meanwhile");
    else if (!op->failed && sandbox_inherit(s, parent, op->layer, &c->swap, &e) == 0)
        return;
    child_done(op, op->failed ? &op->e : &e);
}

// ---- the children

// What it shares with its parent. The caller clears it with sandbox_spec_clear(), also on failure.
static int
copy_spec(const struct fork_op *op, const struct sandbox *parent, struct sandbox_spec *spec,
          struct err *e)
{
    struct mounts *mounts = parent->spec.mounts;
    const bool narrowed = op->simulation != NULL && mounts != NULL;
    *spec = parent->spec;
    spec->name[0] = '\0';
    spec->network = parent->net.in_force == NULL ? NULL : network_ref(parent->net.in_force);
    spec->image = image_ref(spec->image);
    spec->has_files = true;
    spec->mounts = narrowed ? mounts_read_only(mounts) : mounts_ref(mounts);
    spec->simulation = simulation_ref(op->simulation != NULL ? op->simulation : parent->simulation);
    if (op->ttl_ms != 0)
        spec->ttl_ms = op->ttl_ms;
    int r = sandbox_copy_labels(spec, 0, e);
    if (r < 0) { // they are the parent's
        spec->labels = NULL;
        spec->labels_n = 0;
    }
    return r == 0 && narrowed && spec->mounts == NULL ? err_sys(e, ENOMEM, "mount volumes") : r;
}

static int
acquire(struct fork_op *op, const struct sandbox *parent, struct child *c, struct err *e)
{
    struct sandbox_spec spec;
    int r = copy_spec(op, parent, &spec, e);
    if (r == 0)
        r = pool_acquire(op->pool, op->tenant, &spec, on_child, c, &c->request, e);
    if (r < 0)
        sandbox_spec_clear(&spec);
    return r;
}

// `waiting` is one more than the children that were begun, so that none of them ends the operation here.
static void
begin_children(struct fork_op *op, struct sandbox *parent)
{
    struct err e;
    op->waiting = 1;
    parent->snapshots->busy++;
    op->holds = true;
    int r = layers_share(parent, op->layer, &e);
    for (uint32_t i = 0; i < op->count && r == 0 && !op->failed; i++) {
        op->waiting++;
        r = acquire(op, parent, &op->child[i], &e);
        if (r < 0)
            op->waiting--;
    }
    child_done(op, r < 0 ? &e : NULL);
}

static void
begin_on(struct fork_op *op, struct sandbox *s, uint32_t layer, const struct err *e)
{
    if (e == NULL && s != NULL && s->snapshots != NULL && op->done != NULL) {
        op->layer = layer;
        begin_children(op, s);
        return;
    }
    op->waiting = 1;
    child_done(op, e);
}

static void
on_sealed(void *cookie, struct sandbox *s, const struct snapshot *p, const struct err *e)
{
    (void)p;
    begin_on(cookie, s, s == NULL || s->snapshots == NULL ? 0 : s->snapshots->top, e);
}

static void
on_copied(void *cookie, struct sandbox *s, uint32_t layer, const struct copied_cost *cost,
          const struct err *e)
{
    struct fork_op *op = cookie;
    op->cost = *cost;
    begin_on(op, s, layer, e);
}

// The layer with the files of now.
static int
begin_parent(struct fork_op *op, struct sandbox *parent, const struct fork_request *q,
             struct err *e)
{
    struct snapshot_op *sealing = NULL;
    return q->how.copy && parent->jobs_n > 0
               ? copied_begin(parent, &q->how, on_copied, op, e)
               : snapshots_seal(parent, q->how.stop, on_sealed, op, &sealing, e);
}

int
fork_begin(struct sandbox *parent, struct pool *pool, const struct fork_request *q, fork_done *done,
           void *cookie, struct fork_op **out, struct err *e)
{
    const struct snapshot *p = NULL;
    int r = sandbox_check_running(parent, e);
    if (r == 0 && q->snapshot[0] != '\0' && (p = snapshots_find(parent, q->snapshot, e)) == NULL) {
        err_detail(e, NULL, "snapshot", NULL);
        r = err_errno(e);
    }
    if (r < 0)
        return r;
    struct fork_op *op = calloc(1, sizeof *op + q->count * sizeof op->child[0]);
    if (op == NULL)
        return err_sys(e, ENOMEM, "fork a sandbox");
    op->srv = sandboxes_server(parent->all);
    op->pool = pool;
    op->count = q->count;
    op->ttl_ms = q->ttl_ms;
    op->copy_bytes_max = q->how.bytes_max != 0 ? q->how.bytes_max : COPY_BYTES_USUAL;
    op->copy_ms_max = q->how.ms_max != 0 ? q->how.ms_max : COPY_MS_USUAL;
    op->simulation = simulation_ref(q->simulation);
    op->done = done;
    op->cookie = cookie;
    (void)snprintf(op->parent, sizeof op->parent, "%s", parent->id.id);
    (void)snprintf(op->tenant, sizeof op->tenant, "%s", parent->tenant->name);
    for (uint32_t i = 0; i < q->count; i++) {
        op->child[i].op = op;
        list_init(&op->child[i].swap.waiter.node);
    }
    *out = op;
    if (p == NULL && q->layer == 0) {
        r = begin_parent(op, parent, q, e);
        if (r < 0) {
            *out = NULL;
            op_free(op);
        }
        return r;
    }
    op->layer = p != NULL ? p->layer : q->layer;
    begin_children(op, parent);
    return 0;
}

void
fork_cancel(struct fork_op *op)
{
    op->done = NULL;
    op->failed = true;
    if (!op->holds)
        return; // the files are being sealed
    cancel_requests(op);
    if (op->waiting == 0)
        end(op);
}
