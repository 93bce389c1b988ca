// SPDX-License-Identifier: Apache-2.0
// The folders that Watch watches, as a tree: inotify(7) reports a number and a name, and this finds the path. A renamed folder
// keeps its watch, and its location in the tree changes. One per process.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WATCHES_MAX = 16384, // folders
    WATCH_BUCKETS = 4096,
};

// A folder. `name` is that in its parent; of the root "".
struct watched {
    struct watched *parent, *children, *next; // next: a sibling
    struct watched *same_wd, *same_name;      // in their buckets
    int wd;
    char name[];
};

struct watch_tree {
    int inotify; // owned; -1: none
    uint32_t n;
    struct watched *root; // NULL: none is watched
    struct watched *by_wd[WATCH_BUCKETS], *by_name[WATCH_BUCKETS];
};

// An empty tree with a new inotify instance; what was watched before is forgotten. 0 or a negative errno.
int watch_tree_begin(struct watch_tree *t);
void watch_tree_end(struct watch_tree *t);

// Watches the current folder of this process, as `name` in its parent (NULL: as the root). 1: *out is new; 0: it is watched
// already, and now at this location; negative errno: ENOSPC for more than WATCHES_MAX, or than the kernel allows.
int watch_tree_add(struct watch_tree *t, struct watched *parent, const char *name,
                   struct watched **out);

// NULL: not found.
struct watched *watch_tree_by_wd(const struct watch_tree *t, int wd);
struct watched *watch_tree_child(const struct watch_tree *t, const struct watched *parent,
                                 const char *name);

// Ends the watch of a folder and of all below it.
void watch_tree_drop(struct watch_tree *t, struct watched *w);

// It has another location, with all below it. 0, or -ENOMEM: it was dropped; also if events were so late that it would lie below
// itself, so do not use `parent` after a failure.
int watch_tree_move(struct watch_tree *t, struct watched *w, struct watched *parent,
                    const char *name);

// Writes the path of a name in a folder, below the root; name "": of the folder itself. False: it does not fit.
bool watch_tree_path(const struct watched *w, const char *name, char *out, size_t size);
