// SPDX-License-Identifier: Apache-2.0
// What the sandboxes' networks have in common: the rule sets in the kernel, and the relay (srv->relay), which is started
// again when it ends. Loop thread only.
#pragma once

#include "../proto/err.h"
#include "network.h"

struct net;
struct net_counted;
struct net_named;
struct net_sets;
struct server;

// Owned: net_free(). Takes the relay's socket from srv->bpf; needs srv->loop, config, features, spawn and sandboxes.
struct net *net_new(struct server *srv, struct err *e);
void net_free(struct net *n);

// FAILED_PRECONDITION (NETWORK_MODE_NOT_ENFORCED) when a policy of this mode could not be kept here. The configuration's
// network.unenforced: allow lets it pass: such a sandbox has no network at all, since nobody carries it anywhere.
int net_check(const struct server *srv, const struct network *policy, struct err *e);

// Is a way out there? False where programs or the relay are missing.
bool net_enforced(const struct server *srv);

struct net_sets *net_rules(const struct net *n);

// What the relay may reach.
struct net_named *net_names(const struct net *n);

// What relays have counted, for the next one.
struct net_counted *net_count(const struct net *n);
