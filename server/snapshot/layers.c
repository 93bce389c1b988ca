// SPDX-License-Identifier: Apache-2.0
// See snapshots_private.h.
#include "snapshots_private.h"

#include <stdlib.h>

#include "server/sandbox/sandbox.h"
#include "server/store/store.h"

struct layer *
layer_of(struct snapshots_box *b, uint32_t number)
{
    return number >= 1 && number <= LAYERS_OF_SANDBOX ? &b->layer[number - 1] : NULL;
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
    if (sh == NULL || --sh->holders > 0)
        return;
    tenant_release(sh->tenant, LEDGER_LAYER_BYTES, sh->bytes);
    tenant_drop(sh->tenant);
    free(sh);
}

void
layers_sealed(struct snapshots_box *b, uint32_t number, uint64_t bytes, uint64_t inodes)
{
    if (number < 1 || number > LAYERS_OF_SANDBOX)
        return; // the spawner broke its promise
    struct layer *l = &b->layer[number - 1];
    if (!l->there)
        *l = (struct layer){
            .there = true, .below = b->top, .bytes = bytes, .inodes = inodes, .work = b->now};
    else
        work_unref(b->now);
    b->now = NULL;
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
    for (unsigned i = 0; i < LAYERS_OF_SANDBOX && number >= 1 && number <= LAYERS_OF_SANDBOX; i++) {
        *bytes += b->layer[number - 1].bytes;
        *inodes += b->layer[number - 1].inodes;
        number = b->layer[number - 1].below;
    }
}

static void
mark(const struct snapshots_box *b, uint32_t number, bool needed[LAYERS_OF_SANDBOX])
{
    while (number >= 1 && number <= LAYERS_OF_SANDBOX && !needed[number - 1]) {
        needed[number - 1] = true;
        number = b->layer[number - 1].below;
    }
}

static bool
has_above(const struct snapshots_box *b, uint32_t number)
{
    for (unsigned i = 0; i < LAYERS_OF_SANDBOX; i++)
        if (b->layer[i].there && b->layer[i].below == number)
            return true;
    return false;
}

void
layers_prune(struct sandbox *s, struct snapshots_box *b)
{
    bool needed[LAYERS_OF_SANDBOX] = {false};
    if (b->busy > 0 || (s->state != SANDBOX_RUNNING && s->state != SANDBOX_PAUSED))
        return; // the next change does it
    mark(b, b->top, needed);
    list_each(it, &b->list) mark(b, list_entry(it, struct snapshot, node)->layer, needed);
    for (uint32_t n = 1; n <= LAYERS_OF_SANDBOX; n++)
        if (b->layer[n - 1].pins > 0)
            mark(b, n, needed);
    for (bool more = true; more;) {
        more = false;
        for (uint32_t n = 1; n <= LAYERS_OF_SANDBOX; n++) {
            struct layer *l = &b->layer[n - 1];
            if (!l->there || needed[n - 1] || has_above(b, n))
                continue;
            sandbox_drop_layer(s, n);
            layer_unshare(l);
            *l = (struct layer){.there = false};
            more = true;
        }
    }
}
