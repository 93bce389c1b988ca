// SPDX-License-Identifier: Apache-2.0
// See keys.h. A key is found by its hash; a revoked one stays for a month, so that its id can be found in the list.
#include "keys.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "private.h"
#include "proto/container_of.h"
#include "server/state/state.h"

enum { SECRET_BYTES = 20, HINT_CHARS = 8, PREFIX = 4 };
#define KEPT_MS (INT64_C(30) * 24 * 3600 * 1000)

struct key_op {
    struct access *a;
    struct api_key *key;
    bool makes; // or revokes
    key_done *done;
    void *cookie;
};

static size_t
bucket_of(const uint8_t *hash)
{
    return ((size_t)hash[0] << 8 | hash[1]) % ACCESS_BUCKETS;
}

static void
add(struct access *a, struct api_key *k)
{
    k->order = ++a->order;
    k->next = a->by_hash[bucket_of(k->hash)];
    a->by_hash[bucket_of(k->hash)] = k;
    list_append(&a->keys, &k->node);
    a->keys_n += k->revoked_ms == 0;
}

static void
drop(struct access *a, struct api_key *k)
{
    struct api_key **link = &a->by_hash[bucket_of(k->hash)];
    while (*link != k)
        link = &(*link)->next;
    *link = k->next;
    list_remove(&k->node);
    a->keys_n -= k->revoked_ms == 0;
    free(k);
}

void
keys_free_all(struct access *a)
{
    while (!list_empty(&a->keys))
        drop(a, container_of(a->keys.next, struct api_key, node));
}

// ---- at the start

static int
load_secret(void *cookie, const struct state_value *v, struct err *e)
{
    struct access *a = cookie;
    if (v[0].n != sizeof a->hash_key)
        return err_set(e, ERR_DATA_LOSS, "the key of the hashes has %zu bytes", v[0].n);
    memcpy(a->hash_key, v[0].bytes, sizeof a->hash_key);
    return 0;
}

// A label that was sealed with a forgotten data key is gone; the key is valid all the same.
static bool
copy_text(char *to, size_t n, const struct state_value *v)
{
    if (v->n >= n)
        return false;
    if (v->n > 0)
        memcpy(to, v->bytes, v->n);
    to[v->n] = '\0';
    return true;
}

// A scope that this broker does not know, such as one of a newer version, is left out.
static uint32_t
known_scopes(char *names)
{
    uint32_t set = 0, one = 0;
    char *rest = NULL;
    for (const char *name = strtok_r(names, " ", &rest); name != NULL;
         name = strtok_r(NULL, " ", &rest))
        if (scopes_read(name, &one))
            set |= one;
    return set;
}

static int
load_key(void *cookie, const struct state_value *v, struct err *e)
{
    struct access *a = cookie;
    char scopes[PRINCIPAL_SCOPES_TEXT];
    struct api_key *k = calloc(1, sizeof *k);
    if (k == NULL)
        return err_sys(e, ENOMEM, "read the keys");
    const bool fits =
        copy_text(k->id, sizeof k->id, &v[0]) && copy_text(k->tenant, sizeof k->tenant, &v[1]) &&
        copy_text(k->label, sizeof k->label, &v[2]) && copy_text(scopes, sizeof scopes, &v[3]) &&
        copy_text(k->hint, sizeof k->hint, &v[4]) && v[5].n == sizeof k->hash &&
        copy_text(k->maker, sizeof k->maker, &v[9]);
    if (!fits) {
        free(k);
        return err_set(e, ERR_DATA_LOSS, "an API key in the database is damaged");
    }
    memcpy(k->hash, v[5].bytes, sizeof k->hash);
    k->scopes = known_scopes(scopes);
    k->created_ms = v[6].number;
    k->expires_ms = v[7].number;
    k->revoked_ms = v[8].number;
    add(a, k);
    return 0;
}

int
keys_load(struct access *a, struct err *e)
{
    int r = state_read(a->state, STATE_SECRETS, load_secret, a, e);
    return r == 0 ? state_read(a->state, STATE_KEYS, load_key, a, e) : r;
}

void
keys_forget_labels(struct access *a, const char *tenant)
{
    list_each(at, &a->keys)
    {
        struct api_key *k = container_of(at, struct api_key, node);
        if (strcmp(k->tenant, tenant) == 0)
            sodium_memzero(k->label, sizeof k->label);
    }
}

// ---- a call

bool
key_is(const char *text)
{
    if (strncmp(text, "stk_", PREFIX) != 0 && strncmp(text, "e2b_", PREFIX) != 0)
        return false;
    return strlen(text) == KEY_TEXT - 1 &&
           strspn(text + PREFIX, "0123456789abcdef") == KEY_TEXT - 1 - PREFIX;
}

