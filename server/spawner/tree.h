// SPDX-License-Identifier: Apache-2.0
// The files that a sandbox sees: made ahead by the spawner, put together by the child, seen by the job.
//
// The spawner (at start) makes a clean read-only /dev, and moves itself into a mount namespace that holds nothing but what
// children need, so that cloning it is cheap. Roots come and go later (tree_root.c): layers that the reader opened, the
// lowest of which is a folder with what is the same for every sandbox (generated /etc, empty /proc, /dev, /usr, links such
// as /bin -> usr/bin).
//
// The child of a sandbox, still root in the first user namespace but in mount, pid, network... namespaces of its own,
// calls tree_enter(): one tmpfs (size and inodes are the disk limits) for all that the sandbox writes; an overlay of the
// root's skeleton as /, an overlay of the host's /usr as /usr, lower layers id-mapped where the file system can;
// /dev, /dev/pts, /dev/shm, /proc with masks; all that it was made from detached, the root in its place.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops.h"

struct tree; // the spawner's part

// Spawner, once, before any clone: needs real root. Changes the process's own mount namespace. cgroup_root_fd: an open
// directory of the v2 cgroup that will hold the sandboxes; after the call `*cgroup_fd` is the same folder opened
// through a mount in the new namespace, so that open_tree(OPEN_TREE_CLONE) on folders below it works in children.
// The other descriptors that the spawner holds stay valid; its cwd is from then on part of the tree and must not be changed.
// Features found (id-mapped mounts...) are added to f.
int tree_prepare(const struct spawn_config *config, int cgroup_root_fd, int *cgroup_fd,
                 struct tree **out, struct spawn_features *f, struct err *e);
void tree_free(struct tree *t); // NULL is fine

// Spawner. Makes a root of layers as struct spawn_root has them; its number is *number. Takes the descriptors, those of a
// failure too. INVALID_ARGUMENT: a field or a descriptor is not what it must be; RESOURCE_EXHAUSTED: there are
// SPAWN_ROOTS_MAX, or too many layers. *remark: what is weaker than it could be, or "".
int tree_root_add(struct tree *t, const struct spawn_root *from, const int *fds, unsigned fds_n,
                  uint32_t *number, struct err *remark, struct err *e);

// Spawner. One more sandbox of a root, and one less. NOT_FOUND: there is no such root, or it was given up.
int tree_root_take(struct tree *t, uint32_t number, struct err *e);
void tree_root_leave(struct tree *t, uint32_t number);

// Spawner. Gives a root up: it goes now, or with its last sandbox. NOT_FOUND as above.
int tree_root_give_up(struct tree *t, uint32_t number, struct err *e);

// Its tier (tier.h), which tree_root_add() got.
uint32_t tree_root_tier(const struct tree *t, uint32_t number);

// The host name of its sandboxes. Borrowed.
const char *tree_root_hostname(const struct tree *t, uint32_t number);

struct tree_sandbox {
    uint32_t root; // tree_root_add
    int userns_fd; // maps inside ids 0..65535 to [uid, uid + 65536); for id-mapped mounts
    uint32_t uid;  // first host id of the range: owner of what is made for inside uid 0
    uint64_t disk_bytes;
    uint32_t inodes;
    uint64_t memory_bytes; // limits that the sandbox is shown, in /proc and /sys
    uint32_t cpu_millis;
    int hidden_fd; // a detached mount that shall end with the sandbox's others, -1: none; no path leads to it
};

// Child, as root in fresh mnt, pid, ... namespaces. After success "/" is the sandbox's root, nothing of the host is
// reachable, cwd is "/". *disk_fd: an O_PATH descriptor of the tmpfs, for tree_resize. No allocation, no lock, no log.
int tree_enter(const struct tree *t, const struct tree_sandbox *s, int *disk_fd, struct err *e);

// Spawner: changes the size of a sandbox's tmpfs by its descriptor (received from the child). -EBUSY when more is used.
int tree_resize(const struct tree *t, int disk_fd, uint64_t disk_bytes, uint32_t inodes,
                struct err *e);

// Spawner: shows the sandbox its new limits of memory and CPU. before: those that it is shown now; NULL: not known.
int tree_view_change(const struct tree *t, int disk_fd, const struct spawn_limits *limits,
                     const struct spawn_limits *before, struct err *e);
