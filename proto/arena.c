// SPDX-License-Identifier: Apache-2.0
// See arena.h. A list of blocks, the newest first. The first block is made with the arena and kept on reset, so a
// message that fits into it needs no malloc. An allocation larger than a block gets a block of its own. A reset keeps one
// more block, large enough for 64 KiB and a copy: with malloc and free the kernel would clear its pages for each message.
#include "arena.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_BLOCK_BYTES = 2 * 1024,
    BLOCK_BYTES = 32 * 1024,
    LARGE_BLOCK_BYTES = 132 * 1024, // a DATA frame, and its payload unpacked
    ALIGNMENT = alignof(max_align_t),
};

struct block {
    struct block *older;
    size_t size, used;
    alignas(max_align_t) uint8_t bytes[];
};

struct arena {
    ProtobufCAllocator allocator;
    size_t bytes_max, used;
    struct block *newest;
    struct block *spare; // empty, or NULL
};

static void *take(struct arena *a, size_t bytes);

// protobuf-c writes what it allocates, as with malloc.
static void *
allocator_alloc(void *cookie, size_t bytes)
{
    return take(cookie, bytes);
}

static void
allocator_free(void *cookie, void *p)
{
    (void)cookie; // everything is freed together
    (void)p;
}

static struct block *
block_new(size_t size)
{
    struct block *b = malloc(sizeof *b + size);
    if (b != NULL)
        *b = (struct block){.size = size};
    return b;
}

struct arena *
arena_new(size_t bytes_max)
{
    struct arena *a = calloc(1, sizeof *a);
    struct block *first = block_new(FIRST_BLOCK_BYTES);
    if (a == NULL || first == NULL) {
        free(a);
        free(first);
        return NULL;
    }
    a->allocator = (ProtobufCAllocator){allocator_alloc, allocator_free, a};
    a->bytes_max = bytes_max;
    a->newest = first;
    return a;
}

// Keeps the block for the next message if it is larger than the one that is kept, else frees it.
static void
give_up(struct arena *a, struct block *b)
{
    if (b->size <= LARGE_BLOCK_BYTES && (a->spare == NULL || a->spare->size < b->size)) {
        struct block *smaller = a->spare;
        a->spare = b;
        b = smaller;
    }
    free(b);
}

// All blocks except the first one, which is the oldest.
static void
give_up_newer_blocks(struct arena *a)
{
    while (a->newest->older != NULL) {
        struct block *b = a->newest;
        a->newest = b->older;
        give_up(a, b);
    }
}

void
arena_free(struct arena *a)
{
    if (a == NULL)
        return;
    give_up_newer_blocks(a);
    free(a->spare);
    free(a->newest);
    free(a);
}

void
arena_reset(struct arena *a)
{
    give_up_newer_blocks(a);
    a->newest->used = 0;
    a->used = 0;
}

static bool
add_block(struct arena *a, size_t bytes)
{
    struct block *b = a->spare;
    size_t usual = bytes > BLOCK_BYTES ? LARGE_BLOCK_BYTES : BLOCK_BYTES;
    if (b != NULL && b->size >= bytes)
        a->spare = NULL;
    else
        b = block_new(bytes > usual ? bytes : usual);
    if (b == NULL)
        return false;
    b->used = 0;
    b->older = a->newest;
    a->newest = b;
    return true;
}

static void *
take(struct arena *a, size_t bytes)
{
    if (bytes > a->bytes_max - a->used)
        return NULL;
    size_t rounded = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (rounded == 0)
        rounded = ALIGNMENT;
    if (rounded > a->bytes_max - a->used)
        return NULL;
    if (rounded > a->newest->size - a->newest->used && !add_block(a, rounded))
        return NULL;
    void *p = a->newest->bytes + a->newest->used;
    a->newest->used += rounded;
    a->used += rounded;
    return p;
}

void *
arena_alloc(struct arena *a, size_t bytes)
{
    void *p = take(a, bytes);
    if (p != NULL)
        memset(p, 0, bytes);
    return p;
}

char *
arena_copy(struct arena *a, const void *bytes, size_t n)
{
    if (n == SIZE_MAX)
        return NULL;
    char *p = arena_alloc(a, n + 1);
    if (p != NULL && n > 0)
        memcpy(p, bytes, n);
    return p;
}

ProtobufCAllocator *
arena_allocator(struct arena *a)
{
    return &a->allocator;
}

size_t
arena_used(const struct arena *a)
{
    return a->used;
}
