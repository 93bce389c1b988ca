// SPDX-License-Identifier: Apache-2.0
// Limits the number of processes and threads that a sandbox may start per second, with a token bucket. Starting and
// ending a process takes locks of the whole host (tasklist_lock, RCU callbacks, page tables), so a storm delays
// neighbours whatever its share of the processors.
//
//   every 10 ms: started since -> level (drains at forks_per_second) -> above the burst: HOLD at the spawner
//                                                                    -> back at it: continue
//
// No interface can refuse forks by rate on all kernels, so the sandbox is stopped (cgroup.freeze) until it is within
// the rate (sandbox_forked()). Stopped tasks are outside of the kernel, where they hold none of its locks. This file has the
// bucket only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct fork_rate {
    uint64_t looked_ns;
    double level;      // tasks started, minus those that the rate allowed since
    bool held, logged; // stopped now; logged once
    bool asked;        // the spawner has not replied yet
    uint64_t held_ns;  // the time when it was stopped
    // forks that the limit of processes refused, and the time of that reading
    uint64_t denied, denied_ns;
};

// `began`: tasks started since the last check. True: stop the sandbox.
bool fork_rate_add(struct fork_rate *f, double per_second, uint64_t began, uint64_t now_ns);
