// SPDX-License-Identifier: Apache-2.0
// What is mounted in a sandbox besides its own files: volumes at paths. Part of its spec, the same for its forks; never changed
// once made, and counted. The layer that has the volumes mounts them (struct sandbox_mounters).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "server/spawner/ops.h"

struct mount {
    uint8_t volume[16]; // its id
    char name[65];      // its name when the request came
    char at[SPAWN_AT_MAX];
    bool read_only;
};

struct mounts {
    uint32_t refs;
    uint32_t n;
    struct mount mount[SPAWN_MOUNTS_OF_SANDBOX];
};

// Empty, with one reference. NULL: out of memory.
struct mounts *mounts_new(void);
// The same, all of them read-only. NULL: out of memory.
struct mounts *mounts_read_only(const struct mounts *m);
struct mounts *mounts_ref(struct mounts *m); // accepts NULL
void mounts_unref(struct mounts *m);         // accepts NULL
