// SPDX-License-Identifier: Apache-2.0
// libstockade: many calls in one thread, which never waits in the library. A part of stockade.h, which includes it and
// describes options, results and ownership.
//
//   struct stockade_async a = STOCKADE_ASYNC_INIT;
//   a.on_end = ended;
//   for (...)
//       stockade_begin_run(s, &options, &handlers, &a, &call, &e);
//   struct pollfd p = {.fd = stockade_fd(s, &e), .events = POLLIN};
//   while (stockade_pump(s, 0, &e) > 0)
//       poll(&p, 1, -1);
//
// deploy/examples/c/many_jobs.c is a whole program. The functions that wait, such as stockade_run(), are made of the same
// parts, and may be used on the same handle at the same time.
//
// Callbacks. Those of a call that was begun (its handlers, on_message, on_end) run in stockade_pump(), on its thread, one at
// a time, without a lock. A callback may begin, cancel and hold calls, also its own, and make calls that wait. It must not
// call stockade_pump(), which fails with FAILED_PRECONDITION, or stockade_close(), which aborts the program.
// on_end is called exactly once for each call that was begun, after all its other callbacks; the id is unknown from then on.
// stockade_close() ends the calls that are left: their on_end gets CANCELLED and the reason "HANDLE_CLOSED", and cannot begin
// further calls.
//
// Threads. Any thread may begin, cancel and hold calls. One thread at a time may be in stockade_pump().
//
// Flow control. The broker sends at most `credit` messages (up to 64 KiB each) of a stream ahead of the program. It sends more
// as they are passed on, so a program that is slow, holds a call or does not call stockade_pump() delays the sender: a job
// waits at its pipe. What the library buffers is bounded by the credit of the open streams; requests that the broker does
// not read, by 16 MiB per handle (then a new call fails with RESOURCE_EXHAUSTED).
//
// Limits. A handle is one connection. The broker accepts 128 open streams and 1,024 open calls on a connection by default
// (rpc.streams and rpc.calls in its configuration); above this a call ends with RESOURCE_EXHAUSTED. For more, open several
// handles and poll the descriptor of each in the same loop. An idle stream takes about 0.5 KB in the library.
//
// Failures. If a stockade_begin function fails, no callback is called. A connection that cannot be made, or that breaks, ends
// every call of the handle with UNAVAILABLE; the next stockade_begin connects again. The library waits nowhere, with one
// exception: the name of a TCP host is resolved with getaddrinfo(3) when it connects. Use a numeric address if that matters.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

struct stockade_events_options;
struct stockade_event_handlers;

// How a call ended. Everything in it is valid until on_end returns.
struct stockade_end {
    uint64_t call;
    const struct stockade_error *error; // NULL: it succeeded
    // Of a run, start or attach that succeeded, except a process that was started with `detach`; otherwise NULL.
    const struct stockade_result *result;
    struct stockade_bytes response; // of a unary stockade_begin() that succeeded
};

struct stockade_async {
    size_t size;
    void (*on_end)(void *cookie, const struct stockade_end *end); // required
    void *cookie;                                                 // of on_end
    uint32_t credit; // messages that the broker may send in advance; 0: 32
};
#define STOCKADE_ASYNC_INIT STOCKADE_INIT(stockade_async)

// These begin a call and return at once. Strings, options and structures are copied as far as they are needed later. *call
// (may be NULL) gets the id of the call, which is never 0 and never used again by this handle.

// Any method, as stockade_call(). Without r->on_message the call is unary, and on_end gets the response.
STOCKADE_API int stockade_begin(struct stockade *s, const struct stockade_request *r,
                                const struct stockade_async *a, uint64_t *call,
                                struct stockade_error *e);
STOCKADE_API int stockade_begin_run(struct stockade *s, const struct stockade_run_options *o,
                                    const struct stockade_handlers *h,
                                    const struct stockade_async *a, uint64_t *call,
                                    struct stockade_error *e);
STOCKADE_API int stockade_begin_start(struct stockade *s, const struct stockade_start_options *o,
                                      const struct stockade_handlers *h,
                                      const struct stockade_async *a, uint64_t *call,
                                      struct stockade_error *e);
STOCKADE_API int stockade_begin_attach(struct stockade *s, const char *process_id, uint64_t offset,
                                       const struct stockade_handlers *h,
                                       const struct stockade_async *a, uint64_t *call,
                                       struct stockade_error *e);
// o->reconnect must be false: in on_end, begin again with from_sequence and instance of the last event.
STOCKADE_API int stockade_begin_events(struct stockade *s, const struct stockade_events_options *o,
                                       const struct stockade_event_handlers *h,
                                       const struct stockade_async *a, uint64_t *call,
                                       struct stockade_error *e);

// Cancels a call: no further message is passed on, and on_end comes with CANCELLED, soon. If the call has just ended, on_end
// comes with its own end. NOT_FOUND, with the reason "CALL_ENDED": on_end was called.
STOCKADE_API int stockade_cancel(struct stockade *s, uint64_t call, struct stockade_error *e);

// hold: passes on no further message of the call until it is held no more; its end waits for its messages. The broker stops
// sending when the credit is used up. NOT_FOUND: as above.
STOCKADE_API int stockade_hold(struct stockade *s, uint64_t call, bool hold,
                               struct stockade_error *e);

// The descriptor to poll for POLLIN: it is readable when stockade_pump() has something to do, be it to receive, to send, to go
// on connecting, or because of the time. It belongs to the handle, and is the same as long as the handle exists, also when
// the connection is made again. Do not read from it. A negative errno: no descriptors are left.
STOCKADE_API int stockade_fd(struct stockade *s, struct stockade_error *e);

// Does what is ready: receives, sends, and calls callbacks. If nothing is ready, it waits for something at most timeout_ms
// (0: not at all; negative: without a limit), unless no call is left. Returns the number of calls that were begun and whose
// on_end was not yet called; there may be work left, for which the descriptor is readable. FAILED_PRECONDITION, with the reason
// "PUMP_BUSY": it is in progress already.
STOCKADE_API int stockade_pump(struct stockade *s, int timeout_ms, struct stockade_error *e);

#ifdef __cplusplus
}
#endif
