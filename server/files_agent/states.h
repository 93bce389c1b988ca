// SPDX-License-Identifier: Apache-2.0
// The states that a comparison compares: descriptors from the broker (spawner/ops.h: SPAWN_STATES), read-only mounts without a
// path. A file is found by its absolute path from one of them, without following any link.
#pragma once

#include "op.h"
#include "server/spawner/ops.h"

struct states {
    int fd[STATE_FDS]; // owned; -1: empty
};

// Waits for them. After a failure none is open.
int states_receive(struct op *op, struct states *out, struct err *e);
void states_close(struct states *s);

// Opens a file. Returns the descriptor, or a negative errno.
int states_open(const struct states *s, enum spawn_state_fd which, const char *path, int flags);
