// SPDX-License-Identifier: Apache-2.0
// See dispatch.h. A table sorted by path, and the list of checks before a handler runs; the first check that refuses
// ends the call.
#include "dispatch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <uv.h>

#include "proto/plural.h"
#include "proto/quantity.h"
#include "proto/wire.h"
#include "server/base/metrics.h"
#include "audited.h"
#include "calls.h"
#include "conn.h"
#include "idempotency.h"

enum { METHODS_MAX = 256, METADATA_ITEMS_MAX = 32 };

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_US UINT64_C(1000)

struct dispatch {
    struct server *server;
    dispatch_authority *authority; // NULL: none
    void *authority_cookie;
    dispatch_credentials *credentials; // NULL: none is understood
    void *credentials_cookie;
    const bool *anonymous; // NULL: allowed
    dispatch_gate *gate;   // NULL: none
    void *gate_cookie;
    struct method methods[METHODS_MAX];
    size_t n;
};

struct dispatch *
dispatch_new(struct server *s)
{
    struct dispatch *d = calloc(1, sizeof *d);
    if (d != NULL)
        d->server = s;
    metrics_name_value(METRIC_BY_METHOD, 0, "other");
    return d;
}

void
dispatch_free(struct dispatch *d)
{
    free(d);
}

static int
compare_methods(const void *a, const void *b)
{
    return strcmp(((const struct method *)a)->rules->path, ((const struct method *)b)->rules->path);
}

static const struct method *
find(const struct dispatch *d, const char *path)
{
    struct method_rules rules = {.path = path};
    struct method key = {.rules = &rules};
    return bsearch(&key, d->methods, d->n, sizeof key, compare_methods);
}

static int
add(struct dispatch *d, const struct call_method *m, struct err *e)
{
    const struct method_rules *rules = validate_method(m->path);
    if (rules == NULL)
        return err_set(e, ERR_INTERNAL, "serve %s: the schema has no such method", m->path);
    if (find(d, m->path) != NULL)
        return err_set(e, ERR_INTERNAL, "serve %s: it is already served", m->path);
    if (rules->client_streaming)
        return err_set(e, ERR_INTERNAL, "serve %s: streams from the client are not supported",
                       m->path);
    if (d->n == METHODS_MAX)
        return err_set(e, ERR_INTERNAL, "serve %s: more than %d methods", m->path, METHODS_MAX);
    const ProtobufCFieldDescriptor *wakes =
        protobuf_c_message_descriptor_get_field_by_name(m->input, rules->wakes);
    if (rules->wakes[0] != '\0' && (wakes == NULL || wakes->type != PROTOBUF_C_TYPE_STRING))
        return err_set(e, ERR_INTERNAL, "serve %s: its request has no text %s", m->path,
                       rules->wakes);
    uint32_t number = (uint32_t)d->n + 1 < METRIC_VALUES_METHOD ? (uint32_t)d->n + 1 : 0;
    if (number != 0)
        metrics_name_value(METRIC_BY_METHOD, number, m->path);
    d->methods[d->n++] = (struct method){
        .served = m,
        .rules = rules,
        .scope = scope_find(rules->scope),
        .others = scope_find(rules->others_scope),
        .tenant = protobuf_c_message_descriptor_get_field_by_name(m->input, "tenant"),
        .wakes = rules->wakes[0] != '\0' ? wakes : NULL,
        .objects = audited_fields(m->input),
        .number = number,
    };
    qsort(d->methods, d->n, sizeof d->methods[0], compare_methods);
    return 0;
}

int
dispatch_add(struct dispatch *d, const struct call_method *methods, struct err *e)
{
    int failed = 0;
    for (size_t i = 0; !failed && methods[i].path != NULL; i++)
        failed = add(d, &methods[i], e);
    return failed;
}

const ProtobufCMessageDescriptor *
dispatch_input(const struct dispatch *d, const char *path)
{
    const struct method *m = find(d, path);
    return m != NULL ? m->served->input : NULL;
}

int
dispatch_complete(const struct dispatch *d, struct err *e)
{
    const struct method_rules *rules;
    for (size_t i = 0; (rules = validate_method_at(i)) != NULL; i++)
        if (find(d, rules->path) == NULL)
            return err_set(e, ERR_INTERNAL, "%s has no handler", rules->path);
    return 0;
}

