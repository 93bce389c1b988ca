// SPDX-License-Identifier: Apache-2.0
// API keys: "stk_" or "e2b_" and 40 hex digits, that is, 160 random bits. Kept as a keyed hash (BLAKE2b-256), so that neither a
// copy of the database nor the time of a comparison says anything about a key. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/base/idtable.h"
#include "server/base/list.h"
#include "server/rpc/principal.h"

struct access;

enum {
    KEY_TEXT = 4 + 40 + 1,
    KEY_LABEL = 65,
    KEYS_MAX = 65536, // that are not revoked
    KEYS_OF_TENANT_MAX = 1024,
};

struct api_key {
    struct list node; // oldest first
    struct api_key *next;
    uint64_t order; // increases with each
    char id[ID_TEXT_MAX + 1];
    char tenant[PRINCIPAL_TENANT], maker[PRINCIPAL_TENANT];
    char label[KEY_LABEL], hint[16];
    uint32_t scopes;
    uint8_t hash[32];
    int64_t created_ms, expires_ms, revoked_ms; // the last two: 0: not
    bool pending;                               // not on the disk yet: nobody may use or see it
};

struct key_wanted {
    const char *tenant, *label;
    const struct principal *maker;
    uint32_t scopes; // 0: the usual ones of the maker
    bool e2b;
    uint64_t ttl_ms; // 0: it does not expire
};

// Called once, when the change is on the disk or failed. key: the new one, or NULL.
typedef void key_done(void *cookie, const struct api_key *key, const struct err *e);

// A change in progress. Its caller may give up waiting for it with key_unwait(); it goes on.
struct key_op;
void key_unwait(struct key_op *op);

// Makes a key, whose text is copied to `text`. Errors of KeyService.Create.
int key_create(struct access *a, const struct key_wanted *w, char text[KEY_TEXT], key_done *done,
               void *cookie, struct key_op **out, struct err *e);

// Revokes a key; whose NULL: of any tenant. NOT_FOUND: there is none, or it is another tenant's.
int key_revoke(struct access *a, const char *whose, const char *id, key_done *done, void *cookie,
               struct key_op **out, struct err *e);

// The next key after `k`, oldest first; NULL: the first, or there is none. Pending ones are left out.
const struct api_key *key_next(const struct access *a, const struct api_key *k);

// Forgets the labels of a tenant, whose data key was forgotten. Its keys are valid all the same.
void keys_forget_labels(struct access *a, const char *tenant);
