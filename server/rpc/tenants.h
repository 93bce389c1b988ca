// SPDX-License-Identifier: Apache-2.0
// What each tenant holds, in one ledger (ledger.h): connections, calls, bytes and idempotency keys for this layer, sandboxes
// and jobs for the layer above. A tenant is a uid on ipc; all of tcp is one tenant (principal.h). Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fair.h"
#include "ledger.h"
#include "quotas.h"
#include "server/base/list.h"
#include "server/base/timers.h"

// CPU time above the share that may be used permanently (sandbox/share.h).
struct share_bucket {
    int64_t used_ns;
    uint64_t at_ns; // uv_hrtime() of the last check
};

// Its sandboxes that began a moment ago (sandbox/pace.h).
struct tenant_starts {
    struct fair_use use;
    struct list young; // the eldest first
    uint32_t young_n;
    uint64_t due_ns; // uv_hrtime() at which its share has paid for all that began
};

struct tenant {
    char name[32];        // "uid:1000"; the same as in struct principal
    struct ledger ledger; // changed by tenant_charge() and tenant_release() alone
    struct list kept;     // jobs that have ended and can still be attached to, the oldest first
    struct share_bucket share;
    struct tenant_starts starts;
    // Jobs that began in the last minute, each for MINUTE_NS, at jobs_at_ns; less by the quota with each ns that passes.
    uint64_t jobs_level;
    uint64_t jobs_at_ns;    // uv_hrtime()
    uint64_t jobs_until_ns; // uv_hrtime() at which they are forgotten
    uint64_t keep_until_ns; // uv_hrtime(): remembered until then, even if nobody holds it
    // ---- its requests: conn_turn.c
    struct fair_use use;
    struct list held; // connections that wait until it may go on
    uint64_t held_ns; // since then
    struct timer turn;
    struct rpc *rpc; // of `turn`
    uint32_t holders;
    struct tenants *all;
    struct tenant *next;
};

// All tenants; zeroed before first use, except for the keeper, if ledgers are kept elsewhere than in memory.
struct tenants {
    struct ledger_keeper keeper;
    const struct quotas *quotas; // borrowed; NULL: the defaults
    const uint32_t *named; // borrowed: how many have a value of their own in metrics; NULL: none
    struct fair fair;      // the broker's CPU time
    struct fair starting;  // who takes sandboxes
    struct list young;     // their sandboxes that began a moment ago, the eldest first
    uint32_t young_n;
    uint32_t resting_n; // without a holder
    struct tenant *buckets[64];
};

// The tenant with this name, created on first use and held until tenant_drop(). NULL: out of memory.
struct tenant *tenant_hold(struct tenants *ts, const char *name);
// Holds it once more, for a caller that already holds it.
struct tenant *tenant_hold_again(struct tenant *t);
void tenant_drop(struct tenant *t);

// At the end: frees those that are only remembered. Returns the number of ledgers that their store refused to save.
unsigned tenants_forget(struct tenants *ts);

// NULL: the tenant holds nothing, and nothing is remembered about it. Borrowed.
struct tenant *tenant_find(const struct tenants *ts, const char *name);

// Adds n to an account, or subtracts it: ledger_charge() and ledger_release().
int tenant_charge(struct tenant *t, enum ledger_account a, uint64_t n, uint64_t max, struct err *e);
void tenant_release(struct tenant *t, enum ledger_account a, uint64_t n);
uint64_t tenant_held(const struct tenant *t, enum ledger_account a);

// The same for the account of a quota: RESOURCE_EXHAUSTED with the words for it. Returns -EDQUOT then.
int tenant_charge_quota(struct tenant *t, enum quota which, uint64_t n, struct err *e);
uint64_t tenant_quota(const struct tenant *t, enum quota which);
uint32_t tenant_weight(const struct tenant *t);

// Jobs that began in the last minute (the generic cell rate algorithm, ITU-T I.371). May another one begin? RESOURCE_EXHAUSTED with the
// time until it may. t NULL: a tenant of which nothing is known.
int tenant_check_jobs(const struct tenant *t, uint64_t now_ns, struct err *e);
void tenant_count_job(struct tenant *t, uint64_t now_ns);
uint64_t tenant_jobs_begun(const struct tenant *t, uint64_t now_ns);

// The account of bytes, for callers that need no words for a refusal.
bool tenant_take_bytes(struct tenant *t, uint64_t n, uint64_t max);
void tenant_give_bytes(struct tenant *t, uint64_t n);
