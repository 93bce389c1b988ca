// SPDX-License-Identifier: Apache-2.0
// See dispatch.h. A sorted table by path, and the list of checks that every call passes before its handler runs; the
// first that refuses ends the call.
#include "dispatch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/wire.h"
#include "calls.h"
#include "conn.h"
#include "idempotency.h"

enum { METHODS_MAX = 256, METADATA_ITEMS_MAX = 32 };

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_US UINT64_C(1000)

struct dispatch {
    struct server *server;
    struct method methods[METHODS_MAX];
    size_t n;
};

struct dispatch *
dispatch_new(struct server *s)
{
    struct dispatch *d = calloc(1, sizeof *d);
    if (d != NULL)
        d->server = s;
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
        return err_set(e, ERR_INTERNAL, "serve %s: it is served already", m->path);
    if (rules->client_streaming)
        return err_set(e, ERR_INTERNAL, "serve %s: streams from the client are not there", m->path);
    if (d->n == METHODS_MAX)
        return err_set(e, ERR_INTERNAL, "serve %s: more than %d methods", m->path, METHODS_MAX);
    d->methods[d->n++] = (struct method){m, rules};
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
    err_detail(e, "METHOD_UNKNOWN", NULL, "ReflectionService lists what there is");
    return -ENOSYS;
}

static int
check_draining(struct dispatch *d, struct call *c, struct err *e)
{
    (void)d;
    if (!c->rpc->draining || !c->method->rules->begins)
        return 0;
    int r = err_set(e, ERR_UNAVAILABLE, "the broker is shutting down");
    err_detail(e, "DRAINING", NULL, "connect again");
    return r;
}

static int
check_stream(struct dispatch *d, struct call *c, struct err *e)
{
    (void)d;
    if (!c->method->rules->server_streaming)
        return 0;
    if (conn_streams(c->conn) >= c->rpc->limits.streams_max) {
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "%u streams are open on this connection",
                      (unsigned)c->rpc->limits.streams_max);
        err_detail(e, "STREAMS_PER_CONNECTION", NULL, "wait for one of them to end");
        return -ENOSPC;
    }
    c->stream = true;
    c->rpc->stats.open_streams++;
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

// The shorter of what the caller and the schema allow.
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
    if (!tenant_take_bytes(c->tenant, more, c->rpc->limits.bytes_per_uid_max)) {
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "open requests of %s hold too many bytes",
                      c->tenant->name);
        err_detail(e, "BYTES_PER_UID", c->tenant->name, "wait for one of them to end");
        return -ENOSPC;
    }
    c->held_bytes += more;
    return validate_message(c->request, e);
}

// In this order: what is cheap, and what says more about the mistake, comes first.
static int (*const checks[])(struct dispatch *d, struct call *c, struct err *e) = {
    check_method, check_draining, check_stream, check_metadata, check_deadline, check_request,
};

// Also one that may be done twice: Delete, sent again, would be told NOT_FOUND. What only reads is read again.
static bool
takes_key(const struct method_rules *rules)
{
    static const char reads[] = ".read";
    size_t n = strlen(rules->scope);
    size_t reads_n = sizeof reads - 1;
    return !rules->idempotent || n < reads_n || strcmp(rules->scope + n - reads_n, reads) != 0;
}

void
dispatch_call(struct dispatch *d, struct call *c)
{
    struct err e;
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        if (checks[i](d, c, &e) != 0) {
            call_fail(c, &e);
            return;
        }
    const char *key = call_metadata(c, "idempotency-key");
    if (key != NULL && takes_key(c->method->rules) &&
        keys_begin(c->rpc->keys, c, key) != KEYS_EXECUTE)
        return;
    c->method->served->handler(d->server, c, c->request);
}
