// SPDX-License-Identifier: Apache-2.0
// Many deadlines on one libuv timer: a heap whose entries live inside what they belong to, so setting and clearing one
// costs no allocation of its own and no closing handshake. Loop thread only.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct timers;

// Embedded in its owner; zeroed before first use.
struct timer {
    uint64_t at_ns; // uv_hrtime()
    size_t place;   // in the heap, from 1 on; 0: not set
    void (*fire)(struct timer *t);
};

// Owned: timers_close(). NULL without memory.
struct timers *timers_new(uv_loop_t *loop);

// Gives it up; entries that are still set never fire. Its memory goes when the loop has closed the handle.
void timers_close(struct timers *ts);

// Lets t->fire be called once at at_ns or up to about a millisecond later, in place of what was set before; t is not
// set any more when it is called. UINT64_MAX clears. 0, or -ENOMEM (then it is not set).
int timers_set(struct timers *ts, struct timer *t, uint64_t at_ns);
void timers_clear(struct timers *ts, struct timer *t);
