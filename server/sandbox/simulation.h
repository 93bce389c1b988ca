// SPDX-License-Identifier: Apache-2.0
// What destinations say to a simulated sandbox, and what its jobs would have sent (stockade/v1/simulation.proto). A sandbox with this
// is simulated from its first policy to its end: the relay accepts its connections and opens none. Counted. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/relay/relay.h"

enum { SIMULATION_REPLIES = 16, SIMULATION_DATAGRAM = 1200 };
_Static_assert((int)SIMULATION_REPLIES <= (int)RELAY_REPLIES_MAX, "the relay takes all of them");

struct simulation {
    uint32_t refs;
    uint32_t replies_n;
    struct relay_reply *replies; // owned
    // As the relay reported it. Hostile, but checked by relay_link.c.
    uint32_t sent_n;
    struct relay_sent *sent[RELAY_SENT_MAX]; // owned
    uint64_t sent_total;
    bool lost; // the relay ended, or memory was short
};

// One reference, no answers. NULL: out of memory.
struct simulation *simulation_new(void);
struct simulation *simulation_ref(struct simulation *m); // accepts NULL
void simulation_unref(struct simulation *m);             // accepts NULL

// Adds an answer; number: its place in the request, for the error. INVALID_ARGUMENT: too many, or the destination is none.
int simulation_answer(struct simulation *m, size_t number, const char *to, const uint8_t *reply,
                      size_t n, struct err *e);

// A report of kind RELAY_SENT, or RELAY_SUMS.
void simulation_report(struct simulation *m, const struct relay_report *r);
