// SPDX-License-Identifier: Apache-2.0
// Leaves below v1 controllers that are reused by later sandboxes. Only hybrid hosts have them.
//
// Making and removing a memory cgroup takes the kernel 0.1 to 0.3 ms, and more with every file system that the host
// ever had at once; cpu and blkio take 50 us each. So these three stay together after their sandbox was removed, and
// another sandbox uses them when they cannot be distinguished from new ones:
//
//   memory   nothing is charged, including kernel memory and swap: nothing of the earlier sandbox is left that could
//            be charged again, and no process, whose stack would be charged. No OOM kill happened. Its peak is reset
//   cpu      it was never throttled. Its quota is written again, which starts a new period
//   blkio    no device was used
//
// A leaf that is not like new is checked again later, because the kernel frees memory with delay. Leaves that are
// idle for long are removed. The pids leaf is made for each sandbox, because its peak cannot be reset; the same holds
// for everything in v2.
#pragma once

#include "cgroup_state.h"

struct cgroup_leaf {
    struct cgroup_leaf *next; // in the list of idle ones
    uint32_t number;          // its name is "leaf-NUMBER" under each controller
    uint64_t idle_since_ns;
    int fd[CG_N]; // owned; -1: this controller has no leaf
    bool is_new;
    bool limits_known;
    struct spawn_limits limits; // the limits that were written last
};

// Whether it has a part for this controller.
bool cgroup_leaf_is_for(const struct cgroups *cg, enum cgroup_controller c);

// Whether a folder below a v1 controller is a leaf.
bool cgroup_leaf_is_name(const char *name);

// Takes a leaf that is like new; *out is unchanged if there is none. The caller owns it until cgroup_leaf_give().
int cgroup_leaf_take(struct cgroups *cg, struct cgroup_leaf **out, struct err *e);

// Gives a leaf back from a sandbox without processes. limits: its current limits, NULL: unknown. Accepts NULL for l.
void cgroup_leaf_give(struct cgroups *cg, struct cgroup_leaf *l, const struct spawn_limits *limits);

// Removes leaves that were idle for too long. Returns the milliseconds until the next call, -1: not needed.
int cgroup_leaf_tidy(struct cgroups *cg);
