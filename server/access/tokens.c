// SPDX-License-Identifier: Apache-2.0
// See tokens.h.
#include "tokens.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caveats.h"
#include "private.h"
#include "proto/auto.h"
#include "proto/plural.h"
#include "server/state/state.h"

enum { DIGEST = 32, REVOKED_BUCKETS = 1024 };

struct cached {
    uint8_t digest[DIGEST];
    struct arena *arena; // owned; NULL: an empty entry
    struct token token;
    uint8_t key[TOKEN_KEY_ID];
};

// A block that was revoked, for the tokens of one tenant, or of all ("*").
struct revoked {
    struct revoked *next;
    uint8_t block[TOKEN_BLOCK_ID];
    char tenant[PRINCIPAL_TENANT];
    bool pending; // not on the disk yet, but refused already
};

// A block with a caveat on its number of uses.
struct used {
    struct used *next;
    uint8_t block[TOKEN_BLOCK_ID];
    uint64_t uses;
    int64_t expires_ms;
};

struct tokens {
    size_t keys_n;
    struct signing_key key[SIGNING_KEYS_MAX];
    struct cached cache[TOKENS_CACHED];
    struct revoked *revoked[REVOKED_BUCKETS];
    struct used *used[REVOKED_BUCKETS];
    size_t revoked_n, used_n;
};

// ---- at the start

static size_t
bucket_of(const uint8_t block[TOKEN_BLOCK_ID])
{
    return ((size_t)block[0] << 8 | block[1]) % REVOKED_BUCKETS;
}

static int
damaged(struct err *e, const char *what)
{
    return err_set(e, ERR_DATA_LOSS, "a %s in the database is damaged", what);
}

static int
load_signing(void *cookie, const struct state_value *v, struct err *e)
{
    struct tokens *t = cookie;
    if (v[0].n != TOKEN_KEY_BYTES || t->keys_n == SIGNING_KEYS_MAX)
        return damaged(e, "key of tokens");
    struct signing_key *k = &t->key[t->keys_n++];
    memcpy(k->seed, v[0].bytes, sizeof k->seed);
    token_public(k->seed, k->key);
    token_key_id(k->key, k->id);
    k->created_ms = v[1].number;
    k->until_ms = v[2].number;
    return 0;
}

static struct revoked *
add_revoked(struct tokens *t, const uint8_t block[TOKEN_BLOCK_ID], const char *tenant, size_t n)
{
    struct revoked *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    memcpy(r->block, block, sizeof r->block);
    (void)snprintf(r->tenant, sizeof r->tenant, "%.*s", (int)n, tenant);
    r->next = t->revoked[bucket_of(block)];
    t->revoked[bucket_of(block)] = r;
    t->revoked_n++;
    return r;
}

static int
load_revoked(void *cookie, const struct state_value *v, struct err *e)
{
    if (v[0].n != TOKEN_BLOCK_ID || v[1].n >= PRINCIPAL_TENANT)
        return damaged(e, "revocation");
    return add_revoked(cookie, v[0].bytes, v[1].bytes, v[1].n) != NULL
               ? 0
               : err_sys(e, ENOMEM, "read the tokens");
}

static struct used *
add_used(struct tokens *t, const uint8_t block[TOKEN_BLOCK_ID], int64_t expires_ms)
{
    struct used *u = calloc(1, sizeof *u);
    if (u == NULL)
        return NULL;
    memcpy(u->block, block, sizeof u->block);
    u->expires_ms = expires_ms;
    u->next = t->used[bucket_of(block)];
    t->used[bucket_of(block)] = u;
    t->used_n++;
    return u;
}

static int
load_used(void *cookie, const struct state_value *v, struct err *e)
{
    if (v[0].n != TOKEN_BLOCK_ID)
        return damaged(e, "number of uses");
    struct used *u = add_used(cookie, v[0].bytes, v[2].number);
    if (u == NULL)
        return err_sys(e, ENOMEM, "read the tokens");
    u->uses = (uint64_t)v[1].number;
    return 0;
}

