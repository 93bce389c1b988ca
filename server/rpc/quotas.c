// SPDX-License-Identifier: Apache-2.0
// See quotas.h.
#include "quotas.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/quantity.h"
#include "server/spawner/ops.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)

// A thousand usual sandboxes fit into the default of each; a thousand of the largest do not.
const struct quota_row quota_table[QUOTAS_N] = {
    [QUOTA_SANDBOXES] = {"sandboxes", "sandboxes", "sandboxes_per_caller", "QUOTA_SANDBOXES",
                         "sandboxes", "delete some", quantity_count, 1000, 1, SPAWN_SLOTS_MAX,
                         LEDGER_SANDBOXES, false},
    [QUOTA_JOBS] = {"jobs", "jobs", "jobs_per_caller", "QUOTA_JOBS", "running jobs",
                    "wait for one to end", quantity_count, 2000, 1, 10000000, LEDGER_JOBS, false},
    [QUOTA_JOBS_PER_MINUTE] = {"jobs_per_minute", "jobs_per_minute", "jobs_per_minute_per_caller",
                               "QUOTA_JOBS_PER_MINUTE", "jobs in a minute", "wait", quantity_count,
                               200000, 0, 100000000, LEDGER_ACCOUNTS, true},
    [QUOTA_CPU_MILLIS] = {"cpu_millis", "cpus", "cpus_per_caller", "QUOTA_CPUS",
                          "CPUs for its sandboxes", "delete some, or request less",
                          quantity_cpu_millis, 2000000, 0, UINT64_C(1000000000), LEDGER_CPU_MILLIS,
                          true},
    [QUOTA_MEMORY_BYTES] = {"memory_bytes", "memory", "memory_per_caller", "QUOTA_MEMORY",
                            "of memory for its sandboxes", "delete some, or request less",
                            quantity_bytes, TIB, 0, 1024 * TIB, LEDGER_MEMORY_BYTES, true},
    [QUOTA_DISK_BYTES] = {"disk_bytes", "disk", "disk_per_caller", "QUOTA_DISK",
                          "of disk for its sandboxes", "delete some, or request less",
                          quantity_bytes, TIB, 0, 1024 * TIB, LEDGER_DISK_BYTES, true},
    [QUOTA_KEPT_JOBS] = {"kept_jobs", "kept", "kept_per_caller", "QUOTA_KEPT",
                         "ended jobs that are kept", "wait", quantity_count, 256, 0, 10000,
                         LEDGER_KEPT, false},
    [QUOTA_KEPT_BYTES] = {"kept_bytes", "kept_bytes", "kept_bytes_per_caller", "KEPT_BYTES",
                          "of files that are kept",
                          "delete kept snapshots, templates and sleeping sandboxes", quantity_bytes,
                          4 * GIB, MIB, 1024 * TIB, LEDGER_ACCOUNTS, false},
    [QUOTA_VOLUMES] = {"volumes", "volumes", "volumes_per_caller", "VOLUMES", "volumes",
                       "remove some", quantity_count, 16, 0, 4096, LEDGER_ACCOUNTS, false},
    [QUOTA_VOLUME_BYTES] = {"volume_bytes", "volume_bytes", "volume_bytes_per_caller",
                            "VOLUME_BYTES", "of volumes", "remove some", quantity_bytes, 16 * GIB,
                            0, INT64_MAX, LEDGER_ACCOUNTS, false},
};

void
quotas_default(struct quotas *q)
{
    memset(q, 0, sizeof *q); // with its padding: configurations are compared as bytes
    for (int i = 0; i < QUOTAS_N; i++)
        q->usual[i] = quota_table[i].usual;
}

static int
compare(const void *name, const void *row)
{
    return strcmp(name, ((const struct quota_of_tenant *)row)->tenant);
}

static const struct quota_of_tenant *
row_of(const struct quotas *q, const char *tenant)
{
    return q != NULL && q->n > 0 ? bsearch(tenant, q->row, q->n, sizeof q->row[0], compare) : NULL;
}

static uint64_t
limit(enum quota which, uint64_t v)
{
    return v == 0 && quota_table[which].may_be_unlimited ? UINT64_MAX : v;
}

uint64_t
quota_of(const struct quotas *q, const char *tenant, enum quota which)
{
    const struct quota_of_tenant *row = row_of(q, tenant);
    if (row != NULL && (row->has >> which & 1) != 0)
        return limit(which, row->v[which]);
    return limit(which, q != NULL ? q->usual[which] : quota_table[which].usual);
}

uint32_t
quota_weight(const struct quotas *q, const char *tenant)
{
    const struct quota_of_tenant *row = row_of(q, tenant);
    return row != NULL && row->weight > 0 ? row->weight : QUOTA_WEIGHT_USUAL;
}

uint64_t
quota_highest(const struct quotas *q, enum quota which)
{
    uint64_t most = limit(which, q->usual[which]);
    for (uint32_t i = 0; i < q->n; i++) {
        const uint64_t v = quota_of(q, q->row[i].tenant, which);
        most = v > most ? v : most;
    }
    return most;
}

int
quota_refuse(const struct quota_refusal *r, struct err *e)
{
    const struct quota_row *row = &quota_table[r->which];
    char used[QUANTITY_TEXT], more[QUANTITY_TEXT], most[QUANTITY_TEXT];
    char hint[192], key[64], allowed[96];
    (void)quantity_write(r->used, row->units, used);
    (void)quantity_write(r->more, row->units, more);
    (void)quantity_write(r->limit, row->units, most);
    if (r->more > 0)
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED,
                      "%s has %s %s, and %s more would exceed its quota of %s", r->tenant, used,
                      row->of, more, most);
    else
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "%s has %s %s; its quota is %s", r->tenant, used,
                      row->of, most);
    (void)snprintf(key, sizeof key, "quotas.%s", row->key_of_all);
    (void)snprintf(hint, sizeof hint,
                   "%s, or raise quotas.%s in the broker's configuration and reload it", row->hint,
                   row->key_of_all);
    (void)snprintf(allowed, sizeof allowed, "%s: at most %s, used %s", row->name, most, used);
    err_detail(e, row->reason, r->tenant, hint);
    err_rule(e, key, allowed);
    return -EDQUOT;
}
