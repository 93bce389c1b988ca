// SPDX-License-Identifier: Apache-2.0
// The jobs of this sandbox: start, signal, reap. One thread, one table.
#pragma once

#include <linux/filter.h>
#include <stdbool.h>

#include "proto/err.h"
#include "packet.h"

enum {
    GUEST_JOBS_MAX = 256,     // that were not removed yet
    GUEST_STRINGS_MAX = 4096, // args and env of one job
    // of them, with their NULs; execve's own limit is 128 KiB for one
    GUEST_STRING_BYTES_MAX = 120 * 1024,
};

// Call once, before the others. `filter`: the filter of jobs; borrowed until the process ends. of_root: jobs are root inside.
void guest_jobs_init(int socket, int cgroup_fd, struct sock_filter *filter, unsigned short filter_n,
                     bool of_root);

// Carries out a request and sends the response to the socket. Takes the descriptors that it keeps out of the packet.
// Negative: the broker has gone.
int guest_jobs_request(struct guest_packet *p);

// Reaps ended processes, at most some hundred at a time: *more is set if there may be others. Negative: the broker has
// gone.
int guest_jobs_reap(bool *more);

// Removes cgroups that were busy before. Returns the milliseconds until the next call, -1: not needed.
int guest_jobs_tidy(void);

// Checks a Start against the bounds, before any action. Negative, with *e set.
int guest_jobs_check(const Stockade__Guest__Start *s, int fds_n, struct err *e);
