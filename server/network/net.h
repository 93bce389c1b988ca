// SPDX-License-Identifier: Apache-2.0
// The common part of all networks: the rule sets in the kernel, and the relay (srv->relay), which is restarted when it
// ends. Loop thread only.
#pragma once

#include <stdbool.h>

#include "proto/err.h"
#include "relay_link.h"
#include "server/policy/network.h"

struct net;
struct net_counted;
struct net_named;
struct net_sets;
struct witnesses;
struct sandbox;
struct server;

struct network_settings {
    bool unenforced;          // accept policies that cannot be enforced
    struct relay_servers dns; // name servers for sandboxes; none: /etc/resolv.conf
};

// Events for the sandboxes that have a network, for the part that enforces policies (enforce.h).
struct net_events {
    void (*again)(struct sandbox *s);     // a new relay was started: open the listeners again
    void (*confirmed)(struct sandbox *s); // the relay has carried out every order about it
};

// Creates it. Free it with net_free(). Takes the relay's socket from srv->bpf; needs srv->loop, features, spawn and
// sandboxes. The settings and the events are borrowed.
struct net *net_new(struct server *srv, const struct network_settings *settings,
                    const struct net_events *events, struct err *e);
void net_free(struct net *n);

// FAILED_PRECONDITION (NETWORK_MODE_NOT_ENFORCED) if this host cannot enforce a policy of this mode. With
// network.unenforced: allow it succeeds; such a sandbox has no network at all.
int net_check(const struct server *srv, const struct network *policy, struct err *e);

// Whether this host can enforce policies: false if the programs or the relay are missing.
bool net_enforced(const struct server *srv);

struct net_sets *net_rules(const struct net *n);

// The addresses that the relay may reach.
struct net_named *net_names(const struct net *n);

// Counters for the next relay.
struct net_counted *net_count(const struct net *n);

// The witnesses of each sandbox's traffic.
struct witnesses *net_witnesses(const struct net *n);
