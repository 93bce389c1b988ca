// SPDX-License-Identifier: Apache-2.0
// See vault.h: values of the database, for state/sealing.c. A sealed value is a nonce and what
// crypto_aead_xchacha20poly1305_ietf_encrypt() makes of the plain one; number of the key and place are authenticated.
//
// Nobody waits for a new data key here: its row is written before what is sealed with it, and the schema refuses a value without one.
#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "proto/plural.h"
#include "private.h"
#include "server/base/log.h"

enum {
    NONCE = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
    WHERE_MAX = 1024,
};
static const char BEGIN[] = "stockade column 1";
_Static_assert(STATE_SEAL_OVER == NONCE + crypto_aead_xchacha20poly1305_ietf_ABYTES,
               "what a sealed value has more");
_Static_assert((int)STATE_SEAL_KEY == (int)SEALED_KEY_ID, "the number of a data key");

struct binding {
    uint8_t bytes[sizeof BEGIN + SEALED_KEY_ID + WHERE_MAX];
    size_t n;
};

static void
bind_to(struct binding *p, const uint8_t id[SEALED_KEY_ID], const struct state_value *where)
{
    assert(where->n <= WHERE_MAX);
    memcpy(p->bytes, BEGIN, sizeof BEGIN);
    memcpy(p->bytes + sizeof BEGIN, id, SEALED_KEY_ID);
    memcpy(p->bytes + sizeof BEGIN + SEALED_KEY_ID, where->bytes, where->n);
    p->n = sizeof BEGIN + SEALED_KEY_ID + where->n;
}

static int
need(void *cookie, const char *tenant, uint8_t key[STATE_SEAL_KEY], struct err *e)
{
    struct vault *v = cookie;
    if (!vault_is_on(v))
        return 0;
    const struct data_key *k = vault_make(v, tenant, e);
    if (k == NULL)
        return err_errno(e);
    memcpy(key, k->entry.id, SEALED_KEY_ID);
    return 1;
}

static int
seal(void *cookie, const uint8_t key[STATE_SEAL_KEY], const struct state_value *where,
     const struct state_value *plain, uint8_t *out, struct err *e)
{
    uint8_t column[crypto_aead_xchacha20poly1305_ietf_KEYBYTES];
    struct binding p;
    int r = vault_column_key(cookie, key, column, e);
    if (r < 0)
        return r;
    bind_to(&p, key, where);
    randombytes_buf(out, NONCE);
    (void)crypto_aead_xchacha20poly1305_ietf_encrypt(out + NONCE, NULL, plain->bytes, plain->n,
                                                     p.bytes, p.n, NULL, out, column);
    sodium_memzero(column, sizeof column);
    return 0;
}

static int
open_value(void *cookie, const uint8_t key[STATE_SEAL_KEY], const struct state_value *where,
           const struct state_value *sealed, uint8_t *out, struct err *e)
{
    uint8_t column[crypto_aead_xchacha20poly1305_ietf_KEYBYTES];
    const struct vault *v = cookie;
    const struct data_key *k = vault_find(v, key);
    const uint8_t *in = sealed->bytes;
    struct binding p;
    if (k != NULL && k->entry.forgotten_ms != 0)
        return 1;
    int r = vault_column_key(v, key, column, e);
    if (r < 0)
        return r;
    bind_to(&p, key, where);
    const bool whole =
        sealed->n >= STATE_SEAL_OVER &&
        crypto_aead_xchacha20poly1305_ietf_decrypt(out, NULL, NULL, in + NONCE, sealed->n - NONCE,
                                                   p.bytes, p.n, in, column) == 0;
    sodium_memzero(column, sizeof column);
    if (whole)
        return 0;
    r = err_set(e, ERR_DATA_LOSS, "a sealed value in the database is damaged or was moved");
    err_detail(e, "STATE_DAMAGED", NULL, "restore a backup of stockade.db");
    return r;
}

int
vault_seal_columns(struct vault *v, struct err *e)
{
    const struct state_sealer sealer = {v, need, seal, open_value};
    struct err later;
    uint64_t n = 0;
    state_seal_with(v->state, &sealer);
    if (!vault_is_on(v))
        return 0;
    int r = state_seal_rows(v->state, &n, e);
    if (r < 0)
        return r;
    if (n > 0)
        log_event(LOG_INFO, "encryption", "sealed %llu plain %s of the database",
                  (unsigned long long)n, plural(n, "value", "values"));
    if (state_scrub(v->state, &later) < 0) // the next start tries again
        log_err(LOG_ERROR, "encryption", &later);
    return 0;
}
