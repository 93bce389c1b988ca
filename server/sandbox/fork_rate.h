// SPDX-License-Identifier: Apache-2.0
// Limits the number of processes and threads that a sandbox may start per second, with a token bucket. Starting and
// ending a process takes locks of the whole host (tasklist_lock, RCU callbacks, page tables), so a storm delays
// neighbours whatever its share of the processors.
//
//   every 10 ms: started since -> level (drains at forks_per_second) -> above the burst: HOLD at the spawner
//                                                                    -> back at it: continue
//
// A fork that pids.max refuses has copied the whole process before, under locks of the files that it maps, such as
// libc: a thousand tasks that try it delay every process of the host that maps them, too (copy_process() in the
// kernel's kernel/fork.c). RLIMIT_NPROC is checked before that copy, and counts forks that are under way, but its
// refusals are counted nowhere. So jobs have a RLIMIT_NPROC that is FORKS_REFUSED_AT_ONCE above pids.max: pids.max
// refuses that many forks at a time, and the kernel reports those; RLIMIT_NPROC refuses the others early.
//
// No interface can refuse forks by rate on all kernels, so the sandbox is stopped (cgroup.freeze) until it is within
// the rate (sandbox_forked()). Stopped tasks are outside of the kernel, where they hold none of its locks. This file has the
// bucket only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { FORKS_REFUSED_AT_ONCE = 4 };

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
