// SPDX-License-Identifier: Apache-2.0
// A bounded heap for one message. protobuf-c turns 1 MB of hostile bytes into 45 MB of small allocations, so each
// request is unpacked into an arena, which refuses allocations beyond its maximum and is freed as a whole.
//
// Not thread-safe: one arena belongs to one thread at a time.
#pragma once

#include <stddef.h>

#include <protobuf-c/protobuf-c.h>

struct arena;

// Creates an arena for at most bytes_max in total. NULL: out of memory. Free it with arena_free().
struct arena *arena_new(size_t bytes_max);

// Frees the arena and all memory allocated from it. Accepts NULL.
void arena_free(struct arena *a);

static inline void
auto_arena_(struct arena **a)
{
    arena_free(*a);
}

// struct arena *auto_arena a = arena_new(n);
#define auto_arena __attribute__((cleanup(auto_arena_)))

// Frees all memory allocated from the arena, except at most 134 KiB that the next message can use.
void arena_reset(struct arena *a);

// Allocates zeroed memory, aligned for any type; NULL: beyond the maximum. Borrowed: valid until reset or free.
void *arena_alloc(struct arena *a, size_t bytes);

// Copies a text and appends a NUL; NULL: beyond the maximum.
char *arena_copy(struct arena *a, const void *bytes, size_t n);

// The allocator for protobuf-c's unpack functions. Borrowed; valid as long as the arena.
ProtobufCAllocator *arena_allocator(struct arena *a);

// Bytes allocated since the last reset.
size_t arena_used(const struct arena *a);
