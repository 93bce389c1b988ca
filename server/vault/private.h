// SPDX-License-Identifier: Apache-2.0
// Shared by vault.c (data keys), wrap.c (their wrapped form) and rotate.c (what operators do).
#pragma once

#include "vault.h"

enum { VAULT_DATA = 32 };

struct data_key {
    struct vault_entry entry; // must be first
    uint8_t wrapped[VAULT_WRAPPED];
    bool stored;         // it is on the disk
    struct list waiters; // struct waiter
};

struct vault {
    struct state *state;
    uint8_t *master;  // from sodium_malloc(); NULL: off
    bool proved;      // the database knows which master key it is
    struct list keys; // struct data_key
    bool rotating;
};

struct data_key *vault_find(const struct vault *v, const uint8_t id[SEALED_KEY_ID]);
// The one that new objects get; NULL: none.
struct data_key *vault_of(const struct vault *v, const char *tenant);

// ---- wrap.c

// Binds a data key to its number and its tenant.
void wrap_key(const uint8_t master[VAULT_MASTER], const struct vault_entry *k,
              const uint8_t data[VAULT_DATA], uint8_t out[VAULT_WRAPPED]);
int unwrap_key(const uint8_t master[VAULT_MASTER], const struct data_key *k,
               uint8_t data[VAULT_DATA]);
// What shows later whether a master key is the same.
void wrap_proof(const uint8_t master[VAULT_MASTER], uint8_t out[VAULT_WRAPPED]);
int check_proof(const uint8_t master[VAULT_MASTER], const uint8_t proof[VAULT_WRAPPED]);
// Only its number is left as it was.
void derive_keys(const uint8_t data[VAULT_DATA], struct sealed_key *out);
