// SPDX-License-Identifier: Apache-2.0
// What kind of thing a sandbox is, as a table: how one is made, entered, measured, killed and removed. A root says which
// row its sandboxes are of. The order of these steps, what waits for what, and the answers to the broker are the same for
// all tiers, and not here (birth.c, death.c).
//
// "process" is a set of namespaces and cgroups around processes of this kernel.
#pragma once

#include "spawner.h"

struct tier {
    const char *name;

    // All that one needs, and its first process on its way; slot->pid_fd is set. The child's ends of slot's sockets are open.
    // What a failure leaves is removed by kill and remove.
    int (*make)(struct spawner *s, struct slot *slot, struct err *e);

    // The child, between clone3 and execve: into its root. As tree_enter().
    int (*enter)(const struct tree *t, const struct tree_sandbox *s, int *disk_fd, struct err *e);

    // Descriptors that the broker reads its figures through, from fds[*n] on, with their bits (enum spawn_fd) in *bits;
    // *owned* by the caller.
    int (*figures)(struct slot *slot, int fds[SPAWN_FDS_MAX], unsigned *n, uint32_t *bits,
                   struct err *e);

    // Kills all of it, whatever of it is there. Returns at once.
    void (*kill)(struct slot *slot);

    // Removes what holds it. 0: nothing is left; -EBUSY: not yet, try again; other: e.
    int (*remove)(struct spawner *s, struct slot *slot, struct err *e);
};

extern const struct tier tier_table[SPAWN_TIERS_N];

// A slot's, while it has a root.
const struct tier *tier_of(const struct spawner *s, const struct slot *slot);
