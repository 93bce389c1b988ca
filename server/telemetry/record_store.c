// SPDX-License-Identifier: Apache-2.0
// See record_store.h.
#include "record_store.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/idtable.h"
#include "server/base/list.h"

struct tenant_records { // of one tenant
    struct list node;
    char tenant[32];
    struct list records; // oldest first
    uint32_t n;
    size_t bytes;
};

struct stored {
    struct idnode id;        // must be first
    struct list tenant_node; // in its tenant's list
    struct list of_all;
    struct tenant_records *owner;
    uint8_t *bytes; // owned
    size_t n;
};

struct record_store {
    struct idtable table;
    struct list tenants;
    struct list all; // oldest first
    size_t bytes;
};

struct record_store *
record_store_new(void)
{
    struct record_store *st = calloc(1, sizeof *st);
    if (st == NULL)
        return NULL;
    list_init(&st->tenants);
    list_init(&st->all);
    return st;
}

static size_t
cost(const struct stored *s)
{
    return sizeof *s + s->n;
}

static void
free_one(struct stored *s)
{
    free(s->bytes);
    free(s);
}

// Discards a record; with the last one also the tenant's entry.
static void
discard(struct record_store *st, struct stored *s)
{
    struct tenant_records *owner = s->owner;
    idtable_remove(&st->table, &s->id);
    list_remove(&s->tenant_node);
    list_remove(&s->of_all);
    st->bytes -= cost(s);
    owner->bytes -= cost(s);
    if (--owner->n == 0) {
        list_remove(&owner->node);
        free(owner);
    }
    free_one(s);
}

void
record_store_free(struct record_store *st)
{
    if (st == NULL)
        return;
    list_each(it, &st->all) free_one(list_entry(it, struct stored, of_all));
    list_each(it, &st->tenants) free(list_entry(it, struct tenant_records, node));
    free(st);
}

static struct tenant_records *
owner_of(struct record_store *st, const char *tenant)
{
    for (struct list *it = st->tenants.next; it != &st->tenants; it = it->next)
        if (strcmp(list_entry(it, struct tenant_records, node)->tenant, tenant) == 0)
            return list_entry(it, struct tenant_records, node);
    struct tenant_records *owner = calloc(1, sizeof *owner);
    if (owner == NULL)
        return NULL;
    (void)snprintf(owner->tenant, sizeof owner->tenant, "%s", tenant);
    list_init(&owner->records);
    list_append(&st->tenants, &owner->node);
    return owner;
}

// Makes room for new records without discarding `last`.
static void
make_room(struct record_store *st, struct tenant_records *owner, const struct stored *last)
{
    list_each(it, &owner->records)
    {
        bool over = owner->n > RECORDS_PER_TENANT || owner->bytes > RECORDS_BYTES_PER_TENANT;
        if (it == &last->tenant_node || !over)
            break;
        discard(st, list_entry(it, struct stored, tenant_node));
    }
    list_each(it, &st->all)
    {
        if (it == &last->of_all || st->bytes <= RECORDS_BYTES)
            break;
        discard(st, list_entry(it, struct stored, of_all));
    }
}

bool
record_store_add(struct record_store *st, const char *tenant, const char *process_id,
                 uint8_t *bytes, size_t n)
{
    struct tenant_records *owner = owner_of(st, tenant);
    struct stored *s = owner != NULL ? calloc(1, sizeof *s) : NULL;
    if (s == NULL) {
        if (owner != NULL && owner->n == 0) {
            list_remove(&owner->node);
            free(owner);
        }
        free(bytes);
        return false;
    }
    *s = (struct stored){.owner = owner, .bytes = bytes, .n = n};
    (void)snprintf(s->id.id, sizeof s->id.id, "%s", process_id);
    idtable_add(&st->table, &s->id);
    list_append(&owner->records, &s->tenant_node);
    list_append(&st->all, &s->of_all);
    owner->n++;
    owner->bytes += cost(s);
    st->bytes += cost(s);
    make_room(st, owner, s);
    return true;
}

static bool
is_meant(const struct stored *s, const char *tenant, const char *beginning)
{
    return (tenant == NULL || strcmp(s->owner->tenant, tenant) == 0) &&
           id_begins(s->id.id, beginning);
}

const uint8_t *
record_store_find(const struct record_store *st, const char *tenant, const char *beginning,
                  size_t *n, uint32_t *several)
{
    const struct stored *found = NULL;
    for (struct list *it = st->all.prev; it != &st->all; it = it->prev) {
        const struct stored *s = list_entry(it, struct stored, of_all);
        if (!is_meant(s, tenant, beginning))
            continue;
        found = found != NULL ? found : s;
        ++*several;
    }
    if (found == NULL)
        return NULL;
    *n = found->n;
    return found->bytes;
}
