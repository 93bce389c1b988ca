// SPDX-License-Identifier: Apache-2.0
// Snapshots that outlast their sandbox: records of the store (store/store.h) whose layers come from a snapshot, and sandboxes
// that show such layers.
//
//   kept_begin()  a snapshot -> its layers that are not in the state directory yet -> a record
//   kept_lay()    a record -> its layers are read, if that was not done in this run -> the sandbox shows them
//
// Templates made from work (made.h) use both. Loop thread only.
#pragma once

#include "proto/err.h"
#include "server/store/store.h"

struct kept_op;
struct sandbox;
struct server;

// Starts to keep a layer of a sandbox, with all below it, as a record. Jobs may run, and the sandbox may end meanwhile. done is called once,
// unless kept_unwait() comes before: then no record is left.
struct kept_tree;
struct kept_want {
    enum store_kind kind;
    // NULL: only that layer and those below; otherwise all, in this order
    const struct kept_tree *tree;
    const char *id;   // of the record; "": a new one
    const char *name; // unique among the caller's of this kind, unless `again`; "": none
    bool again;
    const uint8_t *about; // NULL: what jobs did for the files (work.h)
    size_t about_n;
};
int kept_begin(struct sandbox *s, uint32_t layer, const struct kept_want *want, store_done *done,
               void *cookie, struct kept_op **out, struct err *e);

// Starts to show the files of a record in a sandbox, instead of its own. DATA_LOSS (LAYER_DAMAGED): a layer is damaged, and
// the sandbox is as it was. FAILED_PRECONDITION: jobs run (JOBS_RUN), unless `stop`: then they are cancelled first; the record
// comes from another template (OTHER_TEMPLATE). done is called later, unless kept_unwait() comes before; s NULL: it was deleted meanwhile.
typedef void kept_lay_done(void *cookie, struct sandbox *s, const struct err *e);
int kept_lay(struct sandbox *s, struct stored *r, bool stop, kept_lay_done *done, void *cookie,
             struct kept_op **out, struct err *e);

// The same for files whose description was read already.
struct work;
struct kept_files {
    struct stored *r;
    struct work *const *work; // of each layer; NULL: it is read
    // All layers of a sandbox and its snapshots; borrowed until done returns. NULL: each lies on the one before.
    const struct kept_tree *tree;
};
int kept_lay_files(struct sandbox *s, const struct kept_files *f, bool stop, kept_lay_done *done,
                   void *cookie, struct kept_op **out, struct err *e);

void kept_unwait(struct kept_op *op);

// The layers of a sandbox, each after the one that it lies on, and its snapshots. Indices are counted from 1; 0 stands for none.
struct kept_name {
    char name[STORE_NAME];
    int64_t created_ms;
    uint64_t order;
    uint32_t layer; // index
};
struct kept_tree {
    uint32_t n;
    uint8_t below[STORE_LAYERS_MAX];     // index
    uint32_t number[STORE_LAYERS_MAX];   // in the sandbox
    struct work *work[STORE_LAYERS_MAX]; // held
    uint8_t top;                         // index of the one that the files of now go on from
    uint32_t names_n;
    struct kept_name *names; // owned
};
// RESOURCE_EXHAUSTED (LAYERS): there are too many. On success *out owns memory.
int kept_tree_of(struct sandbox *s, struct kept_tree *out, struct err *e);
void kept_tree_clear(struct kept_tree *t);
// About how many bytes of a sandbox are not in the state directory yet, with those that are in no layer yet.
uint64_t kept_missing(const struct sandbox *s);

// A kept snapshot of a caller, by id or name. NULL and NOT_FOUND: there is none.
struct stored *kept_find(const struct server *srv, const char *tenant, const char *name,
                         struct err *e);
