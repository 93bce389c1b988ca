// SPDX-License-Identifier: Apache-2.0
// stockade.v1.TokenService: translation between its messages and server/access/tokens.h.
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "convert.h"
#include "server/access/access.h"
#include "server/access/tokens.h"
#include "server/base/log.h"
#include "server/base/server.h"
#include "stockade/v1/access_service.pb-c.h"

// Revoke or RotateSigningKey, until it is on the disk.
struct pending {
    struct call *call; // NULL: it was cancelled
    const ProtobufCMessage *response;
    Stockade__V1__TokenServiceRevokeResponse revoked; // the response to Revoke
    char tenant[PRINCIPAL_TENANT];
};

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct pending *p = cookie;
    (void)why;
    p->call = NULL;
}

static void
on_done(void *cookie, const struct err *e)
{
    struct pending *p = cookie;
    if (p->call != NULL && e != NULL)
        call_fail(p->call, e);
    else if (p->call != NULL)
        call_reply(p->call, p->response);
    free(p);
}

static struct pending *
pending_new(struct call *c, const ProtobufCMessage *response)
{
    struct pending *p = malloc(sizeof *p);
    if (p == NULL)
        convert_no_memory(c);
    else
        *p = (struct pending){.call = c, .response = response};
    return p;
}

static void
await(struct call *c, struct pending *p, int r, const struct err *e)
{
    if (r == 0) {
        call_watch(c, on_cancel, NULL, p);
        return;
    }
    call_fail(c, e);
    free(p);
}

// A set of scopes as words, which stand in the text.
static size_t
scope_words(uint32_t scopes, char text[PRINCIPAL_SCOPES_TEXT], const char *out[SCOPES_N])
{
    size_t n = 0;
    char *rest = NULL;
    scopes_write(scopes, text);
    for (const char *one = strtok_r(text, " ", &rest); one != NULL;
         one = strtok_r(NULL, " ", &rest))
        out[n++] = one;
    return n;
}

