// SPDX-License-Identifier: Apache-2.0
// The part of the start that needs root: folders, the process that stays root, and the end of our privileges. Single
// thread.
#pragma once

#include "proto/err.h"
#include "privilege.h"
#include "server/sandbox/bpf.h"
#include "server/sandbox/spawn.h"

struct config;

struct start {
    const struct config *config;
    const char *config_file; // NULL: none
    // Results:
    struct identity who;
    struct spawn_features features;
    struct bpf bpf;
    int files_fd;        // owned: stockade-files, for files_new(); -1: none
    struct spawn *spawn; // owned: spawn_close(); NULL: the spawner does not run
};

// Prepares the folders, starts the spawner, and gives up root. After a failure the folders that it made are removed again,
// as long as the process is root.
int start_as_root(struct start *s, struct err *e);
