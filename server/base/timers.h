// SPDX-License-Identifier: Apache-2.0
// Many deadlines on one libuv timer: a heap with entries that are embedded in their owners, so setting and clearing one
// needs no allocation and no asynchronous close. Loop thread only.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct timers;

// Embedded in its owner; zeroed before first use.
struct timer {
    uint64_t at_ns; // uv_hrtime()
    size_t index;   // in the heap, from 1 on; 0: not set
    void (*fire)(struct timer *t);
};

// Creates the heap. Free it with timers_close(). NULL: out of memory.
struct timers *timers_new(uv_loop_t *loop);

// Frees it; entries that are still set never fire. The memory is released when the loop has closed the handle.
void timers_close(struct timers *ts);

// Calls t->fire once, at at_ns or up to about a millisecond later; replaces an earlier deadline of t. t is not set any
// more when t->fire is called. UINT64_MAX clears. Returns 0, or -ENOMEM (then t is not set).
int timers_set(struct timers *ts, struct timer *t, uint64_t at_ns);
void timers_clear(struct timers *ts, struct timer *t);
