// SPDX-License-Identifier: Apache-2.0
// Between sandbox.c, sandbox_change.c and sandbox_table.c: what holds the sandboxes, and what all three do to one.
#pragma once

#include "sandbox.h"

struct sandboxes {
    struct server *srv;
    struct idtable table;
    struct list owned; // that belong to somebody, oldest first
    struct list tenants;
    uint64_t taken; // how many ever
    void (*none_left)(void *cookie);
    void *none_left_cookie;
};

// To another state; one that the picture in sandbox.h does not allow is our own mistake and aborts.
void sandbox_move(struct sandbox *s, enum sandbox_state to);

// Tells all that wait for this, each once. e NULL: it went well. s may be gone when this returns, since a callback may
// destroy it; never while they are told.
void sandbox_tell(struct sandbox *s, enum sandbox_wait what, const struct err *e);

// Frees a DELETING one once nothing is left of it, here and at the spawner; nothing otherwise. For the end of whatever
// took away one of `pending`. s may be gone when this returns.
void sandbox_settle(struct sandbox *s);

// Out of the table and the list.
void sandbox_table_remove(struct sandbox *s);

// Tells none_left when that is so.
void sandbox_table_settle(struct sandboxes *all);
