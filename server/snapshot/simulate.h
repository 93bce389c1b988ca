// SPDX-License-Identifier: Apache-2.0
// Simulations of jobs (stockade/v1/simulation.proto): the sandbox that a job runs in, what it changed there, and the end of it.
//
//   simulate_fork()    the files of a sandbox -> a fork of it ----------.
//   simulate_fresh()   a sandbox of the pool -> (seal what it has) -----+-> ready -> (the job) -> simulate_end() -> done
//                                                                               (compare) -> (the sandbox ends)
//
// The sandbox has a struct simulation, so nothing leaves it. It ends with the simulation, whatever happens: when `done` is called
// nothing of it is left. It may also end before. Loop thread only.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

struct pool;
struct sandbox;
struct sandbox_spec;
struct server;
struct simulate;
struct simulation;

enum { SIMULATE_CHANGES = 100 };

// What its destinations say, and a function that is called when it has begun. e NULL: `inside` is RUNNING, and a job may begin in it.
struct simulate_want {
    struct simulation *simulation;
    void (*ready)(void *cookie, struct sandbox *inside, const struct err *e);
    void *cookie;
};

// Starts with the files of a sandbox; jobs that run there go on. ready is called once, later or at once, unless simulate_drop() comes
// before; after a failure only simulate_drop() may follow. *out: to be dropped in any case, set before ready is called. A
// failure of this call leaves it NULL. Errors as of fork_begin().
int simulate_fork(struct sandbox *parent, const struct simulate_want *want, struct simulate **out,
                  struct err *e);

// The same with a sandbox of the pool. Takes *spec, also on failure; its volumes become read-only.
int simulate_fresh(struct server *s, const char *tenant, struct sandbox_spec *spec,
                   const struct simulate_want *want, struct simulate **out, struct err *e);

// The job has ended: finds out what it changed, and ends the sandbox. done is called once, later or at once, unless simulate_drop() comes
// before.
void simulate_end(struct simulate *x, void (*done)(void *cookie));

// After `done`: what was changed, a packed SnapshotServiceDiffResponse, borrowed; NULL: *unknown says why.
const uint8_t *simulate_changes(const struct simulate *x, size_t *n, const struct err **unknown);
const struct simulation *simulate_sent(const struct simulate *x);

// Frees it, and ends the sandbox if there still is one. Accepts NULL.
void simulate_drop(struct simulate *x);
