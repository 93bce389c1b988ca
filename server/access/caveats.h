// SPDX-License-Identifier: Apache-2.0
// What the caveats of a token mean for one call. A pure function of plain data: api/authority.c says what a call is about. What a caveat
// does not understand it refuses. Each refusal names the caveat, and what would be allowed.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/token.h"

struct limits;
struct network;

// A command that a call wants to run.
struct deed_command {
    size_t args_n, env_n;
    const char *const *args;
    const char *const *env; // names
};

// What a call is about. Everything is borrowed.
struct deed {
    const char *method; // "ProcessService/Run"
    bool harmless;      // about the broker itself: SystemService, HealthService, ReflectionService
    bool runs;          // it may run code, by `commands` or in another way
    size_t commands_n;  // 0: in another way
    const struct deed_command *commands;
    const char *sandbox_id,
        *sandbox_name;    // of the sandbox that it concerns; NULL: none, or it does not exist
    const char *template; // of that sandbox, or of the one that it makes; NULL: none
    bool makes;           // sandboxes
    bool follows;         // it goes on with what an allowed call began
    bool unknown; // what it runs or makes has limits and a network that cannot be determined
    const struct limits *limits;   // that will be in force; NULL: it changes none and runs nothing
    const struct network *network; // likewise
    bool has_network;              // `network` says what will be in force, NULL for no network
};

// All caveats of a token but those of time, audience and use. PERMISSION_DENIED with the reason CAVEAT.
int caveats_allow(const struct token *t, const struct deed *d, struct err *e);

// Of these, those that need nothing but the method, and id, name and template of the sandbox: on methods, sandboxes and templates.
int caveats_allow_named(const struct token *t, const struct deed *d, struct err *e);

// Of a token that is about to be made: INVALID_ARGUMENT for a method that no method is, a destination that is none, and a time that never
// comes. What a child of it says is not checked, since nobody has to ask for it.
int caveats_check(const Stockade__V1__TokenBlock *block, struct err *e);

// Time, and audience. UNAUTHENTICATED with TOKEN_EXPIRED, TOKEN_EARLY or TOKEN_AUDIENCE.
int caveats_valid(const struct token *t, int64_t now_ms, const char *audience, struct err *e);

// The scopes that the token has after all its blocks, as bits (rpc/principal.h).
uint32_t caveats_scopes(const struct token *t);

// Whether the text matches a pattern in which '*' stands for any text. Linear in their lengths' product.
bool caveats_match(const char *pattern, const char *text);
