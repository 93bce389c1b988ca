// SPDX-License-Identifier: Apache-2.0
// Capability tokens (proto/token.h) in the broker: the keys that sign them, what is revoked, how often one was used, and which calls
// one may make.
//
//   text --> cache (by BLAKE2b-256 of the text) --> verified token --> now: revoked? expired? early? another audience?
//              |                                                  '-> the call: caveats.c
//              '-> miss: token_read(), token_verify() with the broker's key of that id
//
// Only valid tokens are cached. A key that was replaced verifies until its overlap ends. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/token.h"
#include "server/base/list.h"
#include "server/rpc/principal.h"
#include "caveats.h"

struct access;

enum { SIGNING_KEYS_MAX = 16, TOKENS_CACHED = 1024, REVOKED_MAX = 65536, USED_MAX = 65536 };

// A key that signs tokens, or did.
struct signing_key {
    uint8_t id[TOKEN_KEY_ID], key[TOKEN_KEY_BYTES], seed[TOKEN_KEY_BYTES];
    int64_t created_ms, until_ms; // 0: in use
};

typedef void token_done(void *cookie, const struct err *e);

// Makes a token of the maker's tenant (or, with tenants.write, another) with at most its rights. A token cannot make one. Errors of
// TokenService.Mint.
int token_make(struct access *a, const struct principal *maker,
               const Stockade__V1__TokenBlock *block, char out[TOKEN_TEXT_MAX + 1], struct err *e);

// Revokes all tokens that have the block and, unless whose is NULL, are of this tenant. `done` follows, if the call is not refused.
int token_revoke(struct access *a, const char *whose, const uint8_t block[TOKEN_BLOCK_ID],
                 token_done *done, void *cookie, struct err *e);

// Signs with a new key from now on; the one before verifies for this time. At most SIGNING_KEYS_MAX that verify.
int token_rotate(struct access *a, uint64_t overlap_ms, token_done *done, void *cookie,
                 struct err *e);

// The keys that verify, the one that signs last. Borrowed.
const struct signing_key *token_keys(const struct access *a, size_t *n);

// Whether the caveats of the caller's token allow a call. Nothing is counted.
int token_allows(struct access *a, const struct principal *who, const struct deed *d,
                 struct err *e);

// The same before anything is done for the call: the caveats on methods, sandboxes and templates alone. True for callers without a token.
int token_allows_named(struct access *a, const struct principal *who, const struct deed *d,
                       struct err *e);

// Whether the caller of this call, which has a token, may make it. 0: yes; negative: refused; 1: the use is being written, and `done`
// follows, once.
int token_decide(struct access *a, const struct principal *who, const struct deed *d,
                 token_done *done, void *cookie, struct err *e);
