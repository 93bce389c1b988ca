// SPDX-License-Identifier: Apache-2.0
// See idempotency.h. A key's state:
//
//   (none) --begin--> RUNNING ----END that is kept---> ENDED --idempotency_ms--> (none)
//                        '--------END that allows a retry-----------------------^
//
// An END allows a retry if the call had no effect: every failure except those that may occur halfway (INTERNAL,
// UNKNOWN, DATA_LOSS), and a stream that failed before its first message. Otherwise a caller with many refused calls
// would use up its keys. The END of a stream is not kept, only its notes: its messages are lost, so a second caller
// gets ALREADY_EXISTS and the notes. The same applies if the response does not fit into the caller's share:
// idempotency_bytes_max is always kept, and no call is executed twice.
#include "idempotency_private.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "proto/container_of.h"
#include "server/base/metrics.h"
#include "server/base/stopping.h"
#include "conn.h"
#include "status.h"

enum {
    BUCKETS = KEYS_BUCKETS,
    ID_BYTES = KEYS_ID_BYTES,
    KEY_BYTES_MAX = 128,
    USUAL_END_BYTES = 4096, // so much room must be available when a call begins
};

#define NS_PER_MS UINT64_C(1000000)

static void on_expiry(struct timer *t);

struct keys *
keys_new(struct rpc *r)
{
    struct keys *k = calloc(1, sizeof *k);
    if (k == NULL)
        return NULL;
    k->rpc = r;
    k->timer.fire = on_expiry;
    crypto_shorthash_keygen(k->bucket_key);
    return k;
}

// A caller can compute ids itself, and could choose keys whose ids begin alike: so which of them share a bucket depends on a secret.
static struct key **
bucket_of(struct keys *k, const uint8_t id[ID_BYTES])
{
    uint8_t hash[crypto_shorthash_BYTES];
    uint32_t at;
    (void)crypto_shorthash(hash, id, ID_BYTES, k->bucket_key);
    memcpy(&at, hash, sizeof at);
    return &k->buckets[at & (BUCKETS - 1)];
}

static void
key_free(struct key *key)
{
    struct keys *k = key->keys;
    assert(key->leader == NULL && key->followers == NULL);
    struct key **link = bucket_of(k, key->id);
    while (*link != key)
        link = &(*link)->bucket_next;
    *link = key->bucket_next;
    k->durable_n -= key->durable;
    k->stored_bytes -= key->stored_n;
    tenant_release(key->tenant, LEDGER_KEYS, 1);
    tenant_release(key->tenant, LEDGER_KEY_BYTES, key->end_n);
    key->gone = true;
    if (key->writing == 0)
        key_release(key);
}

void
key_release(struct key *key)
{
    assert(key->gone && key->writing == 0);
    tenant_drop(key->tenant);
    free(key->end);
    free(key->reply);
    free(key);
}

// The row of one that has expired is removed by rows_sweep().
static void
key_forget(struct key *key)
{
    rows_forget(key);
    key_free(key);
}

static void
free_oldest(struct keys *k)
{
    struct key *key = k->oldest;
    k->oldest = key->younger;
    if (k->oldest == NULL)
        k->youngest = NULL;
    key_free(key);
}

void
keys_free(struct keys *k)
{
    if (k == NULL)
        return;
    while (k->oldest != NULL)
        free_oldest(k);
    free(k);
}

static void
on_expiry(struct timer *t)
{
    struct keys *k = container_of(t, struct keys, timer);
    uint64_t now = uv_hrtime();
    while (k->oldest != NULL && k->oldest->expires_ns <= now)
        free_oldest(k);
    rows_sweep(k);
    if (k->oldest != NULL)
        // cannot fail: the timer was set before
        (void)timers_set(k->rpc->timers, t, k->oldest->expires_ns);
}

static void
keep_until(struct key *key, uint64_t expires_ns)
{
    struct keys *k = key->keys;
    key->expires_ns = expires_ns;
    key->younger = NULL;
    *(k->youngest != NULL ? &k->youngest->younger : &k->oldest) = key;
    k->youngest = key;
    if (k->oldest == key)
        (void)timers_set(k->rpc->timers, &k->timer, key->expires_ns);
}

// Keeps a key with its END for idempotency_ms.
static void
keep(struct key *key)
{
    keep_until(key, uv_hrtime() + key->keys->rpc->limits.idempotency_ms * NS_PER_MS);
}

static void
follow(struct key *key, struct call *c)
{
    c->key = key;
    c->follows = true;
    c->follower_next = key->followers;
    key->followers = c;
}

