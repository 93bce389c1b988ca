// SPDX-License-Identifier: Apache-2.0
// What waits to be written to one peer: frames packed one behind the other into chunks. Loop thread only.
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

// Room for n bytes behind what is there; the caller fills it at once. NULL: no memory, or more than the tenant's share.
uint8_t *outbox_reserve(struct outbox *o, struct rpc *r, struct tenant *t, size_t n);

// The first bytes as up to `max` pieces. They stay where they are until they are dropped. Returns how many.
unsigned outbox_pieces(const struct outbox *o, struct iovec *iov, unsigned max);

// The first n bytes have been written.
void outbox_drop(struct outbox *o, struct rpc *r, struct tenant *t, size_t n);

// Gives the chunks that are kept for later back to the system.
void outbox_free_spares(struct rpc *r);
