// SPDX-License-Identifier: Apache-2.0
// Counters of each sandbox from earlier relays. The next relay continues with them, so that quotas and counters survive
// a restart.
//
// The last report counts; what a relay moved after it, in up to 100 ms, is lost. A relay cannot decrease its counters:
// they only increase. Loop thread only.
#pragma once

#include <stdint.h>

#include "server/relay/relay.h"

struct net_counted;

// Creates the table. Free it with net_counted_free(). names_fd: map "names", borrowed; -1: none. NULL: out of memory.
struct net_counted *net_counted_new(int names_fd);
void net_counted_free(struct net_counted *all);

// Stores SUMS and RULE_SUM of an open slot; ignores other reports.
void net_counted_report(struct net_counted *all, const struct relay_report *r);

// The relay has ended: only the broker can remove the names that it assigned.
void net_counted_relay_gone(struct net_counted *all);

// The counters for the next relay. *rule_bytes: by rule number, NET_RULES of them, or NULL. NULL: nothing was counted.
// Borrowed.
const struct relay_counted *net_counted_of(const struct net_counted *all, uint32_t slot,
                                           uint32_t generation, const uint64_t **rule_bytes);

// The policy changed: rule numbers mean other rules. The relay reports those that remain.
void net_counted_policy(struct net_counted *all, uint32_t slot);

// The sandbox was removed.
void net_counted_forget(struct net_counted *all, uint32_t slot);
