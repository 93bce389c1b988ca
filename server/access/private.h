// SPDX-License-Identifier: Apache-2.0
// The parts of server/access.
#pragma once

#include "access.h"
#include "failures.h"
#include "policy.h"
#include "server/base/idtable.h"
#include "server/base/list.h"

enum { ACCESS_BUCKETS = 4096, ACCESS_HASH_BYTES = 32 };

struct api_key;
struct events;
struct issuers;
struct tokens;

struct access {
    struct state *state;
    const struct access_settings *settings;
    struct access_clock start;
    struct failures failures, handshakes;
    struct events *events; // borrowed; NULL: in tests
    // ---- keys.c
    uint8_t hash_key[32];
    struct list keys; // oldest first
    struct api_key *by_hash[ACCESS_BUCKETS];
    uint32_t keys_n; // that are not revoked, and those being made
    uint64_t order;
    struct tokens *tokens;   // tokens.c; owned
    struct issuers *issuers; // issuers.c; owned
    // ---- policy.h
    struct policy_counts *counts; // owned
    struct policy_asker asker;
};

// access.c: whether the maker of a credential may give these rights, which it has, to another one.
int access_may_give(const struct principal *maker, uint32_t scopes, struct err *e);

// keys.c
int keys_load(struct access *a, struct err *e);
void keys_free_all(struct access *a);
// Whether the text has the form of a key; and what it proves.
bool key_is(const char *text);
int key_check(struct access *a, const char *text, struct principal *out, struct err *e);
int key_still(const struct access *a, const struct principal *who, struct err *e);

// tokens.c
int tokens_load(struct access *a, struct err *e);
void tokens_free(struct access *a);
// What a token proves, at this moment. known_only: -EAGAIN if that takes work, because it was not seen lately; e is unchanged then.
int token_check(struct access *a, const char *text, bool known_only, struct principal *out,
                struct err *e);
