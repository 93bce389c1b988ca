// SPDX-License-Identifier: Apache-2.0
// A fresh upper layer for a sandbox that lives, over other layers than before:
//
//   SEAL      over what it has written so far, which is sealed as a layer        (a snapshot)
//   RESTORE   over a layer that it sealed before; what it has written since is dropped
//   INHERIT   over the layers of another sandbox; its own disk is new            (a fork)
//   FRESH     over the root's own layers; all that it has written is dropped     (a batch's next job: reset.c)
//
// A mounted overlay cannot change its layers, so a second one is made, takes over the mounts of the first, and becomes the
// root. Nothing is copied, and the process that the sandbox has, its guest, is moved by the kernel. Nothing else may run in
// it, since a process could still write through a folder of the old root.
#pragma once

#include <stdint.h>

#include "disk.h"
#include "tree.h"
#include "tree_layers.h"

enum tree_swap_kind { TREE_SEAL, TREE_RESTORE, TREE_INHERIT, TREE_FRESH, TREE_SWAP_KINDS_N };

// A sandbox, as seen from outside.
struct tree_of {
    int pid_fd;                 // of the guest
    int disk_fd;                // from tree_enter()
    struct tree_layers *layers; // of the sandbox, changed on success
};

struct tree_swap {
    enum tree_swap_kind kind;
    struct tree_of of;
    struct tree_of from; // INHERIT; not changed
    uint32_t layer;      // RESTORE, INHERIT: the layer of which one
    uint32_t root;
    uint32_t from_root; // INHERIT
    uint32_t uid;       // first host id of its files
    int userns_fd;
    int proc_fd;
    const struct disk_mounts *mounts; // mounted again in the new root; NULL: none
    int space_fd;                     // disk.h
    uint64_t disk_bytes;              // the sandbox's limits
    uint32_t inodes;
    // Its files are on scratch disks: the new upper layer is at scratch_fd, which stays the caller's, and takes scratch_use when
    // it is empty. -1: there is none yet
    bool on_disk;
    int scratch_fd;
    uint64_t scratch_has; // bytes
    struct tree_in_use scratch_use;
    uint64_t *scratch_bytes; // what it has to hold, after 1
    uint32_t *scratch_inodes;
};

// Spawner. 0, or a negative errno; 1: it needs a scratch disk, or a smaller one, and nothing has changed. *layer: the layer that now lies right below the upper one; SEAL of an upper layer in which
// nothing was written since is the earlier one, and nothing has changed (*helper_fd is -1). INHERIT: the layers have the numbers 1 to *layer.
// *helper_fd: owned, pidfd of the process that did it, to be reaped when it ends, which may be later; -1: none began.
// FRESH: *layer is 0, and the sandbox has no layers before and after; the first one comes before its first job, because what
// lies in the folders of its birth stays there.
// RESOURCE_EXHAUSTED with the reason LAYERS: there are too many. NOT_FOUND: no such layer. After a failure all is as before;
// -ENOTRECOVERABLE: it is not, and the sandbox must end.
int tree_swap(const struct tree *t, const struct tree_swap *s, uint32_t *layer, int *helper_fd,
              struct err *e);

// Spawner. A layer of the state directory, or (path NULL) of another sandbox, becomes one of the sandbox, on another of its layers or
// (0) on its root. Nothing else changes: a RESTORE shows its files. NOT_FOUND: it is not there; RESOURCE_EXHAUSTED (LAYERS): there are
// too many; (DISK_FULL): that of another sandbox counts to the limits of this one, and does not fit. After a failure all is as before.
struct tree_adopt {
    struct tree_of of;
    uint32_t below;
    const char *path;    // of the layer's folder in the state directory
    int mount_home_fd;   // the namespace in which the path is
    struct tree_of from; // the other sandbox, and its layer
    uint32_t layer;
    uint32_t root, from_root;
    int userns_fd;       // maps the ids of the layer to the sandbox's
    uint64_t disk_bytes; // the sandbox's limits
    uint32_t inodes;
};
int tree_adopt_layer(const struct tree *t, const struct tree_adopt *a, uint32_t *layer,
                     int *helper_fd, struct err *e);

// Spawner. A detached, read-only mount of a layer; it keeps the layer's files. *uid: the first host id of them.
int tree_open_layer(const struct tree_of *p, uint32_t layer, uint32_t *uid, int *helper_fd,
                    struct err *e);

// Spawner. Drops a layer, whose memory the kernel frees with the last sandbox that inherited it. The first that the sandbox sealed is
// a folder of its disk: it stays, and counts to the limits, until the sandbox ends. FAILED_PRECONDITION: another one lies on it.
int tree_drop_layer(const struct tree_of *p, uint32_t layer, int *helper_fd, struct err *e);
