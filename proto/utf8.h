// SPDX-License-Identifier: Apache-2.0
// Decodes UTF-8 (RFC 3629). No other file does this.
//
// Overlong forms, surrogates (U+D800 to U+DFFF), values above U+10FFFF and truncated sequences are not characters.
// Pure.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { UTF8_MAX = 4 }; // bytes of one character

// U+FFFD, shown in place of invalid bytes
#define UTF8_REPLACEMENT "\xef\xbf\xbd"

// Length of the first character of n bytes (n > 0); *code (may be NULL) is its code point. 0: invalid. For text that
// ends in NUL, n may be UTF8_MAX: nothing after the NUL is read.
size_t utf8_decode(const void *bytes, size_t n, uint32_t *code);

// Whether all n bytes are characters, and none of them is NUL.
bool utf8_is_text(const void *bytes, size_t n);

// The position at or before n where text can be cut without cutting a character. The byte at n must exist.
size_t utf8_cut(const char *text, size_t n);
