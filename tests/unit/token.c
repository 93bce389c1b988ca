// SPDX-License-Identifier: Apache-2.0
// proto/token: nobody can widen a token, and what was changed is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <sodium.h>

#include "proto/token.h"

static uint8_t seed[TOKEN_KEY_BYTES], key[TOKEN_KEY_BYTES];
static char first[TOKEN_TEXT_MAX + 1], second[TOKEN_TEXT_MAX + 1], third[TOKEN_TEXT_MAX + 1];
static struct arena *arena;

static const char *tenant_scopes[] = {"sandbox.read", "process.run"};

static void
block_with(Stockade__V1__TokenBlock *b, Stockade__V1__Caveat *c, Stockade__V1__Caveat **list)
{
    stockade__v1__token_block__init(b);
    stockade__v1__caveat__init(c);
    c->caveat_case = STOCKADE__V1__CAVEAT__CAVEAT_EXPIRES_MS;
    c->expires_ms = 1000;
    list[0] = c;
    b->caveats = list;
    b->n_caveats = 1;
}

static int
set_up(void **unused)
{
    struct err e;
    Stockade__V1__TokenBlock b;
    Stockade__V1__Caveat c, *list[1];
    (void)unused;
    memset(seed, 7, sizeof seed);
    token_public(seed, key);
    arena = arena_new(16 * 1024 * 1024);
    block_with(&b, &c, list);
    assert_true(token_attenuate("stkt_", &b, second, &e) < 0);
    b.tenant = "team";
    b.scopes = tenant_scopes;
    b.n_scopes = 2;
    assert_int_equal(token_mint(seed, &b, first, &e), 0);
    block_with(&b, &c, list);
    assert_int_equal(token_attenuate(first, &b, second, &e), 0);
    c.expires_ms = 900;
    assert_int_equal(token_attenuate(second, &b, third, &e), 0);
    return 0;
}

static int
tear_down(void **unused)
{
    (void)unused;
    arena_free(arena);
    return 0;
}

// The reason why it is refused; "": it is valid.
static const char *
reason(const char *text)
{
    static struct err e;
    struct token t;
    arena_reset(arena);
    e.reason[0] = '\0';
    if (token_read(text, arena, &t, &e) == 0)
        (void)token_verify(&t, key, &e);
    return e.reason;
}

static size_t
bytes_of(const char *text, uint8_t out[TOKEN_BYTES_MAX])
{
    size_t n = 0;
    assert_int_equal(sodium_base642bin(out, TOKEN_BYTES_MAX, text + 5, strlen(text) - 5, NULL, &n,
                                       NULL, sodium_base64_VARIANT_URLSAFE_NO_PADDING),
                     0);
    return n;
}

