// SPDX-License-Identifier: Apache-2.0
// See output.h. One bit per byte of the ring shows its stream, so a job that alternates between stdout and stderr
// needs no more memory.
#include "output.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { RING_MIN = 4096, TRIM_TO = 512 };
#define STALL_NS ((uint64_t)OUTPUT_STALL_MS * 1000000)

struct ring {
    uint8_t *bytes;
    uint64_t *is_stderr; // a bit per byte
    // A power of two, at least RING_MIN; 0: none yet. Of one that was trimmed: a multiple of TRIM_TO.
    size_t size;
    size_t mask;  // of an offset, for its place
    bool counted; // in the share
};

struct output {
    struct ring ring;
    size_t size_max;
    uint64_t begin, end; // offsets of the kept bytes
    uint64_t limit;
    uint64_t cut;
    struct list readers;
    const struct output_share *share; // NULL: not counted
};

struct output *
output_new(uint64_t limit_bytes)
{
    struct output *o = calloc(1, sizeof *o);
    if (o == NULL)
        return NULL;
    o->limit = limit_bytes != 0 ? limit_bytes : UINT64_MAX;
    o->size_max = OUTPUT_RING_MAX;
    list_init(&o->readers);
    return o;
}

void
output_charge(struct output *o, const struct output_share *share)
{
    assert(o->ring.size == 0);
    o->share = share;
}

// The memory that is counted for a ring of this size.
static size_t
cost(size_t size)
{
    return size + size / 8;
}

static void
ring_free(struct output *o, struct ring *r)
{
    if (r->counted)
        o->share->give(o->share->cookie, cost(r->size));
    free(r->bytes);
    free(r->is_stderr);
    *r = (struct ring){0};
}

void
output_free(struct output *o)
{
    if (o == NULL)
        return;
    assert(list_empty(&o->readers));
    ring_free(o, &o->ring);
    free(o);
}

static bool
ring_alloc(struct output *o, struct ring *r, size_t size, bool counted)
{
    if (counted && !o->share->take(o->share->cookie, cost(size)))
        return false;
    *r = (struct ring){.bytes = malloc(size),
                       .is_stderr = calloc(1, size / 8), // searched in whole words
                       .size = size,
                       .mask = size - 1,
                       .counted = counted};
    if (r->bytes != NULL && r->is_stderr != NULL)
        return true;
    ring_free(o, r);
    return false;
}

static void
mark(struct ring *r, size_t at, size_t n, bool is_stderr)
{
    while (n > 0) {
        size_t shift = at % 64;
        size_t part = 64 - shift < n ? 64 - shift : n;
        uint64_t mask = (part == 64 ? ~UINT64_C(0) : (UINT64_C(1) << part) - 1) << shift;
        if (is_stderr)
            r->is_stderr[at / 64] |= mask;
        else
            r->is_stderr[at / 64] &= ~mask;
        at += part;
        n -= part;
    }
}

// Stores n bytes at an offset; n is at most the size of the ring.
static void
ring_put(struct ring *r, uint64_t offset, bool is_stderr, const uint8_t *bytes, size_t n)
{
    while (n > 0) {
        size_t at = (size_t)(offset & r->mask);
        size_t part = r->size - at < n ? r->size - at : n;
        memcpy(r->bytes + at, bytes, part);
        mark(r, at, part, is_stderr);
        offset += part;
        bytes += part;
        n -= part;
    }
}

// How many bytes from `offset` on are contiguous and of one stream; at most n, which is at least 1.
static size_t
ring_run(const struct ring *r, uint64_t offset, size_t n, bool *is_stderr)
{
    size_t at = (size_t)(offset & r->mask);
    size_t most = r->size - at < n ? r->size - at : n;
    *is_stderr = (r->is_stderr[at / 64] >> at % 64 & 1) != 0;
    for (size_t run = 0; run < most;) {
        size_t i = at + run;
        uint64_t word = *is_stderr ? ~r->is_stderr[i / 64] : r->is_stderr[i / 64];
        word >>= i % 64;
        if (word != 0) {
            run += (size_t)__builtin_ctzll(word);
            return run < most ? run : most;
        }
        run += 64 - i % 64;
    }
    return most;
}

// The smallest ring is there whatever the share says: who holds all of it may be the same caller's other jobs, and their
// output may be read after this one's.
static bool
larger_ring(struct output *o, struct ring *r, size_t size)
{
    return ring_alloc(o, r, size, o->share != NULL) ||
           (o->ring.size == 0 && ring_alloc(o, r, RING_MIN, false));
}

// Grows the ring for n more bytes, within its limit and the available memory.
static void
grow(struct output *o, size_t n)
{
    size_t want = (size_t)(o->end - o->begin) + n;
    size_t size = o->ring.size > 0 ? o->ring.size : RING_MIN;
    while (size < want && size < o->size_max)
        size *= 2;
    struct ring bigger;
    if (size == o->ring.size || !larger_ring(o, &bigger, size))
        return;
    for (uint64_t at = o->begin; at < o->end;) {
        bool is_stderr = false;
        size_t run = ring_run(&o->ring, at, (size_t)(o->end - at), &is_stderr);
        ring_put(&bigger, at, is_stderr, o->ring.bytes + (at & o->ring.mask), run);
        at += run;
    }
    ring_free(o, &o->ring);
    o->ring = bigger;
}

static bool
keeps_up(const struct output *o, const struct output_reader *r, uint64_t now_ns)
{
    return r->no_timeout || r->offset >= o->end || now_ns - r->progress_ns < STALL_NS;
}

