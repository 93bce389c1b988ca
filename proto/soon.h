// SPDX-License-Identifier: Apache-2.0
// Should an end of a connection look a little longer before it sleeps? Used by the broker's loop and by libstockade.
//
// A caller with one call in flight has the next frame ready microseconds after the last one was sent. To sleep and be woken
// on another CPU takes longer than that: 5 to 25 us, most of it where the idle CPU of a virtual machine halts. So after
// SOON_AFTER exchanges in a row that took less than SOON_GAP_NS, the end that has sent looks again and again for
// SOON_LOOK_NS, and lets other processes run between two looks. When nothing came, or somebody else wanted the CPU, it takes
// SOON_REST such exchanges until it looks again: an end with nothing to do, or on a busy host, only sleeps.
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum {
    SOON_GAP_NS = 100000,
    SOON_LOOK_NS = 50000,
    SOON_YIELD_NS = 4000, // a sched_yield() that took longer let somebody else run
    SOON_AFTER = 8,
    SOON_REST = 32,
};

// All zero at the start. One thread at a time.
struct soon {
    uint64_t sent_ns; // when the last frame went; 0: something came since
    int quick;        // exchanges in a row, up to SOON_AFTER; negative: rests
};

static inline uint64_t
soon_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void
soon_sent(struct soon *s)
{
    s->sent_ns = soon_now();
}

static inline void
soon_received(struct soon *s)
{
    if (s->sent_ns == 0)
        return;
    if (soon_now() - s->sent_ns > SOON_GAP_NS)
        s->quick = s->quick < 0 ? s->quick : 0;
    else if (s->quick < SOON_AFTER)
        s->quick++;
    s->sent_ns = 0;
}

// Look again before sleeping? Lets others run first.
static inline bool
soon_look(struct soon *s)
{
    if (s->sent_ns == 0 || s->quick < SOON_AFTER)
        return false;
    uint64_t before = soon_now();
    (void)sched_yield();
    uint64_t now = soon_now();
    if (now - before <= SOON_YIELD_NS && now - s->sent_ns < SOON_LOOK_NS)
        return true;
    s->quick = SOON_AFTER - SOON_REST;
    return false;
}
