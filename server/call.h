// SPDX-License-Identifier: Apache-2.0
// One RPC in progress, as the handlers in api/ see it. Everything here runs on the loop thread.
//
// dispatch.c finds the handler by the method's path, has already checked scope, deadline, size, the pre-scan, the
// arena and the field rules, and calls it once. The handler ends the call exactly once, then or later: call_reply,
// call_end or call_fail. After that it must not touch the call again.
//
//   unary    handler ... call_reply(c, response)                      or call_fail(c, err)
//   stream   handler ... call_send(c, message) ... call_end(c)        or call_fail(c, err)
//
// When the caller cancels, goes away, or the deadline passes, dispatch.c calls on_cancel once; END has then been sent
// already. The handler lets go of the call in it (no call_* function afterwards) and undoes what it was doing.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#include "../proto/err.h"

struct server;
struct call;

// Who calls. `tenant` is the key under which everything it makes is kept: "uid:1000" for ipc, "tcp" for tcp.
struct caller {
    bool local; // ipc: uid, gid, pid are the kernel's word (SO_PEERCRED)
    uint32_t uid, gid;
    int32_t pid;
    char tenant[32];
};

enum call_cancel { CALL_CANCELLED, CALL_DISCONNECTED, CALL_DEADLINE };

// What a handler is. req: borrowed, lives until the call ends.
typedef void call_handler(struct server *s, struct call *c, const ProtobufCMessage *req);

// One method. A service file in api/ exports a table of these, ended by {0}; dispatch_add() takes it.
struct call_method {
    const char *path; // "/stockade.v1.SandboxService/Create"
    const ProtobufCMessageDescriptor *input;
    const ProtobufCMessageDescriptor *output;
    call_handler *handler;
};

// The caller. Borrowed, lives until the call ends.
const struct caller *call_caller(const struct call *c);

// When the request's bytes arrived: uv_hrtime() nanoseconds.
uint64_t call_arrived_ns(const struct call *c);

// A value of the call's metadata, or NULL. Borrowed.
const char *call_metadata(const struct call *c, const char *key);

// Registers what is to be told: cancel (see above) and writable (a call_send that said -EAGAIN may be tried again).
// Either may be NULL. Both get `cookie`.
void call_watch(struct call *c, void (*on_cancel)(void *cookie, enum call_cancel why),
                void (*on_writable)(void *cookie), void *cookie);

// One message of a stream. 0; -EAGAIN: no credit or the connection's queue is full, nothing was taken, on_writable
// will be called; -EMSGSIZE: packed, it is larger than WIRE_DATA_BYTES_MAX.
int call_send(struct call *c, const ProtobufCMessage *m);

// Ends a unary call with its response.
void call_reply(struct call *c, const ProtobufCMessage *m);

// Ends a stream.
void call_end(struct call *c);

// Ends a stream with its last message, in one write: who waits for the end is woken once. Like call_send(), and where that
// takes nothing the call goes on.
int call_end_with(struct call *c, const ProtobufCMessage *m);

// Ends a call of either kind. `e` is copied; details become ErrorInfo, BadRequest, RetryInfo or QuotaFailure by code.
void call_fail(struct call *c, const struct err *e);

// Remembers a fact about a call that must not be executed twice, such as "process_id": another call with the same
// idempotency key is answered ALREADY_EXISTS with these in its ErrorInfo's metadata, so that its caller can find what
// the first one made. At most 4 per call, key up to 64 and value up to 128 bytes. Without an idempotency key: nothing.
void call_note(struct call *c, const char *key, const char *value);
