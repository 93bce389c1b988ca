// SPDX-License-Identifier: Apache-2.0
// The calls of a handle: found by id, and the one with the nearest deadline. Call everything here with the handle's lock
// held. Adding a call reserves room for its deadline, so nothing else can fail.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct call;

// All zero at the start.
struct call_set {
    struct call **buckets; // by id
    size_t buckets_n;      // a power of 2, or 0
    size_t n;
    // Calls with a deadline; no call has an earlier one than its parent, at (i - 1) / 2.
    struct call **heap;
    size_t heap_n, heap_max;
};

// 0, or -ENOMEM. The call is borrowed until it is removed.
int call_set_add(struct call_set *set, struct call *c);
void call_set_remove(struct call_set *set, struct call *c);
struct call *call_set_find(const struct call_set *set, uint64_t id);

// Sets the deadline of a call; 0: none.
void call_set_deadline(struct call_set *set, struct call *c, uint64_t deadline_ns);

// The call with the nearest deadline, or NULL.
struct call *call_set_first(const struct call_set *set);

// Calls fn for each call, in no particular order. fn may not add or remove calls.
void call_set_each(const struct call_set *set, void (*fn)(struct call *c, void *cookie),
                   void *cookie);

// Frees its memory, not the calls.
void call_set_clear(struct call_set *set);