// ---- the checks

static int
check_method(struct dispatch *d, struct call *c, struct err *e)
{
    c->method = find(d, c->frame->method);
    if (c->method != NULL)
        return 0;
    (void)err_set(e, ERR_UNIMPLEMENTED, "%.128s: no such method", c->frame->method);
    err_detail(e, "METHOD_UNKNOWN", NULL, "ReflectionService lists the methods");
    return -ENOSYS;
}

static int
missing_scope(const struct call *c, const char *scope, struct err *e)
{
    int r = err_set(e, ERR_PERMISSION_DENIED, "%s does not have the right %s", c->principal.tenant,
                    scope);
    err_detail(e, "SCOPE_MISSING", scope,
               c->principal.proof > PROOF_PEER
                   ? "use a credential with this right; an operator makes one with 'stockade key "
                     "create --scopes'"
                   : "call as root, or as the account that the broker runs as, or with a "
                     "credential that has this right");
    principal_explain(&c->principal, scope, e);
    return r;
}

static int
check_scope(struct dispatch *d, struct call *c, struct err *e)
{
    (void)d;
    return principal_has(&c->principal, c->method->scope)
               ? 0
               : missing_scope(c, c->method->rules->scope, e);
}

// The credential of a call; NULL: none, or (*failed) none that can be a credential.
static const char *
find_credential(const struct call *c, bool *failed)
{
    static const char scheme[] = "bearer ";
    const char *found = NULL;
    *failed = false;
    for (size_t i = 0; i < c->frame->n_metadata; i++) {
        const Stockade__V1__Metadata *m = c->frame->metadata[i];
        if (strcmp(m->key, "authorization") != 0)
            continue;
        *failed = found != NULL || strncasecmp(m->value, scheme, sizeof scheme - 1) != 0;
        if (*failed)
            return NULL;
        found = m->value + sizeof scheme - 1;
    }
    return found;
}

const char *
call_credential(const struct call *c)
{
    bool failed = false;
    return find_credential(c, &failed);
}

static int
refuse_anonymous(struct err *e)
{
    int r = err_set(e, ERR_UNAUTHENTICATED, "calls to this address need a credential");
    err_detail(e, "CREDENTIAL_MISSING", "authorization",
               "set STOCKADE_TOKEN to an API key or a token; or use the unix socket, or a "
               "certificate that tls.clients lists");
    return r;
}

// A credential must not be ignored, because the call would run with other rights than it requests.
static int
check_credential(struct dispatch *d, struct call *c, struct err *e)
{
    bool failed = false;
    struct principal who;
    const char *text = find_credential(c, &failed);
    if (text == NULL && !failed) {
        const bool allowed = d->anonymous == NULL || *d->anonymous;
        return c->principal.proof == PROOF_NONE && (c->principal.scopes == 0 || !allowed)
                   ? refuse_anonymous(e)
                   : 0;
    }
    if (failed || d->credentials == NULL) {
        int r = failed ? err_set(e, ERR_UNAUTHENTICATED,
                                 "the credential is not of the form Bearer TEXT")
                       : err_set(e, ERR_UNAUTHENTICATED, "this broker accepts no credential");
        err_detail(e, "CREDENTIAL_UNKNOWN", "authorization", "send an API key or a token, once");
        return r;
    }
    int r = d->credentials(d->credentials_cookie, &c->principal, text, &who, e);
    return r < 0 ? r : call_become(c, &who, e);
}

static const char *
text_of(const struct call *c, const ProtobufCFieldDescriptor *field)
{
    return *(const char *const *)(const void *)((const char *)c->request + field->offset);
}