static void
hash(const struct access *a, const char *text, uint8_t out[ACCESS_HASH_BYTES])
{
    (void)crypto_generichash(out, ACCESS_HASH_BYTES, (const uint8_t *)text, strlen(text),
                             a->hash_key, sizeof a->hash_key);
}

static int
refuse(const char *reason, const char *why, struct err *e)
{
    int r = err_set(e, ERR_UNAUTHENTICATED, "%s", why);
    err_detail(e, reason, "authorization", "'stockade key create' makes a key");
    return r;
}

// The key whose hash begins with these bytes.
static const struct api_key *
find_hash(const struct access *a, const uint8_t *wanted, size_t n)
{
    const struct api_key *found = NULL;
    for (const struct api_key *k = a->by_hash[bucket_of(wanted)]; k != NULL; k = k->next)
        if (sodium_memcmp(k->hash, wanted, n) == 0 && !k->pending)
            found = k;
    return found;
}

static int
check_valid(const struct access *a, const struct api_key *k, struct err *e)
{
    if (k == NULL)
        return refuse("CREDENTIAL_UNKNOWN", "there is no such key", e);
    if (k->revoked_ms != 0)
        return refuse("CREDENTIAL_REVOKED", "the key was revoked", e);
    if (k->expires_ms != 0 && k->expires_ms <= access_now_ms(a))
        return refuse("CREDENTIAL_EXPIRED", "the key has expired", e);
    return 0;
}

int
key_still(const struct access *a, const struct principal *who, struct err *e)
{
    return check_valid(a, find_hash(a, who->credential, sizeof who->credential), e);
}

int
key_check(struct access *a, const char *text, struct principal *out, struct err *e)
{
    uint8_t wanted[ACCESS_HASH_BYTES];
    hash(a, text, wanted);
    const struct api_key *found = find_hash(a, wanted, sizeof wanted);
    int r = check_valid(a, found, e);
    if (r < 0 || found == NULL)
        return r;
    *out = (struct principal){.proof = PROOF_KEY, .scopes = found->scopes};
    memcpy(out->tenant, found->tenant, sizeof out->tenant);
    memcpy(out->credential, found->hash, sizeof out->credential);
    memcpy(out->credential_id, found->id, sizeof out->credential_id);
    return 0;
}

// ---- changes

void
key_unwait(struct key_op *op)
{
    op->done = NULL;
}

static void
on_written(void *cookie, uint64_t rows, const struct err *e)
{
    struct key_op *op = cookie;
    struct access *a = op->a;
    (void)rows;
    if (op->makes && e == NULL)
        op->key->pending = false;
    if (!op->makes && e != NULL && op->key != NULL) { // it stands in the database as valid
        op->key->revoked_ms = 0;
        a->keys_n++;
    }
    if (op->done != NULL)
        op->done(op->cookie, e == NULL ? op->key : NULL, e);
    if (op->makes && e != NULL)
        drop(a, op->key);
    free(op);
}

static struct key_op *
op_new(struct access *a, struct api_key *k, key_done *done, void *cookie)
{
    struct key_op *op = calloc(1, sizeof *op);
    if (op != NULL)
        *op = (struct key_op){.a = a, .key = k, .done = done, .cookie = cookie};
    return op;
}

// Removes what was revoked long ago.
static void
forget_old(struct access *a)
{
    struct err e;
    const int64_t before = access_now_ms(a) - KEPT_MS;
    list_each(at, &a->keys)
    {
        struct api_key *k = container_of(at, struct api_key, node);
        if (k->revoked_ms == 0 || k->revoked_ms > before || k->pending)
            continue;
        const struct state_value value[] = {STATE_OF_TEXT(k->id)};
        if (state_write(a->state, STATE_KEY_FORGET, value, NULL, NULL, &e) < 0)
            return;
        drop(a, k);
    }
}

static int
check_room(struct access *a, const char *tenant, struct err *e)
{
    uint32_t own = 0;
    list_each(at, &a->keys)
    {
        const struct api_key *k = container_of(at, struct api_key, node);
        own += k->revoked_ms == 0 && strcmp(k->tenant, tenant) == 0;
    }
    if (own < KEYS_OF_TENANT_MAX && a->keys_n < KEYS_MAX)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%s has %u keys, the broker %u", tenant, own,
                    (unsigned)a->keys_n);
    err_detail(e, "KEYS", tenant, "revoke keys that are no longer needed");
    err_rule(e, "keys", "as many keys as there are");
    return r;
}

static int
check_wanted(const struct key_wanted *w, uint32_t *scopes, struct err *e)
{
    const uint32_t maker = w->maker->scopes;
    *scopes = w->scopes != 0 ? w->scopes : scopes_without_credentials(maker & scopes_usual());
    if (strcmp(w->tenant, "*") == 0)
        return err_field(e, "tenant", "must be one tenant");
    if ((*scopes & ~maker) == 0)
        return access_may_give(w->maker, *scopes, e);
    const char *missing = scopes_first(*scopes & ~maker);
    int r = err_set(e, ERR_PERMISSION_DENIED, "%s does not have the right %s itself",
                    w->maker->tenant, missing);
    err_detail(e, "SCOPE_MISSING", missing, "a key has at most the rights of its maker");
    principal_explain(w->maker, missing, e);
    return r;
}

