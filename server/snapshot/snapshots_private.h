// SPDX-License-Identifier: Apache-2.0
// Shared by snapshots.c (names, operations) and layers.c (which layers there are).
#pragma once

#include "server/spawner/ops.h"
#include "snapshots.h"
#include "work.h"

enum { LAYERS_OF_SANDBOX = 49 }; // numbers, as spawner/tree_layers.h

// A layer that several sandboxes have; its bytes are charged to the tenant.
struct shared {
    uint32_t holders;
    uint64_t bytes;
    struct tenant *tenant; // held
};

// What the broker knows of a layer. Number n is layer[n - 1]; 0 stands for none.
struct layer {
    bool there;
    uint32_t below;
    uint32_t pins; // transactions that began on it
    uint64_t bytes, inodes;
    struct shared *shared; // NULL: no other sandbox has it
    struct work *work;     // what jobs did for it; NULL: none is known
    // It is in the state directory, too, and held; NULL: it is not.
    struct stored_layer *kept;
    struct store *store;
};

// All of one sandbox (sandbox.h: `snapshots`).
struct snapshots_box {
    struct list list; // struct snapshot
    uint32_t n;
    uint64_t order;
    uint32_t top;     // the layer right below the files of now
    uint32_t busy;    // operations in progress: no layer is dropped meanwhile
    struct work *now; // since the layer `top`; NULL: nothing
    struct layer layer[LAYERS_OF_SANDBOX];
};

// Made at first use. NULL: out of memory.
struct snapshots_box *snapshots_box_of(struct sandbox *s);

// copied.c. Starts a copy of the files of now. done is called once, later. The layer stays at least until `done` returns. Errors as of
// sandbox_copy().
typedef void copied_done(void *cookie, struct sandbox *s, uint32_t layer,
                         const struct copied_cost *cost, const struct err *e);
int copied_begin(struct sandbox *s, const struct while_jobs_run *how, copied_done *done,
                 void *cookie, struct err *e);

// Gives a name to a layer that is there. NULL: out of memory. The name is free.
const struct snapshot *snapshots_name(struct sandbox *s, const char *name, uint32_t layer);

// share.c. The layers from this one down are shared from now on, and charged to the tenant. RESOURCE_EXHAUSTED (SHARED_BYTES).
int layers_share(struct sandbox *s, uint32_t layer, struct err *e);
// Writes down that a sandbox has inherited them: its own have the numbers from 1 to `top`, the lowest first.
int layers_write_down(struct sandbox *child, struct sandbox *parent, uint32_t layer, uint32_t top,
                      struct err *e);

// One sandbox less has it: of those that share it, and of those that hold its copy in the state directory, and its work.
void layer_unshare(struct layer *l);

// The files of now go on from this layer: what was done since another one is forgotten.
void layers_go_on(struct snapshots_box *b, uint32_t top);

// kept_tree.c. The snapshots of a tree whose layers have been adopted.
struct kept_tree;
struct sandbox_adoption;
int kept_tree_name(const struct kept_tree *t, const struct sandbox_adoption *a,
                   struct snapshots_box *b, struct err *e);

// NULL: none.
struct layer *layer_of(struct snapshots_box *b, uint32_t number);

// Writes down a layer that was grafted onto another one of `to`; of `from` it is number `layer`.
void layers_grafted(struct sandbox *to, struct sandbox *from, uint32_t layer, uint32_t number,
                    uint32_t below);

// Writes down the layer below the files of now, with the size of the upper one that became it.
void layers_sealed(struct snapshots_box *b, uint32_t number, uint64_t bytes, uint64_t inodes);

// Adds the layers from this one down.
void layers_sum(const struct snapshots_box *b, uint32_t number, uint64_t *bytes, uint64_t *inodes);

// Drops the layers that nothing needs.
void layers_prune(struct sandbox *s, struct snapshots_box *b);
