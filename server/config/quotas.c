// SPDX-License-Identifier: Apache-2.0
// See private.h: quotas of tenants.
//
//   quotas:
//     memory_per_caller: 64G
//     tenants:
//       ci: {weight: 4, sandboxes: 200, jobs_per_minute: 0}
//       "uid:1000": {memory: 8G}
#include "private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/rpc/quotas.h"

static int
read_value(const struct config_reader *r, const struct yaml_node *n, enum quota which, uint64_t *to)
{
    const struct quota_row *row = &quota_table[which];
    return config_number(r, n, row->units, row->min, row->max, to);
}

int
config_read_quota(const struct config_reader *r, const struct config_key *k, struct yaml_node *n,
                  void *to)
{
    uint64_t *field = config_field(k, to);
    const struct config *c = to;
    return read_value(r, n, (enum quota)(field - c->tenant_quotas.usual), field);
}

static int
read_key(const struct config_reader *r, const struct yaml_node *n, struct quota_of_tenant *row)
{
    const char *keys[QUOTAS_N + 1];
    uint64_t weight = 0;
    if (strcmp(n->key, "weight") == 0) {
        int err = config_number(r, n, quantity_count, 1, QUOTA_WEIGHT_MAX, &weight);
        row->weight = (uint32_t)weight;
        return err;
    }
    for (int i = 0; i < QUOTAS_N; i++) {
        keys[i] = quota_table[i].key;
        if (strcmp(n->key, keys[i]) != 0)
            continue;
        row->has |= UINT32_C(1) << i;
        return read_value(r, n, (enum quota)i, &row->v[i]);
    }
    keys[QUOTAS_N] = "weight";
    return config_no_such(r, n, "quota", keys, sizeof keys / sizeof keys[0]);
}

static int
read_row(const struct config_reader *r, const struct yaml_node *n, struct quota_of_tenant *row)
{
    int err = 0;
    if (!principal_is_tenant(n->key) || strcmp(n->key, "*") == 0)
        return config_fail(r, n, "must be the name of a tenant, such as team-a or \"uid:1000\"");
    if (n->kind != YAML_MAP)
        return config_fail(r, n, "must be a mapping of quotas, such as {weight: 4, sandboxes: 50}");
    (void)snprintf(row->tenant, sizeof row->tenant, "%s", n->key);
    for (const struct yaml_node *it = n->child; it != NULL && err == 0; it = it->next)
        err = read_key(r, it, row);
    return err;
}

static int
compare(const void *a, const void *b)
{
    return strcmp(((const struct quota_of_tenant *)a)->tenant,
                  ((const struct quota_of_tenant *)b)->tenant);
}

int
config_read_tenant_quotas(const struct config_reader *r, const struct config_key *k,
                          struct yaml_node *n, void *to)
{
    struct quotas *q = config_field(k, to);
    int err = 0;
    if (n->kind != YAML_MAP)
        return config_fail(r, n, "must be a mapping of tenants to their quotas");
    memset(q->row, 0, sizeof q->row);
    q->n = 0;
    for (const struct yaml_node *it = n->child; it != NULL && err == 0; it = it->next) {
        if (q->n == QUOTA_TENANTS_MAX)
            return config_fail(r, it, "more than %d tenants", QUOTA_TENANTS_MAX);
        err = read_row(r, it, &q->row[q->n++]);
    }
    qsort(q->row, q->n, sizeof q->row[0], compare);
    return err;
}
