// SPDX-License-Identifier: Apache-2.0
// The feed: publishes every event to nng SUB sockets (pynng, mangos, nng in any language) on an address of its own.
//
// nng's own sockets are not safe for untrusted peers (transport.h), so this file implements the SP wire of PUB itself:
// both sides send 8 bytes, and then messages go one way. A message is a topic line, "KIND/SEVERITY/SANDBOX-ID\n",
// followed by the packed stockade.v1.Event; gaps in its sequence numbers show missed events. SUB sockets filter on
// their own side. Best effort: a peer that does not read loses messages and delays nobody.
//
// It shows the activity of all tenants: an ipc socket is for root and the broker's account only (0600), and tcp must be
// loopback. Loop thread only.
#pragma once

#include <stdint.h>
#include <uv.h>

#include "proto/err.h"

struct events;
struct feed;

enum {
    FEED_PEERS_MAX = 64,
    FEED_QUEUE_MAX = 4096, // queued messages of one peer
    FEED_QUEUE_BYTES = 1024 * 1024,
    FEED_HELLO_MS = 5000,
};

// Listens, and receives every event from the hub. Free it with feed_close(). bound (TRANSPORT_BOUND_BYTES) gets the
// address with its port.
int feed_open(uv_loop_t *loop, struct events *events, const char *address, char *bound,
              struct feed **out, struct err *e);

// Closes every peer and stops listening; the rest is freed by the loop. Accepts NULL.
void feed_close(struct feed *f);

// Number of connected peers. METRIC_FEED_LOST counts the messages that peers lost because they did not read.
uint32_t feed_peers(const struct feed *f);
