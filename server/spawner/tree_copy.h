// SPDX-License-Identifier: Apache-2.0
// A new layer of a sandbox with a copy of others, or of what it has written since the last one, while its mounts stay as they are:
//
//   a file system in memory, or a scratch disk, as large as what is copied may be  ->  attached among the sandbox's layers, on `below`
//   ->  stockade-keeper, in the sandbox's cgroup, fills it (keeper/keep.h: COPY)  ->  its size is what it takes
//
// Or stockade-keeper fills it with the files of a sealed layer of the state directory, which are nowhere else in clear.
//
// Room for it is taken from the upper layer until the size is known. Where the kernel cannot share a layer in memory, a copy of it with
// other ids is what another sandbox gets.
#pragma once

#include "server/keeper/keep.h"
#include "tree_swap.h"

struct tree_copy {
    struct tree_of of;
    uint32_t root;
    // `from` is a layer of this sandbox, and the only one. layers NULL: it is one of its own
    struct tree_of other;
    uint32_t other_root;
    // the file of a sealed layer, and the namespace in which the path is; `bytes` and `inodes` are what it takes at most. NULL: none
    const char *sealed;
    int mount_home_fd;
    uint32_t from; // the highest layer; 0: what was written since the last one, which is frozen
    // the copy lies on it, so it is the first that is not copied. from 0: ignored, unless `sealed`
    uint32_t below;
    uint32_t uid;
    uint64_t bytes; // what the copy may take
    uint32_t inodes;
    uint64_t disk_bytes; // the sandbox's limits
    uint32_t disk_inodes;
    // Its files are on scratch disks: the new layer is at scratch_fd, which stays the caller's. -1: there is none yet
    bool on_disk;
    int scratch_fd;
    struct tree_in_use scratch_use; // as of tree_swap.h, and those two
    uint64_t *scratch_bytes;
    uint32_t *scratch_inodes;
};

// What the keeper gets. Descriptors are owned by the caller.
struct tree_copying {
    uint32_t layer;
    int target_fd;
    uint32_t uid; // first host id of the files that are copied
    uint32_t n;
    struct tree_copy_source {
        enum keep_source_kind kind;
        int fd, dev_fd;
    } source[KEEP_SOURCES_MAX];
};

// Spawner. 0, or a negative errno: then nothing has changed; 1: it needs a scratch disk. NOT_FOUND: no such layers. RESOURCE_EXHAUSTED: LAYERS; DISK_FULL: the limits
// have no room for both; COPY_BYTES: it holds more than `bytes`. *helper_fd: as of tree_swap().
int tree_copy(const struct tree *t, const struct tree_copy *c, struct tree_copying *out,
              int *helper_fd, struct err *e);
void tree_copying_close(struct tree_copying *c);

// Spawner. The copy is complete: what it does not need is the upper layer's again. Layers that lie on `instead` (0: none), and the
// upper one if it does, lie on the copy from now on.
int tree_copied(const struct tree *t, const struct tree_copy *c, uint32_t layer, uint32_t instead,
                struct err *e);

// Spawner. Gives the upper layer what the others leave of these limits. FAILED_PRECONDITION (DISK_IN_USE).
int tree_fit_upper(const struct tree *t, const struct tree_of *p, uint64_t disk_bytes,
                   uint32_t inodes, struct err *e);
