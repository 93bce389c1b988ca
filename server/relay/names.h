// Names that sandboxes were given synthetic addresses for: index and text, both ways, with the real addresses of the last
// resolution. A name keeps its index as long as the sandbox lives; what its flows may reach is decided at each flow.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "process.h"

enum { NAME_ADDRESSES = 8 };

struct name {
    struct name *next_text, *next_index; // in their buckets
    struct list node;                    // of the sandbox's names
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

// The name, with an index and its entry in map "names". NULL: the sandbox, or all together, have too many.
struct name *names_make(struct sandbox *s, const char *text);

// After another policy: entries say its ports, names that it does not allow have none.
void names_renew(struct sandbox *s);

// The sandbox is closed: all go, and their entries.
void names_drop(struct sandbox *s);

// The index in a synthetic address; 0: it is none.
uint32_t names_index(const uint8_t address[16]);

// The synthetic address of an index: 4 bytes or 16.
void names_v4(uint32_t index, uint8_t out[4]);
void names_v6(uint32_t index, uint8_t out[16]);
