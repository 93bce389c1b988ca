// SPDX-License-Identifier: Apache-2.0
// Shares of the CPU: short work, above all the start of a job, runs before long computations.
//
//   CPU time -> bucket of the sandbox (drains at 1/20 of a CPU), full at 300 ms -> a fiftieth of its cpu_weight
//            -> bucket of its tenant  (drains at 1/4 of a CPU),  full at 1 s    -> the tenant's next sandboxes begin with it
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
    bool computes;   // it has a fiftieth of its cpu_weight
    bool asked;      // a change was requested from the spawner
};

// The sandbox's CPU time so far; t: its tenant, or NULL. True: the weight should change.
bool share_add(struct share *h, struct tenant *t, uint64_t cpu_ns, uint64_t now_ns);

// Sets the share of a ready sandbox that is given to t.
void share_begin(struct share *h, const struct tenant *t, uint64_t now_ns);

// Whether the sandbox has a fiftieth of its weight, or will have it when the spawner has answered.
bool share_computes_then(const struct share *h);

// The limits for the spawner: as they are, or with a fiftieth of the weight.
void share_limits(const struct limits *limits, bool computes, struct spawn_limits *out);
