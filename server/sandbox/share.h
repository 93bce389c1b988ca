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
// One that computes and starts many tasks has a fifth of its weight instead of being idle. A start and an end of a task take
// locks of files that many processes map, such as libc (i_mmap_rwsem, dup_mmap() in the kernel's kernel/fork.c), and the
// kernel hands such a lock to the first that waits. If that one is idle for the scheduler, every process on the host
// that maps the file waits until it gets a processor, hundreds of milliseconds on a busy host.
//
// Without the second bucket, a tenant that computes in many short jobs would always have new sandboxes at full
// weight. A sandbox gets its full weight back when its bucket is half empty. This file has the buckets only;
// sandbox_share() (sandbox.h) asks the spawner. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "limits.h"
#include "server/rpc/tenants.h"

enum share_weight {
    SHARE_WHOLE,
    SHARE_IDLE,  // it computes: idle for the scheduler, or a fiftieth of its cpu_weight
    SHARE_FIFTH, // it computes, and starts many tasks
};

struct share {
    struct share_bucket bucket;
    uint64_t cpu_ns;   // all CPU time of the sandbox at the last check
    double tasks;      // started, minus those that drained since
    uint64_t tasks_ns; // uv_hrtime() of the last count
    enum share_weight weight;
    enum share_weight next; // requested from the spawner, if
    bool asked;
};

// The sandbox has started so many tasks, or tried to, since the last call.
void share_started(struct share *h, uint64_t tasks, uint64_t now_ns);

// The sandbox's CPU time so far; t: its tenant, or NULL. True: the weight should change to `next`.
bool share_add(struct share *h, struct tenant *t, uint64_t cpu_ns, uint64_t now_ns);

// Sets the share of a ready sandbox that is given to t.
void share_begin(struct share *h, const struct tenant *t, uint64_t now_ns);

// The weight that it has when the spawner has answered.
enum share_weight share_then(const struct share *h);

// The limits for the spawner, with this part of the weight.
void share_limits(const struct limits *limits, enum share_weight weight, struct spawn_limits *out);
