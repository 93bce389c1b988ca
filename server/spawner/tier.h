// SPDX-License-Identifier: Apache-2.0
// The kinds of sandboxes, as a table: how one is made, entered, measured, killed and removed. A root determines the
// kind of its sandboxes. The order of these steps, the waiting and the replies to the broker are the same for all
// tiers (birth.c, death.c).
//
// "process": a set of namespaces and cgroups around processes of this kernel.
#pragma once

#include "spawner.h"

struct scratch_size;
struct tree_copying;

struct tier {
    const char *name;

    // Makes everything that a sandbox needs, and starts its first process; slot->pid_fd is set. The child's ends of
    // the slot's sockets are open. After a failure, kill and remove clean up.
    int (*make)(struct spawner *s, struct slot *slot, struct err *e);

    // In the child, between clone3 and execve: enters its root. Like tree_enter().
    int (*enter)(const struct tree *t, const struct tree_sandbox *s, int *disk_fd, struct err *e);

    // Descriptors through which the broker reads its counters, stored from fds[*n] on, with their bits (enum
    // spawn_fd) in *bits; *owned* by the caller.
    int (*figures)(struct slot *slot, int fds[SPAWN_FDS_MAX], unsigned *n, uint32_t *bits,
                   struct err *e);

    // SEAL, RESTORE, INHERIT: gives it a fresh upper layer (tree_swap.h), *layer is the one below. *disk_fd: *owned*, the new
    // one's file system; -1: nothing was to be done. -EBUSY: something but its first process runs; -ENOTRECOVERABLE: it
    // must be killed; 1: slot->scratch_fd must be a scratch disk of the size *needs; others: nothing has changed.
    int (*swap)(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                uint32_t *layer, int *disk_fd, struct scratch_size *needs, struct err *e);

    // KEEP: a detached mount of one of its layers (tree_swap.h), *owned*; *uid is the first host id of its files.
    int (*open_layer)(struct spawner *s, struct slot *slot, uint32_t layer, uint32_t *uid,
                      struct err *e);

    // COPY: a new layer, to be filled by a keeper (tree_copy.h); 1: as of swap. COPIED: it is complete.
    int (*copy)(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                struct tree_copying *out, struct scratch_size *needs, struct err *e);
    int (*copied)(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                  struct err *e);

    // ADOPT, GRAFT: a layer of the state directory, or of another sandbox, becomes one of its own.
    int (*adopt)(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                 uint32_t *layer, struct err *e);

    // DROP: drops one of its layers.
    int (*drop)(struct spawner *s, struct slot *slot, uint32_t layer, struct err *e);

    // MOUNT: mounts an open disk in it, and adds it to its mounts.
    int (*mount)(struct spawner *s, struct slot *slot, const struct disk_mount *m, struct err *e);

    // STATES: two states of its files (tree_states.h). fds: STATE_FDS of them, *owned* by the caller, -1: missing.
    int (*states)(struct spawner *s, struct slot *slot, uint32_t from, uint32_t to, int *fds,
                  struct err *e);

    // Kills everything of it that exists. Returns immediately.
    void (*kill)(struct slot *slot);

    // Removes its resources. 0: nothing is left; -EBUSY: not yet, try again; other: e.
    int (*remove)(struct spawner *s, struct slot *slot, struct err *e);
};

extern const struct tier tier_table[SPAWN_TIERS_N];

// The tier of a slot that has a root.
const struct tier *tier_of(const struct spawner *s, const struct slot *slot);