static void
hash_id(const struct call *c, const char *text, uint8_t id[ID_BYTES])
{
    crypto_generichash_state state;
    (void)crypto_generichash_init(&state, NULL, 0, ID_BYTES);
    const char *const parts[] = {c->principal.tenant, c->frame->method, text};
    // the NUL is included, so that different parts cannot form the same text
    for (size_t i = 0; i < 3; i++)
        (void)crypto_generichash_update(&state, (const unsigned char *)parts[i],
                                        strlen(parts[i]) + 1);
    (void)crypto_generichash_final(&state, id, ID_BYTES);
}

// Ends c, which does not execute, with an error and the notes of the first call.
static void
fail_with_notes(struct call *c, const struct key *key, const struct err *e)
{
    struct status_fact facts[CALL_NOTES_MAX];
    Stockade__V1__Frame end = STOCKADE__V1__FRAME__INIT;
    for (size_t i = 0; i < key->notes_n; i++)
        facts[i] = (struct status_fact){key->notes[i].key, key->notes[i].value};
    end.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_END;
    end.status = status_of(e, c->principal.tenant, facts, key->notes_n, c->arena);
    size_t n = stockade__v1__frame__get_packed_size(&end);
    uint8_t *packed = end.status != NULL ? rpc_scratch(c->rpc, n) : NULL;
    if (packed == NULL) {
        call_fail(c, e);
        return;
    }
    (void)stockade__v1__frame__pack(&end, packed);
    call_end_packed(c, packed, n, e->code);
}

static enum keys_verdict
refuse(struct call *c, enum err_code code, const char *reason, const char *text)
{
    struct err e;
    (void)err_set(&e, code, "%s: %s", c->frame->method, text);
    err_detail(&e, reason, "idempotency-key", NULL);
    call_fail(c, &e);
    return KEYS_ENDED;
}

// The broker has ended while the call was under way.
static enum keys_verdict
refuse_lost(struct call *c)
{
    struct err e;
    (void)err_set(&e, ERR_ABORTED,
                  "%s: a call with this idempotency-key was under way when the broker ended",
                  c->frame->method);
    err_detail(
        &e, "MAY_HAVE_EXECUTED", NULL,
        "it may have run, and is not executed again: see what there is, and use another key");
    call_fail(c, &e);
    return KEYS_ENDED;
}

static enum keys_verdict
refuse_forgotten(struct call *c)
{
    struct err e;
    (void)err_set(&e, ERR_DATA_LOSS,
                  "%s: a call with this idempotency-key has run; its response was encrypted with a "
                  "data key that was forgotten",
                  c->frame->method);
    err_detail(&e, "KEY_FORGOTTEN", "idempotency-key", "it is not executed again: use another key");
    call_fail(c, &e);
    return KEYS_ENDED;
}

static const char *
hint_for(const struct key *key)
{
    if (key->stream && key->earlier)
        return "it ran before the broker was started again";
    return key->stream ? "attach to the process_id, if there is one"
                       : "its response was not kept: it is large, or the caller has too many";
}

// Handles a call with a known key.
static enum keys_verdict
again(struct call *c, struct key *key, const uint8_t request[ID_BYTES])
{
    if (memcmp(key->request, request, ID_BYTES) != 0)
        return refuse(c, ERR_INVALID_ARGUMENT, "IDEMPOTENCY_KEY_REUSED",
                      "this idempotency-key was used with another request");
    if (key->lost)
        return refuse_lost(c);
    if (key->forgotten)
        return refuse_forgotten(c);
    if (key->stream || (key->leader == NULL && key->end == NULL && !key->ending)) {
        struct err e;
        (void)err_set(&e, ERR_ALREADY_EXISTS, "%s: a call with this idempotency-key %s",
                      c->frame->method, key->leader != NULL ? "is running" : "has run");
        err_detail(&e, "ALREADY_EXECUTED", NULL, hint_for(key));
        fail_with_notes(c, key, &e);
        return KEYS_ENDED;
    }
    if (key->leader == NULL && !key->ending) {
        metrics_add(METRIC_CALLS_REPEATED, 1);
        call_end_packed(c, key->end, key->end_n, key->code);
        return KEYS_ENDED;
    }
    follow(key, c);
    return KEYS_FOLLOW;
}

