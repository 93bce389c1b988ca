// SPDX-License-Identifier: Apache-2.0
// Bytes that are queued for one peer: packed frames, one after the other, in chunks. Loop thread only.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "calls.h"

struct chunk;

// Zeroed before first use.
struct outbox {
    struct chunk *first, *last;
    size_t bytes; // not yet written
};

// Reserves n bytes at the end; the caller fills them immediately. NULL: out of memory, or more than the tenant's share.
uint8_t *outbox_reserve(struct outbox *o, struct rpc *r, struct tenant *t, size_t n);

// The first bytes as up to `max` pieces; returns how many. They do not move until they are dropped.
unsigned outbox_pieces(const struct outbox *o, struct iovec *iov, unsigned max);

// Removes the first n bytes, which were written.
void outbox_drop(struct outbox *o, struct rpc *r, struct tenant *t, size_t n);

// Frees the spare chunks.
void outbox_free_spares(struct rpc *r);
