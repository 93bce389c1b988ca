// SPDX-License-Identifier: Apache-2.0
// See idempotency_private.h: the rows of keys in the database, so that a broker that was restarted executes no call again.
//
//   begin --> row "under way" --on the disk--> execute ... END --> row "ended", with a small answer --on the disk--> answer
//
// After kill -9 a row says one of three things: the call has ended, and this is its answer; it has ended, and the answer was not kept;
// or it was under way, and may have run. Nothing is executed again in any of them.
//
// An answer with a credential is never stored.
//
// Bounds: keys per tenant and in total, of which a part is left to tenants with few; bytes of answers in total, beyond which only the
// row is kept; and changes of one tenant that wait for the disk.
#include "idempotency_private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/now.h"
#include "rpc.h"
#include "server/base/log.h"
#include "server/state/state.h"

#define NS_PER_MS UINT64_C(1000000)

enum {
    ROWS_MAX = 400000, // about 80 MiB
    ROWS_OF_FEW = ROWS_MAX / 64,
    ANSWER_MAX = 16 * 1024,
    ANSWERS_MAX = 64 * 1024 * 1024,
    WRITES_OF_TENANT = 1024,
    SWEEP_MS = 10 * 1000,
    RETRY_MS = 1000,
    CODE_LOST = -1, // of a row: nobody knows how it ended
};

int
rows_admit(const struct keys *k, const struct tenant *t, struct err *e)
{
    const bool full = k->durable_n >= ROWS_MAX ||
                      (k->durable_n >= ROWS_MAX / 2 && tenant_held(t, LEDGER_KEYS) >= ROWS_OF_FEW);
    if (k->state == NULL || !full)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                    "the broker keeps %u idempotency-keys of all callers", k->durable_n);
    err_detail(e, "IDEMPOTENCY_KEYS", NULL, "try again when some have expired");
    e->retry_ms = k->rpc->limits.idempotency_ms;
    return r;
}

// Counts a change of a key that comes back.
static void
came_back(struct key *key)
{
    assert(key->writing > 0);
    key->writing--;
    tenant_release(key->tenant, LEDGER_KEY_WRITES, 1);
}

static void
on_begun(void *cookie, uint64_t rows, const struct err *e)
{
    struct key *key = cookie;
    (void)rows;
    came_back(key);
    if (key->gone)
        key_release(key);
    else
        key_begun(key, e);
}

static void
on_ended(void *cookie, uint64_t rows, const struct err *e)
{
    struct key *key = cookie;
    (void)rows;
    came_back(key);
    if (e != NULL)
        log_err(LOG_WARNING, "idempotency", e);
    if (key->gone)
        key_release(key);
    else if (key->ending)
        key_ended(key);
}

static int
write_row(struct key *key, enum state_change c, const struct state_value *value, state_done *done,
          uint64_t most, struct err *e)
{
    int r = tenant_charge(key->tenant, LEDGER_KEY_WRITES, 1, most, e);
    if (r == -EDQUOT) {
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "%u idempotency-keys of %s wait for the disk",
                      (unsigned)tenant_held(key->tenant, LEDGER_KEY_WRITES), key->tenant->name);
        err_detail(e, "IDEMPOTENCY_KEYS", key->tenant->name, "send fewer calls at once");
        err_rule(e, "rpc.idempotency_keys", "calls without a key");
    }
    if (r < 0) {
        e->retry_ms = RETRY_MS;
        return r;
    }
    r = state_write(key->keys->state, c, value, done, key, e);
    if (r < 0) {
        tenant_release(key->tenant, LEDGER_KEY_WRITES, 1);
        e->retry_ms = RETRY_MS;
        return r;
    }
    key->writing++;
    return 0;
}

int
rows_begin(struct key *key, struct err *e)
{
    const struct state_value value[] = {
        STATE_OF_BYTES(key->id, sizeof key->id),
        STATE_OF_BYTES(key->request, sizeof key->request),
        STATE_OF_TEXT(key->tenant->name),
        STATE_OF_NUMBER(key->stream),
    };
    int r = write_row(key, STATE_CALL_BEGIN, value, on_begun, WRITES_OF_TENANT, e);
    key->durable = r == 0;
    key->keys->durable_n += r == 0;
    return r;
}

static int
write_end(struct key *key, bool keep, struct err *e)
{
    const struct state_value value[] = {
        STATE_OF_BYTES(key->id, sizeof key->id),
        STATE_OF_NUMBER(key->code),
        STATE_OF_NUMBER(now_wall_ms() + key->keys->rpc->limits.idempotency_ms),
        STATE_OF_BYTES(keep ? key->end : NULL, keep ? key->end_n : 0),
        STATE_OF_TEXT(key->tenant->name),
    };
    return write_row(key, STATE_CALL_END, value, on_ended, UINT64_MAX, e);
}