// A key of the call's tenant, charged to it. NULL: the call was refused.
static struct key *
key_new(struct keys *k, struct call *c, enum keys_verdict *verdict)
{
    const struct rpc_limits *l = &k->rpc->limits;
    struct err e;
    if (rows_admit(k, c->tenant, &e) < 0) {
        call_fail(c, &e);
        *verdict = KEYS_ENDED;
        return NULL;
    }
    int r = tenant_held(c->tenant, LEDGER_KEY_BYTES) + USUAL_END_BYTES > l->idempotency_bytes_max
                ? -EDQUOT
                : tenant_charge(c->tenant, LEDGER_KEYS, 1, l->idempotency_keys_max, &e);
    if (r == -EDQUOT)
        *verdict = refuse(c, ERR_RESOURCE_EXHAUSTED, "IDEMPOTENCY_KEYS",
                          "this caller has too many idempotency-keys");
    else if (r < 0)
        *verdict = refuse(c, (enum err_code)e.code, e.reason, e.text);
    if (r < 0)
        return NULL;
    struct key *key = calloc(1, sizeof *key);
    if (key == NULL) {
        tenant_release(c->tenant, LEDGER_KEYS, 1);
        *verdict =
            refuse(c, ERR_RESOURCE_EXHAUSTED, "IDEMPOTENCY_KEYS", "out of memory for the key");
        return NULL;
    }
    key->keys = k;
    key->tenant = tenant_hold_again(c->tenant);
    return key;
}

// What they answer is shown once, and is nowhere on the disk.
static bool
makes_credentials(enum scope scope)
{
    return scope == SCOPE_KEY_WRITE || scope == SCOPE_TENANTS_WRITE ||
           scope == SCOPE_TOKEN_EXCHANGE || scope == SCOPE_ADMIN_WRITE;
}

enum keys_verdict
keys_begin(struct keys *k, struct call *c, const char *key_text)
{
    uint8_t id[ID_BYTES];
    uint8_t request[ID_BYTES];
    if (key_text[0] == '\0' || strlen(key_text) > KEY_BYTES_MAX)
        return refuse(c, ERR_INVALID_ARGUMENT, "IDEMPOTENCY_KEY_INVALID",
                      "an idempotency-key has 1 to 128 bytes");
    hash_id(c, key_text, id);
    (void)crypto_generichash(request, ID_BYTES, c->frame->payload.data, c->frame->payload.len, NULL,
                             0);
    for (struct key *key = *bucket_of(k, id); key != NULL; key = key->bucket_next)
        if (memcmp(key->id, id, ID_BYTES) == 0)
            return again(c, key, request);
    enum keys_verdict verdict = KEYS_EXECUTE;
    struct key *key = key_new(k, c, &verdict);
    if (key == NULL)
        return verdict;
    memcpy(key->id, id, ID_BYTES);
    memcpy(key->request, request, ID_BYTES);
    key->bucket_next = *bucket_of(k, id);
    *bucket_of(k, id) = key;
    key->stream = c->stream;
    key->secret = makes_credentials(c->method->scope);
    struct err e;
    if (k->state != NULL && rows_begin(key, &e) < 0) {
        key_free(key);
        call_fail(c, &e);
        return KEYS_ENDED;
    }
    key->leader = c;
    c->key = key;
    return k->state != NULL ? KEYS_WAIT : KEYS_EXECUTE;
}

void
key_begun(struct key *key, const struct err *e)
{
    struct err why;
    if (e == NULL && !key->keys->rpc->closing) {
        dispatch_execute(key->leader);
        return;
    }
    if (e == NULL)
        (void)stopping_say(&why, ERR_UNAVAILABLE);
    else
        why = *e;
    if (why.code != ERR_RESOURCE_EXHAUSTED)
        why.code = ERR_UNAVAILABLE; // nothing was executed
    call_fail(key->leader, &why);   // which forgets the key
}

static bool
is_worth_keeping(const struct key *key, const struct call *c, int32_t code)
{
    if (key->stream)
        return c->sent_data || key->notes_n > 0 || code == ERR_OK;
    return code == ERR_OK || code == ERR_INTERNAL || code == ERR_UNKNOWN || code == ERR_DATA_LOSS;
}

static void
answer_followers(struct key *key, const uint8_t *frame, size_t n, int32_t code)
{
    while (key->followers != NULL) {
        struct call *c = key->followers;
        key->followers = c->follower_next;
        c->key = NULL;
        c->follows = false;
        if (frame != NULL) {
            metrics_add(METRIC_CALLS_REPEATED, !c->ended);
            call_end_packed(c, frame, n, code);
        } else {
            struct err e;
            (void)err_sys(&e, ENOMEM, "%s: keep the response", c->frame->method);
            call_fail(c, &e);
        }
    }
}

