// SPDX-License-Identifier: Apache-2.0
// See tenants.h. A small chained hash table: there are as many tenants as connected uids.
#include "tenants.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "proto/plural.h"
#include "server/base/log.h"

#define MINUTE_NS UINT64_C(60000000000)

enum {
    RESTING_MAX = 1024
}; // beyond this, tenants without holders are not remembered for their shares alone

static size_t
bucket_of(const char *name)
{
    uint32_t hash = 2166136261u; // FNV-1a
    for (const char *p = name; *p != '\0'; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    return hash % (sizeof((struct tenants *)0)->buckets / sizeof(struct tenant *));
}

struct tenant *
tenant_find(const struct tenants *ts, const char *name)
{
    struct tenant *t = ts->buckets[bucket_of(name)];
    while (t != NULL && strcmp(t->name, name) != 0)
        t = t->next;
    return t;
}

struct tenant *
tenant_hold_again(struct tenant *t)
{
    if (t->holders++ == 0)
        t->all->resting_n--;
    return t;
}

static void
forget(struct tenant *t)
{
    struct tenant **link = &t->all->buckets[bucket_of(t->name)];
    while (*link != t)
        link = &(*link)->next;
    *link = t->next;
    fair_forget(&t->all->fair, &t->use);
    fair_forget(&t->all->starting, &t->starts.use);
    t->all->resting_n--;
    free(t);
}

static bool
was_seen(const struct fair_use *u, uint64_t now_ns)
{
    return u->seen_ns != 0 && now_ns < u->seen_ns + FAIR_KEPT_NS;
}

// What it has used of its shares counts also after its last connection: otherwise a caller with a connection for each call would have
// used nothing, and others none beside it.
static bool
is_remembered(const struct tenant *t, uint64_t now_ns)
{
    return t->keep_until_ns > now_ns ||
           (t->all->resting_n <= RESTING_MAX &&
            (was_seen(&t->use, now_ns) || was_seen(&t->starts.use, now_ns)));
}

// Frees the tenants without holders whose time to be remembered has ended. One whose ledger cannot be saved stays
// until the next attempt.
static void
forget_rested(struct tenants *ts, uint64_t now_ns)
{
    for (size_t i = 0; i < sizeof ts->buckets / sizeof ts->buckets[0]; i++)
        for (struct tenant *t = ts->buckets[i], *next = NULL; t != NULL; t = next) {
            next = t->next;
            if (t->holders == 0 && !is_remembered(t, now_ns) &&
                ledger_settle(&t->ledger, &ts->keeper, t->name))
                forget(t);
        }
}

unsigned
tenants_forget(struct tenants *ts)
{
    unsigned lost = 0;
    forget_rested(ts, UINT64_MAX);
    for (size_t i = 0; i < sizeof ts->buckets / sizeof ts->buckets[0]; i++)
        for (struct tenant *t = ts->buckets[i], *next = NULL; t != NULL; t = next) {
            next = t->next;
            if (t->holders > 0)
                continue;
            lost++;
            forget(t);
        }
    if (lost > 0)
        log_event(LOG_ERROR, "ledger", "the ledgers of %u %s were not saved", lost,
                  plural(lost, "caller", "callers"));
    return lost;
}

struct tenant *
tenant_hold(struct tenants *ts, const char *name)
{
    struct tenant *t = tenant_find(ts, name);
    if (t != NULL)
        return tenant_hold_again(t);
    forget_rested(ts, uv_hrtime());
    struct tenant **bucket = &ts->buckets[bucket_of(name)];
    t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    *t = (struct tenant){.all = ts, .next = *bucket, .holders = 1};
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    list_init(&t->kept);
    list_init(&t->held);
    list_init(&t->starts.young);
    *bucket = t;
    return t;
}

void
tenant_drop(struct tenant *t)
{
    if (--t->holders > 0)
        return;
    assert(list_empty(&t->kept) && ledger_may_rest(&t->ledger, &t->all->keeper));
    t->all->resting_n++;
    if (!is_remembered(t, uv_hrtime()) && ledger_settle(&t->ledger, &t->all->keeper, t->name))
        forget(t);
}

int
tenant_charge(struct tenant *t, enum ledger_account a, uint64_t n, uint64_t max, struct err *e)
{
    return ledger_charge(&t->ledger, &t->all->keeper, t->name, a, n, max, e);
}

void
tenant_release(struct tenant *t, enum ledger_account a, uint64_t n)
{
    ledger_release(&t->ledger, &t->all->keeper, t->name, a, n);
}

uint64_t
tenant_quota(const struct tenant *t, enum quota which)
{
    return quota_of(t->all->quotas, t->name, which);
}

uint32_t
tenant_weight(const struct tenant *t)
{
    return quota_weight(t->all->quotas, t->name);
}

int
tenant_charge_quota(struct tenant *t, enum quota which, uint64_t n, struct err *e)
{
    const enum ledger_account a = quota_table[which].account;
    const uint64_t most = tenant_quota(t, which);
    int r = tenant_charge(t, a, n, most, e);
    if (r != -EDQUOT)
        return r;
    return quota_refuse(&(struct quota_refusal){which, t->name, tenant_held(t, a), n, most}, e);
}

// No more than the quota, which may have been lowered: so a refusal lasts a minute at most.
static uint64_t
jobs_level(const struct tenant *t, uint64_t most, uint64_t now_ns)
{
    const uint64_t past_ns = now_ns > t->jobs_at_ns ? now_ns - t->jobs_at_ns : 0;
    if (most == UINT64_MAX || past_ns >= MINUTE_NS)
        return 0;
    const uint64_t full = most * MINUTE_NS; // at most 6e18: see quota_table
    const uint64_t level = t->jobs_level < full ? t->jobs_level : full;
    return level > past_ns * most ? level - past_ns * most : 0;
}

uint64_t
tenant_jobs_begun(const struct tenant *t, uint64_t now_ns)
{
    const uint64_t level = jobs_level(t, tenant_quota(t, QUOTA_JOBS_PER_MINUTE), now_ns);
    return (level + MINUTE_NS - 1) / MINUTE_NS;
}

int
tenant_check_jobs(const struct tenant *t, uint64_t now_ns, struct err *e)
{
    const uint64_t most = t != NULL ? tenant_quota(t, QUOTA_JOBS_PER_MINUTE) : UINT64_MAX;
    const uint64_t level = most != UINT64_MAX ? jobs_level(t, most, now_ns) : 0;
    if (most == UINT64_MAX || level + MINUTE_NS <= most * MINUTE_NS)
        return 0;
    const uint64_t wait_ns = (level + MINUTE_NS - most * MINUTE_NS) / most;
    (void)quota_refuse(&(struct quota_refusal){QUOTA_JOBS_PER_MINUTE, t->name,
                                               tenant_jobs_begun(t, now_ns), 1, most},
                       e);
    e->retry_ms = (uint32_t)(wait_ns / 1000000) + 1;
    return -EDQUOT;
}

void
tenant_count_job(struct tenant *t, uint64_t now_ns)
{
    const uint64_t most = tenant_quota(t, QUOTA_JOBS_PER_MINUTE);
    if (most == UINT64_MAX)
        return;
    t->jobs_level = jobs_level(t, most, now_ns) + MINUTE_NS;
    t->jobs_at_ns = now_ns;
    t->jobs_until_ns = now_ns + t->jobs_level / most;
    if (t->keep_until_ns < t->jobs_until_ns)
        t->keep_until_ns = t->jobs_until_ns;
}

uint64_t
tenant_held(const struct tenant *t, enum ledger_account a)
{
    return t->ledger.held[a];
}

bool
tenant_take_bytes(struct tenant *t, uint64_t n, uint64_t max)
{
    struct err ignored;
    return tenant_charge(t, LEDGER_BYTES, n, max, &ignored) == 0;
}

void
tenant_give_bytes(struct tenant *t, uint64_t n)
{
    tenant_release(t, LEDGER_BYTES, n);
}
