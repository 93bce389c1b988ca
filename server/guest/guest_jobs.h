// SPDX-License-Identifier: Apache-2.0
// The jobs of this sandbox: started, signalled, reaped. One thread, one table.
#pragma once

#include <linux/filter.h>
#include <stdbool.h>

#include "../../proto/err.h"
#include "guest_packet.h"

enum {
    GUEST_JOBS_MAX = 256,     // that have not been removed
    GUEST_STRINGS_MAX = 4096, // args and env of one job
    GUEST_STRING_BYTES_MAX =
        120 * 1024, // of them, with their NULs: execve's own limit is 128 KiB for one
};

// Once, before the others. `filter`: what jobs load; borrowed, for ever.
void guest_jobs_init(int socket, int cgroup_fd, struct sock_filter *filter,
                     unsigned short filter_n);

// What the first job needs and takes time is made ahead: its cgroup. Once, when nobody waits. A Remove of that job gives
// it up again.
void guest_jobs_prepare(void);

// Carries a request out; whatever it answers goes to the socket. Takes the descriptors that it keeps out of the packet.
// Negative: the broker has gone.
int guest_jobs_request(struct guest_packet *p);

// Reaps what has ended, at most some hundred in one go: *more says that there may be others. Negative: the broker has
// gone.
int guest_jobs_reap(bool *more);

// Removes cgroups that were busy before. Returns the milliseconds until it should be called again, -1: not needed.
int guest_jobs_tidy(void);

// Checks a Start against the bounds, before anything is done. Negative with *e written.
int guest_jobs_check(const Stockade__Guest__Start *s, int fds_n, struct err *e);