// If the END does not fit, or there is no memory, it is not kept: see again().
static void
keep_end(struct key *key, const uint8_t *frame, size_t n)
{
    const uint64_t most = key->keys->rpc->limits.idempotency_bytes_max;
    struct err ignored;
    if (tenant_charge(key->tenant, LEDGER_KEY_BYTES, n, most, &ignored) < 0)
        return;
    key->end = malloc(n);
    if (key->end == NULL) {
        tenant_release(key->tenant, LEDGER_KEY_BYTES, n);
        return;
    }
    memcpy(key->end, frame, n);
    key->end_n = n;
}

// The call waits, like others with its key, until the END is on the disk. Its handler is done with it. False: it does not wait,
// because it was given up, or for want of memory.
static bool
wait_for_disk(struct key *key, struct call *c, const uint8_t *frame, size_t n)
{
    if (c->given_up || frame == NULL)
        return false;
    if (key->end == NULL) {
        key->reply = malloc(n);
        if (key->reply == NULL)
            return false;
        memcpy(key->reply, frame, n);
        key->reply_n = n;
    }
    key->ending = true;
    follow(key, c);
    c->ended = true;
    call_watch(c, NULL, NULL, NULL);
    timers_clear(c->rpc->timers, &c->timer);
    return true;
}

void
key_ended(struct key *key)
{
    const bool kept = key->end != NULL;
    key->ending = false;
    answer_followers(key, kept ? key->end : key->reply, kept ? key->end_n : key->reply_n,
                     key->code);
    free(key->reply);
    key->reply = NULL;
    keep(key);
}

bool
keys_end(struct call *c, const uint8_t *frame, size_t n, int32_t code)
{
    struct key *key = c->key;
    assert(key->leader == c);
    c->key = NULL;
    key->leader = NULL;
    if (!is_worth_keeping(key, c, code)) {
        answer_followers(key, frame, n, code);
        key_forget(key);
        return true;
    }
    if (!key->stream && frame != NULL)
        keep_end(key, frame, n);
    key->code = code;
    if (!key->stream && key->end == NULL)
        metrics_add(METRIC_RESULTS_NOT_KEPT, 1);
    if (rows_end(key) && wait_for_disk(key, c, frame, n))
        return false;
    answer_followers(key, frame, n, code);
    keep(key);
    return true;
}

struct key *
key_restore(struct keys *k, const struct key *like, const char *tenant)
{
    struct err ignored;
    struct key *key = calloc(1, sizeof *key);
    struct tenant *t = key != NULL ? tenant_hold(k->rpc->tenants, tenant) : NULL;
    uint8_t *end = t != NULL && like->end != NULL ? malloc(like->end_n) : NULL;
    if (t == NULL || (like->end != NULL && end == NULL) ||
        tenant_charge(t, LEDGER_KEYS, 1, UINT64_MAX, &ignored) < 0) {
        if (t != NULL)
            tenant_drop(t);
        free(end);
        free(key);
        return NULL;
    }
    *key = *like;
    key->keys = k;
    key->tenant = t;
    key->end = end;
    if (end != NULL)
        memcpy(end, like->end, like->end_n);
    (void)tenant_charge(t, LEDGER_KEY_BYTES, key->end_n, UINT64_MAX, &ignored);
    key->earlier = true;
    key->durable = true;
    key->stored_n = key->end_n;
    k->durable_n++;
    k->stored_bytes += key->end_n;
    key->bucket_next = *bucket_of(k, key->id);
    *bucket_of(k, key->id) = key;
    keep_until(key, like->expires_ns);
    return key;
}

void
keys_forget(struct keys *k, const char *tenant)
{
    for (struct key *key = k->oldest; key != NULL; key = key->younger) {
        if (key->end == NULL || strcmp(key->tenant->name, tenant) != 0)
            continue;
        sodium_memzero(key->end, key->end_n);
        free(key->end);
        tenant_release(key->tenant, LEDGER_KEY_BYTES, key->end_n);
        key->end = NULL;
        key->end_n = 0;
        key->forgotten = true;
    }
}

void
keys_unfollow(struct call *c)
{
    struct call **link = &c->key->followers;
    while (*link != c)
        link = &(*link)->follower_next;
    *link = c->follower_next;
    c->key = NULL;
    c->follows = false;
}

bool
keys_has_followers(const struct call *c)
{
    return c->key->followers != NULL;
}

void
keys_note(struct call *c, const char *name, const char *value)
{
    struct key *key = c->key;
    if (key->notes_n == CALL_NOTES_MAX)
        return;
    struct note *note = &key->notes[key->notes_n++];
    (void)snprintf(note->key, sizeof note->key, "%s", name);
    (void)snprintf(note->value, sizeof note->value, "%s", value);
}
