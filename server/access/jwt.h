// SPDX-License-Identifier: Apache-2.0
// JSON Web Tokens (RFC 7519) of issuers that the configuration lists, by the rules of RFC 8725: the algorithm is one that the issuer
// is known to use and fits the key, no claim counts before the signature was verified (the issuer that it names decides only whose keys
// are tried first), issuer and audience are compared, and there must be an expiry. Any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jwk.h"
#include "proto/err.h"

enum {
    JWT_TEXT_MAX = 4000,
    JWT_ISSUERS_MAX = 8,
    JWT_GRANTS_MAX = 8, // of one issuer
    JWT_CLAIMS_MAX = 4, // of one grant
    JWT_SUBJECT = 256,
    JWT_URL_MAX = 512,
};

// A claim that a token must have: a text, or a list with this text in it. "*" in it stands for any text.
struct jwt_claim {
    char name[64], pattern[192];
};

// What the holder of a token with these claims is, and may do.
struct jwt_grant {
    uint32_t claims_n;
    struct jwt_claim claims[JWT_CLAIMS_MAX];
    char tenant[32];
    uint32_t scopes;
};

struct jwt_issuer {
    char issuer[256];   // the claim "iss", exactly
    char audience[128]; // must be the claim "aud" or in it
    char file[256];     // its key set; "": it has a URL
    char url[JWT_URL_MAX];
    char ca_file[256];   // of the URL: whose certificates are genuine; "": the host's
    uint64_t refresh_ms; // the URL is fetched again after this time
    uint64_t keep_ms;    // keys are used for this time after they were fetched
    uint64_t timeout_ms; // of a fetch
    bool private;        // the URL may lead to addresses that are not public
    uint32_t algorithms; // bits of enum jwt_algorithm
    uint64_t skew_ms;    // by which its clock and ours may differ
    uint64_t ttl_ms;     // of the capability tokens that it is exchanged for, at most
    uint32_t grants_n;
    struct jwt_grant grants[JWT_GRANTS_MAX];
};

// The issuers, and the keys of each; NULL: none are known at the moment.
struct jwt_trust {
    uint32_t n;
    const struct jwt_issuer *issuer;
    const struct jwks *const *keys;
};

struct jwt_result {
    const struct jwt_issuer *issuer;
    const struct jwt_grant *grant; // the first that matches
    char subject[JWT_SUBJECT];     // the claim "sub", cut; bytes other than printable ASCII are '?'
};

// Whether a text looks like one: three parts of base64url with dots between them.
bool jwt_is(const char *text);

// UNAUTHENTICATED with the reason JWT_FORM, JWT_ALGORITHM, JWT_KEY (no key of this id is known), JWT_SIGNATURE, JWT_ISSUER,
// JWT_AUDIENCE, JWT_EXPIRED, JWT_EARLY; PERMISSION_DENIED with JWT_GRANT: no grant matches its claims.
int jwt_verify(const struct jwt_trust *trust, const char *text, int64_t now_ms,
               struct jwt_result *out, struct err *e);

// Which of the issuers a text claims to be from, for what is said about it when it was refused: nothing is verified. trust->n:
// none of them.
uint32_t jwt_claimed_issuer(const struct jwt_trust *trust, const char *text);
