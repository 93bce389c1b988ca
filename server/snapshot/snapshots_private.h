// SPDX-License-Identifier: Apache-2.0
// Shared by snapshots.c (names, operations) and layers.c (which layers there are).
#pragma once

#include "server/spawner/ops.h"
#include "snapshots.h"
#include "work.h"

enum {
    LAYERS_OF_SANDBOX = 1202, // numbers, as spawner/tree_layers.h
    LAYERS_DEPTH = 47,        // that lie on each other, as there
    LAYERS_OF_TENANT = 4096,  // file systems in memory; each takes some of the kernel's memory
};

// join.c: layers are joined in the background, before more lie on each other than an overlay can have.
enum {
    // From so many on, layers are joined; so a transaction, whose layers come on top of others, has as many again.
    JOIN_DEPTH = 20,
    JOIN_LAYERS = 12, // at most, in one
    JOIN_LEAST = 3,
    JOIN_MS = 30 * 1000,
    JOIN_INODES_MAX = 1 << 24,
};
#define JOIN_BYTES_MAX (UINT64_C(1) << 30)

// Which layers: from this one down to the one before `below`.
struct join_plan {
    uint32_t from, below, n;
    uint64_t bytes, inodes; // what they take
};

// Part of struct snapshots_box.
struct join {
    bool runs;
    struct join_plan plan;
    const struct tenant **slot; // where the join in progress is counted
    struct loop_timer *timer;   // to try again; NULL: not planned
    uint64_t wait_ms;           // how long the next try waits; 0: the last one did not fail
};

// A layer that several sandboxes have; its bytes are charged to the tenant.
struct shared {
    uint32_t holders;
    uint64_t bytes;
    struct tenant *tenant; // held
};

// What the broker knows of a layer. Number n is layer[n - 1]; 0 stands for none.
struct layer {
    bool there;
    bool counted; // to the layers of the tenant
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
    uint32_t top;        // the layer right below the files of now
    uint32_t busy;       // operations in progress: no layer is dropped meanwhile
    struct work *now;    // since the layer `top`; NULL: nothing
    struct layer *layer; // owned: numbers 1 to layers_n; it moves when it grows
    uint32_t layers_n;
    struct tenant *tenant; // held as soon as there is a layer
    struct join join;
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

// Whether the kernel cannot share layers in memory: then layers_share() charges nothing, and sandbox_graft() copies.
bool layers_are_copied(const struct sandbox *s);

// bring.c. Starts to give a sandbox, which has no layers yet, copies of `layer` of its parent and of those below it, and to show them; the caller
// keeps the parent's layers meanwhile. done is called once, later, also when the child is being deleted by then; copied: the bytes that the
// copies take. RESOURCE_EXHAUSTED (COPY_BYTES), and the failures of sandbox_copy(); ABORTED: the parent was deleted.
struct bring_want {
    uint32_t layer;
    uint64_t bytes_max;
    uint32_t ms; // maximum time
};
typedef void bring_done(void *cookie, struct sandbox *child, uint64_t copied, const struct err *e);
int bring_begin(struct sandbox *child, const struct sandbox *parent, const struct bring_want *w,
                bring_done *done, void *cookie, struct err *e);

// One sandbox less has it: of those that share it, and of those that hold its copy in the state directory, and its work.
void layer_unshare(struct layer *l);

// The files of now go on from this layer: what was done since another one is forgotten.
void layers_go_on(struct snapshots_box *b, uint32_t top);

// kept_tree.c. The snapshots of a tree whose layers have been adopted.
struct kept_tree;
struct sandbox_adoption;
int kept_tree_name(const struct kept_tree *t, const struct sandbox_adoption *a,
                   struct snapshots_box *b, struct err *e);

// snapshots_seal() when there is room for so many layers, or when waiting for joins makes no more.
int snapshots_seal_for(struct sandbox *s, uint32_t room, bool stop, snapshot_done *done,
                       void *cookie, struct snapshot_op **out, struct err *e);

// NULL: none. Valid until the next layer_put().
struct layer *layer_of(const struct snapshots_box *b, uint32_t number);

// Writes down a layer that is not there yet, and takes what it holds. Without memory, or if the spawner broke its promise: NULL, and
// what it holds is let go.
struct layer *layer_put(struct sandbox *s, uint32_t number, const struct layer *l);

// Forgets all.
void layers_clear(struct snapshots_box *b);

// How many lie on each other, from this one down.
uint32_t layers_depth(const struct snapshots_box *b, uint32_t number);

// RESOURCE_EXHAUSTED (LAYERS_OF_CALLER): the tenant has too many.
int layers_may_add(const struct sandbox *s, struct err *e);

// Writes down a layer that was grafted onto another one of `to`; of `from` it is number `layer`.
void layers_grafted(struct sandbox *to, struct sandbox *from, uint32_t layer, uint32_t number,
                    uint32_t below);

// Writes down the layer below the files of now, with the size of the upper one that became it.
void layers_sealed(struct sandbox *s, uint32_t number, uint64_t bytes, uint64_t inodes);

// Adds the layers from this one down.
void layers_sum(const struct snapshots_box *b, uint32_t number, uint64_t *bytes, uint64_t *inodes);

// Drops the layers that nothing needs.
void layers_prune(struct sandbox *s, struct snapshots_box *b);

// The least costly one; false: nothing can be joined.
bool join_choose(const struct snapshots_box *b, struct join_plan *out);

// Begins with it if it is time. After each change of the layers.
void join_look(struct sandbox *s);

// True: there is no room for n more layers on those of now, and a join in progress makes it.
bool join_makes_room(struct sandbox *s, uint32_t n);

void join_end(struct join *j);
