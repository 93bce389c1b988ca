// SPDX-License-Identifier: Apache-2.0
// Names with synthetic addresses, per sandbox: index and text, in both directions, with the real addresses of the last
// resolution. The policy is checked at each flow. A sandbox with the maximum number of names loses the least recently
// used one; its index is never reused for another name.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "process.h"

enum { NAME_ADDRESSES = 8 };

struct name {
    struct name *next_text, *next_index; // in their hash buckets
    struct list node;                    // of the sandbox's names, the most recently used one last
    uint32_t users;                      // flows and associations that point to it
    uint32_t slot, index;                // index from 1 on
    uint64_t fresh_until_ms;             // addresses are valid until then
    uint32_t n;
    uint8_t addresses[NAME_ADDRESSES][16];
    char text[RELAY_NAME_MAX + 3];
};

// Call once, at the start. False: out of memory.
bool names_init(void);

// NULL: the sandbox does not have this name.
struct name *names_find(const struct sandbox *s, const char *text);
struct name *names_at(const struct sandbox *s, uint32_t index);

// Adds a name, with an index and its entry in map "names". NULL: no index is left, or every name is in use.
struct name *names_make(struct sandbox *s, const char *text);

// Marks it as used now.
void names_touch(struct sandbox *s, struct name *n);

// Adds or drops a reference. Accepts NULL.
void names_hold(struct sandbox *s, struct name *n);
void names_release(struct name *n);

// After a change of the policy: writes its ports into the entries, and removes entries that it does not allow.
void names_renew(struct sandbox *s);

// The sandbox is closed: removes all of its names and entries.
void names_drop(struct sandbox *s);

// The index in a synthetic address; 0: not a synthetic address.
uint32_t names_index(const uint8_t address[16]);

// The synthetic address of an index: 4 or 16 bytes.
void names_v4(uint32_t index, uint8_t out[4]);
void names_v6(uint32_t index, uint8_t out[16]);
