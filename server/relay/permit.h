// SPDX-License-Identifier: Apache-2.0
// What a sandbox may reach: its policy from the broker, matched against addresses and names, with the use of its
// rules. Pure: no sockets, and the time is an argument.
//
//   ALLOWLIST  a literal address needs a CIDR rule; a name a NAME or SUFFIX rule, for the port as well
//   OPEN       everything public; rules add special addresses (bpf/net_ranges.h), and count what they match
//
// The addresses of a name are checked when the relay connects to them: those that are not public need a CIDR rule
// that names them. The first matching rule is the one that is reported and whose use is counted.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "address.h"
#include "relay.h"

#define PERMIT_NO_RULE UINT32_MAX

// Queries in the current minute.
struct permit_window {
    uint64_t began_ms;
    uint32_t n;
};

// The use of a rule.
struct permit_use {
    uint64_t bytes;
    uint64_t reported; // of those, already reported to the broker
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
    enum net_reason reason; // NET_REASON_NONE: allowed
    uint32_t rule;          // index; PERMIT_NO_RULE
};

// Makes it from an order that orders_check() accepted. Free it with free(). NULL: out of memory.
struct permit *permit_new(const struct relay_order *o);

// Copies the use of rules that did not change.
void permit_inherit(struct permit *now, const struct permit *before);

// Checks a flow to a literal address. own: the address is this host's (address_own).
struct permit_verdict permit_address(const struct permit *p, const uint8_t address[16],
                                     enum address_own own, uint16_t port, uint8_t protocol);

// Checks a query for a name (lower case, no final dot).
struct permit_verdict permit_name(const struct permit *p, const char *name);

// Checks a flow to a name's address.
struct permit_verdict permit_name_port(const struct permit *p, const char *name, uint16_t port,
                                       uint8_t protocol);

// Whether an allowed name may lead to this address. port 0: to any port of it.
bool permit_target(const struct permit *p, const uint8_t address[16], enum address_own own,
                   uint16_t port, uint8_t protocol);

// Ports of a name for map "names". If there are more ranges than fit, the last one means "any": the relay checks again
// at every flow.
void permit_ports(const struct permit *p, const char *name, struct net_name *out);

// Counts a query at now_ms, at most `most` per minute. False: too many.
bool permit_window_take(struct permit_window *w, uint32_t most, uint64_t now_ms);

// Bytes that the rule still permits; UINT64_MAX: no limit.
uint64_t permit_rule_left(const struct permit *p, uint32_t rule);
