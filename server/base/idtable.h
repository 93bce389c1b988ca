// SPDX-License-Identifier: Apache-2.0
// Ids of sandboxes, processes and connections, and a hash table of the objects that they name.
//
//   18992bb4e848ab09f0f0197cd7dd5b51            128 random bits as hex digits
//   eu1-18992bb4e848ab09f0f0197cd7dd5b51        the same, made by a broker that has a node name in its configuration
//
// Clients must treat an id as one opaque text of at most ID_TEXT_MAX bytes. The node name lets something between client and
// broker find the right broker later; a broker itself only says that an id of another node is not its own.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

enum {
    ID_BYTES = 16,
    ID_HEX = 32,
    ID_NODE_MAX = 15,
    ID_TEXT_MAX = ID_NODE_MAX + 1 + ID_HEX, // also in the .proto files
    ID_BUCKETS = 4096,
};

// Embedded in the object that the id names.
struct idnode {
    struct idnode *next;
    char id[ID_TEXT_MAX + 1];
};

struct idtable {
    struct idnode *bucket[ID_BUCKETS];
    size_t n;
};

// True for a node name: "" (none), or 1 to ID_NODE_MAX lower-case letters and digits.
bool id_node_is_valid(const char *node);

// A new random id of this node, as bytes and as text. sodium_init() must have been called.
void id_make(const char *node, uint8_t bytes[ID_BYTES], char text[ID_TEXT_MAX + 1]);

// True if the id begins with this text, or its hex digits do.
bool id_begins(const char *id, const char *beginning);

// The error NOT_FOUND for an id, or any other text, that names nothing here: "there is no <what> <id>". If it has the form
// of an id of another node, the error says which node that is and which one this is. Returns a negative errno.
int id_not_found(const char *what, const char *node, const char *id, struct err *e);

// Adds a node. Its id must be set and new. Ids come from id_make(), so an attacker cannot choose ids of one bucket.
void idtable_add(struct idtable *t, struct idnode *node);

// Removes a node. Does nothing if it is not in the table.
void idtable_remove(struct idtable *t, struct idnode *node);

// Finds a node by its id. NULL: not found. `id` may be any text.
struct idnode *idtable_find(const struct idtable *t, const char *id);
