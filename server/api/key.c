// SPDX-License-Identifier: Apache-2.0
// stockade.v1.KeyService: translation between its messages and server/access/keys.h.
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "convert.h"
#include "page.h"
#include "server/access/keys.h"
#include "server/base/server.h"
#include "stockade/v1/access_service.pb-c.h"

// Create or Revoke, until it is on the disk.
struct pending {
    struct call *call;
    struct key_op *op;
    char text[KEY_TEXT];
};

static bool
convert_scopes(struct arena *a, uint32_t set, Stockade__V1__ApiKey *m)
{
    char names[PRINCIPAL_SCOPES_TEXT];
    char *rest = NULL;
    scopes_write(set, names);
    const char **all = arena_alloc(a, SCOPES_N * sizeof(void *));
    if (all == NULL)
        return false;
    m->scopes = all;
    for (const char *name = strtok_r(names, " ", &rest); name != NULL;
         name = strtok_r(NULL, " ", &rest)) {
        all[m->n_scopes] = arena_copy(a, name, strlen(name) + 1);
        if (all[m->n_scopes++] == NULL)
            return false;
    }
    return true;
}

static bool
convert_time(struct arena *a, int64_t ms, Google__Protobuf__Timestamp **out)
{
    if (ms == 0)
        return true;
    *out = wire_make_time(a, ms / 1000, (int32_t)(ms % 1000) * 1000000);
    return *out != NULL;
}

// NULL: out of memory.
static Stockade__V1__ApiKey *
convert_key(struct arena *a, const struct api_key *k)
{
    Stockade__V1__ApiKey *m = wire_make(a, &stockade__v1__api_key__descriptor);
    if (m == NULL)
        return NULL;
    m->id = k->id;
    m->tenant = k->tenant;
    m->label = k->label;
    m->hint = k->hint;
    m->maker = k->maker;
    const bool whole = convert_scopes(a, k->scopes, m) &&
                       convert_time(a, k->created_ms, &m->create_time) &&
                       convert_time(a, k->expires_ms, &m->expire_time) &&
                       convert_time(a, k->revoked_ms, &m->revoke_time);
    return whole ? m : NULL;
}

static void
pending_free(struct pending *p)
{
    sodium_memzero(p->text, sizeof p->text);
    free(p);
}

// It goes on; nobody waits for it.
static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct pending *p = cookie;
    (void)why;
    key_unwait(p->op);
    pending_free(p);
}

static struct pending *
pending_new(struct call *c)
{
    struct pending *p = calloc(1, sizeof *p);
    if (p == NULL)
        convert_no_memory(c);
    else
        p->call = c;
    return p;
}

static void
on_created(void *cookie, const struct api_key *k, const struct err *e)
{
    struct pending *p = cookie;
    Stockade__V1__KeyServiceCreateResponse response =
        STOCKADE__V1__KEY_SERVICE_CREATE_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    response.key = a != NULL && k != NULL ? convert_key(a, k) : NULL;
    response.secret = p->text;
    if (e != NULL)
        call_fail(p->call, e);
    else if (response.key == NULL)
        convert_no_memory(p->call);
    else
        call_reply(p->call, &response.base);
    pending_free(p);
}

static int
read_wanted(const struct call *c, const Stockade__V1__KeyServiceCreateRequest *m,
            struct key_wanted *w, struct err *e)
{
    const char *whose = call_whose(c);
    *w = (struct key_wanted){
        .tenant = whose != NULL ? whose : "*",
        .label = m->label,
        .maker = call_principal(c),
        .e2b = m->form == STOCKADE__V1__KEY_FORM__KEY_FORM_E2B,
        .ttl_ms = m->ttl_ms,
    };
    if (m->form > STOCKADE__V1__KEY_FORM__KEY_FORM_E2B)
        return err_field(e, "form", "there is no form %d", (int)m->form);
    for (size_t i = 0; i < m->n_scopes; i++) {
        uint32_t one = 0;
        if (!scopes_read(m->scopes[i], &one) || one == 0) {
            int r = err_field(e, "scopes", "there is no right %.32s", m->scopes[i]);
            err_detail(e, "SCOPE_UNKNOWN", "scopes",
                       "such as sandbox.write, process.run, file.read");
            return r;
        }
        w->scopes |= one;
    }
    return 0;
}

static void
create(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    struct key_wanted w;
    struct err e;
    if (read_wanted(c, (const Stockade__V1__KeyServiceCreateRequest *)req, &w, &e) < 0) {
        call_fail(c, &e);
        return;
    }
    struct pending *p = pending_new(c);
    if (p == NULL)
        return;
    if (key_create(s->access, &w, p->text, on_created, p, &p->op, &e) < 0) {
        call_fail(c, &e);
        pending_free(p);
        return;
    }
    call_watch(c, on_cancel, NULL, p);
}

static void
list(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__KeyServiceListRequest *m = (const Stockade__V1__KeyServiceListRequest *)req;
    Stockade__V1__KeyServiceListResponse response = STOCKADE__V1__KEY_SERVICE_LIST_RESPONSE__INIT;
    struct page auto_page p = {0};
    const char *whose = call_whose(c);
    if (!page_open(&p, c, m->page_size, m->page_token))
        return;
    for (const struct api_key *k = key_next(s->access, NULL); k != NULL;
         k = key_next(s->access, k)) {
        if (k->order <= p.last || (whose != NULL && strcmp(k->tenant, whose) != 0))
            continue;
        if (!page_has_room(&p) || !page_add(&p, k->order, convert_key(p.arena, k)))
            break;
    }
    response.keys = p.elements;
    response.n_keys = p.n;
    response.next_page_token = p.token;
    page_reply(&p, c, &response.base);
}

static void
on_revoked(void *cookie, const struct api_key *none, const struct err *e)
{
    struct pending *p = cookie;
    Stockade__V1__KeyServiceRevokeResponse response =
        STOCKADE__V1__KEY_SERVICE_REVOKE_RESPONSE__INIT;
    (void)none;
    if (e != NULL)
        call_fail(p->call, e);
    else
        call_reply(p->call, &response.base);
    pending_free(p);
}

static void
revoke_key(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__KeyServiceRevokeRequest *m =
        (const Stockade__V1__KeyServiceRevokeRequest *)req;
    struct err e;
    struct pending *p = pending_new(c);
    if (p == NULL)
        return;
    if (key_revoke(s->access, call_whose(c), m->id, on_revoked, p, &p->op, &e) < 0) {
        call_fail(c, &e);
        pending_free(p);
        return;
    }
    call_watch(c, on_cancel, NULL, p);
}

#define METHOD(name, message, handler)                                                             \
    {                                                                                              \
        "/stockade.v1.KeyService/" name,                                                           \
            &stockade__v1__key_service_##message##_request__descriptor,                            \
            &stockade__v1__key_service_##message##_response__descriptor, handler                   \
    }

const struct call_method key_methods[] = {
    METHOD("Create", create, create),
    METHOD("List", list, list),
    METHOD("Revoke", revoke, revoke_key),
    {0},
};
