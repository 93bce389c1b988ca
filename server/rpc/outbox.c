// SPDX-License-Identifier: Apache-2.0
// See outbox.h. Chunks of the usual size are kept for reuse, so an idle connection has none.
#include "outbox.h"

#include <assert.h>
#include <stdlib.h>

enum { CHUNK_BYTES = 16 * 1024 };

struct chunk {
    struct chunk *next;
    size_t size, begin, end;
    uint8_t bytes[];
};

static struct chunk *
chunk_new(struct rpc *r, size_t size)
{
    struct chunk *k = NULL;
    if (size <= CHUNK_BYTES && r->spare_chunks != NULL) {
        k = r->spare_chunks;
        r->spare_chunks = k->next;
        r->spare_chunks_n--;
    } else {
        size = size <= CHUNK_BYTES ? CHUNK_BYTES : size;
        k = malloc(sizeof *k + size);
        if (k == NULL)
            return NULL;
        k->size = size;
    }
    k->next = NULL;
    k->begin = k->end = 0;
    return k;
}

static void
chunk_free(struct rpc *r, struct tenant *t, struct chunk *k)
{
    tenant_give_bytes(t, k->size);
    if (k->size != CHUNK_BYTES || r->spare_chunks_n == SPARE_CHUNKS_MAX) {
        free(k);
        return;
    }
    k->next = r->spare_chunks;
    r->spare_chunks = k;
    r->spare_chunks_n++;
}

void
outbox_free_spares(struct rpc *r)
{
    while (r->spare_chunks != NULL) {
        struct chunk *k = r->spare_chunks;
        r->spare_chunks = k->next;
        free(k);
    }
}

static struct chunk *
add_chunk(struct outbox *o, struct rpc *r, struct tenant *t, size_t n)
{
    struct chunk *k = chunk_new(r, n);
    if (k == NULL)
        return NULL;
    if (!tenant_take_bytes(t, k->size, r->limits.bytes_per_uid_max)) {
        free(k);
        return NULL;
    }
    *(o->last != NULL ? &o->last->next : &o->first) = k;
    o->last = k;
    return k;
}

uint8_t *
outbox_reserve(struct outbox *o, struct rpc *r, struct tenant *t, size_t n)
{
    struct chunk *k = o->last;
    if (k == NULL || k->size - k->end < n)
        k = add_chunk(o, r, t, n);
    if (k == NULL)
        return NULL;
    uint8_t *p = k->bytes + k->end;
    k->end += n;
    o->bytes += n;
    return p;
}

unsigned
outbox_pieces(const struct outbox *o, struct iovec *iov, unsigned max)
{
    unsigned n = 0;
    for (struct chunk *k = o->first; k != NULL && n < max; k = k->next)
        iov[n++] = (struct iovec){k->bytes + k->begin, k->end - k->begin};
    return n;
}

void
outbox_drop(struct outbox *o, struct rpc *r, struct tenant *t, size_t n)
{
    assert(n <= o->bytes);
    o->bytes -= n;
    while (o->first != NULL) {
        struct chunk *k = o->first;
        size_t taken = k->end - k->begin < n ? k->end - k->begin : n;
        k->begin += taken;
        n -= taken;
        if (k->begin < k->end)
            return;
        o->first = k->next;
        if (o->first == NULL)
            o->last = NULL;
        chunk_free(r, t, k);
    }
}