static void
mint(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__MintRequest *m = (const Stockade__V1__MintRequest *)req;
    Stockade__V1__MintResponse response = STOCKADE__V1__MINT_RESPONSE__INIT;
    Stockade__V1__TokenBlock block = STOCKADE__V1__TOKEN_BLOCK__INIT;
    char text[TOKEN_TEXT_MAX + 1], names[PRINCIPAL_SCOPES_TEXT], id[2 * TOKEN_BLOCK_ID + 1];
    const char *usual[SCOPES_N];
    struct token t;
    struct err e;
    struct arena *auto_arena a = arena_new(TOKEN_ARENA);
    const char *whose = call_whose(c);
    block.tenant = whose != NULL ? whose : "*";
    block.n_scopes = m->n_scopes;
    block.scopes = m->scopes;
    block.n_caveats = m->n_caveats;
    block.caveats = m->caveats;
    if (block.n_scopes == 0) {
        const uint32_t held = call_principal(c)->scopes & scopes_usual();
        block.n_scopes = scope_words(scopes_without_credentials(held), names, usual);
        block.scopes = usual;
    }
    if (a == NULL) {
        convert_no_memory(c);
        return;
    }
    if (token_make(s->access, call_principal(c), &block, text, &e) < 0 ||
        token_read(text, a, &t, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    response.token = text;
    response.block_id = sodium_bin2hex(id, sizeof id, t.id[0], TOKEN_BLOCK_ID);
    call_reply(c, &response.base);
    sodium_memzero(text, sizeof text);
}

// Who the caller is after the exchange, for token_make().
static int
take_granted(const struct call *c, struct principal *out, struct err *e)
{
    *out = *call_principal(c);
    out->scopes = out->granted;
    if (out->proof == PROOF_JWT)
        return 0;
    int r = err_set(e, ERR_FAILED_PRECONDITION, "the credential of the call is no JSON Web Token");
    err_detail(
        e, "JWT_MISSING", "authorization",
        "send the token of the issuer as the credential, with STOCKADE_TOKEN or --token-file");
    return r;
}

static void
exchange(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ExchangeRequest *m = (const Stockade__V1__ExchangeRequest *)req;
    Stockade__V1__ExchangeResponse response = STOCKADE__V1__EXCHANGE_RESPONSE__INIT;
    Stockade__V1__TokenBlock block = STOCKADE__V1__TOKEN_BLOCK__INIT;
    Stockade__V1__Caveat expiry = STOCKADE__V1__CAVEAT__INIT;
    Stockade__V1__Caveat *caveats[32];
    char text[TOKEN_TEXT_MAX + 1], names[PRINCIPAL_SCOPES_TEXT], id[2 * TOKEN_BLOCK_ID + 1];
    const char *granted[SCOPES_N];
    struct principal who;
    struct token t;
    struct err e;
    struct arena *auto_arena a = arena_new(TOKEN_ARENA);
    if (a == NULL) {
        convert_no_memory(c);
        return;
    }
    if (take_granted(c, &who, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    const uint64_t ttl_ms =
        m->ttl_ms != 0 && m->ttl_ms < who.granted_ms ? m->ttl_ms : who.granted_ms;
    expiry.caveat_case = STOCKADE__V1__CAVEAT__CAVEAT_EXPIRES_MS;
    expiry.expires_ms = (uint64_t)access_now_ms(s->access) + ttl_ms;
    caveats[0] = &expiry;
    for (size_t i = 0; i < m->n_caveats; i++)
        caveats[i + 1] = m->caveats[i];
    block.tenant = who.tenant;
    block.n_scopes = m->n_scopes;
    block.scopes = m->scopes;
    block.n_caveats = m->n_caveats + 1;
    block.caveats = caveats;
    if (block.n_scopes == 0) {
        block.n_scopes = scope_words(who.granted, names, granted);
        block.scopes = granted;
    }
    if (token_make(s->access, &who, &block, text, &e) < 0 || token_read(text, a, &t, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    response.token = text;
    response.block_id = sodium_bin2hex(id, sizeof id, t.id[0], TOKEN_BLOCK_ID);
    response.tenant = who.tenant;
    response.n_scopes = block.n_scopes;
    response.scopes = block.scopes;
    response.expire_time = wire_make_time(a, (int64_t)(expiry.expires_ms / 1000),
                                          (int32_t)(expiry.expires_ms % 1000) * 1000000);
    log_event(LOG_INFO, "token-exchanged", "%s is %s: block %s", who.credential_id, who.tenant, id);
    call_reply(c, &response.base);
    sodium_memzero(text, sizeof text);
}

static void
revoke_block(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__TokenServiceRevokeRequest *m =
        (const Stockade__V1__TokenServiceRevokeRequest *)req;
    uint8_t block[TOKEN_BLOCK_ID];
    struct err e;
    if (sodium_hex2bin(block, sizeof block, m->block_id, strlen(m->block_id), NULL, NULL, NULL) !=
        0) {
        (void)err_field(&e, "block_id", "must be 32 hex digits");
        call_fail(c, &e);
        return;
    }
    struct pending *p = pending_new(c, NULL);
    if (p == NULL)
        return;
    const char *whose = call_whose(c);
    stockade__v1__token_service_revoke_response__init(&p->revoked);
    (void)snprintf(p->tenant, sizeof p->tenant, "%s", whose != NULL ? whose : "");
    p->revoked.tenant = p->tenant;
    p->response = &p->revoked.base;
    await(c, p, token_revoke(s->access, whose, block, on_done, p, &e), &e);
}

static void
rotate(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    static const Stockade__V1__RotateSigningKeyResponse response =
        STOCKADE__V1__ROTATE_SIGNING_KEY_RESPONSE__INIT;
    const Stockade__V1__RotateSigningKeyRequest *m =
        (const Stockade__V1__RotateSigningKeyRequest *)req;
    struct err e;
    struct pending *p = pending_new(c, &response.base);
    if (p != NULL)
        await(c, p, token_rotate(s->access, m->overlap_ms, on_done, p, &e), &e);
}

static void
list(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    Stockade__V1__ListSigningKeysResponse response = STOCKADE__V1__LIST_SIGNING_KEYS_RESPONSE__INIT;
    Stockade__V1__SigningKey *all[SIGNING_KEYS_MAX];
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    size_t n = 0;
    const struct signing_key *k = token_keys(s->access, &n);
    (void)req;
    for (size_t i = 0; i < n && a != NULL; i++) {
        all[i] = wire_make(a, &stockade__v1__signing_key__descriptor);
        if (all[i] == NULL)
            break;
        all[i]->id = (ProtobufCBinaryData){TOKEN_KEY_ID, (uint8_t *)(uintptr_t)k[i].id};
        all[i]->key = (ProtobufCBinaryData){TOKEN_KEY_BYTES, (uint8_t *)(uintptr_t)k[i].key};
        all[i]->create_time =
            wire_make_time(a, k[i].created_ms / 1000, (int32_t)(k[i].created_ms % 1000) * 1000000);
        if (k[i].until_ms != 0)
            all[i]->expire_time =
                wire_make_time(a, k[i].until_ms / 1000, (int32_t)(k[i].until_ms % 1000) * 1000000);
        response.n_keys++;
    }
    response.keys = all;
    response.audience = access_audience(s->access);
    if (response.n_keys != n)
        convert_no_memory(c);
    else
        call_reply(c, &response.base);
}

const struct call_method token_methods[] = {
    {"/stockade.v1.TokenService/Mint", &stockade__v1__mint_request__descriptor,
     &stockade__v1__mint_response__descriptor, mint},
    {"/stockade.v1.TokenService/Exchange", &stockade__v1__exchange_request__descriptor,
     &stockade__v1__exchange_response__descriptor, exchange},
    {"/stockade.v1.TokenService/Revoke", &stockade__v1__token_service_revoke_request__descriptor,
     &stockade__v1__token_service_revoke_response__descriptor, revoke_block},
    {"/stockade.v1.TokenService/ListSigningKeys",
     &stockade__v1__list_signing_keys_request__descriptor,
     &stockade__v1__list_signing_keys_response__descriptor, list},
    {"/stockade.v1.TokenService/RotateSigningKey",
     &stockade__v1__rotate_signing_key_request__descriptor,
     &stockade__v1__rotate_signing_key_response__descriptor, rotate},
    {0},
};
