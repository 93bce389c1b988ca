// SPDX-License-Identifier: Apache-2.0
// See private.h: the data keys by number and by tenant. Each call with an idempotency-key looks for one, on a host with thousands of
// tenants.
#include <string.h>

#include "private.h"

void
table_begin(struct vault *v)
{
    list_init(&v->keys);
    crypto_shorthash_keygen(v->bucket_key);
}

static size_t
bucket_of(const struct vault *v, const void *bytes, size_t n)
{
    uint64_t hash;
    _Static_assert(sizeof hash == crypto_shorthash_BYTES, "the hash");
    _Static_assert(sizeof v->bucket_key == crypto_shorthash_KEYBYTES, "its key");
    (void)crypto_shorthash((uint8_t *)&hash, bytes, n, v->bucket_key);
    return hash & (VAULT_BUCKETS - 1);
}

static size_t
bucket_of_tenant(const struct vault *v, const char *tenant)
{
    return bucket_of(v, tenant, strlen(tenant));
}

struct data_key *
vault_find(const struct vault *v, const uint8_t id[SEALED_KEY_ID])
{
    struct data_key *k = v->of_id[bucket_of(v, id, SEALED_KEY_ID)];
    while (k != NULL && memcmp(k->entry.id, id, SEALED_KEY_ID) != 0)
        k = k->next_of_id;
    return k;
}

struct data_key *
vault_of(const struct vault *v, const char *tenant)
{
    struct data_key *k = v->of_tenant[bucket_of_tenant(v, tenant)];
    while (k != NULL && strcmp(k->entry.tenant, tenant) != 0)
        k = k->next_of_tenant;
    return k;
}

void
table_add(struct vault *v, struct data_key *k)
{
    struct data_key **id = &v->of_id[bucket_of(v, k->entry.id, SEALED_KEY_ID)];
    list_append(&v->keys, &k->entry.node);
    k->next_of_id = *id;
    *id = k;
    if (k->entry.forgotten_ms != 0)
        return;
    struct data_key **tenant = &v->of_tenant[bucket_of_tenant(v, k->entry.tenant)];
    k->next_of_tenant = *tenant;
    *tenant = k;
}

void
table_forget(struct vault *v, struct data_key *k)
{
    struct data_key **link = &v->of_tenant[bucket_of_tenant(v, k->entry.tenant)];
    while (*link != NULL && *link != k)
        link = &(*link)->next_of_tenant;
    if (*link == k)
        *link = k->next_of_tenant;
}

void
table_remove(struct vault *v, struct data_key *k)
{
    struct data_key **link = &v->of_id[bucket_of(v, k->entry.id, SEALED_KEY_ID)];
    while (*link != k)
        link = &(*link)->next_of_id;
    *link = k->next_of_id;
    table_forget(v, k);
    list_remove(&k->entry.node);
}
