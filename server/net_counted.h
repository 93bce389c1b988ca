// SPDX-License-Identifier: Apache-2.0
// What relays have counted of each sandbox, kept for the relay that is started when one ends: quotas and figures go on.
//
// The last figures that were reported count; what a relay moved after them, up to 100 ms of it, is lost with it. A relay
// cannot take back what it said: figures only rise. Loop thread only.
#pragma once

#include <stdint.h>

#include "relay/relay.h"

struct net_counted;

// Owned: net_counted_free(). names_fd: map "names", borrowed; -1: none. NULL without memory.
struct net_counted *net_counted_new(int names_fd);
void net_counted_free(struct net_counted *all);

// SUMS and RULE_SUM of a slot that is open; other reports are left alone.
void net_counted_report(struct net_counted *all, const struct relay_report *r);

// The relay has ended: the names that it gave out are nobody's to take back but ours.
void net_counted_relay_gone(struct net_counted *all);

// For the next relay. *rule_bytes: by number, NET_RULES of them, or NULL. NULL: nothing was counted. Borrowed.
const struct relay_counted *net_counted_of(const struct net_counted *all, uint32_t slot,
                                           uint32_t generation, const uint64_t **rule_bytes);

// Another policy: numbers of rules mean others. The relay tells of those that go on.
void net_counted_policy(struct net_counted *all, uint32_t slot);

// The sandbox is gone.
void net_counted_forget(struct net_counted *all, uint32_t slot);
