// SPDX-License-Identifier: Apache-2.0
// Similar words, for suggestions: "did you mean ...?".
#pragma once

#include <stddef.h>

// Distance of two words (insert, delete, replace, swap neighbours), at most `most` + 1.
unsigned words_distance(const char *a, const char *b, unsigned most);

// The one of `words` (n of them) that is nearest to `typed`, or NULL if none is near enough to be meant. At most 32
// characters are compared.
const char *words_nearest(const char *typed, const char *const *words, size_t n);
