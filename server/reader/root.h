// SPDX-License-Identifier: Apache-2.0
// Layers of a root: a skeleton below the state directory and clones of the host's folders. Runs as root, in the host's
// mount namespace.
#pragma once

#include "server/spawner/ops.h"
#include "skeleton.h"

// Opens STATE_DIR/templates, which contains the skeletons, and removes those that no root uses any more.
// FAILED_PRECONDITION: other users than root may write there. Returns a descriptor *owned* by the caller, or a
// negative errno.
int root_folder(const char *state_dir, struct err *e);

// Makes a skeleton of that template and opens its layers. fds: out->layers_n + 1, *owned* by the caller. After a
// failure only a skeleton is left, which the next root_folder() removes.
int root_make(int folder, const struct skeleton_template *t, struct spawn_root *out,
              int fds[SPAWN_ROOT_FDS_MAX], struct err *e);
