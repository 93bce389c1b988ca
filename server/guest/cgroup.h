// SPDX-License-Identifier: Apache-2.0
// The cgroups of this sandbox's jobs: job-N, made, filled and removed by the guest, through a directory that no path of the
// sandbox leads to.
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "proto/err.h"

enum { GUEST_FIRST_JOB = 1 };

// Call once, before the others.
void guest_cgroup_init(int sandbox_fd);

// Makes ahead what takes time for the first job: its cgroup. Called once, while no request waits.
void guest_cgroup_prepare(void);

// It was never used, so it can be removed at once; if that fails, the first job uses it.
void guest_cgroup_unprepare(void);

// Makes the cgroup of a job. Returns its directory, *owned* by the caller, or a negative errno.
int guest_cgroup_take(uint32_t job, struct err *e);

// Moves a process, with all its threads, into the directory of a job's cgroup.
int guest_cgroup_enter(int cgroup, pid_t pid, struct err *e);

// Kills everything in it.
void guest_cgroup_kill(int cgroup);

// Negative errno; -EBUSY: it has processes.
int guest_cgroup_remove(uint32_t job);
