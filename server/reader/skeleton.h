// SPDX-License-Identifier: Apache-2.0
// The folder on disk that is the lowest layer of all sandboxes of one root.
#pragma once

#include "server/spawner/ops.h"

enum { SKELETON_TOP_MAX = 6, SKELETON_PATHS_MAX = 8 };

// The part of the host that a template shows.
struct skeleton_template {
    char name[64];
    char hostname[64];
    // Absolute paths of host folders, besides /usr, that jobs see read-only at the same path (such as /opt). "" ends
    // the list.
    char paths[SKELETON_PATHS_MAX][SPAWN_PATH_MAX];
    bool user_root;
    bool writable;
    bool on_disk;
};

struct skeleton_top {
    int n;
    const char *name[SKELETON_TOP_MAX]; // borrowed, always valid
};

// Makes NAME below the open folder `templates` (owned by root): a root with a generated /etc, the host's links such
// as /bin -> usr/bin, and empty folders as mount points. `top` receives the names of the host's top-level folders
// ("lib64") that are not links and need a mount. Returns the new folder's descriptor, *owned* by the caller, or a
// negative errno.
int skeleton_make(int templates, const char *name, const struct skeleton_template *t,
                  struct skeleton_top *top, struct err *e);

// Removes a name below an open folder and everything in it. Succeeds if it does not exist. Follows no link and stays
// on the folder's file system.
int skeleton_remove(int dir, const char *name, struct err *e);
