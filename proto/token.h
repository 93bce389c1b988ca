// SPDX-License-Identifier: Apache-2.0
// Capability tokens (stockade/v1/token.proto): reading, making, narrowing and verifying them. The broker and the clients have the
// same code; what a caveat means for a call is the broker's (server/access/caveats.h). sodium_init() must have been called. Any
// thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "err.h"
#include "stockade/v1/token.pb-c.h"

#define TOKEN_PREFIX "stkt_"

enum {
    TOKEN_BYTES_MAX = 3000,
    TOKEN_TEXT_MAX = 5 + 4000, // with the prefix, without the end
    TOKEN_BLOCKS_MAX = 16,
    TOKEN_KEY_BYTES = 32, // of a public key, and of a seed
    TOKEN_KEY_ID = 8,
    TOKEN_BLOCK_ID = 16,
    TOKEN_ARENA = 256 * 1024, // room for one token
};

// A token that was read; it borrows from the arena.
struct token {
    const Stockade__V1__Token *m;
    size_t n; // blocks
    const Stockade__V1__TokenBlock *block[TOKEN_BLOCKS_MAX];
    uint8_t id[TOKEN_BLOCKS_MAX][TOKEN_BLOCK_ID];
    bool sealed; // no block can be appended
};

// Reads the text of a token, and checks its form, but no signature. Refuses what is not exactly as this code would write it: other
// fields, other caveats, another order. UNAUTHENTICATED with the reason TOKEN_FORM, or TOKEN_WIDER: a later block names a tenant or
// scopes of its own.
int token_read(const char *text, struct arena *a, struct token *out, struct err *e);

// Checks all signatures and the proof. key: the public half of the broker's key with the id t->m->key_id. UNAUTHENTICATED with
// TOKEN_SIGNATURE, and the block that is wrong.
int token_verify(const struct token *t, const uint8_t key[TOKEN_KEY_BYTES], struct err *e);

// The id of a public key; and the public half of a seed.
void token_key_id(const uint8_t key[TOKEN_KEY_BYTES], uint8_t out[TOKEN_KEY_ID]);
void token_public(const uint8_t seed[TOKEN_KEY_BYTES], uint8_t out[TOKEN_KEY_BYTES]);

// Makes a token with one block, signed by the broker's key. INVALID_ARGUMENT: the block cannot be the first, or is too long.
int token_mint(const uint8_t seed[TOKEN_KEY_BYTES], const Stockade__V1__TokenBlock *first,
               char out[TOKEN_TEXT_MAX + 1], struct err *e);

// Appends a block to a token. It needs no key but what is in the token. FAILED_PRECONDITION with TOKEN_SEALED; INVALID_ARGUMENT: the
// block names a tenant or scopes, or the token becomes too long or has too many blocks.
int token_attenuate(const char *text, const Stockade__V1__TokenBlock *block,
                    char out[TOKEN_TEXT_MAX + 1], struct err *e);

// Replaces the proof by a signature, so that nobody can append a block.
int token_seal(const char *text, char out[TOKEN_TEXT_MAX + 1], struct err *e);
