// SPDX-License-Identifier: Apache-2.0
// Compares the first bits of two addresses.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline bool
prefix_equal(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    const unsigned bytes = bits / 8;
    const unsigned rest = bits % 8;
    if (memcmp(a, b, bytes) != 0)
        return false;
    return rest == 0 || (uint8_t)((a[bytes] ^ b[bytes]) >> (8 - rest)) == 0;
}
