// SPDX-License-Identifier: Apache-2.0
// A token from anywhere: it is read, or refused with a reason; and it is never valid for a key that did not sign it.
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "proto/token.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); // as libFuzzer calls it

// The text itself, or bytes that are written as a token.
static void
try(const char *text)
{
    static const uint8_t key[TOKEN_KEY_BYTES] = {1};
    struct err e = {0};
    struct token t;
    struct arena *a = arena_new(TOKEN_ARENA);
    if (token_read(text, a, &t, &e) == 0) {
        assert(t.n >= 1 && t.n <= TOKEN_BLOCKS_MAX && t.block[0]->tenant[0] != '\0');
        assert(token_verify(&t, key, &e) < 0);
    }
    assert(e.code == ERR_UNAUTHENTICATED && e.reason[0] != '\0');
    arena_free(a);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const int variant = sodium_base64_VARIANT_URLSAFE_NO_PADDING;
    const size_t prefix = sizeof TOKEN_PREFIX - 1, n = sodium_base64_encoded_len(size, variant);
    char *text = calloc(1, size + 1);
    char *encoded = calloc(1, prefix + n);
    if (text == NULL || encoded == NULL)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    (void)snprintf(encoded, prefix + n, "%s", TOKEN_PREFIX);
    (void)sodium_bin2base64(encoded + prefix, n, data, size, variant);
    try(text);
    try(encoded);
    free(text);
    free(encoded);
    return 0;
}
