// SPDX-License-Identifier: Apache-2.0
// One RPC in progress, as the handlers in api/ see it. Loop thread only.
//
// dispatch.c looks up the handler by the method's path, checks the caller's scope, deadline, size, the pre-scan, the arena
// and the field rules, and calls the handler once. The handler ends the call exactly once, immediately or later, with
// call_reply, call_end or call_fail. After that it must not use the call any more.
//
//    unary    handler ... call_reply(c, response)                      or call_fail(c, err)
//    stream   handler ... call_send(c, message) ... call_end(c)        or call_fail(c, err)
//
// If the caller cancels the call or disconnects, or the deadline expires, dispatch.c sends END and then calls on_cancel
// once. on_cancel must drop the call (no call_* function afterwards) and undo the work in progress.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "proto/err.h"

struct server;
struct call;

enum call_cancel { CALL_CANCELLED, CALL_DISCONNECTED, CALL_DEADLINE };

// A handler. req is borrowed and valid until the call ends.
typedef void call_handler(struct server *s, struct call *c, const ProtobufCMessage *req);

// One method. Each service file in api/ exports a table of these, terminated by {0}, for dispatch_add().
struct call_method {
    const char *path; // "/stockade.v1.SandboxService/Create"
    const ProtobufCMessageDescriptor *input;
    const ProtobufCMessageDescriptor *output;
    call_handler *handler;
};

// The caller's tenant, to which everything that it creates belongs. Borrowed, valid until the call ends.
const char *call_tenant(const struct call *c);

// Who calls, for handlers that make credentials: these have at most the rights of their maker. Borrowed, valid until the call ends.
struct principal;
const struct principal *call_principal(const struct call *c);

// The text of the call's credential; NULL: it has none. Borrowed, valid until the call ends.
const char *call_credential(const struct call *c);

// Whether the call came over a unix socket, whatever credential it has.
bool call_is_local(const struct call *c);

// Zeroed memory that is freed when the call ends. NULL: the call has too much.
void *call_alloc(struct call *c, size_t bytes);

// Its request asks for a simulation (stockade/v1/simulation.proto).
bool call_simulates(const struct call *c);
bool call_message_simulates(const ProtobufCMessage *request);

// Why a policy would refuse the call, or have it wait for people, if it were not simulated: the authority writes it down instead of refusing.
// Texts are copied. False: out of memory.
struct call_refusal {
    const char *method, *rule, *reason;
    bool would_ask;
};
bool call_set_refusal(struct call *c, const struct call_refusal *why);

// NULL: it may run. Otherwise its handler must say so, and do nothing else. Valid until the call ends.
const struct call_refusal *call_refusal(const struct call *c);

// The path of its method, such as "/stockade.v1.SandboxService/Create". Borrowed.
const char *call_method_path(const struct call *c);

// The tenant whose objects the call may see; NULL: all tenants. dispatch.c decides it by the request's `tenant` and
// the caller's scopes. For methods with an others_scope (options.proto); for others it is the caller's own tenant.
const char *call_whose(const struct call *c);

// Arrival time of the request: uv_hrtime() nanoseconds.
uint64_t call_arrived_ns(const struct call *c);

// A value of the call's metadata, or NULL. Borrowed.
const char *call_metadata(const struct call *c, const char *key);

// Registers callbacks: on_cancel (see above), and on_writable, which is called when call_send may be tried again after
// -EAGAIN. Either may be NULL. Both get `cookie`.
void call_watch(struct call *c, void (*on_cancel)(void *cookie, enum call_cancel why),
                void (*on_writable)(void *cookie), void *cookie);

// The call only reports what others do: a shutdown does not wait for it. The handler ends it when `drained` of struct
// server is set. Call it once.
void call_only_watches(struct call *c);

// Sends one message of a stream. Returns 0; -EAGAIN: no credit, or the connection's queue is full; nothing was sent,
// and on_writable will be called; -EMSGSIZE: the packed message is larger than WIRE_DATA_BYTES_MAX.
int call_send(struct call *c, const ProtobufCMessage *m);

// The same for one that another one, or the end, follows at once: it is sent with that. If that is not so, call_flush() sends it.
int call_send_more(struct call *c, const ProtobufCMessage *m);
void call_flush(struct call *c);

// Ends a unary call with its response.
void call_reply(struct call *c, const ProtobufCMessage *m);

// Ends a stream.
void call_end(struct call *c);

// Ends a stream with its last message, in one write, so that a caller that waits for the end wakes up once. Returns the
// same as call_send(); if that is not 0, the call continues.
int call_end_with(struct call *c, const ProtobufCMessage *m);

// Ends a call of either kind with an error. `e` is copied; its details become ErrorInfo, BadRequest, RetryInfo or
// QuotaFailure.
void call_fail(struct call *c, const struct err *e);

// Stores a fact about a call with an idempotency key, such as "process_id". Another call with the same key fails with
// ALREADY_EXISTS and gets these facts in the metadata of ErrorInfo, so that its caller can find the result of the first
// one. At most 4 per call, key up to 64 and value up to 128 bytes. Does nothing without an idempotency key.
void call_note(struct call *c, const char *key, const char *value);
