// SPDX-License-Identifier: Apache-2.0
// Orders from the broker: read from the socket, checked whole before anything is done, carried out one by one.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "relay.h"

enum {
    ORDER_FDS = 4,
    ORDER_BYTES_MAX = sizeof(struct relay_order) + NET_RULES * sizeof(struct relay_rule),
};

// Does a packet of n bytes with so many descriptors hold an order that a correct broker may send? Nothing in it is out of
// its bounds afterwards. Pure. bytes are aligned as struct relay_order is.
bool orders_check(const void *bytes, size_t n, size_t fds_n);

// Reads the first order, which must be CONFIGURE, and waits for it. False: it is not, or the broker is gone.
bool orders_first(int fd, struct relay_order *out);

// Reads what is there and carries it out. False: the relay is to end.
struct relay;
bool orders_read(struct relay *r);
