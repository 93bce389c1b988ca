// SPDX-License-Identifier: Apache-2.0
// How long a test waits for what must come: longer where the machine is slow, as an emulated one (STOCKADE_SLOWNESS says
// how many times). A bound for what never comes; it changes nothing of what is checked.
#pragma once

#include <stdint.h>
#include <stdlib.h>

static inline uint64_t
patience_ms(uint64_t ms)
{
    const char *slowness = getenv("STOCKADE_SLOWNESS");
    return slowness != NULL ? ms * strtoul(slowness, NULL, 10) : ms;
}