static void
fill(struct access *a, struct api_key *k, const struct key_wanted *w, char text[KEY_TEXT])
{
    uint8_t secret[SECRET_BYTES], id[ID_BYTES];
    randombytes_buf(secret, sizeof secret);
    (void)snprintf(text, KEY_TEXT, "%s", w->e2b ? "e2b_" : "stk_");
    (void)sodium_bin2hex(text + PREFIX, KEY_TEXT - PREFIX, secret, sizeof secret);
    sodium_memzero(secret, sizeof secret);
    id_make("", id, k->id);
    hash(a, text, k->hash);
    (void)snprintf(k->hint, sizeof k->hint, "%.*s", HINT_CHARS, text);
    (void)snprintf(k->tenant, sizeof k->tenant, "%s", w->tenant);
    (void)snprintf(k->maker, sizeof k->maker, "%s", w->maker->tenant);
    (void)snprintf(k->label, sizeof k->label, "%s", w->label);
    k->created_ms = access_now_ms(a);
    k->expires_ms = w->ttl_ms != 0 ? k->created_ms + (int64_t)w->ttl_ms : 0;
    k->pending = true;
}

static int
write_new(struct access *a, const struct api_key *k, struct key_op *op, struct err *e)
{
    char scopes[PRINCIPAL_SCOPES_TEXT];
    scopes_write(k->scopes, scopes);
    const struct state_value value[] = {
        STATE_OF_TEXT(k->id),           STATE_OF_TEXT(k->tenant),
        STATE_OF_TEXT(k->label),        STATE_OF_TEXT(scopes),
        STATE_OF_TEXT(k->hint),         STATE_OF_BYTES(k->hash, sizeof k->hash),
        STATE_OF_NUMBER(k->created_ms), STATE_OF_NUMBER(k->expires_ms),
        STATE_OF_TEXT(k->maker),
    };
    return state_write(a->state, STATE_KEY_ADD, value, on_written, op, e);
}

int
key_create(struct access *a, const struct key_wanted *w, char text[KEY_TEXT], key_done *done,
           void *cookie, struct key_op **out, struct err *e)
{
    uint32_t scopes = 0;
    forget_old(a);
    int r = check_wanted(w, &scopes, e);
    if (r == 0)
        r = check_room(a, w->tenant, e);
    if (r < 0)
        return r;
    struct api_key *k = calloc(1, sizeof *k);
    struct key_op *op = k != NULL ? op_new(a, k, done, cookie) : NULL;
    if (op == NULL) {
        free(k);
        return err_sys(e, ENOMEM, "make a key");
    }
    op->makes = true;
    k->scopes = scopes;
    fill(a, k, w, text);
    r = write_new(a, k, op, e);
    if (r < 0) {
        free(op);
        free(k);
        return err_wrap(e, "make a key");
    }
    add(a, k);
    *out = op;
    return 0;
}

static struct api_key *
find(struct access *a, const char *whose, const char *id)
{
    struct api_key *found = NULL;
    list_each(at, &a->keys)
    {
        struct api_key *k = container_of(at, struct api_key, node);
        const bool visible = !k->pending && (whose == NULL || strcmp(k->tenant, whose) == 0);
        if (visible && strcmp(k->id, id) == 0)
            found = k;
    }
    return found;
}

int
key_revoke(struct access *a, const char *whose, const char *id, key_done *done, void *cookie,
           struct key_op **out, struct err *e)
{
    struct api_key *k = find(a, whose, id);
    if (k == NULL)
        return id_not_found("key", "", id, e);
    const bool again = k->revoked_ms != 0;
    struct key_op *op = op_new(a, again ? NULL : k, done, cookie);
    if (op == NULL)
        return err_sys(e, ENOMEM, "revoke a key");
    const int64_t now = access_now_ms(a);
    const struct state_value value[] = {STATE_OF_TEXT(k->id), STATE_OF_NUMBER(now)};
    int r = state_write(a->state, STATE_KEY_REVOKE, value, on_written, op, e);
    if (r < 0) {
        free(op);
        return err_wrap(e, "revoke a key");
    }
    if (!again) { // from this moment on, and not only when it is on the disk
        k->revoked_ms = now;
        a->keys_n--;
    }
    *out = op;
    return 0;
}

const struct api_key *
key_next(const struct access *a, const struct api_key *k)
{
    for (struct list *at = k != NULL ? k->node.next : a->keys.next; at != &a->keys; at = at->next) {
        const struct api_key *next = container_of(at, struct api_key, node);
        if (!next->pending)
            return next;
    }
    return NULL;
}