// Bytes that a reader which keeps up has not read yet. False: no reader keeps up.
static bool
find_unread(const struct output *o, uint64_t now_ns, uint64_t *out)
{
    uint64_t unread = 0;
    bool anyone = false;
    for (struct list *it = o->readers.next; it != &o->readers; it = it->next) {
        const struct output_reader *r = list_entry(it, struct output_reader, node);
        if (!keeps_up(o, r, now_ns))
            continue;
        anyone = true;
        uint64_t from = r->offset > o->begin ? r->offset : o->begin;
        if (from < o->end && o->end - from > unread)
            unread = o->end - from;
    }
    *out = unread;
    return anyone;
}

size_t
output_space(const struct output *o, uint64_t now_ns)
{
    uint64_t unread = 0;
    if (o->end >= o->limit || !find_unread(o, now_ns, &unread))
        return SIZE_MAX;
    return unread < o->size_max ? o->size_max - (size_t)unread : 0;
}

size_t
output_make_room(struct output *o, size_t n, uint64_t now_ns)
{
    uint64_t unread = 0;
    if (o->end >= o->limit || !find_unread(o, now_ns, &unread))
        return n;
    if ((size_t)(o->end - o->begin) + n > o->ring.size)
        grow(o, n);
    size_t room = o->ring.size > unread ? o->ring.size - (size_t)unread : 0;
    return room < n ? room : n;
}

// Readers that had read everything have something to read again.
static void
note_progress(struct output *o, uint64_t now_ns)
{
    list_each(it, &o->readers)
    {
        struct output_reader *r = list_entry(it, struct output_reader, node);
        if (r->offset >= o->end)
            r->progress_ns = now_ns;
    }
}

void
output_write(struct output *o, enum output_stream stream, const uint8_t *bytes, size_t n,
             uint64_t now_ns)
{
    uint64_t left = o->limit > o->end ? o->limit - o->end : 0;
    if (n > left) {
        o->cut += n - left;
        n = (size_t)left;
    }
    if (n == 0)
        return;
    assert(o->ring.mask != SIZE_MAX);
    note_progress(o, now_ns);
    if ((size_t)(o->end - o->begin) + n > o->ring.size)
        grow(o, n);
    size_t skip = n > o->ring.size ? n - o->ring.size : 0;
    if (n > skip)
        ring_put(&o->ring, o->end + skip, stream == OUTPUT_STDERR, bytes + skip, n - skip);
    o->end += n;
    if (o->end - o->begin > o->ring.size)
        o->begin = o->end - o->ring.size;
}

void
output_final(struct output *o)
{
    o->size_max = OUTPUT_FINAL_MAX;
}

// Memory that cannot be shrunk stays as large as it is.
static void *
shrink(void *memory, size_t n)
{
    void *smaller = realloc(memory, n);
    return smaller != NULL ? smaller : memory;
}

void
output_trim(struct output *o)
{
    struct ring *r = &o->ring;
    const size_t size = (size_t)(o->end + TRIM_TO - 1) / TRIM_TO * TRIM_TO;
    if (o->begin != 0 || r->size <= RING_MIN || size >= r->size)
        return;
    if (size == 0) {
        ring_free(o, r);
        return;
    }
    r->bytes = shrink(r->bytes, size);
    r->is_stderr = shrink(r->is_stderr, size / 8);
    if (r->counted)
        o->share->give(o->share->cookie, cost(r->size) - cost(size));
    r->size = size;
    r->mask = SIZE_MAX; // nothing has wrapped
}

void
output_join(struct output *o, struct output_reader *r, uint64_t now_ns)
{
    r->progress_ns = now_ns;
    r->limit_reported = false;
    list_append(&o->readers, &r->node);
}

void
output_leave(struct output_reader *r)
{
    list_remove(&r->node);
}

struct output_chunk
output_peek(const struct output *o, const struct output_reader *r)
{
    struct output_chunk c = {.kind = OUTPUT_NONE, .offset = r->offset};
    if (r->offset < o->begin) {
        c.kind = OUTPUT_GAP;
        c.missing = o->begin - r->offset;
    } else if (r->offset < o->end) {
        uint64_t left = o->end - r->offset;
        bool is_stderr = false;
        c.kind = OUTPUT_DATA;
        c.n = ring_run(&o->ring, r->offset,
                       left < OUTPUT_CHUNK_MAX ? (size_t)left : OUTPUT_CHUNK_MAX, &is_stderr);
        c.stream = is_stderr ? OUTPUT_STDERR : OUTPUT_STDOUT;
        c.data = o->ring.bytes + (r->offset & o->ring.mask);
    } else if (o->cut > 0 && !r->limit_reported) {
        c.kind = OUTPUT_LIMIT;
        c.offset = o->end;
        c.missing = o->cut;
    }
    return c;
}

void
output_advance(const struct output *o, struct output_reader *r, const struct output_chunk *chunk,
               uint64_t now_ns)
{
    assert(chunk->kind != OUTPUT_NONE && r->offset <= o->end);
    if (chunk->kind == OUTPUT_LIMIT)
        r->limit_reported = true;
    else
        r->offset += chunk->kind == OUTPUT_GAP ? chunk->missing : chunk->n;
    r->progress_ns = now_ns;
}

uint64_t
output_total(const struct output *o)
{
    return o->end + o->cut;
}

uint64_t
output_cut(const struct output *o)
{
    return o->cut;
}
