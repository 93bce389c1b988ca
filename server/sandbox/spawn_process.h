// SPDX-License-Identifier: Apache-2.0
// The start and the end of the spawner's process; spawn.c does the communication in between.
//
// Only spawn.c calls this: spawn_process_start() as root, before threads exist and before the broker drops its
// privileges, as spawn_start(); the others on the loop's thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/err.h"
#include "server/spawner/ops.h"

enum { SPAWN_START_MS = 90 * 1000 }; // timeout of the start, for the features

struct spawn_process {
    pid_t pid;
    int fd; // the broker's end of its socket, SOCK_SEQPACKET
};

// Forks, executes, sends the configuration and waits (SPAWN_START_MS) for the features. See spawn_start(); out->fd is
// *owned*, and out->pid must be reaped.
int spawn_process_start(const char *binary, const struct spawn_config *config,
                        struct spawn_features *features, int bpf_fds[BPF_FDS],
                        struct spawn_process *out, struct err *e);

// Whether it runs, waits for a processor, or has used one since the call before. *cpu_ticks: what it had used then (0:
// no call before), updated. False: it is stopped, sleeps or waits for a device, or /proc does not show it.
bool spawn_process_runs(pid_t pid, uint64_t *cpu_ticks);

// Waits for its end, without SIGCHLD, for at most grace_ms. True: it ended in time, with status 0.
bool spawn_process_reap(pid_t pid, uint32_t grace_ms);
