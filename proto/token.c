// SPDX-License-Identifier: Apache-2.0
// See token.h. Whatever is signed is the bytes as they were sent, never a message that was packed again.
#include "token.h"

#include <errno.h>
#include <string.h>

#include <sodium.h>

#include "wire.h"

_Static_assert(TOKEN_KEY_BYTES == crypto_sign_SEEDBYTES, "a seed");
_Static_assert(TOKEN_KEY_BYTES == crypto_sign_PUBLICKEYBYTES, "a public key");

enum {
    SIGNATURE = crypto_sign_BYTES,
    PREFIX = sizeof TOKEN_PREFIX - 1,
    VARIANT = sodium_base64_VARIANT_URLSAFE_NO_PADDING,
    SIGNED_MAX = 32 + 4 + SIGNATURE + TOKEN_KEY_BYTES + TOKEN_BYTES_MAX,
};
// With their ends.
static const char of_block[] = "stockade token block";
static const char of_seal[] = "stockade token sealed";

static int
bad_form(struct err *e, const char *why)
{
    int r = err_set(e, ERR_UNAUTHENTICATED, "the token is not valid: %s", why);
    err_detail(e, "TOKEN_FORM", "authorization", "copy the whole token, as it was printed");
    return r;
}

static int
bad_signature(struct err *e, size_t block, const char *what)
{
    int r = err_set(e, ERR_UNAUTHENTICATED,
                    "the token is not valid: the signature of %s %zu is wrong", what, block);
    err_detail(e, "TOKEN_SIGNATURE", "authorization",
               "it was changed, cut, or made by another broker");
    return r;
}

void
token_key_id(const uint8_t key[TOKEN_KEY_BYTES], uint8_t out[TOKEN_KEY_ID])
{
    uint8_t hash[crypto_generichash_BYTES_MAX];
    (void)crypto_generichash(hash, sizeof hash, key, TOKEN_KEY_BYTES, NULL, 0);
    memcpy(out, hash, TOKEN_KEY_ID);
}

void
token_public(const uint8_t seed[TOKEN_KEY_BYTES], uint8_t out[TOKEN_KEY_BYTES])
{
    uint8_t secret[crypto_sign_SECRETKEYBYTES];
    (void)crypto_sign_seed_keypair(out, secret, seed);
    sodium_memzero(secret, sizeof secret);
}

static void
sign(const uint8_t seed[TOKEN_KEY_BYTES], const uint8_t *bytes, size_t n, uint8_t out[SIGNATURE])
{
    uint8_t key[TOKEN_KEY_BYTES], secret[crypto_sign_SECRETKEYBYTES];
    (void)crypto_sign_seed_keypair(key, secret, seed);
    (void)crypto_sign_detached(out, NULL, bytes, n, secret);
    sodium_memzero(secret, sizeof secret);
}

// ---- what is signed

static size_t
put(uint8_t *to, size_t at, const void *bytes, size_t n)
{
    if (n > 0)
        memcpy(to + at, bytes, n);
    return at + n;
}

static size_t
signed_block(const Stockade__V1__Token *t, size_t i, uint8_t out[SIGNED_MAX])
{
    const Stockade__V1__SignedBlock *b = t->blocks[i];
    const ProtobufCBinaryData *before = i == 0 ? &t->key_id : &t->blocks[i - 1]->signature;
    const uint8_t index[4] = {0, 0, 0, (uint8_t)i};
    size_t n = put(out, 0, of_block, sizeof of_block);
    n = put(out, n, index, sizeof index);
    n = put(out, n, before->data, before->len);
    n = put(out, n, b->next_key.data, b->next_key.len);
    return put(out, n, b->block.data, b->block.len);
}

static size_t
signed_seal(const Stockade__V1__Token *t, uint8_t out[SIGNED_MAX])
{
    const ProtobufCBinaryData *last = &t->blocks[t->n_blocks - 1]->signature;
    const size_t n = put(out, 0, of_seal, sizeof of_seal);
    return put(out, n, last->data, last->len);
}

// ---- reading

