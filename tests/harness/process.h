// SPDX-License-Identifier: Apache-2.0
// What /proc says about a process.
#pragma once

#include <sys/types.h>

// Entries of /proc/PID/fd, "." and ".." included: to be compared with an earlier count.
unsigned process_fds(pid_t pid);
