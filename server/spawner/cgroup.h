// SPDX-License-Identifier: Apache-2.0
// Cgroups of sandboxes: one interface over pure v2 and over hybrid hosts (v1 controllers beside a v2 without them).
//
//   CONTAINER-relay/               only the relay
//   CONTAINER/                     ".../sandboxes" below a delegated unit, else "/stockade" or the configured name
//     SANDBOX/  (32 hex digits)    limits; root of the cgroup namespace; owned by the guest's uid
//       guest/                     pid 1 is created here (clone3 CLONE_INTO_CGROUP), nothing is ever migrated. If no
//                                  controller is enabled below SANDBOX, as on most hybrid hosts, pid 1 is in SANDBOX
//       job-N/                     made by the guest
//       copy/                      where its processes are apart: one that copies its files (cgroup_still.c)
//
// v2: a holder process enters SANDBOX once, only to make its cgroup namespace. Then the controllers are enabled below
// it while it is empty, which avoids the host-wide fork lock. v1: a leaf per controller, reused by later sandboxes if
// it is like new (cgroup_leaf.h), otherwise with the sandbox's name. The new process writes itself into `tasks` while
// it has one thread, which takes microseconds; `cgroup.procs` would take an RCU grace period. Kernels before 5.14
// have no cgroup.kill and are refused.
#pragma once

#include "cgroup_state.h"

// Spawner, once: finds or makes the container, locks it, removes what an earlier crash left (counted in *leftovers),
// enables controllers. FAILED_PRECONDITION: another spawner uses it. On failure *out is closed.
int cgroup_open(const char *configured, struct cgroups *out, uint32_t *leftovers, struct err *e);

// Kills everything below the container, waits until it is empty, removes all of it and closes *cg.
int cgroup_close(struct cgroups *cg, struct err *e);

// Makes a sandbox's cgroups with its limits. proc_fd: the host's /proc. guest: the host id of its guest. On
// failure nothing is left.
int cgroup_make(struct cgroups *cg, const char *name, uint32_t guest, int proc_fd,
                const struct spawn_limits *l, struct cgroup_sandbox *out, struct err *e);

// Closes the descriptors that are only needed during the birth: all except fd and leaf.
void cgroup_close_birth(struct cgroup_sandbox *s);

// Applies limits to a live sandbox, if they differ from the current ones `now`; NULL: unknown. On failure some may be
// applied.
int cgroup_limit(const struct cgroups *cg, const struct cgroup_sandbox *s, const char *name,
                 const struct spawn_limits *l, const struct spawn_limits *now, struct err *e);

// Kills everything in it, frozen or not. Returns immediately.
int cgroup_kill(int sandbox_fd, struct err *e);

// Kills everything in job-N; 0 also if it does not exist.
int cgroup_kill_job(int sandbox_fd, uint32_t job, struct err *e);

// Starts to freeze or thaw.
int cgroup_freeze(int sandbox_fd, bool frozen, struct err *e);

// A value of cgroup.events ("populated", "frozen"): 0, 1, or a negative errno.
int cgroup_event(int sandbox_fd, const char *key);

// cgroup_still.c. Freezes or thaws all but what copies its files. 1: it is done; 0: not yet, call it again; negative: e.
int cgroup_still(const struct cgroups *cg, int sandbox_fd, bool frozen, struct err *e);

// Where a process is made that copies its files, so that they are charged to the sandbox. Descriptors are owned; -1: none.
struct cgroup_copier {
    int fd;             // for CLONE_INTO_CGROUP
    int tasks_fd[CG_N]; // v1: it writes itself there
};
int cgroup_copier_open(const struct cgroups *cg, const struct cgroup_sandbox *s,
                       struct cgroup_copier *out, struct err *e);
void cgroup_copier_close(struct cgroup_copier *c);

// Removes an empty sandbox's cgroups, including those of jobs; returns its leaf for reuse. 0; -EBUSY: not yet, try
// again; other: e.
int cgroup_remove(const struct cgroups *cg, int sandbox_fd, const char *name, struct err *e);
