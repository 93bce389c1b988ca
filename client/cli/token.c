// SPDX-License-Identifier: Apache-2.0
// token: capability tokens. mint, exchange, attenuate, inspect, verify, revoke, keys, rotate. Attenuate and inspect need no broker.
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/now.h"
#include "proto/quantity.h"
#include "proto/token.h"
#include "actions.h"
#include "commands.h"
#include "json.h"
#include "remote.h"
#include "stockade/v1/access_service.pb-c.h"
#include "token.h"

#define METHOD(name) "/stockade.v1.TokenService/" name

enum { ANSWER_MAX = 1024 * 1024, HEX = 2 * TOKEN_BLOCK_ID + 1 };

static int
fail_call(const struct acting *a, struct stockade_error *e)
{
    return cli_fail(a->c, "", e);
}

static int
fail(const struct acting *a, const struct err *why)
{
    struct stockade_error e = {.code = why->code};
    (void)snprintf(e.text, sizeof e.text, "%s", why->text);
    (void)snprintf(e.reason, sizeof e.reason, "%s", why->reason);
    return cli_fail(a->c, "", &e);
}

static int
no_memory(const struct acting *a)
{
    struct err e;
    (void)err_sys(&e, ENOMEM, "read a token");
    return fail(a, &e);
}

// The token of the line: an argument, or the first line of stdin if it is "-" or missing.
static bool
take_text(const struct acting *a, char out[TOKEN_TEXT_MAX + 3], int *code)
{
    struct err e;
    if (a->name != NULL && strcmp(a->name, "-") != 0) {
        (void)snprintf(out, TOKEN_TEXT_MAX + 3, "%s", a->name);
        return true;
    }
    if (fgets(out, TOKEN_TEXT_MAX + 3, stdin) == NULL) {
        (void)err_set(&e, ERR_INVALID_ARGUMENT, "there is no token on stdin");
        *code = fail(a, &e);
        return false;
    }
    out[strcspn(out, "\r\n")] = '\0';
    return true;
}

// The token that is meant; it lives as long as the arena. False: the failure was reported.
static bool
read_token(const struct acting *a, struct arena *arena, struct token *t, int *code)
{
    struct err e;
    char text[TOKEN_TEXT_MAX + 3];
    if (!take_text(a, text, code))
        return false;
    if (token_read(text, arena, t, &e) == 0)
        return true;
    *code = fail(a, &e);
    return false;
}

static int
put_token(const struct acting *a, const char *text)
{
    if (a->o->json)
        return json_put(json_pack("{ss}", "token", text));
    (void)printf("%s\n", text);
    return EXIT_OK;
}

// ---- the actions

static int
mint(const struct acting *a)
{
    struct stockade_error e;
    struct err why;
    const char *scopes[TOKEN_WORDS];
    ProtobufCMessage *answer = NULL;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    Stockade__V1__MintRequest m = STOCKADE__V1__MINT_REQUEST__INIT;
    Stockade__V1__TokenBlock block = STOCKADE__V1__TOKEN_BLOCK__INIT;
    if (arena == NULL)
        return no_memory(a);
    if (token_caveats(a->o, arena, &block, &why) < 0)
        return fail(a, &why);
    m.tenant = a->o->tenant != NULL ? a->o->tenant : "";
    m.n_scopes = token_words(a->o->scopes, arena, scopes);
    m.scopes = scopes;
    m.n_caveats = block.n_caveats;
    m.caveats = block.caveats;
    if (remote_call(a->s, METHOD("Mint"), &m.base, &stockade__v1__mint_response__descriptor, arena,
                    &answer, &e) < 0)
        return fail_call(a, &e);
    return put_token(a, ((const Stockade__V1__MintResponse *)answer)->token);
}

// The credential of the call is the JSON Web Token.
static int
exchange(const struct acting *a)
{
    struct stockade_error e;
    struct err why;
    const char *scopes[TOKEN_WORDS];
    ProtobufCMessage *answer = NULL;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    Stockade__V1__ExchangeRequest m = STOCKADE__V1__EXCHANGE_REQUEST__INIT;
    Stockade__V1__TokenBlock block = STOCKADE__V1__TOKEN_BLOCK__INIT;
    struct options others = *a->o;
    others.ttl_ms = 0; // has a field of its own
    if (arena == NULL)
        return no_memory(a);
    if (token_caveats(&others, arena, &block, &why) < 0)
        return fail(a, &why);
    m.n_scopes = token_words(a->o->scopes, arena, scopes);
    m.scopes = scopes;
    m.n_caveats = block.n_caveats;
    m.caveats = block.caveats;
    m.ttl_ms = a->o->ttl_ms;
    if (remote_call(a->s, METHOD("Exchange"), &m.base, &stockade__v1__exchange_response__descriptor,
                    arena, &answer, &e) < 0)
        return fail_call(a, &e);
    const Stockade__V1__ExchangeResponse *r = (const Stockade__V1__ExchangeResponse *)answer;
    if (!a->o->json)
        return put_token(a, r->token);
    json_t *granted = json_array();
    for (size_t i = 0; i < r->n_scopes; i++)
        (void)json_array_append_new(granted, json_string(r->scopes[i]));
    return json_put(json_pack("{ss ss ss so so}", "token", r->token, "block_id", r->block_id,
                              "tenant", r->tenant, "scopes", granted, "expire_time",
                              token_json_of_time(r->expire_time)));
}

