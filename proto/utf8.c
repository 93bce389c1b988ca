// SPDX-License-Identifier: Apache-2.0
// See utf8.h.
#include "utf8.h"

static bool
is_continuation(uint8_t byte)
{
    return (byte & 0xc0) == 0x80;
}

// The length according to the first byte. 0xc0, 0xc1 and 0xf5 to 0xff are never a first byte.
static size_t
length_of(uint8_t first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

size_t
utf8_decode(const void *bytes, size_t n, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; // by length
    const uint8_t *p = bytes;
    const size_t length = length_of(p[0]);
    if (length == 0 || length > n)
        return 0;
    uint32_t c = length == 1 ? p[0] : p[0] & (0x7fU >> length);
    for (size_t i = 1; i < length; i++) {
        if (!is_continuation(p[i]))
            return 0;
        c = c << 6 | (p[i] & 0x3fU);
    }
    if (c < least[length] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return 0;
    if (code != NULL)
        *code = c;
    return length;
}

bool
utf8_is_text(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    for (size_t i = 0, one = 0; i < n; i += one) {
        one = utf8_decode(p + i, n - i, NULL);
        if (one == 0 || p[i] == '\0')
            return false;
    }
    return true;
}

size_t
utf8_cut(const char *text, size_t n)
{
    while (n > 0 && is_continuation((uint8_t)text[n]))
        n--;
    return n;
}
