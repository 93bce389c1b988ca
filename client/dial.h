// SPDX-License-Identifier: Apache-2.0
// Connects to an address without blocking, and checks with the SP hello that the peer is a broker.
//
//   START --connect--> CONNECTING --> (tls: SHAKING) --> HELLO --its 8 bytes--> connected
//     ^ the backlog is full: again in 5 ms; tcp: the next address
//
// The exception: the name of a TCP host is resolved with getaddrinfo(3), which may block.
#pragma once

#include <stdint.h>

#include "proto/err.h"
#include "address.h"
#include "channel.h"

struct dial;

// Begins. The address is borrowed until dial_free(). deadline_ns: CLOCK_MONOTONIC. Errors: link_open().
int dial_begin(struct dial **out, const struct address *a, uint64_t deadline_ns, struct err *e);

// Closes the socket, unless dial_step() passed it on. Accepts NULL.
void dial_free(struct dial *d);

// Goes on as far as possible without waiting. 1: connected, *out is the channel (non-blocking, close-on-exec; owned by
// the caller); 0: call it again when dial_fd() is ready for dial_events(), or at dial_due_ns(); negative: it failed.
int dial_step(struct dial *d, struct channel *out, struct err *e);

int dial_fd(const struct dial *d); // -1: there is only the time to wait for
short dial_events(const struct dial *d);
uint64_t dial_due_ns(const struct dial *d);

// How many sockets it has made: one may have the number of an earlier one.
unsigned dial_sockets(const struct dial *d);
