// SPDX-License-Identifier: Apache-2.0
// Tokens on the command line: caveats from options, and blocks as JSON.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"
#include "proto/arena.h"
#include "proto/err.h"
#include "proto/token.h"

enum { TOKEN_WORDS = 64 };

// Splits "a,b" into words, copied to the arena. Returns how many there are, at most TOKEN_WORDS.
size_t token_words(const char *list, struct arena *a, const char *out[TOKEN_WORDS]);

// Whether the options have any caveat.
bool token_has_caveats(const struct options *o);

// Appends the caveats of the options to the block; everything is in the arena. INVALID_ARGUMENT names the option.
int token_caveats(const struct options *o, struct arena *a, Stockade__V1__TokenBlock *b,
                  struct err *e);

// Appends a caveat of scopes. -ENOMEM: the arena is full.
int token_scopes(const char *list, struct arena *a, Stockade__V1__TokenBlock *b);

// Time and audience, as the broker checks them.
int token_valid(const struct token *t, int64_t now_ms, const char *audience, struct err *e);

// A block as an object: tenant, scopes, caveats.
json_t *token_json_of_block(const Stockade__V1__TokenBlock *b);
json_t *token_json_of_time(const struct Google__Protobuf__Timestamp *t);
