// SPDX-License-Identifier: Apache-2.0
// The table of methods, and the checks before a handler runs. No other code decides what a caller may do.
#pragma once

#include "call.h"
#include "principal.h"

struct dispatch;
struct server;

// Creates an empty table that passes `s` to the handlers. Free it with dispatch_free(). NULL: out of memory.
struct dispatch *dispatch_new(struct server *s);
void dispatch_free(struct dispatch *d);

// Decides about a call whose request passed all checks. 0: it may run. Negative: refused, with the reason in *e. 1:
// the decision takes time, and dispatch_decide() follows. If the call is cancelled meanwhile, the callback of
// call_watch() reports it, and the authority must not decide any more.
typedef int dispatch_authority(void *cookie, struct call *c, const ProtobufCMessage *request,
                               struct err *e);

// Sets the authority. NULL: every caller with the scope may call.
void dispatch_set_authority(struct dispatch *d, dispatch_authority *authority, void *cookie);

// Who a call with a credential comes from. peer: the principal of the connection. 0: *out is the caller. Negative: refused, with
// UNAUTHENTICATED and the reason in *e, or because too many were refused.
typedef int dispatch_credentials(void *cookie, const struct principal *peer, const char *credential,
                                 struct principal *out, struct err *e);

// Sets who understands credentials. NULL: nobody, so every credential is refused.
void dispatch_set_credentials(struct dispatch *d, dispatch_credentials *check, void *cookie);

// Calls from peers that nothing identifies (PROOF_NONE) are refused without a credential, unless *allowed. Borrowed. NULL: allowed.
void dispatch_set_anonymous(struct dispatch *d, const bool *allowed);

// The decision about a waiting call; e NULL: it may run. Do not call it from inside the authority.
void dispatch_decide(struct call *c, const struct err *e);

// The step before the authority and the handler of a method that may wake a sandbox (options.proto: wakes); it is repeated after a
// decision that took time. `name` is the id or name in the request, never "". The same results as those of an authority; after 1,
// dispatch_go_on() follows.
typedef int dispatch_gate(void *cookie, struct call *c, const char *name, struct err *e);
void dispatch_set_gate(struct dispatch *d, dispatch_gate *gate, void *cookie);
void dispatch_go_on(struct call *c, const struct err *e);

// Adds a service's methods (terminated by {0}); the table is borrowed and must stay valid. Fails if a path has no
// rules in the descriptor set, or was already added.
int dispatch_add(struct dispatch *d, const struct call_method *methods, struct err *e);

// What the request of a method is; NULL: there is no method of this path.
const ProtobufCMessageDescriptor *dispatch_input(const struct dispatch *d, const char *path);

// The start-up self-test: fails if a method of the descriptor set has no handler. Call it after the last
// dispatch_add().
int dispatch_complete(const struct dispatch *d, struct err *e);
