// SPDX-License-Identifier: Apache-2.0
// The spawner as a process: its start and its end. What is said to it in between is spawn.c.
//
// Called by spawn.c alone: as root, before threads exist and before the broker gives its rights up, as spawn_start().
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../proto/err.h"
#include "spawner/ops.h"

struct spawn_process {
    pid_t pid;
    int fd; // our end of its socket, SOCK_SEQPACKET
};

// Forks, executes, sends the configuration and waits (SPAWN_START_MS) for the features. What is promised is that of
// spawn_start(); out->fd is *owned*, out->pid has to be reaped.
int spawn_process_start(const char *binary, const struct spawn_config *config,
                        struct spawn_features *features, int bpf_fds[BPF_FDS],
                        struct spawn_process *out, struct err *e);

// Waits for its end, without SIGCHLD, for grace_ms at most. True: it ended in time, with status 0.
bool spawn_process_reap(pid_t pid, uint32_t grace_ms);
