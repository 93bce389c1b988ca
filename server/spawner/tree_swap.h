// SPDX-License-Identifier: Apache-2.0
// A fresh upper layer for a sandbox that lives: what it has written so far is sealed, and lies below from then on.
//
// A mounted overlay cannot change its layers, so a second one is made, takes over the mounts of the first, and becomes the
// root. Nothing is copied, and the process that the sandbox has, its guest, is moved by the kernel. Nothing else may run in
// it, since a process could still write through a folder of the old root.
#pragma once

#include <stdint.h>

#include "tree.h"

enum {
    TREE_SEALED_MAX = 32
}; // layers of one sandbox; their names must fit into an option of the file system

// What a sandbox's tree is made of by now; zeroed at its birth.
struct tree_layers {
    uint32_t sealed;
    bool placed; // the root's own lower layers are where overlay finds them
};

struct tree_swap {
    uint32_t root;
    int userns_fd;
    int pid_fd;  // of the guest
    int disk_fd; // from tree_enter()
};

struct tree_swapped {
    int layer_fd;  // owned: the sealed layer, a detached mount, read-only. -1 on failure
    int helper_fd; // owned: pidfd of the process that did it, to be reaped when it ends, which may be later. -1: none began
};

// Spawner. 0, or a negative errno. RESOURCE_EXHAUSTED with the reason LAYERS: there are TREE_SEALED_MAX. After a failure all is
// as before; -ENOTRECOVERABLE: it is not, and the sandbox must end.
int tree_swap_upper(const struct tree *t, const struct tree_swap *s, struct tree_layers *layers,
                    struct tree_swapped *out, struct err *e);
