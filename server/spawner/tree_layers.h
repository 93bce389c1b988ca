// SPDX-License-Identifier: Apache-2.0
// The layers of one sandbox: what it has sealed, and what it inherited from the sandbox that it was forked from.
//
// Each is a folder `s` in a mount point of the sandbox's disk, "AA" to "Rl", which no path of a job leads to. Where the
// root is writable, it has further parts: `b` of /usr, `c` and so on of the root's further folders (tree_parts.c). The first
// one that a sandbox seals is a folder of its disk; each later one has a file system of its own, made as the upper layer that
// it was before, so that the kernel frees all of it at once when it is dropped. The file system of an inherited one is
// another sandbox's; "rAA" is the same mount without the mapping of ids, for the forks of this one.
//
// All of it lives in the sandbox's mount namespace, and ends with it. Spawner only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"

enum {
    // lie on each other; their names must fit into an option of the file system (fsconfig(2): 256 bytes)
    TREE_DEPTH = 47,
    // a sandbox can have so many snapshots, and joined layers below them
    TREE_LAYERS_OF_SANDBOX = 1200,
    // with the upper one, and its successor
    TREE_NUMBERS = TREE_LAYERS_OF_SANDBOX + 2,
    TREE_MOUNT_POINT = 8,
    TREE_LOWER_MAX = 256,
    TREE_FOLDERS_OF_JOBS = 4, // /home/agent, /tmp, /var/tmp, /dev/shm
};

// Layers have the numbers 1 to TREE_NUMBERS; 0 stands for none.
struct tree_sealed {
    bool there;
    bool mapped;    // there is an "r" mount point, too
    uint32_t below; // the layer that it lies on
    uint32_t uid;   // first host id of its files
    uint64_t bytes; // what it takes of the sandbox's limits; inherited: nothing
    uint64_t inodes;
};

// An upper layer that FRESH made, as it was before a job ran (tree_fresh.c).
struct tree_untouched {
    struct tree_in_use {
        uint64_t blocks, inodes;
    } upper, disk; // no inodes: unknown
    struct tree_folder_seen {
        uint64_t mode, uid, gid, links, bytes, flags;
        int64_t time[3][2];
    } folder[TREE_FOLDERS_OF_JOBS];
};

struct tree_layers {
    struct tree_sealed *sealed; // owned: 0 to numbers; it moves when it grows
    uint32_t numbers;           // at least TREE_DEPTH + 2
    struct tree_untouched untouched;
    uint32_t top;   // the layer right below the upper one
    uint32_t upper; // number of the upper file system; 0: it is still u0 of the disk
    int upper_fd;   // owned: its root, O_PATH
    uint32_t copy;  // the layer that is being copied (tree_copy.c); 0: none
    int copy_fd;    // owned: its root, O_PATH; -1: none
    bool attached;  // the root's own lower layers are where overlay finds them
    // Of a sandbox on scratch disks.
    struct tree_in_use base, copy_base; // what the upper one and the copy take when they are empty
    int under_fd;  // owned: the root of the layer that was sealed last, O_PATH; -1: none
    bool recycled; // the upper layer is FRESH: /dev/shm is no part of it, so it cannot be sealed
};

// NULL: out of memory. Accepts NULL.
struct tree_layers *tree_layers_new(void);
void tree_layers_free(struct tree_layers *l);

// A number that is not in use, and not `except`; 0: all are, or no memory is left. Spawner only, since it may allocate.
uint32_t tree_layers_take(struct tree_layers *l, uint32_t except);

// How many are sealed or inherited.
uint32_t tree_layers_count(const struct tree_layers *l);

bool tree_layers_have(const struct tree_layers *l, uint32_t n);

// Whether a layer or the upper one lies on it.
bool tree_layers_need(const struct tree_layers *l, uint32_t n);

// The layers from this one down. Returns their number.
uint32_t tree_layers_chain(const struct tree_layers *l, uint32_t top, uint32_t out[TREE_DEPTH]);

// RESOURCE_EXHAUSTED (LAYERS): the sandbox can have no further layer, or none on this one (0: on the root).
int tree_layers_may_add(const struct tree_layers *l, uint32_t on, struct err *e);

// The folders of the disk that the mount points of layers need, with one more layer and the upper one.
uint32_t tree_layers_mount_points(const struct tree_layers *l);

// The name of its mount point, and of the folder in it.
void tree_layers_mount_point(uint32_t n, char out[TREE_MOUNT_POINT]);

// The name of a part's folder in it.
char tree_layers_folder(uint32_t part);

// The lower layers of a part for overlay: those of the chain, then the root's own.
void tree_layers_lower(const struct tree_layers *l, uint32_t top, uint32_t part,
                       char out[TREE_LOWER_MAX]);

// What the sealed layers leave of a sandbox's limits for the upper one. At least a little, so that files can be removed:
// that takes an inode.
void tree_layers_room(const struct tree_layers *l, uint64_t disk_bytes, uint32_t inodes,
                      uint64_t *bytes_left, uint32_t *inodes_left);

// False: the sealed layers alone take more than these limits.
bool tree_layers_fit(const struct tree_layers *l, uint64_t disk_bytes, uint32_t inodes);
