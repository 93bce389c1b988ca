// SPDX-License-Identifier: Apache-2.0
// The network of one sandbox: its entry in the kernel (bpf/sandbox.h), its listeners and its orders to the relay.
//
//   born          entry: no way out. Before, programs refuse its processes everything
//   a policy      rule set -> [NET_OPEN at the spawner -> OPEN to the relay, once] -> entry
//   another one   rule set -> entry -> POLICY to the relay, which cuts what it forbids
//   its end       CLOSE to the relay -> DESTROY at the spawner -> no entry, no flows
//
// With mode none nothing is asked of anybody: the entry says so from birth. All of this is behind struct sandbox_networks
// (server/sandbox/sandbox.h), which the sandboxes call; below is what the layers above them may ask. It alone writes
// `net` of struct sandbox. Loop thread only.
#pragma once

#include <stdint.h>

#include "proto/err.h"

struct sandbox;
struct net_events;
struct sandbox_networks;

// For sandboxes_set_networks() and net_new().
extern const struct sandbox_networks enforce_networks;
extern const struct net_events enforce_events;

// Other enum watch_flag bits for its entry.
int enforce_watch(struct sandbox *s, uint32_t flags, struct err *e);

// The kernel has dropped what would go beyond its quota: what is open is cut.
void enforce_spent(struct sandbox *s);
