// SPDX-License-Identifier: Apache-2.0
// One rule of a network policy: reads it, compares it with others, and makes entries of the kernel's table from
// rules.
//
// A rule has the format of the relay (struct relay_rule). Pure: no state, no system calls.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/relay/relay.h"

// Reads "192.0.2.0/24", "2001:db8::1" or "host" into *r (kind, address, prefix); *what is "" or describes the error.
bool net_rule_cidr(const char *text, struct relay_rule *r, const char **what);

// The same of "example.com" or "*.example.com" (kind, name).
bool net_rule_domain(const char *text, struct relay_rule *r, const char **what);

// Adds a port range, inclusive. False: there is no room for more.
bool net_rule_add_ports(struct relay_rule *r, uint16_t first, uint16_t last, uint8_t protocol);

// An address with its port as text, "192.0.2.1:443" or "[2001:db8::1]:443"; port 0: without one.
void net_rule_address(const uint8_t address[16], uint16_t port, char *out, size_t n);

// A rule as text, "192.0.2.0/24" or "*.example.com".
void net_rule_text(const struct relay_rule *r, char *out, size_t n);

// Whether `outer` covers all addresses and names of `inner`, ignoring ports.
bool net_rule_within(const struct relay_rule *inner, const struct relay_rule *outer);

// Whether its prefix lies within a special range (bpf/net_ranges.h), or it is "host".
bool net_rule_is_special(const struct relay_rule *r);

// How many bits of an address it names: the length of its prefix if that is a whole address or special, otherwise 0.
uint8_t net_rule_names(const struct relay_rule *r);

// Makes entries for map "rules", with rule_set 0; `out` has room for NET_RULES + 1. INVALID_ARGUMENT names the rule
// whose prefix would have more than NET_PORTS ranges.
int net_rule_compile(const struct relay_rule *rules, uint32_t rules_n, struct net_rule_key *keys,
                     struct net_rule *values, uint32_t *n, struct err *e);
