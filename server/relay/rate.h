// SPDX-License-Identifier: Apache-2.0
// The rate of a sandbox in one direction: one bucket for all of its flows, TCP and UDP. It holds at most the bytes of
// RATE_SAVED_MS. It may become negative by one datagram, which delays later ones, so the long-term rate is exact.
//
//   TCP   a lane takes the available bytes, if there are RATE_LEAST; otherwise its flow waits in the sandbox's queue, in
//         order of arrival, for the timer. Meanwhile its bytes stay in the sender's buffers.
//   UDP   a datagram that finds the bucket empty is dropped. While flows wait, they and datagrams take alternate turns of the timer.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "process.h"

enum { RATE_SAVED_MS = 40, RATE_TICK_MS = 2, RATE_LEAST = 1448 };

// Sets the rate of a new policy.
void rate_set(struct rate *r, uint64_t per_second, uint64_t now_ns);

// Bytes that may pass now: SIZE_MAX without a rate; 0: too few to start.
size_t rate_left(struct rate *r, uint64_t now_ns);

void rate_take(struct rate *r, size_t n);

// Whether a datagram may pass; takes its bytes if it may.
bool rate_datagram(struct sandbox *s, bool out, size_t n);

// Queues a flow until its turn.
void rate_wait(struct sandbox *s, struct list *node);

// Call once, before the loop runs. turn: called for a flow at its turn; its node is in no list any more.
void rate_init(struct relay *r, void (*turn)(struct list *waits));
