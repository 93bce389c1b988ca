// SPDX-License-Identifier: Apache-2.0
// Random ids (128 bits, written as 32 hex digits), and a hash table of the objects that they name.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { ID_HEX = 32, ID_BYTES = 16, ID_BUCKETS = 4096 };

// Embedded in the object that the id names.
struct idnode {
    struct idnode *next;
    char id[ID_HEX + 1];
};

struct idtable {
    struct idnode *bucket[ID_BUCKETS];
    size_t n;
};

// A new random id, in both forms. sodium_init() must have been called.
void id_make(uint8_t bytes[ID_BYTES], char hex[ID_HEX + 1]);

// Adds a node. Its id must be set and new. Ids come from id_make(), so an attacker cannot choose ids of one bucket.
void idtable_add(struct idtable *t, struct idnode *node);

// Removes a node. Does nothing if it is not in the table.
void idtable_remove(struct idtable *t, struct idnode *node);

// Finds a node by its id. NULL: not found. `id` may be any text.
struct idnode *idtable_find(const struct idtable *t, const char *id);
