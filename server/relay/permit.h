// SPDX-License-Identifier: Apache-2.0
// What a sandbox may reach: its policy as the broker ordered it, matched against addresses and names, with what its rules
// have used up. Pure: no socket, no clock of its own.
//
//   ALLOWLIST  a literal address needs a CIDR rule; a name a NAME or SUFFIX rule, for the port as well
//   OPEN       everything public; rules add special addresses (bpf/net_ranges.h), and count what they match
//
// A name's addresses are looked at when they are dialled: those that are not public need a CIDR rule that names them.
// The first rule that matches is the one that is told and charged.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "address.h"
#include "relay.h"

#define PERMIT_NO_RULE UINT32_MAX

// Queries in the running minute.
struct permit_window {
    uint64_t began_ms;
    uint32_t n;
};

// What a rule has let through.
struct permit_use {
    uint64_t bytes;
    uint64_t told; // of those, to the broker
    struct permit_window queries;
};

struct permit {
    enum net_mode mode;
    uint64_t out_bytes_max, in_bytes_max;
    uint64_t out_rate, in_rate;
    uint32_t queries_per_minute;
    uint32_t rules_n;
    struct permit_use *use;    // rules_n, in the same allocation
    struct relay_rule rules[]; // rules_n
};

struct permit_verdict {
    enum net_reason reason; // NET_REASON_NONE: yes
    uint32_t rule;          // index; PERMIT_NO_RULE
};

// From an order that orders_check() has passed. *Owned*: free(). NULL without memory.
struct permit *permit_new(const struct relay_order *o);

// Rules that stay the same keep what they have used.
void permit_inherit(struct permit *now, const struct permit *before);

// A flow to a literal address. own: it is one of this host's (address_own).
struct permit_verdict permit_address(const struct permit *p, const uint8_t address[16],
                                     enum address_own own, uint16_t port, uint8_t protocol);

// A query for a name (lower case, no final dot).
struct permit_verdict permit_name(const struct permit *p, const char *name);

// A flow to a name's address.
struct permit_verdict permit_name_port(const struct permit *p, const char *name, uint16_t port,
                                       uint8_t protocol);

// May an allowed name lead to this address? port 0: to any port of it.
bool permit_target(const struct permit *p, const uint8_t address[16], enum address_own own,
                   uint16_t port, uint8_t protocol);

// Ports of a name for map "names". Where there are more ranges than it has room for, the last says "any": the relay looks
// again at every flow.
void permit_ports(const struct permit *p, const char *name, struct net_name *out);

// One more query at now_ms, of at most `most` in a minute. False: too many.
bool permit_window_take(struct permit_window *w, uint32_t most, uint64_t now_ms);

// Bytes that the rule still lets through; UINT64_MAX: no limit.
uint64_t permit_rule_left(const struct permit *p, uint32_t rule);
