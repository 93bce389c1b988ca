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
#include "idempotency.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "proto/container_of.h"
#include "server/base/metrics.h"
#include "conn.h"
#include "status.h"

enum {
    BUCKETS = 4096, // a power of two
    ID_BYTES = 16,
    KEY_BYTES_MAX = 128,
    USUAL_END_BYTES = 4096, // so much room must be available when a call begins
};

#define NS_PER_MS UINT64_C(1000000)

struct key {
    struct keys *keys;
    uint8_t id[ID_BYTES];      // hash of tenant, method and key
    uint8_t request[ID_BYTES]; // hash of the payload
    struct tenant *tenant;     // held
    struct key *bucket_next;
    struct call *leader; // the executing call; NULL: it has ended
    struct call *followers;
    bool stream;
    uint8_t *end; // packed frame of an ended unary call; NULL: not kept
    size_t end_n;
    uint64_t expires_ns;
    int32_t code;        // of its END
    struct key *younger; // the next key that ended later
    struct note notes[CALL_NOTES_MAX];
    size_t notes_n;
};

struct keys {
    struct rpc *rpc;
    struct key *buckets[BUCKETS];
    struct key *oldest, *youngest; // keys of ended calls
    struct timer timer;
};

static void on_expiry(struct timer *t);

struct keys *
keys_new(struct rpc *r)
{
    struct keys *k = calloc(1, sizeof *k);
    if (k == NULL)
        return NULL;
    k->rpc = r;
    k->timer.fire = on_expiry;
    return k;
}

static struct key **
bucket_of(struct keys *k, const uint8_t id[ID_BYTES])
{
    uint32_t hash;
    memcpy(&hash, id, sizeof hash);
    return &k->buckets[hash & (BUCKETS - 1)];
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
    tenant_release(key->tenant, LEDGER_KEYS, 1);
    tenant_release(key->tenant, LEDGER_KEY_BYTES, key->end_n);
    tenant_drop(key->tenant);
    free(key->end);
    free(key);
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
    if (k->oldest != NULL)
        // cannot fail: the timer was set before
        (void)timers_set(k->rpc->timers, t, k->oldest->expires_ns);
}

// Keeps a key with its END for idempotency_ms.
static void
keep(struct key *key)
{
    struct keys *k = key->keys;
    key->expires_ns = uv_hrtime() + k->rpc->limits.idempotency_ms * NS_PER_MS;
    key->younger = NULL;
    *(k->youngest != NULL ? &k->youngest->younger : &k->oldest) = key;
    k->youngest = key;
    if (k->oldest == key)
        (void)timers_set(k->rpc->timers, &k->timer, key->expires_ns);
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

// Handles a call with a known key.
static enum keys_verdict
again(struct call *c, struct key *key, const uint8_t request[ID_BYTES])
{
    if (memcmp(key->request, request, ID_BYTES) != 0)
        return refuse(c, ERR_INVALID_ARGUMENT, "IDEMPOTENCY_KEY_REUSED",
                      "this idempotency-key was used with another request");
    if (key->stream || (key->leader == NULL && key->end == NULL)) {
        struct err e;
        (void)err_set(&e, ERR_ALREADY_EXISTS, "%s: a call with this idempotency-key %s",
                      c->frame->method, key->leader != NULL ? "is running" : "has run");
        err_detail(&e, "ALREADY_EXECUTED", NULL,
                   key->stream ? "attach to the process_id, if there is one"
                               : "its response was not kept, because the caller has too many");
        fail_with_notes(c, key, &e);
        return KEYS_ENDED;
    }
    if (key->leader == NULL) {
        metrics_add(METRIC_CALLS_REPEATED, 1);
        call_end_packed(c, key->end, key->end_n, key->code);
        return KEYS_ENDED;
    }
    c->key = key;
    c->follows = true;
    c->follower_next = key->followers;
    key->followers = c;
    return KEYS_FOLLOW;
}

// A key of the call's tenant, charged to it. NULL: the call was refused.
static struct key *
key_new(struct keys *k, struct call *c, enum keys_verdict *verdict)
{
    const struct rpc_limits *l = &k->rpc->limits;
    struct err e;
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
    key->leader = c;
    key->stream = c->stream;
    c->key = key;
    return KEYS_EXECUTE;
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
            metrics_add(METRIC_CALLS_REPEATED, 1);
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

void
keys_end(struct call *c, const uint8_t *frame, size_t n, int32_t code)
{
    struct key *key = c->key;
    assert(key->leader == c);
    c->key = NULL;
    key->leader = NULL;
    answer_followers(key, frame, n, code);
    if (!is_worth_keeping(key, c, code)) {
        key_free(key);
        return;
    }
    if (!key->stream && frame != NULL)
        keep_end(key, frame, n);
    key->code = code;
    if (!key->stream && key->end == NULL)
        metrics_add(METRIC_RESULTS_NOT_KEPT, 1);
    keep(key);
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
