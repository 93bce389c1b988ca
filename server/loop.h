// SPDX-License-Identifier: Apache-2.0
// Timers and watched descriptors that may be dropped at any moment.
//
// libuv frees a handle in two steps: uv_close(), and some time later a callback. Objects that come and go with every
// job would each have to outlive their handles. So the handles live here: an owner keeps a pointer, and after
// loop_*_stop() the pointer is NULL and no callback comes any more. Loop thread only.
#pragma once

#include <stdint.h>
#include <uv.h>

struct loop_timer;
struct loop_poll;

// Calls fn(cookie) once, `ms` from now. *slot: NULL, or a timer of before, which is set anew. After it fired the timer
// stays in *slot until loop_timer_stop(). -ENOMEM or 0.
int loop_timer_start(uv_loop_t *loop, struct loop_timer **slot, uint64_t ms,
                     void (*fn)(void *cookie), void *cookie);

// Forgets it. *slot NULL is fine, and is NULL afterwards.
void loop_timer_stop(struct loop_timer **slot);

// Calls fn(cookie, events) while fd is ready for one of `events` (UV_READABLE, UV_WRITABLE). An error of the descriptor
// counts as both. The descriptor is borrowed: it may be closed after loop_poll_stop(). 0 or a negative errno.
int loop_poll_start(uv_loop_t *loop, struct loop_poll **slot, int fd, int events,
                    void (*fn)(void *cookie, int events), void *cookie);

// Other events from now on; 0: none for now.
void loop_poll_want(struct loop_poll *p, int events);

// Forgets it. *slot NULL is fine, and is NULL afterwards.
void loop_poll_stop(struct loop_poll **slot);
