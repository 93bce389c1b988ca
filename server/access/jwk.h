// SPDX-License-Identifier: Apache-2.0
// The public keys of an issuer of JSON Web Tokens: a JSON Web Key Set (RFC 7517). RSA keys of 2,048 to 8,192 bits, keys on the curve
// P-256, and Ed25519 keys (RFC 7518 section 6, RFC 8037). Any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

enum {
    JWKS_BYTES_MAX = 256 * 1024,
    JWKS_KEYS_MAX = 32, // of one set that can be used
    JWK_ID_MAX = 128,   // bytes of a key's id, with its end
};

// The algorithms of RFC 7518 section 3.1 and RFC 8037 that are accepted; each fits one type of key.
enum jwt_algorithm { JWT_RS256, JWT_ES256, JWT_EDDSA, JWT_ALGORITHMS_N };

// "RS256"; and back. JWT_ALGORITHMS_N: another one.
const char *jwt_algorithm_name(enum jwt_algorithm a);
enum jwt_algorithm jwt_algorithm_find(const char *name);

struct evp_pkey_st;

struct jwk {
    char id[JWK_ID_MAX]; // kid; "": none
    enum jwt_algorithm algorithm;
    struct evp_pkey_st *key; // owned
};

struct jwks {
    size_t n;
    struct jwk key[JWKS_KEYS_MAX];
};

// Reads a set. Keys of other types, for other algorithms or for encryption are left out, as RFC 7517 section 5 asks. INVALID_ARGUMENT:
// it is no JSON, or no set, a key is malformed or too weak, there are too many, or none can be used. *owned*: jwks_free(*out).
int jwks_read(const char *bytes, size_t n, struct jwks **out, struct err *e);
void jwks_free(struct jwks *s);