// Determines whose objects the call may see: the field `tenant` says so, if there is one.
static int
check_whose(struct dispatch *d, struct call *c, struct err *e)
{
    (void)d;
    const struct method *m = c->method;
    bool others = m->rules->others_scope[0] != '\0' && principal_has(&c->principal, m->others);
    const char *asked = "";
    c->whose = c->principal.tenant;
    if (m->rules->others_scope[0] == '\0')
        return 0;
    if (m->tenant != NULL)
        asked = text_of(c, m->tenant);
    else if (others)
        asked = "*";
    if (asked[0] == '\0' || strcmp(asked, c->principal.tenant) == 0)
        return 0;
    c->whose = strcmp(asked, "*") == 0 ? NULL : asked;
    if (others && principal_is_tenant(asked))
        return 0;
    if (others) {
        int unknown = err_set(e, ERR_NOT_FOUND, "there is no tenant %s", asked);
        err_detail(e, "TENANT_UNKNOWN", "tenant",
                   "use uid:NUMBER, such as uid:1000, another name, or * for all");
        return unknown;
    }
    int r =
        err_set(e, ERR_PERMISSION_DENIED, "%s may see only its own sandboxes", c->principal.tenant);
    err_detail(e, "TENANT", "tenant", "omit it, or call as root");
    err_rule(e, "rights/tenants.read", "calls about its own sandboxes");
    return r;
}

static int
check_draining(struct dispatch *d, struct call *c, struct err *e)
{
    (void)d;
    if (!c->rpc->draining || !c->method->rules->begins)
        return 0;
    char hint[96], left[QUANTITY_TEXT];
    const uint64_t now = uv_hrtime();
    const uint64_t left_ns = c->rpc->drain_until_ns > now ? c->rpc->drain_until_ns - now : 0;
    const uint64_t left_s = left_ns / (1000 * NS_PER_MS) + 1;
    (void)snprintf(hint, sizeof hint,
                   "its jobs have %s left to end; try again when it was started again",
                   quantity_write(left_s * 1000, quantity_time_ms, left));
    int r = err_set(e, ERR_UNAVAILABLE, "the broker is shutting down");
    err_detail(e, "DRAINING", NULL, hint);
    return r;
}

static int
check_stream(struct dispatch *d, struct call *c, struct err *e)
{
    (void)d;
    if (!c->method->rules->server_streaming)
        return 0;
    if (conn_streams(c->conn) >= c->rpc->limits.streams_max) {
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "%u %s open on this connection",
                      (unsigned)c->rpc->limits.streams_max,
                      plural(c->rpc->limits.streams_max, "stream is", "streams are"));
        err_detail(e, "STREAMS_PER_CONNECTION", NULL, "wait for one of them to end");
        return -ENOSPC;
    }
    c->stream = true;
    c->rpc->stats.open_streams++;
    metrics_move(METRIC_STREAMS_OPEN, 0, 1);
    conn_count_stream(c->conn, c);
    return 0;
}

static int
check_metadata(struct dispatch *d, struct call *c, struct err *e)
{
    (void)d;
    size_t bytes = 0;
    if (c->frame->n_metadata > METADATA_ITEMS_MAX)
        return err_field(e, "metadata", "%zu keys, but at most %d are allowed",
                         c->frame->n_metadata, METADATA_ITEMS_MAX);
    for (size_t i = 0; i < c->frame->n_metadata; i++) {
        const Stockade__V1__Metadata *m = c->frame->metadata[i];
        int failed = validate_message(&m->base, e);
        if (failed)
            return err_wrap(e, "metadata[%zu]", i);
        bytes += strlen(m->key) + strlen(m->value);
    }
    if (bytes > WIRE_METADATA_BYTES_MAX)
        return err_field(e, "metadata", "%zu bytes, but at most %d are allowed", bytes,
                         WIRE_METADATA_BYTES_MAX);
    return 0;
}

// The shorter of the caller's deadline and the method's longest deadline.
static int
check_deadline(struct dispatch *d, struct call *c, struct err *e)
{
    (void)d;
    uint64_t most_us = c->method->rules->deadline_ms_max * UINT64_C(1000);
    uint64_t us = c->frame->timeout_us;
    if (most_us != 0 && (us == 0 || us > most_us))
        us = most_us;
    if (us == 0 || us > (UINT64_MAX - c->arrived_ns) / NS_PER_US)
        return 0;
    c->deadline_ns = c->arrived_ns + us * NS_PER_US;
    if (timers_set(c->rpc->timers, &c->timer, c->deadline_ns) != 0)
        return err_sys(e, ENOMEM, "%s: set its deadline", c->frame->method);
    return 0;
}

