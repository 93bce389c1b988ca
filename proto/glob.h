// SPDX-License-Identifier: Apache-2.0
// Patterns in which '*' stands for any text, also none; all other bytes stand for themselves. Pure.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// Whether the pattern matches the whole text of n bytes. Linear in their lengths' sum: each part between two stars is searched for
// once, from where the part before it ended (memmem(3) is linear).
bool glob_match(const char *pattern, const char *text, size_t n);

// Whether it is a plain text.
bool glob_is_plain(const char *pattern);
