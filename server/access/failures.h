// SPDX-License-Identifier: Apache-2.0
// Refused credentials, per peer: a bucket that fills with each and empties with time. A valid credential is accepted however full
// it is, so a peer cannot lock out others behind the same address; but no work is done for unknown ones any more.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"

enum {
    FAILURES_PEERS_MAX = 1024,
    FAILURES_PEER = 48,
    FAILURES_EVENTS = 60,
    FAILURES_HANDSHAKES = 10
};

struct failures {
    struct {
        char peer[FAILURES_PEER]; // its address or tenant: "192.0.2.1", "uid:1000"
        uint64_t at_ns;           // of the last one
        uint64_t level;           // thousandths of a failure, at that time
    } row[FAILURES_PEERS_MAX];
    uint64_t log_from_ns; // lines of the log are limited too
    uint32_t logged, unlogged;
    uint64_t events_from_ns; // and events
    uint32_t published;
    uint64_t left_out; // since the last event
    uint8_t key[16];   // of SipHash: which peers share a row
};

void failures_init(struct failures *f);

// Whether the peer has none left at this time, and in how many milliseconds it will have one.
bool failures_full(const struct failures *f, const char *peer, uint32_t per_minute, uint64_t now_ns,
                   uint64_t *wait_ms);

// Whether one may be published as an event now: FAILURES_EVENTS in a minute. *left_out: how many could not be since the last event.
// failures_leave_out() counts one that is not published for another reason.
bool failures_may_publish(struct failures *f, uint64_t now_ns, uint64_t *left_out);

void failures_leave_out(struct failures *f);

// One more.
void failures_count(struct failures *f, const char *peer, uint32_t per_minute, uint64_t now_ns);

// The same, of a credential: with its reason for the log, and a counter.
void failures_add(struct failures *f, const char *peer, uint32_t per_minute, uint64_t now_ns,
                  const struct err *why);
