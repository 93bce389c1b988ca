// SPDX-License-Identifier: Apache-2.0
// Whether bytes are all zero: the end of an archive, a hole in a file, a field that is not used. Any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline bool
is_all_zero(const void *bytes, size_t n)
{
    const uint8_t *b = bytes;
    return n == 0 || (b[0] == 0 && memcmp(b, b + 1, n - 1) == 0);
}
