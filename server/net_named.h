// SPDX-License-Identifier: Apache-2.0
// Map "named" (bpf/net.h): what live rules name of special addresses and whole ones, by which the kernel judges the relay.
//
// Each policy that is in force counts once for each sandbox that has it. Loop thread only.
#pragma once

#include <stdint.h>

#include "../proto/err.h"
#include "relay/relay.h"

struct net_named;

// map_fd: borrowed; -1: nothing is written. Owned. NULL without memory.
struct net_named *net_named_new(int map_fd);
void net_named_free(struct net_named *all);

// Rules come into force, all or none; those that name no address by themselves count for nothing.
int net_named_add(struct net_named *all, const struct relay_rule *rules, uint32_t n, struct err *e);

// And go, as they came.
void net_named_drop(struct net_named *all, const struct relay_rule *rules, uint32_t n);
