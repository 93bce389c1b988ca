// SPDX-License-Identifier: Apache-2.0
// See wait.h.
#include "tests/harness/wait.h"

#include <inttypes.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

uint64_t
now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t
scaled_ms(uint64_t ms)
{
    const char *slowness = getenv("STOCKADE_SLOWNESS");
    return slowness != NULL ? ms * strtoul(slowness, NULL, 10) : ms;
}

void
time_passes(const char *why, uint64_t ms)
{
    (void)why;
    for (uint64_t now = now_ms(), end = now + ms; now < end; now = now_ms())
        (void)poll(NULL, 0, (int)(end - now));
}

struct waiting
wait_begin(const char *what, uint64_t ms)
{
    const uint64_t most = scaled_ms(ms);
    return (struct waiting){.what = what, .ms = most, .until_ms = now_ms() + most};
}

void
wait_step(const struct waiting *w)
{
    if (now_ms() >= w->until_ms)
        fail_msg("waited for \"%s\": it did not come within %" PRIu64 " ms", w->what, w->ms);
    (void)poll(NULL, 0, 1);
}
