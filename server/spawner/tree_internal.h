// SPDX-License-Identifier: Apache-2.0
// What the two halves of the tree share: tree_prepare.c (the spawner, once) and tree_enter.c (every child).
//
// The root of the spawner's mount namespace is an empty tmpfs, the base, where "." is, with a place /n for a sandbox's root.
// On top of it lies the stage, which paths begin at, as the children find it. Everything is made before the first clone and
// read-only after:
//
//   /c            the v2 cgroup that holds the sandboxes
//   /u            the host's /usr              /p0, /p1...   further host folders of the templates
//   /t            the state directory's templates: /t/NAME is a template's skeleton
//   /d            the layer with a clean /dev  /e/dir, /e/file   empty, to cover things with
//   /proc
//   /w /lu /lt /lp0...   empty places where a child puts its tmpfs and its id-mapped lower layers
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tree.h"

enum {
    TREE_LOWERS_MAX = 24, // /usr, the top folders that are none of its links, the templates' paths
    TREE_NAME_MAX = 16,
    TREE_VIEW_INODES = 8,
    TREE_CLOSED_MAX = 16,
    TREE_CLOSED_NAME_MAX = 24,
};

// A host folder that sandboxes see through an overlay of its own.
struct tree_lower {
    char host[SPAWN_PATH_MAX];  // "/usr"
    char source[TREE_NAME_MAX]; // where it is in the spawner's root: "/p0"
    char mapped[TREE_NAME_MAX]; // where a child puts the id-mapped clone: "/lp0"
    char options[64]; // "lowerdir=" of its read-only overlay, which wants two: the second is empty
    bool idmapped;
};

struct tree_template {
    char source[80]; // "/t/NAME"
    char lower[88];  // "lowerdir=" of its overlay: "/lt" when id-mapped, else the source; then /d
    bool idmapped;
    uint8_t lowers_n;
    uint8_t lowers[TREE_LOWERS_MAX]; // indexes into struct tree, /usr first
};

// The overlay of a lower, detached; its id-mapped layer stays attached at l->mapped. In either half. upper: with a sandbox's own
// upper folder, /w/us; else read-only.
int tree_lower_open(const struct tree_lower *l, bool upper, int userns_fd, struct err *e);

struct tree {
    uint32_t templates_n;
    uint32_t lowers_n;
    struct tree_template templates[SPAWN_TEMPLATES_MAX];
    struct tree_lower lowers[TREE_LOWERS_MAX];
    char *cpuinfo; // owned, for ever
    uint32_t cpus; // and memory, of the host
    uint64_t memory_bytes;
    uint64_t view_bytes; // what tree_view.c's files take of a disk, at most
    uint32_t ptys;       // of each sandbox, at most
    uint32_t closed_n;   // files in /proc that are the host's root's alone
    char closed[TREE_CLOSED_MAX][TREE_CLOSED_NAME_MAX];
};

// tree_proc.c. The spawner's half: fills in t->closed. The child's: /proc, attached to its root; "." is `base`, before and
// after.
void tree_proc_look(struct tree *t);
int tree_proc_make(const struct tree *t, int base, int root, struct err *e);

// tree_view.c. The spawner's half. The child's: the files on its disk, and /sys/fs/cgroup.
int tree_view_look(struct tree *t, struct err *e);
int tree_view_make(const struct tree *t, const struct tree_sandbox *s, int disk, struct err *e);
int tree_view_attach(int disk, int root, struct err *e);
