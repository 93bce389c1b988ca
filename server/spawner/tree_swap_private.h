// SPDX-License-Identifier: Apache-2.0
// Parts of tree_swap.c: entries of folders (tree_entries.c), layers of another sandbox (tree_inherited.c), the folders of jobs
// (tree_fresh.c).
#pragma once

#include <sys/stat.h>

#include "tree_swap.h"

// Moves all entries of one folder into another of the same file system. In the helper.
int tree_move_entries(const char *from_name, const char *to_name, struct err *e);

// In the helper, below the disk: makes a folder unless it is there, and attaches a mount to it.
int tree_make_mount_point(const char *name, struct err *e);
int tree_attach(int fd, const char *name, struct err *e);

// In the helper: moves what is mounted at a path, with all below it, from one root to the same path of another one.
int tree_move_mount(int from, int to, const char *path, struct err *e);

// Spawner. Whether nothing was written since the upper layer was made.
bool tree_upper_is_empty(const struct tree_layers *l, uint32_t parts);

// tree_parts.c. In the helper, all but the first two; paths begin at the disk. A number of 0 stands for the disk itself, where
// the first upper layer is.
enum { TREE_PART = 16 };
struct tree_root;
uint32_t tree_parts(const struct tree_root *r);
// Whether layers of one fit on the other.
bool tree_parts_are_alike(const struct tree_root *a, const struct tree_root *b);
// The names of a part's upper folder, its work folder, and its folder in a layer.
void tree_part_upper(uint32_t number, uint32_t part, char out[TREE_PART]);
void tree_part_work(uint32_t number, uint32_t part, char out[TREE_PART]);
void tree_part_sealed(uint32_t number, uint32_t part, char out[TREE_PART]);
// A folder with mode and owner of another one.
int tree_make_alike(const char *name, const struct stat *like, struct err *e);
int tree_part_make_upper(uint32_t number, uint32_t part, const char *like, struct err *e);
// Moves what was written to a part into a layer; *moved: the layer has a folder. And back, after which there is none.
int tree_part_seal(uint32_t upper, uint32_t to, uint32_t part, bool *moved, struct err *e);
int tree_part_unseal(uint32_t upper, uint32_t from, uint32_t part);
// Removes the empty folders that an earlier overlay leaves.
void tree_part_tidy(uint32_t upper, uint32_t part);
// The overlay of a part, detached. Owned.
int tree_part_overlay(const struct tree_layers *l, uint32_t top, uint32_t upper, uint32_t part,
                      struct err *e);

// The layers of another sandbox on their way into this one; the lowest is the first.
struct tree_inherited {
    uint32_t n;
    struct tree_inherited_layer {
        char source[TREE_MOUNT_POINT]; // on the other's disk
        int raw_fd;                    // as the other has it
        int mapped_fd;                 // with the ids of this sandbox; -1: they are the same
        int userns_fd; // maps them; -1: as above. Owned by the first layer that has it
        bool owns;
        struct tree_sealed *to; // of this sandbox
    } layer[TREE_DEPTH];
};

void tree_inherited_init(struct tree_inherited *i);
void tree_inherited_close(struct tree_inherited *i);

// Spawner: which layers, and the mappings of their ids. FAILED_PRECONDITION: the sandbox has layers already. *top: the highest.
int tree_inherited_plan(struct tree_inherited *i, const struct tree_swap *s, uint32_t *top,
                        struct err *e);

// Helper: enters the mount namespace of a sandbox whose layers are wanted, and its disk. ABORTED: it has ended.
int tree_enter_source(const struct tree_of *from, struct err *e);

// Helper: clones the mounts, in the other's namespace; then attaches the clones, on this one's disk.
int tree_inherited_clone(struct tree_inherited *i, const struct tree_of *from, struct err *e);
int tree_inherited_attach(const struct tree_inherited *i, struct err *e);

// Helper. Makes the folders that jobs write to in the upper layer at `mount_point`, and /dev/shm beside it.
int tree_fresh_folders(const struct tree *t, const struct tree_swap *s, const char *mount_point,
                       struct err *e);