// A message that this code would write as the same bytes, so that it has no field or caveat that is not understood.
static int
unpack(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t n, struct arena *a,
       ProtobufCMessage **out, struct err *e)
{
    struct err why;
    if (wire_unpack(type, bytes, n, a, out, &why) < 0)
        return bad_form(e, "it is cut or damaged");
    uint8_t *again = arena_alloc(a, n + 1);
    if (again == NULL || protobuf_c_message_get_packed_size(*out) != n)
        return bad_form(e, "it has a field or a caveat that is not known here");
    (void)protobuf_c_message_pack(*out, again);
    return n == 0 || memcmp(again, bytes, n) == 0
               ? 0
               : bad_form(e, "it is not written in the one form that is valid");
}

static bool
has_expiry(const Stockade__V1__TokenBlock *b)
{
    for (size_t i = 0; i < b->n_caveats; i++)
        if (b->caveats[i]->caveat_case == STOCKADE__V1__CAVEAT__CAVEAT_EXPIRES_MS)
            return true;
    return false;
}

static int
check_caveats(const Stockade__V1__TokenBlock *b, bool expires, struct err *e)
{
    for (size_t i = 0; i < b->n_caveats; i++) {
        if (b->caveats[i]->caveat_case == STOCKADE__V1__CAVEAT__CAVEAT__NOT_SET)
            return bad_form(e, "it has a caveat that is not known here");
        if (b->caveats[i]->caveat_case == STOCKADE__V1__CAVEAT__CAVEAT_USES && !expires)
            return bad_form(e, "a number of uses needs an expiry");
    }
    return 0;
}

static int
check_block(const Stockade__V1__TokenBlock *b, bool first, bool expires, struct err *e)
{
    if (first && (b->tenant[0] == '\0' || b->n_scopes == 0))
        return bad_form(e, "its first block names no tenant or no scopes");
    if (!first && (b->tenant[0] != '\0' || b->n_scopes > 0)) {
        int r = err_set(e, ERR_UNAUTHENTICATED,
                        "the token is not valid: a later block names a tenant or scopes");
        err_detail(e, "TOKEN_WIDER", "authorization", "narrow it with caveats only");
        return r;
    }
    return check_caveats(b, expires, e);
}

static int
read_block(struct token *t, size_t i, struct arena *a, struct err *e)
{
    const Stockade__V1__SignedBlock *b = t->m->blocks[i];
    ProtobufCMessage *block = NULL;
    uint8_t hash[crypto_generichash_BYTES_MAX];
    if (b->next_key.len != TOKEN_KEY_BYTES || b->signature.len != SIGNATURE)
        return bad_form(e, "a key or a signature has a wrong length");
    int r =
        unpack(&stockade__v1__token_block__descriptor, b->block.data, b->block.len, a, &block, e);
    if (r < 0)
        return r;
    t->block[i] = (const Stockade__V1__TokenBlock *)block;
    (void)crypto_generichash(hash, sizeof hash, b->signature.data, SIGNATURE, NULL, 0);
    memcpy(t->id[i], hash, TOKEN_BLOCK_ID);
    return 0;
}

static int
read_message(const ProtobufCMessage *m, struct arena *a, struct token *out, struct err *e)
{
    struct token t = {.m = (const Stockade__V1__Token *)m};
    bool expires = false;
    t.n = t.m->n_blocks;
    t.sealed = t.m->proof.len == SIGNATURE;
    if (t.n == 0 || t.n > TOKEN_BLOCKS_MAX)
        return bad_form(e, "it has no block, or more than 16");
    if (t.m->key_id.len != TOKEN_KEY_ID || (!t.sealed && t.m->proof.len != TOKEN_KEY_BYTES))
        return bad_form(e, "the id of its key, or its proof, has a wrong length");
    for (size_t i = 0; i < t.n; i++) {
        int r = read_block(&t, i, a, e);
        expires = expires || (r == 0 && has_expiry(t.block[i]));
        if (r == 0)
            r = check_block(t.block[i], i == 0, expires, e);
        if (r < 0)
            return r;
    }
    *out = t;
    return 0;
}

