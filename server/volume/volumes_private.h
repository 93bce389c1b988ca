// SPDX-License-Identifier: Apache-2.0
// Shared by volumes.c (the table, Create, Delete), disk.c (opening and closing) and mounting.c (sandboxes).
#pragma once

#include "server/sandbox/mounts.h"
#include "server/sandbox/sandbox.h"
#include "volumes.h"

enum volume_state {
    VOLUME_MAKING,
    VOLUME_CLOSED,
    VOLUME_OPENING,
    VOLUME_OPEN,
    VOLUME_CLOSING,
    VOLUME_REMOVING
};

struct volume_op {
    struct list node;  // of entry.measuring
    volume_done *done; // NULL: nobody waits
    void *cookie;
};

struct entry {
    struct volume volume; // must be first
    struct volumes *all;
    enum volume_state state;
    bool doomed;
    uint32_t number;       // OPEN, CLOSING: the spawner's number of its disk
    uint32_t pending;      // mounts at the spawner
    int disk_fd;           // OPEN: O_PATH, for fstatfs(2) alone; owned
    struct list waiting;   // struct mounting: they need it open
    struct list measuring; // struct volume_op: they want to know what it holds
    struct loop_timer *timer;
    struct volume_op *op; // Create or Delete; owned
};

struct volumes {
    struct server *srv;
    char state_dir[SPAWN_PATH_MAX];
    uint64_t order;
    struct list list;      // struct entry
    struct list mountings; // struct mounting: all
    struct list holders;   // struct sandbox: those that have volumes
};

// One sandbox that gets its volumes, one after the other.
struct mounting {
    struct list node;    // of volumes.mountings
    struct list waiting; // of entry.waiting
    struct volumes *all;
    struct sandbox *sandbox;
    struct mounts *mounts; // counted
    uint32_t next;
};

// Does what is next for it: opens, closes, removes, or mounts. v may be freed when this returns.
void entry_settle(struct entry *v);

// Settles it a moment later.
void entry_settle_soon(struct entry *v);

// Ends Create or Delete.
void entry_finish(struct entry *v, const struct err *e);
void entry_free(struct entry *v);
struct entry *entry_by_id(const struct volumes *vs, const uint8_t id[16]);

// The volume that it waits for is open, or cannot be opened.
void mounting_go_on(struct mounting *m, struct entry *v, const struct err *failed);

// FAILED_PRECONDITION (ENCRYPTION_REQUIRED), with `what` can be done instead: nothing may be written to a volume.
int volumes_check_clear(const struct volumes *vs, const char *what, struct err *e);
