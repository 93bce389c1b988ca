// SPDX-License-Identifier: Apache-2.0
// The folder on disk that is the lowest layer of every sandbox of one root.
#pragma once

#include "server/spawner/ops.h"

enum { SKELETON_TOP_MAX = 6, SKELETON_PATHS_MAX = 8 };

// What a template shows of the host.
struct skeleton_template {
    char name[64];
    char hostname[64];
    // Absolute host folders, beside /usr, that jobs see read-only at the same place (such as /opt). "" ends the list.
    char paths[SKELETON_PATHS_MAX][SPAWN_PATH_MAX];
};

struct skeleton_top {
    int n;
    const char *name[SKELETON_TOP_MAX]; // borrowed, for ever
};

// Makes NAME below the open folder `templates` (root's own): a root with a generated /etc, the host's links such as
// /bin -> usr/bin, and empty folders for all that is mounted or written. `top` receives the names of the host's top folders
// ("lib64") that are real ones and need a mount. The new folder, opened, or a negative errno; *owned* by the caller.
int skeleton_make(int templates, const char *name, const struct skeleton_template *t,
                  struct skeleton_top *top, struct err *e);

// Removes a name below an open folder with all that is in it. Fine when there is none. Follows no link and stays on the
// folder's own file system.
int skeleton_remove(int dir, const char *name, struct err *e);