int
token_read(const char *text, struct arena *a, struct token *out, struct err *e)
{
    uint8_t bytes[TOKEN_BYTES_MAX];
    size_t n = 0;
    ProtobufCMessage *m = NULL;
    const size_t length = strnlen(text, TOKEN_TEXT_MAX + 1);
    if (length > TOKEN_TEXT_MAX || strncmp(text, TOKEN_PREFIX, PREFIX) != 0)
        return bad_form(e, "it does not begin with " TOKEN_PREFIX ", or is too long");
    const char *end = NULL;
    if (sodium_base642bin(bytes, sizeof bytes, text + PREFIX, length - PREFIX, NULL, &n, &end,
                          VARIANT) != 0 ||
        end != text + length)
        return bad_form(e, "it has characters that no token has");
    int r = unpack(&stockade__v1__token__descriptor, bytes, n, a, &m, e);
    return r == 0 ? read_message(m, a, out, e) : r;
}

// ---- verifying

static int
verify_proof(const struct token *t, struct err *e)
{
    uint8_t key[TOKEN_KEY_BYTES], bytes[SIGNED_MAX];
    const uint8_t *last = t->m->blocks[t->n - 1]->next_key.data;
    bool proven = false;
    if (t->sealed) {
        const size_t n = signed_seal(t->m, bytes);
        proven = crypto_sign_verify_detached(t->m->proof.data, bytes, n, last) == 0;
    } else {
        token_public(t->m->proof.data, key);
        proven = sodium_memcmp(key, last, sizeof key) == 0;
    }
    return proven ? 0 : bad_signature(e, t->n, "the proof after block");
}

int
token_verify(const struct token *t, const uint8_t key[TOKEN_KEY_BYTES], struct err *e)
{
    uint8_t bytes[SIGNED_MAX], id[TOKEN_KEY_ID];
    const uint8_t *signer = key;
    token_key_id(key, id);
    if (sodium_memcmp(id, t->m->key_id.data, sizeof id) != 0)
        return bad_signature(e, 1, "another key on block");
    for (size_t i = 0; i < t->n; i++) {
        const Stockade__V1__SignedBlock *b = t->m->blocks[i];
        const size_t n = signed_block(t->m, i, bytes);
        if (crypto_sign_verify_detached(b->signature.data, bytes, n, signer) != 0)
            return bad_signature(e, i + 1, "block");
        signer = b->next_key.data;
    }
    return verify_proof(t, e);
}

// ---- making

static int
write_text(const Stockade__V1__Token *t, char out[TOKEN_TEXT_MAX + 1], struct err *e)
{
    uint8_t bytes[TOKEN_BYTES_MAX];
    const size_t n = stockade__v1__token__get_packed_size(t);
    if (n > sizeof bytes)
        return err_field(e, "caveats", "the token would have %zu bytes, at most %d", n,
                         TOKEN_BYTES_MAX);
    (void)stockade__v1__token__pack(t, bytes);
    memcpy(out, TOKEN_PREFIX, PREFIX);
    (void)sodium_bin2base64(out + PREFIX, TOKEN_TEXT_MAX + 1 - PREFIX, bytes, n, VARIANT);
    sodium_memzero(bytes, sizeof bytes);
    return 0;
}

// What one appended block needs, in one place.
struct appended {
    Stockade__V1__SignedBlock m;
    uint8_t block[TOKEN_BYTES_MAX], key[TOKEN_KEY_BYTES], seed[TOKEN_KEY_BYTES],
        signature[SIGNATURE], bytes[SIGNED_MAX];
};

// Adds the block to t->blocks, which has room, signed by `seed`, with a proof for the next one.
static int
append(Stockade__V1__Token *t, struct appended *x, const Stockade__V1__TokenBlock *block,
       const uint8_t seed[TOKEN_KEY_BYTES], struct err *e)
{
    const size_t n = stockade__v1__token_block__get_packed_size(block);
    if (n > sizeof x->block)
        return err_field(e, "caveats", "the block would have %zu bytes, at most %zu", n,
                         sizeof x->block);
    stockade__v1__signed_block__init(&x->m);
    (void)stockade__v1__token_block__pack(block, x->block);
    randombytes_buf(x->seed, sizeof x->seed);
    token_public(x->seed, x->key);
    x->m.block = (ProtobufCBinaryData){n, x->block};
    x->m.next_key = (ProtobufCBinaryData){sizeof x->key, x->key};
    t->blocks[t->n_blocks++] = &x->m;
    sign(seed, x->bytes, signed_block(t, t->n_blocks - 1, x->bytes), x->signature);
    x->m.signature = (ProtobufCBinaryData){sizeof x->signature, x->signature};
    t->proof = (ProtobufCBinaryData){sizeof x->seed, x->seed};
    return 0;
}

