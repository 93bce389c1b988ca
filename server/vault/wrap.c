// SPDX-License-Identifier: Apache-2.0
// See private.h. A wrapped key is a nonce and what crypto_aead_xchacha20poly1305_ietf_encrypt() makes of the key.
#include <assert.h>
#include <sodium.h>
#include <string.h>

#include "private.h"

enum {
    NONCE = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
    BOUND = sizeof "stockade data key 1" + SEALED_KEY_ID + VAULT_TENANT,
};
_Static_assert(VAULT_WRAPPED == NONCE + VAULT_DATA + crypto_aead_xchacha20poly1305_ietf_ABYTES,
               "the size of a wrapped key");
_Static_assert(VAULT_MASTER == crypto_aead_xchacha20poly1305_ietf_KEYBYTES, "a master key");
_Static_assert(VAULT_DATA == crypto_kdf_KEYBYTES, "a data key");

static const char PROOF[] = "stockade master key 1";

// The tenant is padded, so no other pair of number and tenant has the same bytes.
static void
bind_to(const struct vault_entry *k, uint8_t out[BOUND])
{
    static const char begin[] = "stockade data key 1";
    memset(out, 0, BOUND);
    memcpy(out, begin, sizeof begin);
    memcpy(out + sizeof begin, k->id, SEALED_KEY_ID);
    memcpy(out + sizeof begin + SEALED_KEY_ID, k->tenant, strnlen(k->tenant, VAULT_TENANT));
}

static void
wrap(const uint8_t master[VAULT_MASTER], const void *bound, size_t bound_n,
     const uint8_t data[VAULT_DATA], uint8_t out[VAULT_WRAPPED])
{
    unsigned long long n = 0;
    randombytes_buf(out, NONCE);
    (void)crypto_aead_xchacha20poly1305_ietf_encrypt(out + NONCE, &n, data, VAULT_DATA, bound,
                                                     bound_n, NULL, out, master);
    assert(n == VAULT_WRAPPED - NONCE);
}

static int
unwrap(const uint8_t master[VAULT_MASTER], const void *bound, size_t bound_n,
       const uint8_t in[VAULT_WRAPPED], uint8_t data[VAULT_DATA])
{
    unsigned long long n = 0;
    return crypto_aead_xchacha20poly1305_ietf_decrypt(
        data, &n, NULL, in + NONCE, VAULT_WRAPPED - NONCE, bound, bound_n, in, master);
}

void
wrap_key(const uint8_t master[VAULT_MASTER], const struct vault_entry *k,
         const uint8_t data[VAULT_DATA], uint8_t out[VAULT_WRAPPED])
{
    uint8_t bound[BOUND];
    bind_to(k, bound);
    wrap(master, bound, sizeof bound, data, out);
}

int
unwrap_key(const uint8_t master[VAULT_MASTER], const struct data_key *k, uint8_t data[VAULT_DATA])
{
    uint8_t bound[BOUND];
    bind_to(&k->entry, bound);
    return unwrap(master, bound, sizeof bound, k->wrapped, data);
}

void
wrap_proof(const uint8_t master[VAULT_MASTER], uint8_t out[VAULT_WRAPPED])
{
    static const uint8_t zeros[VAULT_DATA];
    wrap(master, PROOF, sizeof PROOF, zeros, out);
}

int
check_proof(const uint8_t master[VAULT_MASTER], const uint8_t proof[VAULT_WRAPPED])
{
    uint8_t zeros[VAULT_DATA];
    return unwrap(master, PROOF, sizeof PROOF, proof, zeros);
}

static const char CONTEXT[crypto_kdf_CONTEXTBYTES + 1] = "stockade";

void
derive_keys(const uint8_t data[VAULT_DATA], struct sealed_key *out)
{
    (void)crypto_kdf_derive_from_key(out->contents, sizeof out->contents, 1, CONTEXT, data);
    (void)crypto_kdf_derive_from_key(out->names, sizeof out->names, 2, CONTEXT, data);
}

void
derive_column_key(const uint8_t data[VAULT_DATA], uint8_t out[VAULT_DATA])
{
    (void)crypto_kdf_derive_from_key(out, VAULT_DATA, 3, CONTEXT, data);
}
