// SPDX-License-Identifier: Apache-2.0
// A bounded heap for one message: protobuf-c turns 1 MB of hostile bytes into 45 MB of small allocations, so each
// request unpacks into one of these, which says no beyond its cap and is freed as a whole.
//
// Not thread-safe: one arena belongs to one thread at a time.
#pragma once

#include <stddef.h>

#include <protobuf-c/protobuf-c.h>

struct arena;

// A new arena that hands out at most bytes_max in all. NULL without memory. Owned by the caller: arena_free().
struct arena *arena_new(size_t bytes_max);

// Frees it and everything it handed out. NULL is fine.
void arena_free(struct arena *a);

static inline void
auto_arena_(struct arena **a)
{
    arena_free(*a);
}

// struct arena *auto_arena a = arena_new(n);
#define auto_arena __attribute__((cleanup(auto_arena_)))

// Takes back everything at once, keeping the first block for the next message.
void arena_reset(struct arena *a);

// Zeroed memory, aligned for any type; NULL beyond the cap. Borrowed: gone with reset or free.
void *arena_alloc(struct arena *a, size_t bytes);

// A copy with a NUL behind it; NULL beyond the cap.
char *arena_copy(struct arena *a, const void *bytes, size_t n);

// What protobuf-c's unpack functions take. Borrowed; lives as long as the arena.
ProtobufCAllocator *arena_allocator(struct arena *a);

// Bytes handed out since the last reset.
size_t arena_used(const struct arena *a);
