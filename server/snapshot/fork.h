// SPDX-License-Identifier: Apache-2.0
// Forks: new sandboxes that begin with the files of another one, of now or of one of its snapshots.
//
//   (seal the files of now) -> a sandbox of the pool for each -> each inherits the layers -> all are there, or none
//
// A fork has the template, limits, labels and network policy of its parent, a time to live from now on, and an id, cgroup, network
// and bill of its own. Layers belong to the sandbox that wrote them, and count to its limits. Once a fork shares one, its bytes
// are also charged to the caller (LEDGER_LAYER_BYTES, at most FORK_SHARED_BYTES_MAX), until the last sandbox that has it
// ends: so nobody fills the memory of the host with files of sandboxes that do not exist any more. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "snapshots.h"

struct fork_op;
struct pool;
struct sandbox;
struct simulation;

enum { FORKS_MAX = 100 };
#define FORK_SHARED_BYTES_MAX (UINT64_C(4) << 30)

// All forks, RUNNING; or the failure, and none is left.
struct fork_result {
    struct sandbox *const *forks;
    size_t n;
    struct copied_cost cost; // 0: nothing was copied
};
typedef void fork_done(void *cookie, const struct fork_result *r, const struct err *e);

struct fork_request {
    const char *snapshot; // "": the files of now; then `how` says what becomes of jobs that run
    uint32_t layer;       // not 0: this layer instead, which the caller keeps
    uint32_t count;       // 1 to FORKS_MAX
    uint64_t ttl_ms;      // 0: that of the parent
    struct while_jobs_run how;
    // Borrowed: the forks are simulated, and their volumes read-only (server/sandbox/simulation.h). NULL: they are real.
    struct simulation *simulation;
};

// done is called once, perhaps before this returns (then *out has ended), unless fork_cancel() comes before: then the forks are removed again. NOT_FOUND: no such snapshot.
// FAILED_PRECONDITION: jobs run, or it is not RUNNING. RESOURCE_EXHAUSTED: sandboxes, layers, or shared bytes.
int fork_begin(struct sandbox *parent, struct pool *pool, const struct fork_request *q,
               fork_done *done, void *cookie, struct fork_op **out, struct err *e);
void fork_cancel(struct fork_op *op);
