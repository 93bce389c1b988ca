// SPDX-License-Identifier: Apache-2.0
// What is mounted in a sandbox besides its own files, at paths: volumes, and folders of the host that its template lists. Part of its spec, the same for its forks; never changed
// once made, and counted. The layer that has the volumes mounts them (struct sandbox_mounters).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/spawner/ops.h"

struct mount {
    uint8_t volume[16];        // its id
    char name[SPAWN_PATH_MAX]; // its name when the request came; or the path of the folder
    bool host;                 // a folder of the host, with mounts_host_id() as its id
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
// The id of a folder of the host, a sum of its path: different for each folder of a template.
void mounts_host_id(const char *path, uint8_t id[16]);

// Adds a folder of the host, as the template lists it. PERMISSION_DENIED (HOST_MOUNT): it does not, or as read-only.
struct template;
int mounts_add_host(struct mounts *m, const struct template *t, const struct mount *wanted,
                    struct err *e);

struct mounts *mounts_ref(struct mounts *m); // accepts NULL
void mounts_unref(struct mounts *m);         // accepts NULL
