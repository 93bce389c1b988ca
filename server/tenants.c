// SPDX-License-Identifier: Apache-2.0
// See tenants.h. A small chained table: there are as many tenants as uids that are connected.
#include "tenants.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tenant **
bucket_of(struct tenants *ts, const char *name)
{
    uint32_t hash = 2166136261u; // FNV-1a
    for (const char *p = name; *p != '\0'; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    return &ts->buckets[hash % (sizeof ts->buckets / sizeof ts->buckets[0])];
}

struct tenant *
tenant_hold(struct tenants *ts, const char *name)
{
    struct tenant **bucket = bucket_of(ts, name);
    struct tenant *t = *bucket;
    while (t != NULL && strcmp(t->name, name) != 0)
        t = t->next;
    if (t == NULL) {
        t = calloc(1, sizeof *t);
        if (t == NULL)
            return NULL;
        (void)snprintf(t->name, sizeof t->name, "%s", name);
        t->next = *bucket;
        *bucket = t;
    }
    t->holders++;
    return t;
}

void
tenant_drop(struct tenants *ts, struct tenant *t)
{
    if (--t->holders > 0)
        return;
    assert(t->connections == 0 && t->calls == 0 && t->keys == 0 && t->bytes == 0);
    struct tenant **link = bucket_of(ts, t->name);
    while (*link != t)
        link = &(*link)->next;
    *link = t->next;
    free(t);
}

bool
tenant_take_bytes(struct tenant *t, uint64_t n, uint64_t max)
{
    if (n > max || t->bytes > max - n)
        return false;
    t->bytes += n;
    return true;
}

void
tenant_give_bytes(struct tenant *t, uint64_t n)
{
    assert(n <= t->bytes);
    t->bytes -= n;
}
