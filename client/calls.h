// SPDX-License-Identifier: Apache-2.0
// Concurrent calls over one connection, from any number of threads: the inside of `struct stockade`.
//
// The library has no thread of its own. A thread that waits for its call becomes the pump if there is none: it polls
// the socket without the lock, then reads the frames and delivers each to its call. The other threads sleep on a
// condition until something has changed; when the pump's own call has ended, one of them becomes the pump.
//
//   call_begin --CALL--> [open] --DATA--> queue (never more than the credit given) --> call_next
//                          |  END, lost connection, local deadline
//                          v
//                        [done] --> call_next returns the result --> call_free
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stockade.h"

struct call;

struct call_spec {
    const char *method; // "/stockade.v1.Service/Method"
    const void *request;
    size_t request_n;
    bool stream;
    const struct stockade_call_options *options; // or NULL
};

// Connects if necessary and sends the CALL. Free the call with call_free().
int call_begin(struct call **out, struct stockade *s, const struct call_spec *spec,
               struct stockade_error *e);

// Waits for the next message of a stream, or the response of a unary call. 1: *out (free it with free()) of *n bytes,
// never NULL; 0: the call ended with OK and has no more messages; negative: it failed.
int call_next(struct call *c, uint8_t **out, size_t *n, struct stockade_error *e);

// Cancels it: sends CANCEL; the following call_next waits for END for at most 5 s.
void call_cancel(struct call *c);

// Frees it (after CANCEL, if it has not ended). Accepts NULL.
void call_free(struct call *c);

// Number of calls of stockade_interrupt(), for code that waits between two calls.
uint64_t calls_interrupts(struct stockade *s);

static inline void
auto_call_(struct call **c)
{
    call_free(*c);
}
#define auto_call __attribute__((cleanup(auto_call_)))