bool
rows_end(struct key *key)
{
    struct keys *k = key->keys;
    struct err e;
    bool small = key->end != NULL && !key->secret && key->end_n <= ANSWER_MAX &&
                 k->stored_bytes + key->end_n <= ANSWERS_MAX;
    if (k->state == NULL || !key->durable)
        return false;
    int r = write_end(key, small, &e);
    if (r < 0 && small) { // it cannot be sealed now
        small = false;
        r = write_end(key, small, &e);
    }
    if (r < 0) {
        log_err(LOG_WARNING, "idempotency",
                &e); // the next start takes it for one that may have run
        return false;
    }
    key->stored_n = small ? key->end_n : 0;
    k->stored_bytes += key->stored_n;
    return true;
}

void
rows_forget(struct key *key)
{
    struct keys *k = key->keys;
    const struct state_value value = STATE_OF_BYTES(key->id, sizeof key->id);
    struct err ignored; // the row stays then, and says that the call may have run
    if (k->state != NULL && key->durable)
        (void)state_write(k->state, STATE_CALL_FORGET, &value, NULL, NULL, &ignored);
}

static void
on_swept(void *cookie, uint64_t rows, const struct err *e)
{
    struct keys *k = cookie;
    (void)e;
    k->sweeping = false;
    if (rows > 0)
        k->swept_ns = 0; // there may be more
}

void
rows_sweep(struct keys *k)
{
    const struct state_value now = STATE_OF_NUMBER(now_wall_ms());
    const uint64_t now_ns = uv_hrtime();
    struct err ignored;
    if (k->state == NULL || k->sweeping || now_ns - k->swept_ns < SWEEP_MS * NS_PER_MS)
        return;
    k->swept_ns = now_ns;
    k->sweeping = state_write(k->state, STATE_CALLS_EXPIRE, &now, on_swept, k, &ignored) == 0;
}

// ---- the start

struct earlier_key {
    struct earlier_key *next;
    struct key key; // of it: hashes, stream, code, lost
    char tenant[PRINCIPAL_TENANT];
    int64_t expires_ms;
    size_t end_n;
    uint8_t end[];
};
struct keys_earlier {
    struct earlier_key *first, **last;
};

static int
on_row(void *cookie, const struct state_value *v, struct err *e)
{
    struct keys_earlier *all = cookie;
    struct earlier_key *one = calloc(1, sizeof *one + v[7].n);
    if (one == NULL)
        return err_sys(e, ENOMEM, "read idempotency-keys");
    memcpy(one->key.id, v[0].bytes, sizeof one->key.id);
    memcpy(one->key.request, v[1].bytes, sizeof one->key.request);
    (void)snprintf(one->tenant, sizeof one->tenant, "%.*s", (int)v[2].n, (const char *)v[2].bytes);
    one->key.stream = v[3].number != 0;
    one->key.code = (int32_t)v[5].number;
    one->key.lost = v[4].number == 0 || one->key.code == CODE_LOST;
    one->key.forgotten = v[7].kind == STATE_FORGOTTEN;
    one->expires_ms = v[4].number != 0 ? v[6].number : INT64_MAX;
    one->end_n = v[7].n;
    if (v[7].n > 0)
        memcpy(one->end, v[7].bytes, v[7].n);
    *all->last = one;
    all->last = &one->next;
    return 0;
}

int
keys_read(struct state *s, struct keys_earlier **out, struct err *e)
{
    struct keys_earlier *all = calloc(1, sizeof *all);
    if (all == NULL)
        return err_sys(e, ENOMEM, "read idempotency-keys");
    all->last = &all->first;
    *out = all;
    return state_read(s, STATE_CALLS, on_row, all, e);
}

// Time that is left, at most that of a key that has just ended, whatever happened to the clock.
static uint64_t
left_ns(const struct keys *k, int64_t expires_ms, int64_t now_ms)
{
    const int64_t most = k->rpc->limits.idempotency_ms;
    const int64_t left = expires_ms <= now_ms         ? 0
                         : expires_ms - now_ms > most ? most
                                                      : expires_ms - now_ms;
    return (uint64_t)left * NS_PER_MS;
}

static void
restore(struct keys *k, const struct earlier_key *one, int64_t now_ms)
{
    struct key like = one->key;
    like.end = one->end_n > 0 ? (uint8_t *)(uintptr_t)one->end : NULL;
    like.end_n = one->end_n;
    like.expires_ns = uv_hrtime() + left_ns(k, one->expires_ms, now_ms);
    if (key_restore(k, &like, one->tenant) == NULL)
        log_event(LOG_ERROR, "idempotency",
                  "no memory for a key of %s: a repeated call of it runs again", one->tenant);
}

void
keys_store_in(struct keys *k, struct state *s, struct keys_earlier *earlier)
{
    const int64_t now_ms = now_wall_ms();
    struct earlier_key *next = NULL;
    struct err e;
    k->state = s;
    for (struct earlier_key *one = earlier != NULL ? earlier->first : NULL; one != NULL;
         one = next) {
        next = one->next;
        restore(k, one, now_ms);
        free(one);
    }
    free(earlier);
    const struct state_value lost[] = {STATE_OF_NUMBER(CODE_LOST),
                                       STATE_OF_NUMBER(now_ms + k->rpc->limits.idempotency_ms)};
    if (s != NULL && state_write(s, STATE_CALLS_LOST, lost, NULL, NULL, &e) < 0)
        log_err(LOG_WARNING, "idempotency", &e);
}
