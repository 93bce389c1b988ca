// SPDX-License-Identifier: Apache-2.0
// How many processes and threads a sandbox may begin, per second: a token bucket. Beginning and ending one takes locks that the
// whole host has once (tasklist_lock, RCU callbacks, page tables), so a storm of them delays neighbours whatever the
// storm's share of the processors.
//
//   every 10 ms: began since -> level (drains at forks_per_second) -> above the burst: HOLD at the spawner
//                                                                  -> back at it: go on
//
// Nothing can refuse a fork by its rate on all kernels, so the sandbox is stopped (cgroup.freeze) for as long as it was too
// fast. Held tasks stand outside of the kernel, where they have no lock of it. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct sandbox;

struct fork_rate {
    uint64_t looked_ns;
    double level;     // begun, less what the rate allowed since
    bool held, told;  // at present; ever
    bool asked;       // the spawner has not answered
    uint64_t held_ns; // since when
};

// `began` tasks since the last look.
void fork_rate_look(struct sandbox *s, uint64_t began, uint64_t now_ns);

// The bucket alone. True: hold it.
bool fork_rate_add(struct fork_rate *f, double per_second, uint64_t began, uint64_t now_ns);
