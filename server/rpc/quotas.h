// SPDX-License-Identifier: Apache-2.0
// What a tenant may hold, as one table: a value for every tenant, and rows for tenants with other values. config/ fills it. The
// uses are charged to the tenant's ledger (tenants.h), except those of files on the disk, which their layers sum up.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ledger.h"
#include "principal.h"

enum quota {
    QUOTA_SANDBOXES,
    QUOTA_JOBS,            // that run
    QUOTA_JOBS_PER_MINUTE, // that begin
    QUOTA_CPU_MILLIS,      // the limits of its sandboxes together
    QUOTA_MEMORY_BYTES,
    QUOTA_DISK_BYTES,
    QUOTA_KEPT_JOBS,  // that have ended and can still be attached to
    QUOTA_KEPT_BYTES, // of kept snapshots, templates and sandboxes that are asleep
    QUOTA_VOLUMES,
    QUOTA_VOLUME_BYTES,
    QUOTAS_N,
};

enum { QUOTA_TENANTS_MAX = 256, QUOTA_WEIGHT_USUAL = 1, QUOTA_WEIGHT_MAX = 100 };

struct quantity_unit;

struct quota_row {
    const char *name;       // as in stockade.v1.QuotaUse
    const char *key;        // below quotas.tenants in the configuration
    const char *key_of_all; // below quotas
    const char *reason;     // of a refusal
    const char *of;         // in a sentence: "4 sandboxes"
    const char *hint;       // how to give some back
    const struct quantity_unit *units;
    uint64_t usual, min, max;
    enum ledger_account account; // LEDGER_ACCOUNTS: it has none
    bool may_be_unlimited;       // by 0
};
extern const struct quota_row quota_table[QUOTAS_N];

struct quota_of_tenant {
    char tenant[PRINCIPAL_TENANT];
    uint32_t has;    // bits of enum quota that are not those of all
    uint32_t weight; // its part in the queue for sandboxes
    uint64_t v[QUOTAS_N];
};
struct quotas {
    uint64_t usual[QUOTAS_N];
    uint32_t n;
    uint32_t unused;
    struct quota_of_tenant row[QUOTA_TENANTS_MAX]; // sorted by tenant
};

void quotas_default(struct quotas *q);

// q NULL: the defaults. UINT64_MAX: no limit.
uint64_t quota_of(const struct quotas *q, const char *tenant, enum quota which);
uint32_t quota_weight(const struct quotas *q, const char *tenant);
// The highest of all tenants.
uint64_t quota_highest(const struct quotas *q, enum quota which);

// Writes the refusal: RESOURCE_EXHAUSTED with quota, use and limit. `used` is without `more`, the request (0: not known).
// Returns -EDQUOT.
struct quota_refusal {
    enum quota which;
    const char *tenant;
    uint64_t used, more, limit;
};
int quota_refuse(const struct quota_refusal *r, struct err *e);
