// SPDX-License-Identifier: Apache-2.0
// What each tenant holds of the RPC layer right now: connections, open calls, bytes, idempotency keys. A tenant is a
// uid on ipc, and all of tcp together. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tenant {
    char name[32]; // "uid:1000"; the same as in struct caller
    uint32_t connections, calls, keys;
    uint64_t bytes;     // of large frames, requests and replies
    uint64_t key_bytes; // of results that are kept
    uint32_t holders;
    struct tenant *next;
};

struct tenants {
    struct tenant *buckets[64];
};

// The tenant of that name, made on first use, held until tenant_drop(). NULL without memory.
struct tenant *tenant_hold(struct tenants *ts, const char *name);
void tenant_drop(struct tenants *ts, struct tenant *t);

// Adds n bytes unless that goes beyond max.
bool tenant_take_bytes(struct tenant *t, uint64_t n, uint64_t max);
void tenant_give_bytes(struct tenant *t, uint64_t n);