int
tokens_load(struct access *a, struct err *e)
{
    a->tokens = calloc(1, sizeof *a->tokens);
    if (a->tokens == NULL)
        return err_sys(e, ENOMEM, "read the tokens");
    int r = state_read(a->state, STATE_SIGNING_KEYS, load_signing, a->tokens, e);
    if (r == 0)
        r = state_read(a->state, STATE_REVOKED, load_revoked, a->tokens, e);
    if (r == 0)
        r = state_read(a->state, STATE_USES, load_used, a->tokens, e);
    if (r == 0 && (a->tokens->keys_n == 0 || a->tokens->key[a->tokens->keys_n - 1].until_ms != 0))
        r = damaged(e, "list of keys of tokens");
    return r;
}

void
tokens_free(struct access *a)
{
    struct tokens *t = a->tokens;
    if (t == NULL)
        return;
    for (size_t i = 0; i < TOKENS_CACHED; i++)
        arena_free(t->cache[i].arena);
    for (size_t i = 0; i < REVOKED_BUCKETS; i++) {
        for (struct revoked *r = t->revoked[i], *next; r != NULL; r = next) {
            next = r->next;
            free(r);
        }
        for (struct used *u = t->used[i], *next; u != NULL; u = next) {
            next = u->next;
            free(u);
        }
    }
    sodium_memzero(t, sizeof *t);
    free(t);
    a->tokens = NULL;
}

// ---- checking

static const struct signing_key *
find_key(const struct tokens *t, const uint8_t *id, int64_t now_ms)
{
    for (size_t i = 0; i < t->keys_n; i++) {
        const struct signing_key *k = &t->key[i];
        if (memcmp(k->id, id, TOKEN_KEY_ID) == 0 && (k->until_ms == 0 || k->until_ms > now_ms))
            return k;
    }
    return NULL;
}

static struct cached *
entry_of(struct tokens *t, const uint8_t *digest)
{
    return &t->cache[((size_t)digest[0] << 8 | digest[1]) % TOKENS_CACHED];
}

static int
no_key(struct err *e)
{
    int r =
        err_set(e, ERR_UNAUTHENTICATED,
                "the token is not valid: this broker has not signed it, or its key was replaced");
    err_detail(e, "TOKEN_KEY", "authorization", "'stockade token mint' makes one");
    return r;
}

// Reads and verifies a token that is not cached.
static int
verify(struct access *a, const char *text, struct cached *c, struct err *e)
{
    struct arena *auto_arena arena = arena_new(TOKEN_ARENA);
    struct token t;
    if (arena == NULL)
        return err_sys(e, ENOMEM, "read a token");
    int r = token_read(text, arena, &t, e);
    const struct signing_key *k =
        r == 0 ? find_key(a->tokens, t.m->key_id.data, access_now_ms(a)) : NULL;
    if (r == 0)
        r = k != NULL ? token_verify(&t, k->key, e) : no_key(e);
    if (r < 0 || k == NULL)
        return r;
    arena_free(c->arena);
    c->arena = take_ptr(arena);
    c->token = t;
    memcpy(c->key, k->id, sizeof c->key);
    return 0;
}

static bool
is_revoked(const struct tokens *t, const struct token *token)
{
    const char *tenant = token->block[0]->tenant;
    for (size_t i = 0; i < token->n; i++)
        for (const struct revoked *r = t->revoked[bucket_of(token->id[i])]; r != NULL; r = r->next)
            if (memcmp(r->block, token->id[i], TOKEN_BLOCK_ID) == 0 &&
                (strcmp(r->tenant, "*") == 0 || strcmp(r->tenant, tenant) == 0))
                return true;
    return false;
}

static int
refuse_revoked(struct err *e)
{
    int r = err_set(e, ERR_UNAUTHENTICATED, "the token was revoked");
    err_detail(e, "CREDENTIAL_REVOKED", "authorization", "ask its maker for another one");
    return r;
}

static int
check_valid(const struct access *a, const struct cached *c, struct err *e)
{
    const int64_t now = access_now_ms(a);
    if (find_key(a->tokens, c->key, now) == NULL)
        return no_key(e);
    return is_revoked(a->tokens, &c->token)
               ? refuse_revoked(e)
               : caveats_valid(&c->token, now, a->settings->audience, e);
}

