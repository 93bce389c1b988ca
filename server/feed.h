// SPDX-License-Identifier: Apache-2.0
// The feed: every event, published to nng SUB sockets (pynng, mangos, nng in any language) on an address of its own.
//
// nng's own sockets are not fit to be exposed (transport.h), so this speaks the SP wire of PUB itself: both sides
// send 8 bytes, and then messages go one way. A message is a line to subscribe to, "KIND/SEVERITY/SANDBOX-ID\n", and the
// packed stockade.v1.Event behind it; its sequence numbers tell what was missed. SUB sockets filter by themselves, on
// their side. Best effort: a peer that does not read loses messages, and nobody waits for it.
//
// It shows what all tenants do: an ipc socket is for root and the broker's account alone (0600), tcp is refused unless it
// is loopback. Loop thread only.
#pragma once

#include <stdint.h>
#include <uv.h>

#include "../proto/err.h"

struct events;
struct feed;

enum {
    FEED_PEERS_MAX = 64,
    FEED_QUEUE_MAX = 4096, // messages that wait for one peer
    FEED_QUEUE_BYTES = 1024 * 1024,
    FEED_HELLO_MS = 5000,
};

// Listens, and taps the hub. Owned: feed_close(). bound (TRANSPORT_BOUND_BYTES) gets the address with its port.
int feed_open(uv_loop_t *loop, struct events *events, const char *address, char *bound,
              struct feed **out, struct err *e);

// Closes every peer and stops listening; what is left of it goes with the loop. NULL is fine.
void feed_close(struct feed *f);

// Messages that peers lost because they did not read, and peers that are there.
uint64_t feed_lost(const struct feed *f);
uint32_t feed_peers(const struct feed *f);
