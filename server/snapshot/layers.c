// SPDX-License-Identifier: Apache-2.0
// See snapshots_private.h.
#include "snapshots_private.h"

#include <stdlib.h>
#include <string.h>

#include "server/rpc/tenants.h"
#include "server/sandbox/sandbox.h"
#include "server/store/store.h"

enum { GROWTH = 32 };

struct layer *
layer_of(const struct snapshots_box *b, uint32_t number)
{
    return number >= 1 && number <= b->layers_n ? &b->layer[number - 1] : NULL;
}

static bool
grow(struct snapshots_box *b, uint32_t number)
{
    if (number < 1 || number > LAYERS_OF_SANDBOX)
        return false; // the spawner broke its promise
    if (number <= b->layers_n)
        return true;
    const uint32_t n = (number + GROWTH - 1) / GROWTH * GROWTH;
    struct layer *more = realloc(b->layer, n * sizeof *more);
    if (more == NULL)
        return false;
    memset(more + b->layers_n, 0, (n - b->layers_n) * sizeof *more);
    b->layer = more;
    b->layers_n = n;
    return true;
}

// Those of other sandboxes and of the state directory are counted there.
static void
count(struct sandbox *s, struct snapshots_box *b, struct layer *l)
{
    struct err ignored;
    if (b->tenant == NULL)
        b->tenant = tenant_hold_again(s->tenant);
    l->counted = l->shared == NULL && l->kept == NULL &&
                 tenant_charge(b->tenant, LEDGER_LAYERS, 1, UINT64_MAX, &ignored) == 0;
}

struct layer *
layer_put(struct sandbox *s, uint32_t number, const struct layer *l)
{
    struct layer made = *l;
    struct snapshots_box *b = s->snapshots;
    if (!grow(b, number) || b->layer[number - 1].there) {
        layer_unshare(&made);
        return NULL;
    }
    made.there = true;
    count(s, b, &made);
    b->layer[number - 1] = made;
    return &b->layer[number - 1];
}

static void
forget(struct snapshots_box *b, struct layer *l)
{
    if (l->counted)
        tenant_release(b->tenant, LEDGER_LAYERS, 1);
    layer_unshare(l);
    *l = (struct layer){.there = false};
}

void
layers_clear(struct snapshots_box *b)
{
    for (uint32_t i = 0; i < b->layers_n; i++)
        forget(b, &b->layer[i]);
    free(b->layer);
    b->layer = NULL;
    b->layers_n = 0;
    if (b->tenant != NULL)
        tenant_drop(b->tenant);
    b->tenant = NULL;
}

uint32_t
layers_depth(const struct snapshots_box *b, uint32_t number)
{
    uint32_t n = 0;
    const struct layer *l = NULL;
    for (uint32_t at = number; n < LAYERS_DEPTH && (l = layer_of(b, at)) != NULL; at = l->below)
        n++;
    return n;
}

int
layers_may_add(const struct sandbox *s, struct err *e)
{
    if (tenant_held(s->tenant, LEDGER_LAYERS) < LAYERS_OF_TENANT)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                    "the sandboxes of %s have %d layers of files, the maximum for one caller",
                    s->tenant->name, LAYERS_OF_TENANT);
    err_detail(e, "LAYERS_OF_CALLER", s->tenant->name, "delete snapshots, or sandboxes");
    err_rule(e, "layers", "calls that add no layer");
    return r;
}

void
layer_unshare(struct layer *l)
{
    struct shared *sh = l->shared;
    l->shared = NULL;
    if (l->kept != NULL)
        store_let_go(l->store, l->kept);
    l->kept = NULL;
    work_unref(l->work);
    l->work = NULL;
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): each layer that has it counts as a holder
    if (sh == NULL || --sh->holders > 0)
        return;
    tenant_release(sh->tenant, LEDGER_LAYER_BYTES, sh->bytes);
    tenant_drop(sh->tenant);
    free(sh);
}

void
layers_sealed(struct sandbox *s, uint32_t number, uint64_t bytes, uint64_t inodes)
{
    struct snapshots_box *b = s->snapshots;
    const struct layer l = {.below = b->top, .bytes = bytes, .inodes = inodes, .work = b->now};
    b->now = NULL;
    if (layer_put(s, number, &l) != NULL)
        b->top = number;
}

void
layers_go_on(struct snapshots_box *b, uint32_t top)
{
    work_unref(b->now);
    b->now = NULL;
    b->top = top;
}

// The number of steps is bounded, whatever the spawner said.
void
layers_sum(const struct snapshots_box *b, uint32_t number, uint64_t *bytes, uint64_t *inodes)
{
    *bytes = *inodes = 0;
    const struct layer *l = NULL;
    for (unsigned i = 0; i < LAYERS_DEPTH && (l = layer_of(b, number)) != NULL; i++) {
        *bytes += l->bytes;
        *inodes += l->inodes;
        number = l->below;
    }
}

static void
mark(const struct snapshots_box *b, uint32_t number, bool needed[LAYERS_OF_SANDBOX])
{
    const struct layer *l = NULL;
    while ((l = layer_of(b, number)) != NULL && !needed[number - 1]) {
        needed[number - 1] = true;
        number = l->below;
    }
}

static bool
has_above(const struct snapshots_box *b, uint32_t number)
{
    for (uint32_t i = 0; i < b->layers_n; i++)
        if (b->layer[i].there && b->layer[i].below == number)
            return true;
    return false;
}

static void
mark_all(const struct snapshots_box *b, bool needed[LAYERS_OF_SANDBOX])
{
    mark(b, b->top, needed);
    list_each(it, &b->list) mark(b, list_entry(it, struct snapshot, node)->layer, needed);
    for (uint32_t n = 1; n <= b->layers_n; n++)
        if (b->layer[n - 1].pins > 0)
            mark(b, n, needed);
    if (b->join.runs)
        mark(b, b->join.plan.from, needed);
}

void
layers_prune(struct sandbox *s, struct snapshots_box *b)
{
    bool needed[LAYERS_OF_SANDBOX] = {false};
    if (b->busy > 0 || (s->state != SANDBOX_RUNNING && s->state != SANDBOX_PAUSED))
        return; // the next change does it
    mark_all(b, needed);
    for (bool more = true; more;) {
        more = false;
        for (uint32_t n = 1; n <= b->layers_n; n++) {
            struct layer *l = &b->layer[n - 1];
            if (!l->there || needed[n - 1] || has_above(b, n))
                continue;
            sandbox_drop_layer(s, n);
            forget(b, l);
            more = true;
        }
    }
    join_look(s);
}
