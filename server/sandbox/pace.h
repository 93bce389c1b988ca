// SPDX-License-Identifier: Apache-2.0
// How many sandboxes of one tenant begin at a time while others want some, too.
//
// The first moments of a sandbox (its guest, the start of its job) use a processor all the time, much of it in system calls that the
// kernel does not interrupt, and so does its birth. A tenant with thousands of queued jobs would have such work on
// every processor, and the sandbox of another one would wait for it, whatever its weight. So while several tenants take sandboxes, each
// has at most its share of the processors in young sandboxes: those that were given to a request less than PACE_YOUNG_NS ago and
// have not ended. The others wait in the queue, and their sandboxes in the pool. Jobs that run longer are not limited by this.
//
// Its share is that of its weight among the tenants that use theirs; all that begin a sandbox now and then count like one (rpc/fair.h).
//
// Most of what a short job costs is done by others, before and after it: the spawner, the birth of the next sandbox for the pool, and
// the kernel's threads that remove this one. So one sandbox at a time can keep two processors busy, and each beginning is also
// counted as PACE_COST_NS of the tenant's share: it may be PACE_YOUNG_NS ahead of that share, and then waits.
//
// A tenant that uses its share leaves one processor to the others: while the young sandboxes of all tenants have the rest, its next one
// waits for the end of one of them, but not longer than until its share pays for it. One that takes a sandbox now and then does not wait.
//
// This file has the arithmetic only, on the caller's clock; pool.c keeps the requests. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "server/rpc/tenants.h"

#define PACE_YOUNG_NS UINT64_C(30000000)
// A sandbox for one short job takes 5 ms of processor time from birth to removal (tests/bench/RESULTS.md, "Sandboxes per second"), and
// work in the kernel that nobody interrupts; with 5 ms here the other tenant's 99th percentile was 2.1 times that of a run alone, with 8 ms 0.9 to 2.2 in twelve sittings, 1.9 in their middle.
#define PACE_COST_NS UINT64_C(8000000)

// In a sandbox; zeroed before first use.
struct pace_young {
    struct list node;  // in the tenant's
    struct list among; // those of all tenants
    uint64_t since_ns;
    struct tenants *all;
    struct tenant_starts *of; // NULL: it is not young
};

// The tenant asks for a sandbox.
void pace_seen(struct tenant *t, uint64_t now_ns);

// Whether another sandbox may begin on a host with so many processors; if not, and none ends before, it may at *again_ns.
bool pace_may(struct tenant *t, uint32_t processors, uint64_t now_ns, uint64_t *again_ns);

// A sandbox is given to the tenant, on a host with so many processors.
void pace_begin(struct pace_young *y, struct tenant *t, uint32_t processors, uint64_t now_ns);

// It ends. True: it was young, so another one may begin.
bool pace_end(struct pace_young *y);