int
token_check(struct access *a, const char *text, bool known_only, struct principal *out,
            struct err *e)
{
    uint8_t digest[DIGEST];
    (void)crypto_generichash(digest, sizeof digest, (const uint8_t *)text, strlen(text), NULL, 0);
    struct cached *c = entry_of(a->tokens, digest);
    const bool known = c->arena != NULL && sodium_memcmp(c->digest, digest, sizeof digest) == 0;
    if (!known && known_only)
        return -EAGAIN;
    int r = known ? 0 : verify(a, text, c, e);
    if (r < 0)
        return r;
    memcpy(c->digest, digest, sizeof digest);
    r = check_valid(a, c, e);
    if (r < 0)
        return r;
    *out = (struct principal){.proof = PROOF_TOKEN, .scopes = caveats_scopes(&c->token)};
    (void)snprintf(out->tenant, sizeof out->tenant, "%s", c->token.block[0]->tenant);
    memcpy(out->credential, digest, sizeof out->credential);
    (void)sodium_bin2hex(out->credential_id, sizeof out->credential_id, c->token.id[0],
                         TOKEN_BLOCK_ID);
    return 0;
}

// ---- changes

struct change {
    struct access *a;
    token_done *done;
    void *cookie;
    struct revoked *revoked; // this one is now on the disk
};

static void
on_written(void *cookie, uint64_t rows, const struct err *e)
{
    struct change *c = cookie;
    (void)rows;
    if (c->revoked != NULL)
        c->revoked->pending = false;
    if (c->done != NULL)
        c->done(c->cookie, e);
    free(c);
}

static int
write_change(struct access *a, enum state_change what, const struct state_value *value,
             const struct change *given, struct err *e)
{
    struct change *c = malloc(sizeof *c);
    if (c == NULL)
        return err_sys(e, ENOMEM, "change the tokens");
    *c = *given;
    int r = state_write(a->state, what, value, on_written, c, e);
    if (r < 0)
        free(c);
    return r;
}

static uint32_t
scopes_of(const Stockade__V1__TokenBlock *b, const char **unknown)
{
    uint32_t set = 0, one = 0;
    for (size_t i = 0; i < b->n_scopes; i++) {
        if (scopes_read(b->scopes[i], &one) && one != 0)
            set |= one;
        else
            *unknown = b->scopes[i];
    }
    return set;
}

int
token_make(struct access *a, const struct principal *maker, const Stockade__V1__TokenBlock *block,
           char out[TOKEN_TEXT_MAX + 1], struct err *e)
{
    const char *unknown = NULL;
    const uint32_t scopes = scopes_of(block, &unknown);
    const uint32_t missing = scopes & ~maker->scopes;
    if (unknown != NULL)
        return err_field(e, "scopes", "there is no right %.32s", unknown);
    if (strcmp(block->tenant, "*") == 0)
        return err_field(e, "tenant", "must be one tenant");
    if (missing != 0) {
        int r = err_set(e, ERR_PERMISSION_DENIED, "%s does not have the right %s itself",
                        maker->tenant, scopes_first(missing));
        err_detail(e, "SCOPE_MISSING", scopes_first(missing),
                   "a token has at most the rights of its maker");
        principal_explain(maker, scopes_first(missing), e);
        return r;
    }
    int r = access_may_give(maker, scopes, e);
    if (r == 0)
        r = caveats_check(block, e);
    if (r < 0)
        return r;
    return token_mint(a->tokens->key[a->tokens->keys_n - 1].seed, block, out, e);
}

int
token_revoke(struct access *a, const char *whose, const uint8_t block[TOKEN_BLOCK_ID],
             token_done *done, void *cookie, struct err *e)
{
    const char *tenant = whose != NULL ? whose : "*";
    if (a->tokens->revoked_n >= REVOKED_MAX) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%d blocks are revoked", REVOKED_MAX);
        err_detail(e, "REVOCATIONS", NULL,
                   "'stockade token rotate' replaces the key, and ends all tokens");
        return r;
    }
    struct revoked *r = add_revoked(a->tokens, block, tenant, strlen(tenant));
    if (r == NULL)
        return err_sys(e, ENOMEM, "revoke a token");
    r->pending = true;
    const struct change c = {.a = a, .done = done, .cookie = cookie, .revoked = r};
    const struct state_value value[] = {STATE_OF_BYTES(block, TOKEN_BLOCK_ID),
                                        STATE_OF_TEXT(tenant), STATE_OF_NUMBER(access_now_ms(a))};
    // refused from this moment on, even if the disk fails: the caller gets the error, and tries again
    return write_change(a, STATE_BLOCK_REVOKE, value, &c, e);
}

