// SPDX-License-Identifier: Apache-2.0
// stockade.v1.AdminService: encryption at rest: what is encrypted, the data keys, another master key.
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "convert.h"
#include "page.h"
#include "server/access/approval.h"
#include "server/access/keys.h"
#include "server/anomaly/silences.h"
#include "server/anomaly/tenant_rules.h"
#include "server/base/server.h"
#include "server/config/config.h"
#include "server/rpc/rpc.h"
#include "server/store/store.h"
#include "server/vault/vault.h"
#include "stockade/v1/access_service.pb-c.h"

enum { KEY_HEX = 2 * SEALED_KEY_ID + 1 };

// ---- what there is

static Stockade__V1__DataKey *
convert_key(struct arena *a, const struct vault_entry *k)
{
    char hex[KEY_HEX];
    Stockade__V1__DataKey *m = wire_make(a, &stockade__v1__data_key__descriptor);
    if (m == NULL)
        return NULL;
    m->id = arena_copy(a, sodium_bin2hex(hex, sizeof hex, k->id, sizeof k->id), KEY_HEX - 1);
    m->tenant = k->tenant;
    m->create_time = convert_wall(a, k->created_ms);
    m->forget_time = k->forgotten_ms != 0 ? convert_wall(a, k->forgotten_ms) : NULL;
    return m->id != NULL && m->create_time != NULL ? m : NULL;
}

static void
add_counts(const struct server *s, Stockade__V1__GetEncryptionResponse *m)
{
    struct store_encrypted n = {0};
    if (s->store != NULL)
        store_count(s->store, &n);
    m->encrypted_layers = n.encrypted_layers;
    m->plain_layers = n.plain_layers;
    m->encrypted_records = n.encrypted_records;
    m->plain_records = n.plain_records;
    m->unreadable_records = n.unreadable_records;
}

static void
get(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__GetEncryptionRequest *m = (const Stockade__V1__GetEncryptionRequest *)req;
    Stockade__V1__GetEncryptionResponse response = STOCKADE__V1__GET_ENCRYPTION_RESPONSE__INIT;
    const struct vault_settings *from = &s->config->vault;
    char source[320] = "";
    struct page auto_page p = {0};
    uint64_t order = 0;
    if (!page_open(&p, c, m->page_size, m->page_token))
        return;
    list_each(it, vault_entries(s->vault))
    {
        if (++order <= p.last)
            continue;
        if (!page_has_room(&p) ||
            !page_add(&p, order, convert_key(p.arena, list_entry(it, struct vault_entry, node))))
            break;
    }
    if (vault_is_on(s->vault))
        (void)snprintf(source, sizeof source, "%s %s",
                       from->key_file[0] != '\0' ? "key_file" : "credential",
                       from->key_file[0] != '\0' ? from->key_file : from->credential);
    response.enabled = vault_is_on(s->vault);
    response.source = source;
    add_counts(s, &response);
    response.keys = p.elements;
    response.n_keys = p.n;
    response.next_page_token = p.token;
    page_reply(&p, c, &response.base);
}

// ---- what changes

struct change {
    struct server *s;
    struct call *call;          // NULL: the caller has gone; the change is made
    char forgets[VAULT_TENANT]; // the tenant; "": a rotation
    const ProtobufCMessageDescriptor *answer;
};

static void
on_cancel(void *cookie, enum call_cancel why)
{
    struct change *w = cookie;
    (void)why;
    w->call = NULL;
}

// What the broker still has of values that nobody can read any more in the database.
static void
forget_in_memory(const struct server *s, const char *tenant)
{
    rpc_forget_answers(s->rpc, tenant);
    keys_forget_labels(s->access, tenant);
    if (s->approvals != NULL)
        approvals_forget(s->approvals, tenant);
    if (s->rules != NULL)
        rules_of_tenants_forget(s->rules, tenant);
    if (s->silences != NULL)
        silences_forget_tenant(s->silences, tenant);
}

// The responses have no fields.
static void
on_changed(void *cookie, const struct err *e)
{
    struct change *w = cookie;
    Stockade__V1__RotateMasterKeyResponse response;
    _Static_assert(sizeof response == sizeof(Stockade__V1__ForgetDataKeyResponse), "no fields");
    w->answer->message_init((ProtobufCMessage *)&response);
    if (e == NULL && w->forgets[0] != '\0')
        forget_in_memory(w->s, w->forgets);
    if (w->call != NULL && e != NULL)
        call_fail(w->call, e);
    else if (w->call != NULL)
        call_reply(w->call, &response.base);
    free(w);
}

static struct change *
change_new(struct server *s, struct call *c, const ProtobufCMessageDescriptor *answer)
{
    struct change *w = malloc(sizeof *w);
    if (w == NULL)
        convert_no_memory(c);
    else
        *w = (struct change){.s = s, .call = c, .answer = answer};
    return w;
}

static void
change_begun(struct change *w, int r, const struct err *e)
{
    if (r == 0) {
        call_watch(w->call, on_cancel, NULL, w);
        return;
    }
    call_fail(w->call, e);
    free(w);
}

// The key of all data does not belong on a network, and who holds a credential alone may not lock the operators of the host out.
static bool
check_is_local(struct call *c)
{
    struct err e;
    if (call_is_local(c))
        return true;
    (void)err_set(&e, ERR_PERMISSION_DENIED,
                  "the master key is changed over a unix socket of the broker only");
    err_detail(&e, "LOCAL_ONLY", "key",
               "run it on the broker's host; this key was on the network: make another one");
    call_fail(c, &e);
    return false;
}

static void
rotate(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__RotateMasterKeyRequest *m =
        (const Stockade__V1__RotateMasterKeyRequest *)req;
    struct err e;
    struct change *w = check_is_local(c)
                           ? change_new(s, c, &stockade__v1__rotate_master_key_response__descriptor)
                           : NULL;
    if (w != NULL)
        change_begun(w, vault_rotate(s->vault, m->key.data, on_changed, w, &e), &e);
    sodium_memzero(m->key.data, m->key.len); // of the request, which nobody reads any more
}

static void
forget(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ForgetDataKeyRequest *m = (const Stockade__V1__ForgetDataKeyRequest *)req;
    struct err e;
    struct change *w = change_new(s, c, &stockade__v1__forget_data_key_response__descriptor);
    if (w != NULL)
        (void)snprintf(w->forgets, sizeof w->forgets, "%s", m->tenant);
    if (w != NULL)
        change_begun(w, vault_forget(s->vault, m->tenant, on_changed, w, &e), &e);
}

const struct call_method encryption_methods[] = {
    {"/stockade.v1.AdminService/GetEncryption", &stockade__v1__get_encryption_request__descriptor,
     &stockade__v1__get_encryption_response__descriptor, get},
    {"/stockade.v1.AdminService/RotateMasterKey",
     &stockade__v1__rotate_master_key_request__descriptor,
     &stockade__v1__rotate_master_key_response__descriptor, rotate},
    {"/stockade.v1.AdminService/ForgetDataKey", &stockade__v1__forget_data_key_request__descriptor,
     &stockade__v1__forget_data_key_response__descriptor, forget},
    {0},
};
