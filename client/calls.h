// SPDX-License-Identifier: Apache-2.0
// Concurrent calls over one connection, from any number of threads: the inside of `struct stockade`.
//
// The library has no thread of its own. All calls are one machine: frames are queued at their calls, and passed on
// one by one to the call's sink, by the thread that the call belongs to, without the lock.
//
//   call_begin --CALL--> [open] --DATA--> queue (never more than the credit given) --> sink.on_message
//                          |  END, lost connection, deadline, cancelled
//                          v
//                        [done], and the queue is empty --> sink.on_end, freed
//
// A call belongs to the thread that waits for it in call_wait(): the blocking functions of stockade.h. Or it belongs to
// nobody (`pumped`), and stockade_pump() passes it on (async.c). The threads that wait also read and send: a
// thread that has nothing to pass on polls the socket without the lock, unless another one does, and queues the frames of
// all calls (pump.c). The others sleep on a condition until something has changed; when the polling thread's own call has ended,
// one of them polls. A program that polls itself has stockade_fd() instead (watch.c).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/arena.h"
#include "stockade.h"

struct call;
struct message;

// One message on its way to a sink.
struct delivery {
    const uint8_t *bytes;
    size_t n;
    struct message **message; // that contains the bytes; who sets it to NULL frees it with free()
    struct arena **arena;     // of the thread, for call_arena(); who sets it to NULL owns it
};

// What becomes of the messages of a call. Both run without the lock.
struct call_sink {
    // A message of a stream, or the response of a unary call. 0: go on; positive: cancel the call (what arrives before its
    // END is still passed on); negative, with *e: end the call at once with this failure.
    int (*on_message)(void *cookie, struct delivery *d, struct stockade_error *e);
    // The end of a call that nobody waits for, the last use of the cookie; `e` is valid if rc is negative.
    void (*on_end)(void *cookie, uint64_t id, int rc, const struct stockade_error *e);
};

struct call_spec {
    const char *method; // "/stockade.v1.Service/Method"
    const void *request;
    size_t request_n;
    bool stream;
    bool pumped;                                 // stockade_pump() passes it on
    uint32_t credit;                             // messages in advance; 0: WIRE_CREDIT_DEFAULT
    const struct stockade_call_options *options; // or NULL
    const struct call_sink *sink;
    void *cookie; // of the sink
    uint64_t *id; // gets the id of the call, before anything of it is passed on; or NULL
};

// Begins to connect if necessary, and sends the CALL. *out is for call_wait(), which frees it; a pumped call is freed at its
// end.
int call_begin(struct call **out, struct stockade *s, const struct call_spec *spec,
               struct stockade_error *e);

// Passes on the messages of the call until it has ended, and frees it. Returns 0, or its failure.
int call_wait(struct call *c, struct stockade_error *e);

// Both of them.
int call_do(struct stockade *s, const struct call_spec *spec, struct stockade_error *e);

// An empty arena for one message; NULL: out of memory.
struct arena *call_arena(struct delivery *d);

// Passes on the first message of a call, which must have one. Lock held; released meanwhile.
void call_pass_on(struct call *c, struct arena **arena);

// Cancels it: sends CANCEL; END is awaited for at most 5 s. Lock held.
void call_cancel(struct call *c);

// Why it failed. Borrowed.
const struct stockade_error *call_error(const struct call *c);

// Takes it off the handle's calls, and frees it. Lock held.
void call_forget(struct call *c);
void call_release(struct call *c);

// Number of calls of stockade_interrupt(), for code that waits between two calls.
uint64_t calls_interrupts(struct stockade *s);
