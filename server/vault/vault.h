// SPDX-License-Identifier: Apache-2.0
// Encryption at rest: the keys.
//
//   master key     32 bytes of a file or of a credential of systemd, read as root at the start; in memory only, and locked there
//   data keys      one per tenant, made when it is first needed; wrapped by the master key (XChaCha20-Poly1305, bound to number and
//                  tenant) in the database. In clear only while it is in use
//   made of one    a key for contents and one for digests (proto/sealed.h)
//
// What is encrypted with a data key cannot be read any more when that was forgotten, since nothing but its wrapped form was
// written. A rotation of the master key wraps all data keys again, in one transaction, and rewrites no data.
//
// Objects name their data key by its number. Loop thread only, but for vault_read_master().
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "proto/sealed.h"
#include "server/base/list.h"

struct state;
struct vault;

enum { VAULT_MASTER = 32, VAULT_WRAPPED = 24 + 32 + 16, VAULT_TENANT = 32 };

// At most one of them; both "": new objects are not encrypted.
struct vault_settings {
    char key_file[256];
    char credential[64]; // the name of a file in $CREDENTIALS_DIRECTORY
};

// A data key, as others may see it.
struct vault_entry {
    struct list node;
    uint8_t id[SEALED_KEY_ID];
    char tenant[VAULT_TENANT];
    int64_t created_ms, forgotten_ms; // CLOCK_REALTIME; 0: it was not forgotten
};

// Before privileges are given up. *master: owned, from sodium_malloc(); NULL: there is none. FAILED_PRECONDITION (ENCRYPTION_KEY): it is
// missing, not of 32 bytes, or others may read it.
int vault_read_master(const struct vault_settings *s, uint8_t **master, struct err *e);

// Reads the data keys, before state_start() and before others read the state; takes `master`, also on failure. Notes at its first start which
// master key is in use, and seals what the database has in plain. FAILED_PRECONDITION (ENCRYPTION_KEY): it is not the one that they are
// wrapped with, or it is missing while there are some. DATA_LOSS: one is damaged.
int vault_open(struct state *state, uint8_t *master, struct vault **out, struct err *e);
void vault_free(struct vault *v); // after state_close(); accepts NULL

// Whether new objects are encrypted. Accepts NULL.
bool vault_is_on(const struct vault *v);

// The data key of a tenant, made if it has none. 1: *id is valid. 0: done is called when it is on the disk, or with the failure.
// UNAVAILABLE: the master key is being rotated, or this data key is being forgotten.
typedef void vault_done(void *cookie, const struct err *e);
int vault_need(struct vault *v, const char *tenant, uint8_t id[SEALED_KEY_ID], vault_done *done,
               void *cookie, struct err *e);

// The keys for objects of this data key. Wipe them. DATA_LOSS (KEY_FORGOTTEN): it was forgotten; (KEY_UNKNOWN): it is not in the database,
// such as one that is older than the object.
int vault_key(const struct vault *v, const uint8_t id[SEALED_KEY_ID], struct sealed_key *out,
              struct err *e);
// Whether such objects can be read; an id of zeros stands for ones that are not encrypted. Accepts NULL.
bool vault_has(const struct vault *v, const uint8_t id[SEALED_KEY_ID]);
// Whether a new object of the tenant would be encrypted with this data key, or (zeros) not at all. Accepts NULL.
bool vault_is_current(const struct vault *v, const char *tenant, const uint8_t id[SEALED_KEY_ID]);

// Wraps all data keys with another master key, which is in use from then on. done is called when that is on the disk.
int vault_rotate(struct vault *v, const uint8_t master[VAULT_MASTER], vault_done *done,
                 void *cookie, struct err *e);
// Destroys the data key of a tenant. NOT_FOUND: it has none. done: nothing of it is in the database any more. Meanwhile nothing new of the
// tenant can be sealed: UNAVAILABLE.
int vault_forget(struct vault *v, const char *tenant, vault_done *done, void *cookie,
                 struct err *e);

// struct vault_entry, oldest first.
const struct list *vault_entries(const struct vault *v);
