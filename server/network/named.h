// SPDX-License-Identifier: Apache-2.0
// Map "named" (bpf/net.h): the special addresses and single addresses in the rules in force, which the kernel uses to
// check the relay.
//
// Each policy in force counts once for each sandbox that has it. Loop thread only.
#pragma once

#include <stdint.h>

#include "proto/err.h"
#include "server/relay/relay.h"

struct net_named;

// Creates it. map_fd: borrowed; -1: nothing is written. Owned by the caller. NULL: out of memory.
struct net_named *net_named_new(int map_fd);
void net_named_free(struct net_named *all);

// Adds the rules of a policy, all or none; rules without such addresses are skipped.
int net_named_add(struct net_named *all, const struct relay_rule *rules, uint32_t n, struct err *e);

// Removes them again.
void net_named_drop(struct net_named *all, const struct relay_rule *rules, uint32_t n);
