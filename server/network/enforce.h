// SPDX-License-Identifier: Apache-2.0
// The network of one sandbox: its entry in the kernel (bpf/sandbox.h), its listeners and its orders to the relay.
//
//   born          entry: no network. Before, the programs refuse its processes everything
// first policy  rule set -> [NET_OPEN at the spawner -> OPEN to the relay, once] -> entry
// new policy    rule set -> entry -> POLICY to the relay, which cuts what it forbids
// end           CLOSE to the relay -> DESTROY at the spawner -> no entry, no flows
//
// With mode none only the entry is needed, which says so from the beginning. The sandboxes call all of this through
// struct sandbox_networks (server/sandbox/sandbox.h); the functions below are for the layers above. Only enforce.c
// writes `net` of struct sandbox. Loop thread only.
#pragma once

#include <stdint.h>

#include "proto/err.h"

struct sandbox;
struct net_events;
struct sandbox_networks;

// For sandboxes_set_networks() and net_new().
extern const struct sandbox_networks enforce_networks;
extern const struct net_events enforce_events;

// Changes the enum watch_flag bits of its entry.
int enforce_watch(struct sandbox *s, uint32_t flags, struct err *e);

// The kernel has dropped packets beyond the quota: cuts the open flows.
void enforce_spent(struct sandbox *s);
