// SPDX-License-Identifier: Apache-2.0
// See ledger.h.
#include "ledger.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

_Static_assert(LEDGER_ACCOUNTS <= 32, "one bit each in `unsaved`");

static int
memory_load(void *state, const char *owner, uint64_t held[LEDGER_ACCOUNTS], struct err *e)
{
    (void)state;
    (void)owner;
    (void)e;
    memset(held, 0, LEDGER_ACCOUNTS * sizeof held[0]);
    return 0;
}

static int
memory_save(void *state, const char *owner, enum ledger_account a, uint64_t held, struct err *e)
{
    (void)state;
    (void)owner;
    (void)a;
    (void)held;
    (void)e;
    return 0;
}

const struct ledger_store ledger_memory = {"memory", false, memory_load, memory_save};

static const char *const names[LEDGER_ACCOUNTS] = {
    [LEDGER_CONNECTIONS] = "connections",
    [LEDGER_CALLS] = "calls",
    [LEDGER_BYTES] = "bytes",
    [LEDGER_KEYS] = "keys",
    [LEDGER_KEY_BYTES] = "key_bytes",
    [LEDGER_KEY_WRITES] = "key-writes",
    [LEDGER_SANDBOXES] = "sandboxes",
    [LEDGER_JOBS] = "jobs",
    [LEDGER_KEPT] = "kept",
    [LEDGER_LAYER_BYTES] = "layer-bytes",
    [LEDGER_LAYERS] = "layers",
    [LEDGER_CPU_MILLIS] = "cpu-millis",
    [LEDGER_MEMORY_BYTES] = "memory-bytes",
    [LEDGER_DISK_BYTES] = "disk-bytes",
    [LEDGER_LEAVING_SANDBOXES] = "leaving-sandboxes",
    [LEDGER_LEAVING_CPU_MILLIS] = "leaving-cpu-millis",
    [LEDGER_LEAVING_MEMORY_BYTES] = "leaving-memory-bytes",
    [LEDGER_LEAVING_DISK_BYTES] = "leaving-disk-bytes",
};

const char *
ledger_account_name(enum ledger_account a)
{
    return names[a];
}

static const struct ledger_store *
store_of(const struct ledger_keeper *k)
{
    return k->store != NULL ? k->store : &ledger_memory;
}

// Wraps the store's failure: the code says that the operation is not possible now, the text has the store's error.
static int
store_failed(struct err *e, const char *what, const char *owner, int r)
{
    (void)err_wrap(e, "%s of %s", what, owner);
    e->code = ERR_UNAVAILABLE;
    err_detail(e, "LEDGER", owner, "try again; if it persists, see the broker's log");
    return r == -EDQUOT ? -EIO : r;
}

static int
load(struct ledger *l, const struct ledger_keeper *k, const char *owner, struct err *e)
{
    uint64_t held[LEDGER_ACCOUNTS];
    int r = store_of(k)->load(k->state, owner, held, e);
    if (r < 0)
        return store_failed(e, "read the ledger", owner, r);
    memcpy(l->held, held, sizeof held);
    l->loaded = true;
    return 0;
}

int
ledger_charge(struct ledger *l, const struct ledger_keeper *k, const char *owner,
              enum ledger_account a, uint64_t n, uint64_t max, struct err *e)
{
    int r = l->loaded ? 0 : load(l, k, owner, e);
    if (r < 0)
        return r;
    if (n > max || l->held[a] > max - n)
        return -EDQUOT;
    r = store_of(k)->save(k->state, owner, a, l->held[a] + n, e);
    if (r < 0)
        return store_failed(e, "change the ledger", owner, r);
    l->held[a] += n;
    l->unsaved &= ~(1u << a);
    return 0;
}

static bool
save_again(struct ledger *l, const struct ledger_keeper *k, const char *owner,
           enum ledger_account a)
{
    struct err e; // the failure is reported when a caller needs the store
    if (store_of(k)->save(k->state, owner, a, l->held[a], &e) < 0)
        l->unsaved |= 1u << a;
    else
        l->unsaved &= ~(1u << a);
    return (l->unsaved >> a & 1) == 0;
}

void
ledger_release(struct ledger *l, const struct ledger_keeper *k, const char *owner,
               enum ledger_account a, uint64_t n)
{
    assert(n <= l->held[a]);
    l->held[a] -= n;
    if (n > 0)
        (void)save_again(l, k, owner, a);
}

bool
ledger_settle(struct ledger *l, const struct ledger_keeper *k, const char *owner)
{
    for (unsigned a = 0; a < LEDGER_ACCOUNTS; a++)
        if ((l->unsaved >> a & 1) != 0 && !save_again(l, k, owner, (enum ledger_account)a))
            return false;
    return true;
}

bool
ledger_may_rest(const struct ledger *l, const struct ledger_keeper *k)
{
    for (unsigned a = 0; a < LEDGER_ACCOUNTS; a++)
        if (l->held[a] != 0 && !store_of(k)->lasts)
            return false;
    return true;
}
