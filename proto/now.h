// SPDX-License-Identifier: Apache-2.0
// The current time, for every process.
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t
now_ns(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t); // cannot fail for existing clocks
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// Milliseconds since 1970.
static inline int64_t
now_wall_ms(void)
{
    return now_ns(CLOCK_REALTIME) / 1000000;
}
