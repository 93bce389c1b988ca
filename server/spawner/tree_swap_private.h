// SPDX-License-Identifier: Apache-2.0
// Parts of tree_swap.c: entries of folders (tree_entries.c), layers of another sandbox (tree_inherited.c).
#pragma once

#include "tree_swap.h"

// Moves all entries of one folder into another of the same file system. In the helper.
int tree_move_entries(const char *from_name, const char *to_name, struct err *e);

// Spawner. Whether nothing was written since the upper layer was made.
bool tree_upper_is_empty(const struct tree_layers *l);

// The layers of another sandbox on their way into this one; the lowest is the first.
struct tree_inherited {
    uint32_t n;
    struct tree_inherited_layer {
        char source[TREE_PLACE]; // on the other's disk
        int raw_fd;              // as the other has it
        int mapped_fd;           // with the ids of this sandbox; -1: they are the same
        int userns_fd;           // maps them; -1: as above. Owned by the first layer that has it
        bool owns;
        struct tree_sealed *to; // of this sandbox
    } layer[TREE_LAYERS_OF_SANDBOX];
};

void tree_inherited_init(struct tree_inherited *i);
void tree_inherited_close(struct tree_inherited *i);

// Spawner: which layers, and the mappings of their ids. FAILED_PRECONDITION: the sandbox has layers already. *top: the highest.
int tree_inherited_plan(struct tree_inherited *i, const struct tree_swap *s, uint32_t *top,
                        struct err *e);

// Helper: clones the mounts, in the other's namespace; then places the clones, on this one's disk.
int tree_inherited_clone(struct tree_inherited *i, const struct tree_place *from, struct err *e);
int tree_inherited_place(const struct tree_inherited *i, struct err *e);
