// SPDX-License-Identifier: Apache-2.0
// Memory that a flood has left. A connection takes some KiB in small pieces, and libc keeps the pages of those that have
// gone. They are returned when three quarters of a flood have gone: that takes some milliseconds, far less than
// the flood took. One thread.
#pragma once

#include <malloc.h>

enum { TRIM_MIN = 512 };

struct trim {
    unsigned n, most; // that exist; and the most since the last time
};

static inline void
trim_one_more(struct trim *t)
{
    if (++t->n > t->most)
        t->most = t->n;
}

static inline void
trim_one_less(struct trim *t)
{
    if (--t->n > t->most / 4 || t->most < TRIM_MIN)
        return;
    t->most = t->n;
    (void)malloc_trim(0);
}
