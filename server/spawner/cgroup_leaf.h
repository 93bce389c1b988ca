// SPDX-License-Identifier: Apache-2.0
// Leaves below v1 controllers that sandboxes use one after the other. Only hybrid hosts have them.
//
// To make a memory cgroup and take it away costs the kernel 0.1 to 0.3 ms, more with every file system that the host ever had
// at once; cpu and blkio cost 50 us each. So these three stay when their sandbox has gone, as one, and another is born into
// them when nothing tells them from new ones:
//
//   memory   not a byte is charged, kernel memory and swap included: nothing of the sandbox before is left that could be
//            charged again, nor a process, whose stack would be. Nobody was killed for it. Its peak is set back
//   cpu      it never waited for its quota, which is written again: that begins its period anew
//   blkio    no device was used
//
// What is not so yet is looked at again later, since the kernel frees in its own time. What is idle for long is
// removed. The leaf of pids is made for each sandbox, since its peak cannot be set back; so it is with everything of
// v2.
#pragma once

#include "cgroup.h"

struct cgroup_leaf {
    struct cgroup_leaf *next; // among the idle ones
    uint32_t number;          // its name is "leaf-NUMBER" under each controller
    uint64_t idle_since_ns;
    int fd[CG_N]; // owned; -1: not of this controller
    bool is_new;
    bool limits_known;
    struct spawn_limits limits; // what was written last
};

// Whether it has a part for this controller.
bool cgroup_leaf_is_for(const struct cgroups *cg, enum cgroup_controller c);

// Whether a folder below a v1 controller is a leaf's.
bool cgroup_leaf_is_name(const char *name);

// A leaf that is as good as new; *out is unchanged if there is none. The caller owns it until it gives it back.
int cgroup_leaf_take(struct cgroups *cg, struct cgroup_leaf **out, struct err *e);

// Gives a leaf back from a sandbox without processes. limits: its current limits, NULL: unknown. l may be NULL.
void cgroup_leaf_give(struct cgroups *cg, struct cgroup_leaf *l, const struct spawn_limits *limits);

// Removes leaves that were idle for too long. Returns the milliseconds until the next call, -1: not needed.
int cgroup_leaf_tidy(struct cgroups *cg);