static int
attenuate(const struct acting *a)
{
    struct err e;
    int code = EXIT_OK;
    char text[TOKEN_TEXT_MAX + 3], out[TOKEN_TEXT_MAX + 1];
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    Stockade__V1__TokenBlock block = STOCKADE__V1__TOKEN_BLOCK__INIT;
    if (arena == NULL)
        return no_memory(a);
    if (!take_text(a, text, &code))
        return code;
    if (a->o->scopes != NULL && token_scopes(a->o->scopes, arena, &block) < 0)
        return no_memory(a);
    int r = token_caveats(a->o, arena, &block, &e);
    if (r == 0)
        r = token_attenuate(text, &block, out, &e);
    if (r == 0 && a->o->seal) {
        memcpy(text, out, sizeof out);
        r = token_seal(text, out, &e);
    }
    return r < 0 ? fail(a, &e) : put_token(a, out);
}

static json_t *
json_of_token(const struct token *t)
{
    char id[2 * TOKEN_KEY_ID + 1], block[HEX];
    json_t *blocks = json_array();
    for (size_t i = 0; i < t->n; i++) {
        json_t *one = token_json_of_block(t->block[i]);
        (void)sodium_bin2hex(block, sizeof block, t->id[i], TOKEN_BLOCK_ID);
        (void)json_object_set_new(one, "block_id", json_string(block));
        (void)json_array_append_new(blocks, one);
    }
    (void)sodium_bin2hex(id, sizeof id, t->m->key_id.data, TOKEN_KEY_ID);
    return json_pack("{ss sb so}", "key_id", id, "sealed", t->sealed, "blocks", blocks);
}

static int
inspect(const struct acting *a)
{
    struct token t;
    int code = EXIT_OK;
    struct arena *auto_arena arena = arena_new(TOKEN_ARENA);
    if (arena == NULL)
        return no_memory(a);
    if (!read_token(a, arena, &t, &code))
        return code;
    return json_put(json_of_token(&t));
}

// The broker's keys; NULL: reported, with *code.
static const Stockade__V1__ListSigningKeysResponse *
ask_keys(const struct acting *a, struct arena *arena, int *code)
{
    struct stockade_error e;
    ProtobufCMessage *answer = NULL;
    const Stockade__V1__ListSigningKeysRequest m = STOCKADE__V1__LIST_SIGNING_KEYS_REQUEST__INIT;
    if (remote_call(a->s, METHOD("ListSigningKeys"), &m.base,
                    &stockade__v1__list_signing_keys_response__descriptor, arena, &answer,
                    &e) < 0) {
        *code = fail_call(a, &e);
        return NULL;
    }
    return (const Stockade__V1__ListSigningKeysResponse *)answer;
}

static int
verify_with(const struct token *t, const Stockade__V1__ListSigningKeysResponse *keys, struct err *e)
{
    for (size_t i = 0; i < keys->n_keys; i++) {
        const Stockade__V1__SigningKey *k = keys->keys[i];
        if (k->id.len == TOKEN_KEY_ID && k->key.len == TOKEN_KEY_BYTES &&
            memcmp(k->id.data, t->m->key_id.data, TOKEN_KEY_ID) == 0)
            return token_verify(t, k->key.data, e);
    }
    int r =
        err_set(e, ERR_UNAUTHENTICATED,
                "the token is not valid: this broker has not signed it, or its key was replaced");
    err_detail(e, "TOKEN_KEY", NULL, NULL);
    return r;
}

static int
verify(const struct acting *a)
{
    struct err e;
    struct token t;
    int code = EXIT_OK;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    if (arena == NULL)
        return no_memory(a);
    if (!read_token(a, arena, &t, &code))
        return code;
    const Stockade__V1__ListSigningKeysResponse *keys = ask_keys(a, arena, &code);
    if (keys == NULL)
        return code;
    if (verify_with(&t, keys, &e) < 0 || token_valid(&t, now_wall_ms(), keys->audience, &e) < 0)
        return fail(a, &e);
    return a->o->json ? json_put(json_of_token(&t)) : EXIT_OK;
}

// Only an operator revokes a token of another tenant; the broker, which knows blocks alone, accepts the call.
static int
check_revoked(const struct acting *a, const struct token *t,
              const Stockade__V1__TokenServiceRevokeResponse *r)
{
    struct err e;
    if (r->tenant[0] == '\0' || strcmp(r->tenant, t->block[0]->tenant) == 0)
        return EXIT_OK;
    (void)err_set(&e, ERR_PERMISSION_DENIED,
                  "the token is one of %s, not of %s: it is valid as before", t->block[0]->tenant,
                  r->tenant);
    err_detail(&e, "TOKEN_TENANT", NULL, "revoke it as its tenant, or as an operator");
    return fail(a, &e);
}

