// SPDX-License-Identifier: Apache-2.0
// UTF-8: what is taken for a character is the only way to write its code point, and a cut leaves whole characters.
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static size_t
encode(uint32_t c, uint8_t out[UTF8_MAX])
{
    static const uint8_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    const size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)(first[n] | c);
    return n;
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char *text = malloc(n + 1); // of its own, so that a byte behind the end is seen
    size_t at = 0;
    if (text == NULL)
        return 0;
    memcpy(text, bytes, n);
    text[n] = '\0';
    while (at < n) {
        uint8_t again[UTF8_MAX];
        uint32_t code = 0;
        size_t length = utf8_decode(bytes + at, n - at, &code);
        if (length == 0)
            break;
        assert(length <= n - at && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff));
        assert(encode(code, again) == length && memcmp(again, bytes + at, length) == 0);
        at += length;
    }
    for (size_t cut = 0, good = 0; cut <= at && at == n; cut++) {
        size_t kept = utf8_cut(text, cut);
        assert(kept <= cut && cut - kept < UTF8_MAX && kept >= good);
        good = kept;
    }
    free(text);
    return 0;
}
