// SPDX-License-Identifier: Apache-2.0
// The folder on disk that is the lowest layer of every sandbox of one template. Spawner, at start only.
#pragma once

#include "ops.h"

// Makes, or makes anew, NAME below the open folder `templates` (root's own): a root with a generated /etc, the host's
// links such as /bin -> usr/bin, and empty folders for all that is mounted or written. `top` receives the names of the
// host's top folders ("lib64") that are real ones and need a mount.
enum { TREE_TOP_MAX = 6 };

struct tree_top {
    int n;
    const char *name[TREE_TOP_MAX]; // borrowed, for ever
};

int tree_skeleton_make(int templates, const struct spawn_template *t, struct tree_top *top,
                       struct err *e);

// Removes a name below an open folder with all that is in it. Fine when there is none. Follows no link and stays on the
// folder's own file system.
int tree_skeleton_remove(int dir, const char *name, struct err *e);
