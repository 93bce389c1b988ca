// SPDX-License-Identifier: Apache-2.0
// See vault.h: the data keys in memory, wrapped. One that is new is used when the database has it on the disk, so nothing is ever
// encrypted with a key that a crash could take away.
#include "vault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "private.h"
#include "proto/now.h"
#include "server/state/state.h"

struct waiter {
    struct list node;
    vault_done *done;
    void *cookie;
};

bool
vault_is_on(const struct vault *v)
{
    return v != NULL && v->master != NULL;
}

const struct list *
vault_entries(const struct vault *v)
{
    return &v->keys;
}

static int
forgotten(struct err *e)
{
    int r = err_set(e, ERR_DATA_LOSS, "its data key was forgotten, so nobody can decrypt it");
    err_detail(e, "KEY_FORGOTTEN", NULL, "delete it");
    return r;
}

static int
unknown(struct err *e)
{
    int r = err_set(e, ERR_DATA_LOSS, "its data key is not in the database");
    err_detail(e, "KEY_UNKNOWN", NULL, "restore a newer backup of stockade.db");
    return r;
}

static int
take_out(const struct vault *v, const uint8_t id[SEALED_KEY_ID], uint8_t data[VAULT_DATA],
         struct err *e)
{
    const struct data_key *k = v != NULL ? vault_find(v, id) : NULL;
    if (k != NULL && k->entry.forgotten_ms != 0)
        return forgotten(e);
    if (k == NULL || v->master == NULL || unwrap_key(v->master, k, data) != 0)
        return unknown(e);
    return 0;
}

int
vault_column_key(const struct vault *v, const uint8_t id[SEALED_KEY_ID], uint8_t out[VAULT_DATA],
                 struct err *e)
{
    uint8_t data[VAULT_DATA];
    int r = take_out(v, id, data, e);
    if (r < 0)
        return r;
    derive_column_key(data, out);
    sodium_memzero(data, sizeof data);
    return 0;
}

int
vault_key(const struct vault *v, const uint8_t id[SEALED_KEY_ID], struct sealed_key *out,
          struct err *e)
{
    uint8_t data[VAULT_DATA];
    int r = take_out(v, id, data, e);
    if (r < 0)
        return r;
    memcpy(out->id, id, SEALED_KEY_ID);
    derive_keys(data, out);
    sodium_memzero(data, sizeof data);
    return 0;
}

bool
vault_has(const struct vault *v, const uint8_t id[SEALED_KEY_ID])
{
    if (sealed_id_is_none(id))
        return true;
    const struct data_key *k = vault_is_on(v) ? vault_find(v, id) : NULL;
    return k != NULL && k->entry.forgotten_ms == 0;
}

bool
vault_is_current(const struct vault *v, const char *tenant, const uint8_t id[SEALED_KEY_ID])
{
    if (!vault_is_on(v))
        return sealed_id_is_none(id);
    const struct data_key *k = vault_of(v, tenant);
    return k != NULL && memcmp(k->entry.id, id, SEALED_KEY_ID) == 0;
}

// ---- one that is new

static void
on_added(void *cookie, uint64_t rows, const struct err *e)
{
    struct data_key *k = cookie;
    (void)rows;
    k->stored = e == NULL;
    for (struct list *it = k->waiters.next; it != &k->waiters;) {
        struct waiter *w = list_entry(it, struct waiter, node);
        it = it->next;
        w->done(w->cookie, e);
        free(w);
    }
    list_init(&k->waiters);
    if (e == NULL)
        return;
    table_remove(k->vault, k);
    free(k);
}

static struct data_key *
key_new(struct vault *v, const char *tenant)
{
    uint8_t data[VAULT_DATA];
    struct data_key *k = calloc(1, sizeof *k);
    if (k == NULL)
        return NULL;
    list_init(&k->waiters);
    randombytes_buf(k->entry.id, sizeof k->entry.id);
    (void)snprintf(k->entry.tenant, sizeof k->entry.tenant, "%s", tenant);
    k->entry.created_ms = now_wall_ms();
    crypto_kdf_keygen(data);
    wrap_key(v->master, &k->entry, data, k->wrapped);
    sodium_memzero(data, sizeof data);
    k->vault = v;
    table_add(v, k);
    return k;
}

// NULL: *e.
static struct data_key *
make(struct vault *v, const char *tenant, struct err *e)
{
    struct data_key *k = NULL;
    if (v->rotating)
        (void)err_set(e, ERR_UNAVAILABLE, "the master key is being rotated: try again");
    else if ((k = key_new(v, tenant)) == NULL)
        (void)err_sys(e, ENOMEM, "make a data key");
    if (k == NULL)
        return NULL;
    const struct state_value row[] = {
        STATE_OF_BYTES(k->entry.id, sizeof k->entry.id), STATE_OF_TEXT(k->entry.tenant),
        STATE_OF_BYTES(k->wrapped, sizeof k->wrapped), STATE_OF_NUMBER(k->entry.created_ms)};
    if (state_write(v->state, STATE_DATA_KEY_ADD, row, on_added, k, e) == 0)
        return k;
    table_remove(v, k);
    free(k);
    return NULL;
}

