// SPDX-License-Identifier: Apache-2.0
// The IPC namespace of a sandbox, emptied for its next job: message queues, semaphores and shared memory of System V, and
// message queues of POSIX (mq_overview(7)). Spawner only, as root; no name that a job chose is followed.
#pragma once

#include "proto/err.h"

// Opens the folder of the POSIX message queues: owned by the caller. pid_fd: of a process of the namespace; home_fd: our own.
int ipc_open(int pid_fd, int home_fd, struct err *e);

// Removes every object. No process but the first one may be there. 0, or a negative errno.
int ipc_clear(int pid_fd, int home_fd, int folder_fd, struct err *e);
