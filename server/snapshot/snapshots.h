// SPDX-License-Identifier: Apache-2.0
// Snapshots: names for states of the files of a sandbox.
//
// A snapshot is a name for one of the sandbox's layers (sandbox_seal()), and with it for all layers below. The layers of a
// sandbox form a tree, because a sandbox that was restored goes on from an earlier layer; one without a snapshot on it or
// above it, and not below the files of now, is dropped. Snapshots end with their sandbox.
//
//   Create   s1 = layer 1;  s2 = layer 2          1 <- 2 <- (now)
//   Restore  s1                                   1 <- 2,  1 <- (now)
//   Delete   s2: layer 2 is dropped               1 <- (now)
//
// An operation that has begun is completed even if nobody waits for it any more. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/base/list.h"

struct sandbox;
struct sandboxes;

enum { SNAPSHOTS_OF_SANDBOX = 1024, SNAPSHOT_NAME = 65 };

// Read-only for others.
struct snapshot {
    struct list node; // of its sandbox, oldest first
    uint64_t order;   // increases with each
    char name[SNAPSHOT_NAME];
    int64_t created_ms; // CLOCK_REALTIME
    uint32_t layer;
    uint64_t bytes, inodes;               // of its own layer: what was written since the one below
    uint64_t bytes_in_all, inodes_in_all; // with all layers below
    uint64_t copied_bytes;                // jobs ran, so it is a copy; 0: it is none
    uint32_t frozen_us;                   // for the copy
};

// Once, at the start: snapshots end with their sandboxes.
void snapshots_observe(struct sandboxes *all);

// What becomes of jobs that run: with neither of the first two, they are a reason to refuse.
enum { COPY_BYTES_USUAL = 256 << 20, COPY_MS_USUAL = 5000 };
struct while_jobs_run {
    bool stop;          // they are cancelled first
    bool copy;          // they go on, after a copy (copied.c)
    uint64_t bytes_max; // of the copy; 0: COPY_BYTES_USUAL
    uint32_t ms_max;    // 0: COPY_MS_USUAL
};

// Of a copy; 0: nothing was copied.
struct copied_cost {
    uint64_t bytes;
    uint32_t frozen_us;
};

// An operation in progress, with the one who waits for it.
struct snapshot_op;
typedef void snapshot_done(void *cookie, struct sandbox *s, const struct snapshot *p,
                           const struct err *e);

// Starts to make a snapshot of the files of a sandbox, or to restore them. name "": the broker chooses one. With jobs:
// FAILED_PRECONDITION (JOBS_RUN), unless `stop` or `how` say otherwise. done is called once, unless snapshot_unwait() comes
// before. ALREADY_EXISTS, RESOURCE_EXHAUSTED (SNAPSHOTS, LAYERS), NOT_FOUND; with how->copy those of sandbox_copy().
int snapshots_create(struct sandbox *s, const char *name, const struct while_jobs_run *how,
                     snapshot_done *done, void *cookie, struct snapshot_op **out, struct err *e);
int snapshots_restore(struct sandbox *s, const char *name, bool stop, snapshot_done *done,
                      void *cookie, struct snapshot_op **out, struct err *e);

// Starts to seal the files of now; no snapshot gets a name. done's `p` is NULL.
int snapshots_seal(struct sandbox *s, bool stop, snapshot_done *done, void *cookie,
                   struct snapshot_op **out, struct err *e);
void snapshot_unwait(struct snapshot_op *op);

// At the end: those that wait for jobs to end, or for room, fail (UNAVAILABLE). Before what waits for them is freed.
void snapshots_stop(void);

// Its files are being sealed, kept, forked or committed.
bool snapshots_busy(const struct sandbox *s);

// NULL and NOT_FOUND: there is none of this name.
const struct snapshot *snapshots_find(const struct sandbox *s, const char *name, struct err *e);

// Oldest first; NULL: there is none.
struct list *snapshots_of(const struct sandbox *s);

// The snapshot that the files of now go on from, the nearest below; NULL: none.
const struct snapshot *snapshots_current(const struct sandbox *s);

int snapshots_delete(struct sandbox *s, const char *name, struct err *e);
