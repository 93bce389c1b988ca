// SPDX-License-Identifier: Apache-2.0
// Disks that are open, and the mounts of them that sandboxes have. disk/order.h says what a disk is, and disk_process.h who
// makes, opens and removes them.
//
//   free --OPEN--> opening --stockade-disk has mounted it--> open --CLOSE, and no sandbox has it--> free
//
// All open disks are mounted in a mount namespace of their own, the space, at /0, /1 and so on, because a namespace that
// sandboxes are made from would copy each mount to each sandbox. It has nothing else in it, and exists as long as the spawner's
// descriptor, so that a spawner that is killed leaves no mount. A helper (tree_helper.h) clones a disk's mount there, maps its
// ids, and attaches the clone in a sandbox.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops.h"
#include "tree.h"

struct disks; // the spawner's table

struct disk_mount {
    uint32_t disk;
    bool read_only;
    bool host;     // a folder of the host (disk_host.h)
    int userns_fd; // owned; -1: the sandbox's
    char at[SPAWN_AT_MAX];
};

// Those of one sandbox, in the order in which they were mounted.
struct disk_mounts {
    uint32_t n;
    struct disk_mount mount[SPAWN_MOUNTS_OF_SANDBOX];
};

// NULL: out of memory. The space is made with the first disk.
struct disks *disks_new(void);
void disks_free(struct disks *d); // accepts NULL

// Descriptor of the space, borrowed; makes it if there is none yet. A negative errno.
int disks_space(struct disks *d, int proc_fd, struct err *e);

// Takes a number for a disk that is being opened. ALREADY_EXISTS: it is open or being opened; RESOURCE_EXHAUSTED: too many.
int disk_take(struct disks *d, uint32_t kind, const uint8_t id[16], uint32_t *number,
              struct err *e);

// It is mounted in the space now, or that failed: then the number is free again.
void disk_taken(struct disks *d, uint32_t number, bool mounted);

bool disk_is_open(const struct disks *d, uint32_t kind, const uint8_t id[16]);

// Unmounts it. NOT_FOUND; FAILED_PRECONDITION: a sandbox has it. *helper_fd: see tree_helper_run().
int disk_close(struct disks *d, uint32_t number, int *helper_fd, struct err *e);

// Mounts a disk in a sandbox, and adds it to its mounts, which own its descriptor then. root, uid and userns_fd are those of the sandbox, pid_fd is its
// guest's. See SPAWN_MOUNT.
struct disk_target {
    const struct tree *tree;
    uint32_t root, uid;
    int userns_fd, pid_fd;
};
int disk_mount(struct disks *d, const struct disk_target *to, const struct disk_mount *m,
               struct disk_mounts *mounts, int *helper_fd, struct err *e);

// The sandbox with these mounts has ended.
void disk_leave(struct disks *d, struct disk_mounts *mounts);

// ---- In a helper, which may change its mount namespace; nothing allocates or locks.

// A detached mount of an open disk, with the ids of a sandbox. Owned. The helper is in the space afterwards.
int disk_clone(int space_fd, const struct disk_mount *m, int userns_fd, struct err *e);

// Attaches it below a root of a sandbox, and makes missing folders: the job's below the folders that jobs write to, else the
// sandbox's root's. Follows no link.
int disk_attach(int fd, int root, const char *at, uint32_t uid, struct err *e);
