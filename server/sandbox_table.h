// Between sandbox.c and sandbox_table.c: what holds the sandboxes.
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

// Out of the table and the list.
void sandbox_table_remove(struct sandbox *s);

// Tells none_left when that is so.
void sandbox_table_settle(struct sandboxes *all);