// The finished token must be one that is accepted; otherwise the caller learns why.
static int
write_checked(const Stockade__V1__Token *t, char out[TOKEN_TEXT_MAX + 1], struct err *e)
{
    struct token again;
    struct arena *auto_arena a = arena_new(TOKEN_ARENA);
    if (a == NULL)
        return err_sys(e, ENOMEM, "make a token");
    int r = write_text(t, out, e);
    if (r == 0)
        r = token_read(out, a, &again, e);
    if (r < 0 && e->code == ERR_UNAUTHENTICATED)
        e->code = ERR_INVALID_ARGUMENT;
    return r;
}

int
token_mint(const uint8_t seed[TOKEN_KEY_BYTES], const Stockade__V1__TokenBlock *first,
           char out[TOKEN_TEXT_MAX + 1], struct err *e)
{
    Stockade__V1__Token t = STOCKADE__V1__TOKEN__INIT;
    Stockade__V1__SignedBlock *blocks[1] = {NULL};
    struct appended x;
    uint8_t key[TOKEN_KEY_BYTES], id[TOKEN_KEY_ID];
    token_public(seed, key);
    token_key_id(key, id);
    t.key_id = (ProtobufCBinaryData){sizeof id, id};
    t.blocks = blocks;
    int r = append(&t, &x, first, seed, e);
    if (r == 0)
        r = write_checked(&t, out, e);
    sodium_memzero(&x, sizeof x);
    return r;
}

static int
sealed(struct err *e)
{
    int r = err_set(e, ERR_FAILED_PRECONDITION, "the token is sealed: nobody can narrow it");
    err_detail(e, "TOKEN_SEALED", NULL, "narrow the token before it is sealed");
    return r;
}

int
token_attenuate(const char *text, const Stockade__V1__TokenBlock *block,
                char out[TOKEN_TEXT_MAX + 1], struct err *e)
{
    struct token t = {0};
    Stockade__V1__SignedBlock *blocks[TOKEN_BLOCKS_MAX + 1];
    struct appended x;
    struct arena *auto_arena a = arena_new(TOKEN_ARENA);
    if (a == NULL)
        return err_sys(e, ENOMEM, "narrow a token");
    int r = token_read(text, a, &t, e);
    if (r == 0 && t.sealed)
        r = sealed(e);
    if (r < 0 || t.m == NULL)
        return r;
    Stockade__V1__Token longer = *t.m;
    memcpy(blocks, t.m->blocks, t.n * sizeof(void *));
    longer.blocks = blocks;
    r = append(&longer, &x, block, t.m->proof.data, e);
    if (r == 0)
        r = write_checked(&longer, out, e);
    sodium_memzero(&x, sizeof x);
    return r;
}

int
token_seal(const char *text, char out[TOKEN_TEXT_MAX + 1], struct err *e)
{
    struct token t = {0};
    uint8_t bytes[SIGNED_MAX], signature[SIGNATURE];
    struct arena *auto_arena a = arena_new(TOKEN_ARENA);
    if (a == NULL)
        return err_sys(e, ENOMEM, "seal a token");
    int r = token_read(text, a, &t, e);
    if (r == 0 && t.sealed)
        r = sealed(e);
    if (r < 0 || t.m == NULL)
        return r;
    Stockade__V1__Token closed = *t.m;
    sign(t.m->proof.data, bytes, signed_seal(t.m, bytes), signature);
    closed.proof = (ProtobufCBinaryData){sizeof signature, signature};
    return write_checked(&closed, out, e);
}