static const char *
text_of(const uint8_t *bytes, size_t n)
{
    static char out[2 * TOKEN_TEXT_MAX];
    (void)snprintf(out, sizeof out, "%s", TOKEN_PREFIX);
    (void)sodium_bin2base64(out + 5, sizeof out - 5, bytes, n,
                            sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    return out;
}

// The token as a message that a test may change, and back.
static Stockade__V1__Token *
open_up(const char *text, struct token *t)
{
    struct err e;
    arena_reset(arena);
    assert_int_equal(token_read(text, arena, t, &e), 0);
    return (Stockade__V1__Token *)(uintptr_t)t->m;
}

static const char *
pack(const Stockade__V1__Token *m)
{
    static uint8_t bytes[2 * TOKEN_BYTES_MAX];
    assert_true(stockade__v1__token__get_packed_size(m) <= sizeof bytes);
    return text_of(bytes, stockade__v1__token__pack(m, bytes));
}

static void
a_changed_bit_is_refused(void **unused)
{
    uint8_t bytes[TOKEN_BYTES_MAX];
    (void)unused;
    const size_t n = bytes_of(third, bytes);
    for (size_t i = 0; i < n * 8; i++) {
        bytes[i / 8] ^= (uint8_t)(1u << (i % 8));
        assert_string_not_equal(reason(text_of(bytes, n)), "");
        bytes[i / 8] ^= (uint8_t)(1u << (i % 8));
    }
    assert_string_equal(reason(text_of(bytes, n)), "");
}

static void
a_cut_or_longer_token_is_refused(void **unused)
{
    uint8_t bytes[TOKEN_BYTES_MAX + 1];
    char longer[TOKEN_TEXT_MAX + 8];
    (void)unused;
    const size_t n = bytes_of(third, bytes);
    for (size_t i = 0; i < n; i++)
        assert_string_not_equal(reason(text_of(bytes, i)), "");
    bytes[n] = 0;
    assert_string_not_equal(reason(text_of(bytes, n + 1)), "");
    (void)snprintf(longer, sizeof longer, "%s=", third);
    assert_string_equal(reason(longer), "TOKEN_FORM");
    assert_string_equal(reason(""), "TOKEN_FORM");
    assert_string_equal(reason("stkt_"), "TOKEN_FORM");
}

static void
a_dropped_block_is_refused(void **unused)
{
    struct token t;
    (void)unused;
    Stockade__V1__Token *m = open_up(third, &t);
    m->n_blocks = 2; // the proof is that of the third
    assert_string_equal(reason(pack(m)), "TOKEN_SIGNATURE");
    m = open_up(third, &t);
    m->blocks[1] = m->blocks[2];
    m->n_blocks = 2;
    assert_string_equal(reason(pack(m)), "TOKEN_SIGNATURE");
}

static void
reordered_blocks_are_refused(void **unused)
{
    struct token t;
    (void)unused;
    Stockade__V1__Token *m = open_up(third, &t);
    Stockade__V1__SignedBlock *held = m->blocks[1];
    m->blocks[1] = m->blocks[2];
    m->blocks[2] = held;
    assert_string_equal(reason(pack(m)), "TOKEN_SIGNATURE");
}

static void
a_block_of_another_token_is_refused(void **unused)
{
    struct token t;
    struct err e;
    char other[TOKEN_TEXT_MAX + 1];
    Stockade__V1__TokenBlock b;
    Stockade__V1__Caveat c, *list[1];
    (void)unused;
    block_with(&b, &c, list);
    assert_int_equal(token_attenuate(first, &b, other, &e), 0);
    Stockade__V1__Token *m = open_up(second, &t);
    struct arena *more = arena_new(TOKEN_ARENA);
    struct token u;
    assert_int_equal(token_read(other, more, &u, &e), 0);
    m->blocks[1] = u.m->blocks[1];
    assert_string_equal(reason(pack(m)), "TOKEN_SIGNATURE"); // the proof does not fit
    arena_free(more);
}

static void
a_later_block_cannot_name_a_tenant_or_scopes(void **unused)
{
    struct err e;
    char out[TOKEN_TEXT_MAX + 1];
    Stockade__V1__TokenBlock b = STOCKADE__V1__TOKEN_BLOCK__INIT;
    (void)unused;
    b.tenant = "root";
    assert_true(token_attenuate(first, &b, out, &e) < 0);
    assert_string_equal(e.reason, "TOKEN_WIDER");
    assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
    b.tenant = "";
    b.scopes = tenant_scopes;
    b.n_scopes = 1;
    assert_true(token_attenuate(first, &b, out, &e) < 0);
    assert_string_equal(e.reason, "TOKEN_WIDER");
}

static void
an_unknown_caveat_is_refused(void **unused)
{
    // Caveat with field 99 = 1, in a block with a good signature
    static const uint8_t block[] = {0x0a, 4,   't',  'e', 'a',  'm',  0x12, 12,  's',
                                    'a',  'n', 'd',  'b', 'o',  'x',  '.',  'r', 'e',
                                    'a',  'd', 0x1a, 3,   0x98, 0x06, 0x01};
    struct arena *a = arena_new(TOKEN_ARENA);
    struct token t;
    (void)unused;
    Stockade__V1__Token *m = open_up(first, &t);
    m->blocks[0]->block = (ProtobufCBinaryData){sizeof block, (uint8_t *)(uintptr_t)block};
    assert_string_equal(reason(pack(m)), "TOKEN_FORM");
    arena_free(a);
}

static void
another_key_is_refused(void **unused)
{
    struct err e;
    struct token t;
    uint8_t other[TOKEN_KEY_BYTES] = {1};
    (void)unused;
    (void)open_up(first, &t);
    token_public(other, other);
    assert_true(token_verify(&t, other, &e) < 0);
    assert_string_equal(e.reason, "TOKEN_SIGNATURE");
}

static void
a_sealed_token_cannot_be_narrowed(void **unused)
{
    struct err e;
    char closed[TOKEN_TEXT_MAX + 1], out[TOKEN_TEXT_MAX + 1];
    Stockade__V1__TokenBlock b;
    Stockade__V1__Caveat c, *list[1];
    struct token t;
    (void)unused;
    block_with(&b, &c, list);
    assert_int_equal(token_seal(second, closed, &e), 0);
    assert_string_equal(reason(closed), "");
    assert_true(token_attenuate(closed, &b, out, &e) < 0);
    assert_string_equal(e.reason, "TOKEN_SEALED");
    Stockade__V1__Token *m = open_up(closed, &t);
    m->proof.len = TOKEN_KEY_BYTES; // half of a signature is no seed
    assert_string_equal(reason(pack(m)), "TOKEN_SIGNATURE");
}

static void
a_number_of_uses_needs_an_expiry(void **unused)
{
    struct err e;
    char out[TOKEN_TEXT_MAX + 1];
    Stockade__V1__TokenBlock b;
    Stockade__V1__Caveat c, *list[1];
    (void)unused;
    block_with(&b, &c, list);
    c.caveat_case = STOCKADE__V1__CAVEAT__CAVEAT_USES;
    c.uses = 1;
    b.tenant = "team";
    b.scopes = tenant_scopes;
    b.n_scopes = 1;
    assert_true(token_mint(seed, &b, out, &e) < 0);
    assert_string_equal(e.reason, "TOKEN_FORM");
}

static void
a_chain_has_an_end(void **unused)
{
    struct err e;
    char text[TOKEN_TEXT_MAX + 1], out[TOKEN_TEXT_MAX + 1];
    Stockade__V1__TokenBlock b = STOCKADE__V1__TOKEN_BLOCK__INIT;
    int n = 1;
    (void)unused;
    memcpy(text, first, sizeof text);
    while (token_attenuate(text, &b, out, &e) == 0) {
        memcpy(text, out, sizeof text);
        assert_string_equal(reason(text), "");
        n++;
    }
    assert_int_equal(n, TOKEN_BLOCKS_MAX);
    assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
}

// Every implementation of tokens reads the same file.
static void
the_published_vectors_are_accepted_or_refused(void **unused)
{
    char path[512];
    json_error_t at;
    struct err e;
    uint8_t root[TOKEN_KEY_BYTES];
    (void)unused;
    const char *source = getenv("STOCKADE_SOURCE");
    (void)snprintf(path, sizeof path, "%s/tests/vectors/tokens.json",
                   source != NULL ? source : ".");
    json_t *file = json_load_file(path, 0, &at);
    assert_non_null(file);
    const char *hex = json_string_value(json_object_get(file, "key"));
    assert_int_equal(sodium_hex2bin(root, sizeof root, hex, strlen(hex), NULL, NULL, NULL), 0);
    const json_t *all = json_object_get(file, "tokens");
    assert_true(json_array_size(all) > 20);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *v = json_array_get(all, i);
        const char *wanted = json_string_value(json_object_get(v, "reason"));
        struct token t;
        char id[2 * TOKEN_BLOCK_ID + 1];
        arena_reset(arena);
        int r = token_read(json_string_value(json_object_get(v, "token")), arena, &t, &e);
        if (r == 0)
            r = token_verify(&t, root, &e);
        const bool as_wanted =
            wanted == NULL ? r == 0
                           : r < 0 && (strcmp(wanted, "ANY") == 0 || strcmp(wanted, e.reason) == 0);
        if (!as_wanted)
            fail_msg("%s: %s", json_string_value(json_object_get(v, "name")),
                     r < 0 ? e.text : "accepted");
        for (size_t k = 0; wanted == NULL && k < t.n; k++) {
            (void)sodium_bin2hex(id, sizeof id, t.id[k], TOKEN_BLOCK_ID);
            assert_string_equal(
                id, json_string_value(json_array_get(json_object_get(v, "block_ids"), k)));
        }
    }
    json_decref(file);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_vectors_are_accepted_or_refused),
        cmocka_unit_test(a_changed_bit_is_refused),
        cmocka_unit_test(a_cut_or_longer_token_is_refused),
        cmocka_unit_test(a_dropped_block_is_refused),
        cmocka_unit_test(reordered_blocks_are_refused),
        cmocka_unit_test(a_block_of_another_token_is_refused),
        cmocka_unit_test(a_later_block_cannot_name_a_tenant_or_scopes),
        cmocka_unit_test(an_unknown_caveat_is_refused),
        cmocka_unit_test(another_key_is_refused),
        cmocka_unit_test(a_sealed_token_cannot_be_narrowed),
        cmocka_unit_test(a_number_of_uses_needs_an_expiry),
        cmocka_unit_test(a_chain_has_an_end),
    };
    return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, set_up, tear_down);
}
