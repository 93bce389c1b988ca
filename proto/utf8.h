// SPDX-License-Identifier: Apache-2.0
// UTF-8 (RFC 3629), decoded here and nowhere else.
//
// A form that is longer than needed, a surrogate (U+D800 to U+DFFF), what is above U+10FFFF and what is cut off are not
// characters. Pure.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { UTF8_MAX = 4 }; // bytes of one character

// U+FFFD, for what is shown in place of bytes that are none.
#define UTF8_REPLACEMENT "\xef\xbf\xbd"

// Length of the character at the front of n bytes (n > 0), its code point in *code (may be NULL). 0: there is none. For
// text that ends in NUL, n may be UTF8_MAX: nothing behind the NUL is read.
size_t utf8_decode(const void *bytes, size_t n, uint32_t *code);

// Where text may be cut, at n bytes or less, so that no character is cut. The byte at n must exist.
size_t utf8_cut(const char *text, size_t n);
