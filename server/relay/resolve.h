// SPDX-License-Identifier: Apache-2.0
// Resolution of names at the host's name servers, by c-ares.
//
// A name is resolved before its query is answered: so a name that does not exist gets NXDOMAIN, a name whose
// addresses are all forbidden is refused immediately, and the connection that follows finds addresses. If they are
// older than their TTL (1 to 60 s) when the relay connects, the name is resolved again. Addresses are checked again
// at each connection, because the policy may have changed, and because port and address are judged together.
#pragma once

#include <stdbool.h>

#include "names.h"
#include "process.h"

enum {
    RESOLVE_MAX = 1024, // lookups at one time
    RESOLVE_PER_SANDBOX = 64,
};

enum resolve_result {
    RESOLVE_OK,        // the name has addresses
    RESOLVE_NO_NAME,   // NXDOMAIN
    RESOLVE_NO_DATA,   // the name exists, without addresses
    RESOLVE_FORBIDDEN, // all of its addresses are special and no rule names them; reported as DENIED
    RESOLVE_FAILED,    // the servers do not answer
    RESOLVE_FULL,      // too many lookups or names; reported as DENIED
};

// Embedded in the waiting object. To stop waiting: list_remove(&w->node).
struct resolve_waiter {
    struct list node;
    const struct net_user *user; // the requester; borrowed until resolve_name() returns
    // name: only with RESOLVE_OK. The waiter is in no list any more and may be freed.
    void (*done)(struct resolve_waiter *w, enum resolve_result result, struct name *name);
};

// Reads resolv.conf or takes the servers of the order, and opens what must be open before the process drops its rights.
bool resolve_init(struct relay *r, const struct relay_order *configure);
// When no sandbox is open.
void resolve_end(void);

// Calls w->done once, possibly before it returns.
void resolve_name(struct sandbox *s, const char *text, struct resolve_waiter *w);

// The sandbox is closed; its waiters were removed.
void resolve_drop(struct sandbox *s);

// Call at every tick. True while lookups run.
bool resolve_tick(struct relay *r);
