// SPDX-License-Identifier: Apache-2.0
// Shared by the parts of the tree: tree_prepare.c (the spawner, once), tree_root.c (the spawner), tree_enter.c (every
// child) and tree_swap.c (its helper).
//
// The root of the spawner's mount namespace is an empty tmpfs, the base, which is the working directory and has
// mount points /n and /d. The stage is mounted on top of it; paths start there, also in the children. Its folders are made
// before the first clone and are read-only afterwards. Layers are mounted there when roots are added, and unmounted
// when they are removed:
//
//   /c            the v2 cgroup that holds the sandboxes
//   /l0, /l1...   layers of roots: the host's /usr, skeletons, further folders; each only once for all roots
//   /d            the layer with a clean /dev  /e/dir, /e/file   empty, to cover things with
//   /proc
//   /t            where a child mounts what it then moves into its root
//   /w /m0, /m1...   mount points for a child's tmpfs and for the id-mapped layers of its root
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tree.h"

#define TREE_MAKING "/t"

enum {
    TREE_LAYERS_MAX = 64, // of all roots
    TREE_NAME_MAX = 16,
    TREE_VIEW_INODES = 8,
    TREE_CLOSED_MAX = 16,
    TREE_CLOSED_NAME_MAX = 24,
};

// A folder, mounted at /lN of the stage.
struct tree_layer {
    uint32_t roots; // number of roots that use it; 0: unused
    bool idmapped;  // whether it can be id-mapped
    dev_t device;
    ino_t inode;
};

struct tree_root {
    bool there;         // sandboxes can be made of it
    uint32_t sandboxes; // number of its sandboxes
    int lock_fd;        // owned; see ops.h
    uint32_t tier;
    bool user_root; // ops.h: struct spawn_root
    bool writable;
    bool on_disk;
    char hostname[64];
    uint32_t layers_n;
    uint8_t layer[SPAWN_ROOT_LAYERS_MAX]; // indexes into struct tree; 0: the skeleton, 1: /usr
    char at[SPAWN_ROOT_LAYERS_MAX][SPAWN_PATH_MAX];
};

// Opens a layer in a child: an overlay of only this layer, detached or at TREE_MAKING. `n` is its number in the root, and /mN is where
// the id-mapped clone stays attached. upper: with an upper folder of the sandbox, /w/uN; otherwise read-only. In
// every part.
int tree_layer_open(const struct tree *t, uint32_t layer, uint32_t n, bool upper, int userns_fd,
                    struct err *e);

// tree_enter.c. Makes the folders that jobs write to, and mount points below them, in the upper folder `name`. In every part.
int tree_upper_folders(const struct tree *t, uint32_t root, uint32_t uid, int dir, const char *name,
                       struct err *e);

// A detached mount of the folder /dev of a root, which alone allows devices. Owned.
int tree_dev_open(int root, struct err *e);

// The path of a layer, and of its clone.
void tree_layer_source(uint32_t layer, char out[TREE_NAME_MAX]);
void tree_layer_mapped(uint32_t n, char out[TREE_NAME_MAX]);

// tree_root.c. Mounts a layer at a free mount point, and finds out whether it can be id-mapped; if not, why has the reason.
// Returns its number, or a negative errno.
int tree_layer_add(struct tree *t, int fd, struct err *why, struct err *e);
void tree_layer_drop(struct tree *t, uint32_t layer);

struct tree {
    struct tree_root roots[SPAWN_ROOTS_MAX];
    struct tree_layer layers[TREE_LAYERS_MAX];
    int userns_fd;        // 65,536 ids, to find out which layers can be id-mapped
    bool memory_idmapped; // whether a tmpfs can be: forks need it
    char *cpuinfo;        // owned
    uint32_t cpus;        // processors and memory of the host
    uint64_t memory_bytes;
    uint64_t view_bytes; // maximum size of tree_view.c's files on a disk
    uint32_t ptys;       // terminals of each sandbox, at most
    uint32_t closed_n;   // files in /proc that only the host's root can open
    char closed[TREE_CLOSED_MAX][TREE_CLOSED_NAME_MAX];
};

// tree_proc.c. The spawner's part: fills in t->closed. The child's part: /proc, attached to its root; "." is `base`,
// before and after.
void tree_proc_look(struct tree *t);
int tree_proc_make(const struct tree *t, int base, int root, struct err *e);

// tree_view.c. The spawner's part. The child's part: the files on its disk, and /sys/fs/cgroup.
int tree_view_look(struct tree *t, struct err *e);
int tree_view_make(const struct tree *t, const struct tree_sandbox *s, int disk, struct err *e);
int tree_view_attach(int disk, int root, struct err *e);
