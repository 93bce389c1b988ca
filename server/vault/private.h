// SPDX-License-Identifier: Apache-2.0
// Shared by vault.c (data keys), wrap.c (their wrapped form), column.c (values of the database) and rotate.c (what operators do).
#pragma once

#include "server/state/state.h"
#include "vault.h"

enum { VAULT_DATA = 32, VAULT_BUCKETS = 4096 }; // a power of two

struct data_key {
    struct vault_entry entry; // must be first
    struct vault *vault;      // of one that is being added
    uint8_t wrapped[VAULT_WRAPPED];
    bool stored;                                  // it is on the disk
    bool forgetting;                              // nothing new is sealed with it
    struct data_key *next_of_id, *next_of_tenant; // of its buckets
    struct list waiters;                          // struct waiter
};

struct vault {
    struct state *state;
    uint8_t *master;  // from sodium_malloc(); NULL: off
    bool proved;      // the database knows which master key it is
    struct list keys; // struct data_key
    bool rotating;
    // Tenants choose their names: which of them share a bucket depends on a secret. Those by tenant hold keys that were not forgotten.
    uint8_t bucket_key[16];
    struct data_key *of_id[VAULT_BUCKETS], *of_tenant[VAULT_BUCKETS];
};

// table.c: takes a key into the list and the buckets, out of them, or (it was forgotten) out of those by tenant.
void table_begin(struct vault *v);
void table_add(struct vault *v, struct data_key *k);
void table_remove(struct vault *v, struct data_key *k);
void table_forget(struct vault *v, struct data_key *k);
struct data_key *vault_find(const struct vault *v, const uint8_t id[SEALED_KEY_ID]);
// The one that new objects get; NULL: none.
struct data_key *vault_of(const struct vault *v, const char *tenant);

// The same, made if it has none; it may not be on the disk yet. NULL: UNAVAILABLE, it is being forgotten, or there is a rotation.
struct data_key *vault_make(struct vault *v, const char *tenant, struct err *e);
// The key for values of the database. Wipe it. Errors: vault_key().
int vault_column_key(const struct vault *v, const uint8_t id[SEALED_KEY_ID],
                     uint8_t out[VAULT_DATA], struct err *e);

// ---- column.c

// The state seals with these keys from now on; what is still plain is sealed.
int vault_seal_columns(struct vault *v, struct err *e);

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
void derive_column_key(const uint8_t data[VAULT_DATA], uint8_t out[VAULT_DATA]);
