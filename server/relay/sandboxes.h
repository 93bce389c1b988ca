// SPDX-License-Identifier: Apache-2.0
// The open sandboxes: their listeners, policy, counters; and the tick for all of them.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "process.h"

void sandboxes_init(struct relay *r);

// OPEN: takes fds (*owned*, also on failure). False: they are not the expected listeners, or out of memory.
bool sandbox_open(struct relay *r, const struct relay_order *o, const int *fds, size_t fds_n);

// POLICY. False: out of memory.
bool sandbox_policy(struct sandbox *s, const struct relay_order *o);

// SPENT, until the policy changes.
void sandbox_spent(struct sandbox *s);

// Reports that POLICY was carried out; later if the socket is full.
void sandbox_in_force(struct sandbox *s);

// SETTLE: accepts and receives what waits at the listeners, at most a turn's worth, and reports what was carried (settle.c).
void sandbox_settle(struct sandbox *s, uint32_t number);

// CLOSE: closes everything at once; CLOSED is reported when nothing is left.
void sandbox_close(struct sandbox *s);

// At the relay's end: closes all of them; then, when the loop has closed their handles, frees their memory.
void sandboxes_end(struct relay *r);
void sandboxes_free(struct relay *r);
