// SPDX-License-Identifier: Apache-2.0
// The issuers of JSON Web Tokens that the configuration lists, with their key sets. A set is read again when its file has changed,
// so that an issuer can replace its keys at any time. One with a URL is fetched by another process (fetcher/fetch.h) at intervals,
// and when a token has a key id that is not in it, at most once a minute; the last one that was whole is used for some time while
// fetching fails. Loop thread only.
#pragma once

#include <uv.h>

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

// The settings are borrowed, and may change in place. NULL: out of memory.
struct issuers *issuers_new(const struct issuer_settings *s);
void issuers_free(struct issuers *is); // accepts NULL

// Begins to fetch the key sets with a URL; and fetches those that a reload has brought.
struct spawn;
void issuers_begin(struct issuers *is, uv_loop_t *loop, struct spawn *spawn);
void issuers_reloaded(struct issuers *is);

// Writes which key sets cannot be fetched, why, and how old the keys in use are. False: none.
bool issuers_trouble(const struct issuers *is, char *out, size_t n);

// What a JSON Web Token proves at this time: a principal with PROOF_JWT, that may only exchange it (SCOPE_TOKEN_EXCHANGE).
// Errors of jwt_verify(); UNAVAILABLE with the reason JWT_KEYS_UNAVAILABLE: no key is known because a key set could not be
// fetched, or is being fetched.
int issuers_prove(struct issuers *is, const char *text, int64_t now_ms, struct principal *out,
                  struct err *e);
