// SPDX-License-Identifier: Apache-2.0
// The issuers of JSON Web Tokens that the configuration lists, with their key sets. A set is read again when its file has changed,
// so that an issuer can replace its keys at any time. Loop thread only.
#pragma once

#include "jwt.h"
#include "proto/err.h"
#include "server/rpc/principal.h"

struct issuers;

struct issuer_settings {
    uint32_t n;
    struct jwt_issuer issuer[JWT_ISSUERS_MAX];
};

// Reads the key sets and forgets them: for --check-config, and before a reload is applied. INVALID_ARGUMENT, or the error of the
// file.
int issuers_check(const struct issuer_settings *s, struct err *e);

// What a JSON Web Token proves at this time: a principal with PROOF_JWT, that may only exchange it (SCOPE_TOKEN_EXCHANGE). *known
// has the keys that were read last; it begins as NULL. *owned*: issuers_free(*known). Errors of jwt_verify().
int issuers_prove(struct issuers **known, const struct issuer_settings *s, const char *text,
                  int64_t now_ms, struct principal *out, struct err *e);
void issuers_free(struct issuers *known);