struct data_key *
vault_make(struct vault *v, const char *tenant, struct err *e)
{
    struct data_key *k = vault_of(v, tenant);
    if (k == NULL)
        return make(v, tenant, e);
    if (!k->forgetting)
        return k;
    (void)err_set(e, ERR_UNAVAILABLE, "the data key of %s is being forgotten: try again", tenant);
    return NULL;
}

int
vault_need(struct vault *v, const char *tenant, uint8_t id[SEALED_KEY_ID], vault_done *done,
           void *cookie, struct err *e)
{
    struct data_key *k = vault_make(v, tenant, e);
    if (k == NULL)
        return err_errno(e);
    memcpy(id, k->entry.id, SEALED_KEY_ID);
    if (k->stored)
        return 1;
    struct waiter *w = malloc(sizeof *w);
    if (w == NULL)
        return err_sys(e, ENOMEM, "wait for a data key");
    *w = (struct waiter){.done = done, .cookie = cookie};
    list_append(&k->waiters, &w->node);
    return 0;
}

// ---- start and end

static int
other_master(struct err *e, const char *what)
{
    int r = err_set(e, ERR_FAILED_PRECONDITION, "encryption: %s", what);
    err_detail(e, "ENCRYPTION_KEY", "encryption",
               "set encryption.key_file or encryption.credential to the master key in use; after a "
               "rotation that is the new one");
    return r;
}

static int
take_proof(void *cookie, const struct state_value *value, struct err *e)
{
    struct vault *v = cookie;
    v->proved = true;
    if (value[0].n != VAULT_WRAPPED)
        return err_set(e, ERR_DATA_LOSS, "the proof of the master key is damaged");
    return v->master == NULL || check_proof(v->master, value[0].bytes) == 0
               ? 0
               : other_master(e, "the master key is not the one that the data keys of this state "
                                 "directory are wrapped with");
}

static bool
is_row(const struct state_value *value)
{
    return value[0].n == SEALED_KEY_ID && value[1].n > 0 && value[1].n < VAULT_TENANT &&
           value[2].n == (value[4].number == 0 ? (size_t)VAULT_WRAPPED : 0);
}

// The columns of STATE_DATA_KEYS.
static int
take_key(void *cookie, const struct state_value *value, struct err *e)
{
    struct vault *v = cookie;
    uint8_t data[VAULT_DATA];
    struct data_key *k = is_row(value) ? calloc(1, sizeof *k) : NULL;
    if (k == NULL)
        return is_row(value) ? err_sys(e, ENOMEM, "read the data keys")
                             : err_set(e, ERR_DATA_LOSS, "a data key in the database is damaged");
    list_init(&k->waiters);
    k->stored = true;
    memcpy(k->entry.id, value[0].bytes, SEALED_KEY_ID);
    memcpy(k->entry.tenant, value[1].bytes, value[1].n);
    if (value[2].n > 0)
        memcpy(k->wrapped, value[2].bytes, VAULT_WRAPPED);
    k->entry.created_ms = value[3].number;
    k->entry.forgotten_ms = value[4].number;
    table_add(v, k);
    if (k->entry.forgotten_ms != 0)
        return 0;
    if (v->master == NULL)
        return other_master(e, "there are encrypted objects, and no master key is configured; to "
                               "turn encryption off, forget the keys of all tenants first");
    if (unwrap_key(v->master, k, data) != 0)
        return err_set(e, ERR_DATA_LOSS,
                       "the data key of %s in the database is damaged: restore a backup",
                       k->entry.tenant);
    sodium_memzero(data, sizeof data);
    return 0;
}

// Notes which master key is in use, at its first start.
static int
prove(struct vault *v, struct err *e)
{
    uint8_t proof[VAULT_WRAPPED];
    const struct state_value row[] = {STATE_OF_BYTES(proof, sizeof proof)};
    if (v->master == NULL || v->proved)
        return 0;
    wrap_proof(v->master, proof);
    v->proved = true;
    return state_write(v->state, STATE_ENCRYPTION_SET, row, NULL, NULL, e);
}

int
vault_open(struct state *state, uint8_t *master, struct vault **out, struct err *e)
{
    struct vault *v = calloc(1, sizeof *v);
    if (v == NULL) {
        sodium_free(master);
        return err_sys(e, ENOMEM, "open the data keys");
    }
    v->state = state;
    v->master = master;
    table_begin(v);
    if (master != NULL)
        (void)sodium_mprotect_readonly(master);
    int r = state_read(state, STATE_ENCRYPTION, take_proof, v, e);
    if (r == 0)
        r = state_read(state, STATE_DATA_KEYS, take_key, v, e);
    if (r == 0)
        r = prove(v, e);
    if (r == 0)
        r = vault_seal_columns(v, e);
    if (r == 0) {
        *out = v;
        return 0;
    }
    state_seal_with(state, NULL);
    vault_free(v);
    return r;
}

void
vault_free(struct vault *v)
{
    if (v == NULL)
        return;
    list_each(it, &v->keys) free((struct data_key *)list_entry(it, struct vault_entry, node));
    sodium_free(v->master);
    free(v);
}
