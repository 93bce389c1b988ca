// SPDX-License-Identifier: Apache-2.0
// Decides whether one end of a connection polls for a short time before it sleeps. Used by the broker's loop and by
// libstockade.
//
// If a caller has one call in flight, its next frame is ready microseconds after the last reply. Sleeping and waking
// on another CPU takes longer, 5 to 25 us, mostly while the idle CPU of a virtual machine halts. So after SOON_AFTER
// consecutive exchanges that took less than SOON_GAP_NS, the end that has sent polls for SOON_LOOK_NS, and yields the
// CPU between two polls. If nothing arrived, or another process needed the CPU, it polls again only after SOON_REST
// such exchanges. So an idle end, or one on a busy host, only sleeps.
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum {
    SOON_GAP_NS = 100000,
    SOON_LOOK_NS = 50000,
    SOON_YIELD_NS = 4000, // if sched_yield() took longer, another process ran
    SOON_AFTER = 8,
    SOON_REST = 32,
};

// All zero at the start. One thread at a time.
struct soon {
    uint64_t sent_ns; // when the last frame was sent; 0: something was received since
    int quick;        // consecutive fast exchanges, up to SOON_AFTER; negative: no polling
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

// Whether to poll again before sleeping. Yields the CPU first.
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
