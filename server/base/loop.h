// SPDX-License-Identifier: Apache-2.0
// Timers and watched descriptors that can be stopped at any moment.
//
// libuv frees a handle in two steps: uv_close(), and later a callback. Objects that exist as long as one job would have
// to outlive their handles. So this file owns the handles: an owner keeps a pointer, and after loop_*_stop() the
// pointer is NULL and no callback is called any more. Loop thread only.
#pragma once

#include <stdint.h>
#include <uv.h>

struct loop_timer;
struct loop_poll;

// Calls fn(cookie) once, after `ms` milliseconds. *slot is NULL, or an earlier timer, which is set again. After it
// fired, the timer stays in *slot until loop_timer_stop(). Returns 0 or -ENOMEM.
int loop_timer_start(uv_loop_t *loop, struct loop_timer **slot, uint64_t ms,
                     void (*fn)(void *cookie), void *cookie);

// Stops it and sets *slot to NULL. Does nothing if *slot is NULL.
void loop_timer_stop(struct loop_timer **slot);

// Stops it and keeps it in its slot, for one that is set again and again: freeing it takes a turn of the loop. Accepts NULL.
void loop_timer_rest(struct loop_timer *t);

// Calls fn(cookie, events) while fd is ready for one of `events` (UV_READABLE, UV_WRITABLE). An error of the descriptor
// counts as both. The descriptor is borrowed: close it only after loop_poll_stop(). Returns 0 or a negative errno.
int loop_poll_start(uv_loop_t *loop, struct loop_poll **slot, int fd, int events,
                    void (*fn)(void *cookie, int events), void *cookie);

// Changes the events; 0: none for now.
void loop_poll_want(struct loop_poll *p, int events);

// Stops it and sets *slot to NULL. Does nothing if *slot is NULL.
void loop_poll_stop(struct loop_poll **slot);
