// SPDX-License-Identifier: Apache-2.0
// The network of one sandbox: its entry in the kernel (bpf/sandbox.h), its listeners and its orders to the relay.
//
//   born          entry: no way out (sandbox_policy_put). Before, programs refuse its processes everything
//   a policy      rule set -> [NET_OPEN at the spawner -> OPEN to the relay, once] -> entry          (sandbox_network)
//   another one   rule set -> entry -> POLICY to the relay, which cuts what it forbids
//   its end       CLOSE to the relay -> DESTROY at the spawner -> no entry, no flows (sandbox_policy_clear)
//
// With mode none nothing is asked of anybody: the entry says so from birth. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "../proto/err.h"
#include "network.h"

struct limits;
struct sandbox;
struct sandbox_waiter;

// Writes its entry, with no way out. 0 where no program is loaded.
int sandbox_policy_put(struct sandbox *s, struct err *e);

// Takes it back, with its flows; fine without one.
void sandbox_policy_clear(struct sandbox *s);

// Other enum watch_flag bits for its entry.
int sandbox_policy_watch(struct sandbox *s, uint32_t flags, struct err *e);

// Its limits will be these: how many sockets it may have.
int sandbox_policy_limits(struct sandbox *s, const struct limits *limits, struct err *e);

// Puts a policy in force. 1: it is; 0: w is told when it is, or why not (then the one before holds). Negative: refused, and
// nothing has changed.
int sandbox_network(struct sandbox *s, struct network *n, struct sandbox_waiter *w, struct err *e);

// Its flows are cut and its listeners closed in the relay. True: `done` comes, later; false: there is nothing to close.
bool sandbox_network_close(struct sandbox *s, void (*done)(void *cookie), void *cookie);

// The kernel has dropped what would go beyond its quota: what is open is cut.
void sandbox_network_spent(struct sandbox *s);

// After the relay was started again: its listeners are opened anew.
void sandbox_network_again(struct sandbox *s);

// The relay has carried out every policy that it was given for the sandbox: whoever waits for one is answered.
void sandbox_network_in_force(struct sandbox *s);
