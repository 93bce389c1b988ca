// SPDX-License-Identifier: Apache-2.0
// Shares of the CPU: short work, above all the start of a job, runs before long computations.
//
//   CPU time -> bucket of the sandbox (drains at 1/20 of a CPU), full at 300 ms -> it computes
//            -> bucket of its tenant  (drains at 1/4 of a CPU),  full at 1 s    -> the tenant's next sandboxes compute
//
// A sandbox that computes is idle for the scheduler (cpu.idle of its cgroup): it runs when none that does not compute
// wants the CPU, and one that wakes up preempts it at once. With a small weight alone, a woken sandbox waited while
// others that compute ran (tests/bench/RESULTS.md). If its cpu_weight was raised above the default, it has a fiftieth of
// it instead, because idle ones have no weights.
//
// Without the second bucket, a tenant that computes in many short jobs would always have new sandboxes at full
// weight. A sandbox gets its full weight back when its bucket is half empty. This file has the buckets only;
// sandbox_share() (sandbox.h) asks the spawner. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "limits.h"
#include "server/rpc/tenants.h"

struct share {
    struct share_bucket bucket;
    uint64_t cpu_ns; // all CPU time of the sandbox at the last check
    bool computes;   // it is idle for the scheduler, or has a fiftieth of its cpu_weight
    bool asked;      // a change was requested from the spawner
};

// The sandbox's CPU time so far; t: its tenant, or NULL. True: the weight should change.
bool share_add(struct share *h, struct tenant *t, uint64_t cpu_ns, uint64_t now_ns);

// Sets the share of a ready sandbox that is given to t.
void share_begin(struct share *h, const struct tenant *t, uint64_t now_ns);

// Whether the sandbox computes, or will when the spawner has answered.
bool share_computes_then(const struct share *h);

// The limits for the spawner: as they are, or those of a sandbox that computes.
void share_limits(const struct limits *limits, bool computes, struct spawn_limits *out);
