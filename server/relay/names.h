// SPDX-License-Identifier: Apache-2.0
// Names that sandboxes were given synthetic addresses for: index and text, both ways, with the real addresses of the last
// resolution. What its flows may reach is decided at each flow. A sandbox that has all the names that it may have gives up
// the one that was not used for longest; its index is never another's.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "process.h"

enum { NAME_ADDRESSES = 8 };

struct name {
    struct name *next_text, *next_index; // in their buckets
    struct list node;                    // of the sandbox's names, the last used one last
    uint32_t users;                      // flows and associations that point to it
    uint32_t slot, index;                // index from 1 on
    uint64_t fresh_until_ms;             // addresses hold until then
    uint32_t n;
    uint8_t addresses[NAME_ADDRESSES][16];
    char text[RELAY_NAME_MAX + 3];
};

// Once, at start. False without memory.
bool names_init(void);

// NULL: the sandbox has no such name.
struct name *names_find(const struct sandbox *s, const char *text);
struct name *names_at(const struct sandbox *s, uint32_t index);

// The name, with an index and its entry in map "names". NULL: there is no index left, or every name is in use.
struct name *names_make(struct sandbox *s, const char *text);

// It was looked up again.
void names_touch(struct sandbox *s, struct name *n);

// One more that points to it, one less. NULL is fine.
void names_hold(struct sandbox *s, struct name *n);
void names_release(struct name *n);

// After another policy: entries say its ports, names that it does not allow have none.
void names_renew(struct sandbox *s);

// The sandbox is closed: all go, and their entries.
void names_drop(struct sandbox *s);

// The index in a synthetic address; 0: it is none.
uint32_t names_index(const uint8_t address[16]);

// The synthetic address of an index: 4 bytes or 16.
void names_v4(uint32_t index, uint8_t out[4]);
void names_v6(uint32_t index, uint8_t out[16]);
