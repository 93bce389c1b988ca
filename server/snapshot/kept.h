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
struct kept_want {
    enum store_kind kind;
    const char *id;       // of the record; "": a new one
    const char *name;     // unique among the caller's of this kind; "": none
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
};
int kept_lay_files(struct sandbox *s, const struct kept_files *f, bool stop, kept_lay_done *done,
                   void *cookie, struct kept_op **out, struct err *e);

void kept_unwait(struct kept_op *op);

// A kept snapshot of a caller, by id or name. NULL and NOT_FOUND: there is none.
struct stored *kept_find(const struct server *srv, const char *tenant, const char *name,
                         struct err *e);
