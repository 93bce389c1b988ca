// SPDX-License-Identifier: Apache-2.0
// Ids and what they name: 128 random bits as 32 hex digits, and a hash table over them.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { ID_HEX = 32, ID_BYTES = 16, ID_BUCKETS = 4096 };

// Lies in the object that the id names.
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

// The node's id must be set and new. Ids come from id_make(), so nobody can aim at one bucket.
void idtable_add(struct idtable *t, struct idnode *node);

// Takes it out; fine when it is not in.
void idtable_remove(struct idtable *t, struct idnode *node);

// NULL: no such id. Any text may be asked for.
struct idnode *idtable_find(const struct idtable *t, const char *id);
