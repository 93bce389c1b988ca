// SPDX-License-Identifier: Apache-2.0
// See snapshots_private.h: layers that several sandboxes have, because they inherited them.
#include <errno.h>
#include <stdlib.h>

#include "fork.h"
#include "server/base/server.h"
#include "server/rpc/tenants.h"
#include "server/sandbox/sandbox.h"
#include "server/store/store.h"
#include "snapshots_private.h"

static int
share_one(struct layer *l, struct tenant *t, struct err *e)
{
    if (l->shared != NULL)
        return 0;
    struct shared *sh = calloc(1, sizeof *sh);
    if (sh == NULL)
        return err_sys(e, ENOMEM, "share a layer");
    int r = tenant_charge(t, LEDGER_LAYER_BYTES, l->bytes, FORK_SHARED_BYTES_MAX, e);
    if (r < 0) {
        free(sh);
        if (r != -EDQUOT)
            return r;
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED,
                      "forks of %s share files of more than %llu MiB, the maximum for one caller",
                      t->name, (unsigned long long)(FORK_SHARED_BYTES_MAX >> 20));
        err_detail(e, "SHARED_BYTES", t->name,
                   "delete forks, and the sandboxes that they come from");
        return err_errno(e);
    }
    *sh = (struct shared){.holders = 1, .bytes = l->bytes, .tenant = tenant_hold_again(t)};
    l->shared = sh;
    return 0;
}

bool
layers_are_copied(const struct sandbox *s)
{
    const struct spawn_features *f = sandboxes_server(s->all)->features;
    return f != NULL && f->copies_layers != 0;
}

int
layers_share(struct sandbox *s, uint32_t layer, struct err *e)
{
    int r = 0;
    if (layers_are_copied(s))
        return 0;
    struct layer *l = NULL;
    for (uint32_t at = layer; r == 0 && (l = layer_of(s->snapshots, at)) != NULL; at = l->below)
        r = share_one(l, s->tenant, e);
    return r;
}

static struct layer
copy_of(const struct layer *from, uint32_t below)
{
    if (from->shared != NULL)
        from->shared->holders++;
    if (from->kept != NULL)
        store_hold(from->kept);
    return (struct layer){.there = true,
                          .below = below,
                          .bytes = from->bytes,
                          .inodes = from->inodes,
                          .shared = from->shared,
                          .work = work_ref(from->work),
                          .kept = from->kept,
                          .store = from->store};
}

void
layers_grafted(struct sandbox *to, struct sandbox *from, uint32_t layer, uint32_t number,
               uint32_t below)
{
    const struct layer *source = layer_of(from->snapshots, layer);
    if (source == NULL)
        return;
    const struct layer l = copy_of(source, below);
    (void)layer_put(to, number, &l);
}

// The child's layers have the numbers from 1 on, the lowest first.
int
layers_write_down(struct sandbox *child, struct sandbox *parent, uint32_t layer, uint32_t top,
                  struct err *e)
{
    struct snapshots_box *b = snapshots_box_of(child);
    struct layer *from = NULL;
    if (b == NULL)
        return err_sys(e, ENOMEM, "write down the layers");
    layers_go_on(b, top);
    for (uint32_t at = layer; top > 0 && (from = layer_of(parent->snapshots, at)) != NULL;
         at = from->below, top--) {
        // one that was joined in the meantime is not shared yet
        int r = share_one(from, parent->tenant, e);
        if (r < 0)
            return r;
        const struct layer l = copy_of(from, top - 1);
        if (layer_put(child, top, &l) == NULL)
            return err_sys(e, ENOMEM, "write down the layers");
    }
    return 0;
}
