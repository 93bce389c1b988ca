// SPDX-License-Identifier: Apache-2.0
// A JSON Web Token from anywhere, and a key set: read, or refused with a reason; and never valid, because nobody has the key.
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "server/access/jwt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); // as libFuzzer calls it

static const char set[] =
    "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":"
    "\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}"; // RFC 8037, appendix A.2

static void
read_set(const uint8_t *data, size_t size)
{
    struct err e;
    struct jwks *keys = NULL;
    if (jwks_read((const char *)data, size, &keys, &e) == 0)
        assert(keys->n >= 1 && keys->n <= JWKS_KEYS_MAX);
    else
        assert(e.code == ERR_INVALID_ARGUMENT);
    jwks_free(keys);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct jwks *keys[1];
    static const struct jwt_issuer issuer = {.issuer = "i", .audience = "a", .algorithms = 7};
    const struct jwt_trust trust = {1, &issuer, (const struct jwks *const *)keys};
    struct jwt_result found;
    struct err e = {0};
    if (keys[0] == NULL && jwks_read(set, sizeof set - 1, &keys[0], &e) < 0)
        abort();
    char *text = calloc(1, size + 1);
    if (text == NULL)
        abort();
    if (size > 0)
        memcpy(text, data, size);
    assert(jwt_verify(&trust, text, 0, &found, &e) < 0 && e.code == ERR_UNAUTHENTICATED &&
           e.reason[0] != '\0');
    free(text);
    read_set(data, size);
    return 0;
}
