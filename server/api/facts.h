// SPDX-License-Identifier: Apache-2.0
// What a call is about, as plain data for the caveats of tokens and for policies. A request is read along its descriptor: a method that is
// added later and names its sandbox, template, command, limits, network or paths like the others is understood; one that does not is
// refused by the caveats that it would have to satisfy. Nothing is changed by this.
#pragma once

#include "proto/arena.h"
#include "server/access/caveats.h"
#include "server/access/policy.h"
#include "server/sandbox/sandbox.h"

struct call;
struct principal;
struct server;

// The facts, and what they borrow from.
struct facts {
    struct deed deed;
    struct policy_call call; // refers to `deed`
    struct arena *arena;
    struct sandbox_spec spec; // of a sandbox that the call makes
    struct network *network;  // that it gives to one; owned
    struct limits limits;
    struct policy *request; // what the caller itself allows for this call; owned; NULL: all
    // why the broker refuses the call, whatever a policy says; ERR_OK: nothing is known of that
    struct err refused;
};

// A call: who makes it, and its method ("/stockade.v1.ProcessService/Run") and request. Borrowed.
struct facts_of {
    const struct server *s;
    const struct principal *who;
    const char *tenant, *method;
    const ProtobufCMessage *request;
};

// Clear them with facts_clear(), in any case. RESOURCE_EXHAUSTED: out of memory.
int facts_gather(struct facts *f, const struct facts_of *of, struct err *e);
void facts_clear(struct facts *f);

// Reads the policy that the caller sends with a call, as the metadata "policy"; NULL: none. Free it with policy_free().
// INVALID_ARGUMENT: it is not valid.
int facts_read_policy(const struct call *c, struct policy **out, struct err *e);

// Whether a method ("SystemService/Info") is about the broker itself, so that no policy applies to it.
bool facts_is_harmless(const char *method);

// How a caller proves who it is, in the words of a policy.
const char *facts_credential(const struct principal *who);