static int
check_request(struct dispatch *d, struct call *c, struct err *e)
{
    (void)d;
    const ProtobufCBinaryData *payload = &c->frame->payload;
    int failed = wire_unpack(c->method->served->input, payload->data, payload->len, c->arena,
                             &c->request, e);
    if (failed)
        return failed;
    uint64_t more = arena_used(c->arena) - c->held_bytes;
    failed = tenant_charge(c->tenant, LEDGER_BYTES, more, c->rpc->limits.bytes_per_uid_max, e);
    if (failed == -EDQUOT) {
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "open requests of %s use too much memory",
                      c->tenant->name);
        err_detail(e, "BYTES_PER_UID", c->tenant->name, "wait for one of them to end");
        err_rule(e, "rpc.bytes_per_uid", "smaller requests");
    }
    if (failed)
        return failed;
    c->held_bytes += more;
    return validate_message(c->request, e);
}

// In this order: cheap checks, and checks with the more helpful error, come first.
static int (*const checks[])(struct dispatch *d, struct call *c, struct err *e) = {
    check_method, check_metadata, check_credential, check_scope, check_draining,
    check_stream, check_deadline, check_request,    check_whose,
};

// Also for idempotent methods: a repeated Delete would fail with NOT_FOUND. Methods that only read are executed again, and so is a
// simulation, which has no effect and must not outlive its caller.
static bool
takes_key(const struct call *c)
{
    const struct method_rules *rules = c->method->rules;
    return (!rules->idempotent || audited_changes(rules)) && !call_simulates(c);
}

void
dispatch_execute(struct call *c)
{
    c->method->served->handler(c->rpc->dispatch->server, c, c->request);
}

static void
run(struct call *c)
{
    const char *key = call_metadata(c, "idempotency-key");
    if (key != NULL && takes_key(c) && keys_begin(c->rpc->keys, c, key) != KEYS_EXECUTE)
        return;
    dispatch_execute(c);
}

static void again(struct call *c);

// A sandbox that is asleep wakes up before the authority decides, which must know its limits and its network. A call that is allowed
// runs when the audit log has it. Both may take time, in which the sandbox may fall asleep again.
static void
admit(struct dispatch *d, struct call *c)
{
    struct err e;
    const ProtobufCFieldDescriptor *field = c->method->wakes;
    const char *name = field != NULL ? text_of(c, field) : "";
    int r = d->gate != NULL && name[0] != '\0' ? d->gate(d->gate_cookie, c, name, &e) : 0;
    if (r == 0 && d->authority != NULL && !c->decided) {
        c->decided = true;
        r = d->authority(d->authority_cookie, c, c->request, &e);
    }
    if (r == 0 && !c->audit_admitted)
        r = audited_begin(c, again, &e);
    if (r < 0)
        call_fail(c, &e);
    else if (r == 0)
        run(c);
}

static void
again(struct call *c)
{
    admit(c->rpc->dispatch, c);
}

void
dispatch_call(struct dispatch *d, struct call *c)
{
    struct err e;
    int r = 0;
    for (size_t i = 0; i < sizeof checks / sizeof checks[0] && r == 0; i++)
        r = checks[i](d, c, &e);
    conn_pays(c->conn, c->tenant);
    if (r < 0)
        call_fail(c, &e);
    else
        admit(d, c);
}

void
dispatch_set_gate(struct dispatch *d, dispatch_gate *gate, void *cookie)
{
    d->gate = gate;
    d->gate_cookie = cookie;
}

void
dispatch_go_on(struct call *c, const struct err *e)
{
    call_watch(c, NULL, NULL, NULL);
    if (e != NULL)
        call_fail(c, e);
    else
        admit(c->rpc->dispatch, c);
}

void
dispatch_set_authority(struct dispatch *d, dispatch_authority *authority, void *cookie)
{
    d->authority = authority;
    d->authority_cookie = cookie;
}

void
dispatch_set_credentials(struct dispatch *d, dispatch_credentials *check, void *cookie)
{
    d->credentials = check;
    d->credentials_cookie = cookie;
}

void
dispatch_set_anonymous(struct dispatch *d, const bool *allowed)
{
    d->anonymous = allowed;
}

void
dispatch_decide(struct call *c, const struct err *e)
{
    call_watch(c, NULL, NULL, NULL);
    if (e != NULL)
        call_fail(c, e);
    else
        admit(c->rpc->dispatch, c);
}
