// SPDX-License-Identifier: Apache-2.0
// "1 process", "2 processes": the word for a number in a message.
#pragma once

#include <stdint.h>

// One of the two words, which live as long as the program where they are literals.
static inline const char *
plural(uint64_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}
