// SPDX-License-Identifier: Apache-2.0
// Calls over one connection, side by side, from any number of threads: what is behind `struct stockade`.
//
// There is no thread of its own. A thread that waits for its call becomes the pump when nobody else is: it polls the
// socket without the lock, then takes the frames in and hands each to its call. The others sleep on a condition until
// something has moved; when the pump's own call is over, one of them goes on.
//
//   call_begin --CALL--> [open] --DATA--> queue (never more than the credit given) --> call_next
//                          |  END, lost connection, local deadline
//                          v
//                        [done] --> call_next says how --> call_free
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

// Connects where needed and sends the CALL. Owned: call_free().
int call_begin(struct call **out, struct stockade *s, const struct call_spec *spec,
               struct stockade_error *e);

// Waits for the next message of a stream, or the response of a unary call: 1 and *out (owned: free()) of *n bytes, which
// is never NULL; 0: the call ended with OK and nothing is left; negative: it failed.
int call_next(struct call *c, uint8_t **out, size_t *n, struct stockade_error *e);

// Gives it up: CANCEL is sent, END is awaited for 5 s at most by the call_next that follows.
void call_cancel(struct call *c);

// Forgets it (after CANCEL, where it is not over). NULL is fine.
void call_free(struct call *c);

// How often stockade_interrupt() came: for what waits between two calls.
uint64_t calls_interrupts(struct stockade *s);

static inline void
auto_call_(struct call **c)
{
    call_free(*c);
}
#define auto_call __attribute__((cleanup(auto_call_)))
