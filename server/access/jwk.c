// SPDX-License-Identifier: Apache-2.0
// See jwk.h.
#include "jwk.h"

#include <errno.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

enum { RSA_BITS_MIN = 2048, RSA_BITS_MAX = 8192, NUMBER_MAX = RSA_BITS_MAX / 8, P256_BYTES = 32 };

static const char *const names[JWT_ALGORITHMS_N] = {
    [JWT_RS256] = "RS256", [JWT_ES256] = "ES256", [JWT_EDDSA] = "EdDSA"};

const char *
jwt_algorithm_name(enum jwt_algorithm a)
{
    return names[a];
}

enum jwt_algorithm
jwt_algorithm_find(const char *name)
{
    unsigned i = 0;
    while (i < JWT_ALGORITHMS_N && strcmp(names[i], name) != 0)
        i++;
    return (enum jwt_algorithm)i;
}

// A text member; "": there is none.
static const char *
text_of(const json_t *key, const char *member)
{
    const char *text = json_string_value(json_object_get(key, member));
    return text != NULL ? text : "";
}

// The bytes of a member in base64url. 0: it is missing, malformed or too long.
static size_t
bytes_of(const json_t *key, const char *member, uint8_t *out, size_t out_n)
{
    const char *text = text_of(key, member);
    size_t n = 0;
    return sodium_base642bin(out, out_n, text, strlen(text), NULL, &n, NULL,
                             sodium_base64_VARIANT_URLSAFE_NO_PADDING) == 0
               ? n
               : 0;
}

// NULL: OpenSSL finds no key in the parameters.
static EVP_PKEY *
key_of(const char *type, OSSL_PARAM_BLD *build)
{
    EVP_PKEY *key = NULL;
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(build);
    EVP_PKEY_CTX *c = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    if (params == NULL || c == NULL || EVP_PKEY_fromdata_init(c) != 1 ||
        EVP_PKEY_fromdata(c, &key, EVP_PKEY_PUBLIC_KEY, params) != 1)
        key = NULL;
    EVP_PKEY_CTX_free(c);
    OSSL_PARAM_free(params);
    return key;
}

static EVP_PKEY *
read_rsa(const json_t *j)
{
    uint8_t n_bytes[NUMBER_MAX + 1], e_bytes[8];
    const size_t n_n = bytes_of(j, "n", n_bytes, sizeof n_bytes);
    const size_t e_n = bytes_of(j, "e", e_bytes, sizeof e_bytes);
    BIGNUM *n = BN_bin2bn(n_bytes, (int)n_n, NULL), *e = BN_bin2bn(e_bytes, (int)e_n, NULL);
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    EVP_PKEY *key = NULL;
    if (n != NULL && e != NULL && build != NULL && BN_num_bits(n) >= RSA_BITS_MIN &&
        BN_num_bits(n) <= RSA_BITS_MAX && BN_is_odd(n) && BN_is_odd(e) && !BN_is_one(e) &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, n) == 1 &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, e) == 1)
        key = key_of("RSA", build);
    OSSL_PARAM_BLD_free(build);
    BN_free(n);
    BN_free(e);
    return key;
}

// OpenSSL checks that the point is on the curve.
static EVP_PKEY *
read_p256(const json_t *j)
{
    uint8_t point[1 + 2 * P256_BYTES] = {4}; // uncompressed
    EVP_PKEY *key = NULL;
    if (bytes_of(j, "x", point + 1, P256_BYTES) != P256_BYTES ||
        bytes_of(j, "y", point + 1 + P256_BYTES, P256_BYTES) != P256_BYTES)
        return NULL;
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    if (build != NULL &&
        OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, "P-256", 0) == 1 &&
        OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, point, sizeof point) == 1)
        key = key_of("EC", build);
    OSSL_PARAM_BLD_free(build);
    return key;
}