// Those whose overlap has ended; the last one signs.
static void
drop_old_keys(struct tokens *t, int64_t now_ms)
{
    size_t n = 0;
    for (size_t i = 0; i < t->keys_n; i++)
        if (t->key[i].until_ms == 0 || t->key[i].until_ms > now_ms)
            t->key[n++] = t->key[i];
    t->keys_n = n;
}

int
token_rotate(struct access *a, uint64_t overlap_ms, token_done *done, void *cookie, struct err *e)
{
    struct tokens *t = a->tokens;
    const int64_t now = access_now_ms(a);
    const struct change c = {.a = a, .done = done, .cookie = cookie};
    struct signing_key next = {.created_ms = now};
    drop_old_keys(t, now);
    if (t->keys_n == SIGNING_KEYS_MAX) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%d keys are still valid", SIGNING_KEYS_MAX);
        err_detail(e, "SIGNING_KEYS", NULL, "wait until the overlap of one has ended");
        return r;
    }
    randombytes_buf(next.seed, sizeof next.seed);
    token_public(next.seed, next.key);
    token_key_id(next.key, next.id);
    const int64_t until = now + (int64_t)overlap_ms + 1;
    const struct state_value fresh[] = {STATE_OF_BYTES(next.seed, sizeof next.seed),
                                        STATE_OF_NUMBER(now)};
    const struct state_value old[] = {STATE_OF_NUMBER(until),
                                      STATE_OF_BYTES(next.seed, sizeof next.seed)};
    // in this order: if the second is lost, the old key stays valid, and the caller gets no answer
    int r = state_write(a->state, STATE_SIGNING_ADD, fresh, NULL, NULL, e);
    if (r == 0)
        r = write_change(a, STATE_SIGNING_RETIRE, old, &c, e);
    if (r < 0)
        return r;
    for (size_t i = 0; i < t->keys_n;
         i++) // tokens of all of them are checked against it from now on
        if (t->key[i].until_ms == 0)
            t->key[i].until_ms = until;
    t->key[t->keys_n++] = next;
    return 0;
}

const struct signing_key *
token_keys(const struct access *a, size_t *n)
{
    *n = a->tokens->keys_n;
    return a->tokens->key;
}

// ---- uses

static struct used *
find_used(struct tokens *t, const uint8_t block[TOKEN_BLOCK_ID])
{
    struct used *u = t->used[bucket_of(block)];
    while (u != NULL && memcmp(u->block, block, TOKEN_BLOCK_ID) != 0)
        u = u->next;
    return u;
}

// When the block, and so its number of uses, has no meaning any more: the first expiry in it or before it.
static int64_t
expiry_of(const struct token *t, size_t block)
{
    uint64_t first = INT64_MAX;
    for (size_t i = 0; i <= block; i++)
        for (size_t k = 0; k < t->block[i]->n_caveats; k++) {
            const Stockade__V1__Caveat *c = t->block[i]->caveats[k];
            if (c->caveat_case == STOCKADE__V1__CAVEAT__CAVEAT_EXPIRES_MS && c->expires_ms < first)
                first = c->expires_ms;
        }
    return (int64_t)first;
}

static void
drop_expired_uses(struct tokens *t, int64_t now_ms)
{
    for (size_t i = 0; i < REVOKED_BUCKETS; i++)
        for (struct used **link = &t->used[i]; *link != NULL;) {
            struct used *u = *link;
            if (u->expires_ms > now_ms) {
                link = &u->next;
                continue;
            }
            *link = u->next;
            t->used_n--;
            free(u);
        }
}

static void
forget_expired_uses(struct access *a)
{
    struct err none;
    const int64_t now = access_now_ms(a);
    const struct state_value value[] = {STATE_OF_NUMBER(now)};
    drop_expired_uses(a->tokens, now);
    (void)state_write(a->state, STATE_USES_FORGET, value, NULL, NULL, &none); // or with the next
}

static int
used_up(uint64_t most, struct err *e)
{
    int r = err_set(e, ERR_PERMISSION_DENIED, "the token was used as often as it may be: %llu %s",
                    (unsigned long long)most, plural(most, "time", "times"));
    err_detail(e, "CAVEAT", "uses", "ask its maker for another one");
    err_rule(e, "token/uses", "nothing more with this token");
    return r;
}

