// SPDX-License-Identifier: Apache-2.0
// Orders from the broker: read from the socket, checked completely, then carried out one by one.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "relay.h"

enum {
    ORDER_FDS = 4,
    ORDER_BYTES_MAX = sizeof(struct relay_order) + NET_RULES * sizeof(struct relay_rule) +
                      RELAY_REPLIES_MAX * sizeof(struct relay_reply),
};

// Whether a packet of n bytes with this number of descriptors contains an order of a correct broker. Afterwards all of
// its values are within their bounds. Pure. bytes are aligned like struct relay_order.
bool orders_check(const void *bytes, size_t n, size_t fds_n);

// Waits for the first order, which must be CONFIGURE. False: it is not, or the broker has gone.
bool orders_first(int fd, struct relay_order *out);

// Reads available orders and carries them out. False: the relay must end.
struct relay;
bool orders_read(struct relay *r);
