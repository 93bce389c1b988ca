// SPDX-License-Identifier: Apache-2.0
// The files that a sandbox sees: prepared by the spawner, assembled by the child, used by jobs.
//
// At start, the spawner makes a clean read-only /dev, and moves into a mount namespace with only what children need,
// so that cloning it is cheap. Roots are added and removed later (tree_root.c): layers that the reader opened. The
// lowest one is a folder with what all its sandboxes share (generated /etc, empty /proc, /dev, /usr, links such as
// /bin -> usr/bin).
//
// The first process of a sandbox, still root in the first user namespace but in its own mount, pid, network and other
// namespaces, calls tree_enter(). It makes one tmpfs for all that the sandbox writes (its size and inodes are the
// disk limits), or takes a scratch disk for it; an overlay of the root's skeleton as /; an overlay of the host's /usr as /usr, with id-mapped lower
// layers if the file system supports that; /dev, /dev/pts, /dev/shm, and /proc with masks. Then it detaches
// everything that these were made from, and the new root becomes /.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops.h"

struct tree; // the spawner's part

// Spawner, once, before any clone: needs real root. Changes the process's own mount namespace. cgroup_root_fd: an
// open directory of the v2 cgroup that will hold the sandboxes; after the call `*cgroup_fd` is the same folder opened
// through a mount in the new namespace, so that open_tree(OPEN_TREE_CLONE) on folders below it works in children.
// Other descriptors of the spawner stay valid. Its working directory is part of the tree from then on and must not
// change. Features (such as id-mapped mounts) are added to f.
int tree_prepare(const struct spawn_config *config, int cgroup_root_fd, int *cgroup_fd,
                 struct tree **out, struct spawn_features *f, struct err *e);
void tree_free(struct tree *t); // accepts NULL

// Spawner. Makes a root of the layers in struct spawn_root; *number is its number. Takes the descriptors of layers and lock, and on
// failure all; fds_n is their number. INVALID_ARGUMENT: a field or a descriptor is invalid; RESOURCE_EXHAUSTED: there are SPAWN_ROOTS_MAX roots,
// or too many layers. *remark: a warning about weaker isolation, or "".
int tree_root_add(struct tree *t, const struct spawn_root *from, const int *fds, unsigned fds_n,
                  uint32_t *number, struct err *remark, struct err *e);

// Spawner. Adds or removes a user of a root. NOT_FOUND: no such root, or it was given up.
int tree_root_take(struct tree *t, uint32_t number, struct err *e);
void tree_root_leave(struct tree *t, uint32_t number);

// Spawner. Gives a root up: it is removed now, or with its last sandbox. NOT_FOUND: as above.
int tree_root_give_up(struct tree *t, uint32_t number, struct err *e);

// False from the moment when it is removed.
bool tree_root_exists(const struct tree *t, uint32_t number);

// Its tier (tier.h), as passed to tree_root_add().
uint32_t tree_root_tier(const struct tree *t, uint32_t number);

// Whether something can be mounted at this path of its sandboxes: absolute and plain, below no folder of the sandbox itself or of
// the root, and above none.
bool tree_root_has_mount_point(const struct tree *t, uint32_t number, const char *at);

// Whether one of two absolute paths is the other, or lies below it.
bool tree_paths_meet(const char *a, const char *b);

// Whether its jobs are root inside.
bool tree_root_is_user_root(const struct tree *t, uint32_t number);

// Whether the files of its sandboxes are on scratch disks.
bool tree_root_is_on_disk(const struct tree *t, uint32_t number);

// The host name of its sandboxes. Borrowed.
const char *tree_root_hostname(const struct tree *t, uint32_t number);

struct tree_sandbox {
    uint32_t root; // tree_root_add
    int userns_fd; // maps the ids inside to [uid, uid + 65536); for id-mapped mounts
    uint32_t uid;  // the first host id of the range: owner of files that belong to uid 0 inside
    uint64_t disk_bytes;
    uint32_t inodes;
    uint64_t memory_bytes; // limits that the sandbox sees in /proc and /sys
    uint32_t cpu_millis;
    // a detached mount that must end with the sandbox's mounts, -1: none; no path leads to it
    int hidden_fd;
    // a detached mount of an empty file system for all that the sandbox writes; -1: a tmpfs is made
    int scratch_fd;
};

// In the child, as root in new mount, pid and other namespaces. After success "/" is the sandbox's root, nothing of
// the host is reachable, and the working directory is "/". *disk_fd: an O_PATH descriptor of the tmpfs, for
// tree_resize. No allocation, no lock, no log.
int tree_enter(const struct tree *t, const struct tree_sandbox *s, int *disk_fd, struct err *e);

// What a scratch disk must be able to hold for a sandbox with these limits.
uint64_t tree_scratch_bytes(const struct tree *t, uint64_t disk_bytes);
uint32_t tree_scratch_inodes(uint32_t inodes);

// Spawner: changes the size of a sandbox's tmpfs by its descriptor (received from the child). -EBUSY: more is in use. Does nothing
// to a scratch disk.
int tree_resize(const struct tree *t, int disk_fd, uint64_t disk_bytes, uint32_t inodes,
                struct err *e);

// Spawner: shows the sandbox its new limits of memory and CPU. before: the limits that it sees now; NULL: unknown.
int tree_view_change(const struct tree *t, int disk_fd, const struct spawn_limits *limits,
                     const struct spawn_limits *before, struct err *e);