// The smallest number of uses that the block allows; UINT64_MAX: it does not say.
static uint64_t
uses_of(const Stockade__V1__TokenBlock *b)
{
    uint64_t most = UINT64_MAX;
    for (size_t k = 0; k < b->n_caveats; k++)
        if (b->caveats[k]->caveat_case == STOCKADE__V1__CAVEAT__CAVEAT_USES &&
            b->caveats[k]->uses < most)
            most = b->caveats[k]->uses;
    return most;
}

static int
check_uses(struct access *a, const struct token *t, struct err *e)
{
    struct tokens *all = a->tokens;
    for (size_t i = 0; i < t->n; i++) {
        const uint64_t most = uses_of(t->block[i]);
        const struct used *u = most != UINT64_MAX ? find_used(all, t->id[i]) : NULL;
        if (most != UINT64_MAX && (u != NULL ? u->uses : 0) >= most)
            return used_up(most, e);
    }
    if (all->used_n + TOKEN_BLOCKS_MAX > USED_MAX)
        forget_expired_uses(a);
    if (all->used_n + TOKEN_BLOCKS_MAX <= USED_MAX)
        return 0;
    int r =
        err_set(e, ERR_RESOURCE_EXHAUSTED, "%d tokens with a number of uses are in use", USED_MAX);
    err_detail(e, "TOKEN_USES", NULL,
               "use tokens without a number of uses, or wait until some expire");
    return r;
}

// Counts one use of each block that counts them, in memory now and on the disk soon. 1: the last of these writes reports; 0: none
// counts.
static int
count_uses(struct access *a, const struct token *t, const struct change *c, struct err *e)
{
    size_t last = t->n;
    int r = 0;
    for (size_t i = 0; i < t->n; i++)
        if (uses_of(t->block[i]) != UINT64_MAX)
            last = i;
    for (size_t i = 0; i < t->n && r == 0 && last < t->n; i++) {
        if (uses_of(t->block[i]) == UINT64_MAX)
            continue;
        struct used *u = find_used(a->tokens, t->id[i]);
        u = u != NULL ? u : add_used(a->tokens, t->id[i], expiry_of(t, i));
        if (u == NULL)
            return err_sys(e, ENOMEM, "count a use");
        u->uses++;
        const struct change none = {.a = a};
        const struct state_value value[] = {STATE_OF_BYTES(t->id[i], TOKEN_BLOCK_ID),
                                            STATE_OF_NUMBER(u->uses),
                                            STATE_OF_NUMBER(u->expires_ms)};
        r = write_change(a, STATE_USE, value, i == last ? c : &none, e);
    }
    return r < 0 ? r : last < t->n;
}

// NULL: another token has its entry in the cache now.
static const struct cached *
at_hand(const struct access *a, const struct principal *who)
{
    const struct cached *c = entry_of(a->tokens, who->credential);
    return c->arena != NULL && memcmp(c->digest, who->credential, sizeof who->credential) == 0
               ? c
               : NULL;
}

int
token_allows(struct access *a, const struct principal *who, const struct deed *d, struct err *e)
{
    const struct cached *c = at_hand(a, who);
    if (c == NULL)
        return err_set(e, ERR_INTERNAL, "the token is not at hand");
    int r = caveats_allow(&c->token, d, e);
    return r == 0 ? check_uses(a, &c->token, e) : r;
}

int
token_allows_named(struct access *a, const struct principal *who, const struct deed *d,
                   struct err *e)
{
    const struct cached *c = who->proof == PROOF_TOKEN ? at_hand(a, who) : NULL;
    if (who->proof != PROOF_TOKEN)
        return 0;
    if (c == NULL)
        return err_set(e, ERR_INTERNAL, "the token is not at hand");
    int r = caveats_allow_named(&c->token, d, e);
    return r == 0 ? check_uses(a, &c->token, e) : r;
}

int
token_decide(struct access *a, const struct principal *who, const struct deed *d, token_done *done,
             void *cookie, struct err *e)
{
    const struct cached *c = at_hand(a, who);
    if (c == NULL)
        return err_set(e, ERR_INTERNAL, "the token is not at hand");
    int r = caveats_allow(&c->token, d, e);
    if (r == 0)
        r = check_uses(a, &c->token, e);
    const struct change change = {.a = a, .done = done, .cookie = cookie};
    return r == 0 ? count_uses(a, &c->token, &change, e) : r;
}