// A token, or the id of a block.
static int
revoke_token(const struct acting *a)
{
    struct stockade_error e;
    struct err why;
    struct token t;
    char id[HEX];
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    Stockade__V1__TokenServiceRevokeRequest m = STOCKADE__V1__TOKEN_SERVICE_REVOKE_REQUEST__INIT;
    if (arena == NULL)
        return no_memory(a);
    ProtobufCMessage *answer = NULL;
    const bool whole = strncmp(a->name, TOKEN_PREFIX, sizeof TOKEN_PREFIX - 1) == 0;
    m.block_id = a->name;
    if (whole) {
        if (token_read(a->name, arena, &t, &why) < 0)
            return fail(a, &why);
        m.block_id = sodium_bin2hex(id, sizeof id, t.id[t.n - 1], TOKEN_BLOCK_ID);
    }
    if (remote_call(a->s, METHOD("Revoke"), &m.base,
                    &stockade__v1__token_service_revoke_response__descriptor, arena, &answer,
                    &e) < 0)
        return fail_call(a, &e);
    return whole ? check_revoked(a, &t, (const Stockade__V1__TokenServiceRevokeResponse *)answer)
                 : EXIT_OK;
}

static int
keys(const struct acting *a)
{
    int code = EXIT_OK;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    const Stockade__V1__ListSigningKeysResponse *all =
        arena != NULL ? ask_keys(a, arena, &code) : NULL;
    json_t *array = json_array();
    for (size_t i = 0; all != NULL && i < all->n_keys; i++) {
        const Stockade__V1__SigningKey *k = all->keys[i];
        char id[2 * TOKEN_KEY_ID + 1] = "", key[2 * TOKEN_KEY_BYTES + 1] = "";
        if (k->id.len == TOKEN_KEY_ID && k->key.len == TOKEN_KEY_BYTES) {
            (void)sodium_bin2hex(id, sizeof id, k->id.data, TOKEN_KEY_ID);
            (void)sodium_bin2hex(key, sizeof key, k->key.data, TOKEN_KEY_BYTES);
        }
        (void)json_array_append_new(array,
                                    json_pack("{ss ss so so}", "id", id, "key", key, "create_time",
                                              token_json_of_time(k->create_time), "expire_time",
                                              token_json_of_time(k->expire_time)));
        if (!a->o->json)
            (void)printf("%s  %s%s\n", id, key, k->expire_time != NULL ? "  replaced" : "");
    }
    if (code == EXIT_OK && a->o->json)
        code = json_put_list(json_incref(array));
    json_decref(array);
    return code;
}

static int
rotate(const struct acting *a)
{
    struct stockade_error e;
    struct arena *auto_arena arena = arena_new(ANSWER_MAX);
    Stockade__V1__RotateSigningKeyRequest m = STOCKADE__V1__ROTATE_SIGNING_KEY_REQUEST__INIT;
    if (arena == NULL)
        return no_memory(a);
    m.overlap_ms = a->o->ttl_ms;
    return remote_call(a->s, METHOD("RotateSigningKey"), &m.base,
                       &stockade__v1__rotate_signing_key_response__descriptor, arena, NULL, &e) < 0
               ? fail_call(a, &e)
               : EXIT_OK;
}

static int
check(const struct command *c, const struct options *o, const struct action *a)
{
    const bool narrows = a->run == mint || a->run == exchange || a->run == attenuate;
    if (token_has_caveats(o) && !narrows)
        return cli_usage(c, "caveats need the action mint, exchange or attenuate", "");
    if (o->uses != 0 && o->ttl_ms == 0 && a->run == mint)
        return cli_usage(c, "--uses needs an expiry", "add --ttl TIME");
    if (o->seal && a->run != attenuate)
        return cli_usage(c, "--seal needs the action attenuate", "");
    return EXIT_OK;
}

static const struct action all[] = {
    {"mint", 1, 1, NULL, mint},
    {"exchange", 1, 1, NULL, exchange},
    {"attenuate", 1, 2, NULL, attenuate},
    {"inspect", 1, 2, NULL, inspect},
    {"verify", 1, 2, NULL, verify},
    {"revoke", 2, 2, "TOKEN", revoke_token},
    {"keys", 1, 1, NULL, keys},
    {"rotate", 1, 1, NULL, rotate},
    {0},
};

int
cli_token(const struct command *c, const struct options *o)
{
    static const struct actions actions = {
        .all = all,
        .hint =
            "the actions are mint, exchange, attenuate, inspect, verify, revoke TOKEN, keys and rotate",
        .check = check,
    };
    if (sodium_init() < 0)
        return EXIT_PROBLEM;
    return actions_run(&actions, c, o);
}