static EVP_PKEY *
read_ed25519(const json_t *j)
{
    uint8_t x[crypto_sign_PUBLICKEYBYTES];
    return bytes_of(j, "x", x, sizeof x) == sizeof x
               ? EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, x, sizeof x)
               : NULL;
}

static const struct {
    const char *type, *curve;
    EVP_PKEY *(*read)(const json_t *j);
} kinds[JWT_ALGORITHMS_N] = {
    [JWT_RS256] = {"RSA", "", read_rsa},
    [JWT_ES256] = {"EC", "P-256", read_p256},
    [JWT_EDDSA] = {"OKP", "Ed25519", read_ed25519},
};

// The algorithm that a key is for; JWT_ALGORITHMS_N: another one, or it is not for signatures.
static enum jwt_algorithm
algorithm_of(const json_t *j)
{
    const char *use = text_of(j, "use"), *alg = text_of(j, "alg");
    unsigned i = 0;
    while (i < JWT_ALGORITHMS_N && (strcmp(text_of(j, "kty"), kinds[i].type) != 0 ||
                                    strcmp(text_of(j, "crv"), kinds[i].curve) != 0))
        i++;
    const bool fits = i < JWT_ALGORITHMS_N && (use[0] == '\0' || strcmp(use, "sig") == 0) &&
                      (alg[0] == '\0' || strcmp(alg, names[i]) == 0);
    return fits ? (enum jwt_algorithm)i : JWT_ALGORITHMS_N;
}

static int
add(struct jwks *s, const json_t *j, size_t at, struct err *e)
{
    const enum jwt_algorithm algorithm = algorithm_of(j);
    const char *id = text_of(j, "kid");
    if (algorithm == JWT_ALGORITHMS_N)
        return 0;
    if (s->n == JWKS_KEYS_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "more than %d keys for signatures", JWKS_KEYS_MAX);
    if (strlen(id) >= JWK_ID_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "key %zu: its kid is longer than %d bytes", at,
                       JWK_ID_MAX - 1);
    struct jwk *k = &s->key[s->n];
    k->key = kinds[algorithm].read(j);
    if (k->key == NULL)
        return err_set(e, ERR_INVALID_ARGUMENT, "key %zu is no valid %s key%s", at,
                       kinds[algorithm].type,
                       algorithm == JWT_RS256 ? " of 2,048 to 8,192 bits" : "");
    (void)snprintf(k->id, sizeof k->id, "%s", id);
    k->algorithm = algorithm;
    s->n++;
    return 0;
}

static int
add_all(struct jwks *s, const json_t *root, struct err *e)
{
    const json_t *keys = json_object_get(root, "keys"), *j;
    size_t i;
    if (!json_is_array(keys))
        return err_set(e, ERR_INVALID_ARGUMENT, "it has no list \"keys\"");
    json_array_foreach(keys, i, j)
    {
        int r = add(s, j, i, e);
        if (r < 0)
            return r;
    }
    return s->n > 0 ? 0
                    : err_set(e, ERR_INVALID_ARGUMENT,
                              "none of its %zu keys is for RS256, ES256 or EdDSA",
                              json_array_size(keys));
}

int
jwks_read(const char *bytes, size_t n, struct jwks **out, struct err *e)
{
    json_error_t where;
    if (n > JWKS_BYTES_MAX)
        return err_set(e, ERR_INVALID_ARGUMENT, "the key set is larger than %d bytes",
                       JWKS_BYTES_MAX);
    json_t *root = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL)
        return err_set(e, ERR_INVALID_ARGUMENT, "line %d, column %d: the key set is not JSON",
                       where.line, where.column);
    struct jwks *s = calloc(1, sizeof *s);
    int r = s != NULL ? add_all(s, root, e) : err_sys(e, ENOMEM, "read a key set");
    json_decref(root);
    if (r < 0)
        jwks_free(s);
    else
        *out = s;
    return r;
}

void
jwks_free(struct jwks *s)
{
    for (size_t i = 0; s != NULL && i < s->n; i++)
        EVP_PKEY_free(s->key[i].key);
    free(s);
}
