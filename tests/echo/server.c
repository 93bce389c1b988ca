// SPDX-License-Identifier: Apache-2.0
// A server of the RPC layer alone: echo.proto, health and reflection behind the real connections, dispatch and limits.
//
//   echo-server [NAME=NUMBER...] ADDRESS...     prints "listening ADDRESS" for each, then "ready"
//
// NAME is a field of struct rpc_limits, or "websocket"; or, with a file, "certificate", "key" or "client_ca" of tls+tcp
// addresses, whose clients show a certificate for DNS:client. SIGTERM drains for grace_ms (30,000) and ends it; SIGINT ends it at once.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <uv.h>

#include "echo.pb-c.h"

#include "proto/validate.h"
#include "server/api/api.h"
#include "server/base/metrics.h"
#include "server/rpc/dispatch.h"
#include "server/rpc/principal.h"
#include "server/rpc/rpc.h"
#include "server/rpc/tenants.h"
#include "server/rpc/tls.h"
#include "server/base/server.h"

static struct rpc *rpc;
static struct server server;
static struct rpc_limits limits;
static struct tenants tenants;
static struct tls_files tls;
static uint32_t grace_ms = 30000;
static uint32_t changes;
static uint32_t cancels[3];

static void
fail(struct call *c, enum err_code code, const char *text)
{
    struct err e;
    (void)err_set(&e, code, "%s", text);
    call_fail(c, &e);
}

// ---- Echo

static void
echo(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    (void)s;
    const Stockade__Test__EchoRequest *r = (const Stockade__Test__EchoRequest *)req;
    Stockade__Test__EchoResponse response = STOCKADE__TEST__ECHO_RESPONSE__INIT;
    response.data = r->data;
    call_reply(c, &response.base);
}

// ---- Change

struct change {
    uv_timer_t timer;
    struct call *call;
    const Stockade__Test__ChangeRequest *request;
};

static void
on_change_closed(uv_handle_t *h)
{
    free(h->data);
}

static void
on_change_cancel(void *cookie, enum call_cancel why)
{
    struct change *ch = cookie;
    cancels[why]++;
    uv_close((uv_handle_t *)&ch->timer, on_change_closed);
}

static void
on_change_done(uv_timer_t *t)
{
    struct change *ch = t->data;
    Stockade__Test__ChangeResponse response = STOCKADE__TEST__CHANGE_RESPONSE__INIT;
    response.data = ch->request->data;
    response.executed = changes;
    call_reply(ch->call, &response.base);
    uv_close((uv_handle_t *)t, on_change_closed);
}

static void
change(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    struct change *ch = calloc(1, sizeof *ch);
    if (ch == NULL) {
        fail(c, ERR_RESOURCE_EXHAUSTED, "no memory");
        return;
    }
    changes++;
    ch->call = c;
    ch->request = (const Stockade__Test__ChangeRequest *)req;
    (void)uv_timer_init(s->loop, &ch->timer);
    ch->timer.data = ch;
    (void)uv_timer_start(&ch->timer, on_change_done, ch->request->delay_ms, 0);
    call_watch(c, on_change_cancel, NULL, ch);
}

// ---- Count

struct count {
    struct call *call;
    uint64_t next, end;
    uint8_t *filler;
    uint32_t bytes;
};

static void
count_free(struct count *n)
{
    free(n->filler);
    free(n);
}

static void
on_count_cancel(void *cookie, enum call_cancel why)
{
    cancels[why]++;
    count_free(cookie);
}

static void
on_count_writable(void *cookie)
{
    struct count *n = cookie;
    while (n->next < n->end) {
        Stockade__Test__CountResponse response = STOCKADE__TEST__COUNT_RESPONSE__INIT;
        response.number = n->next;
        response.filler = (ProtobufCBinaryData){n->bytes, n->filler};
        if (call_send(n->call, &response.base) != 0)
            return;
        n->next++;
    }
    call_end(n->call);
    count_free(n);
}

static void
count(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    (void)s;
    const Stockade__Test__CountRequest *r = (const Stockade__Test__CountRequest *)req;
    struct count *n = calloc(1, sizeof *n);
    uint8_t *filler = calloc(1, r->bytes + 1);
    if (n == NULL || filler == NULL || r->fail) {
        free(n);
        free(filler);
        fail(c, ERR_UNAVAILABLE, "not now");
        return;
    }
    *n = (struct count){c, 0, r->count, filler, r->bytes};
    changes++;
    if (r->note[0] != '\0')
        call_note(c, "process_id", r->note);
    call_watch(c, on_count_cancel, on_count_writable, n);
    on_count_writable(n);
}

// ---- Stats

static void
stats(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    (void)s;
    (void)req;
    struct rpc_stats now;
    Stockade__Test__StatsResponse r = STOCKADE__TEST__STATS_RESPONSE__INIT;
    rpc_stats(rpc, &now);
    r.accepted = metrics_sum(METRIC_ACCEPTED);
    r.rejected = metrics_sum(METRIC_REFUSED);
    r.handshake_failed = metrics_sum(METRIC_HANDSHAKE_FAILED);
    r.protocol_errors = metrics_sum(METRIC_PROTOCOL_ERRORS);
    r.slow_readers_closed = metrics_sum(METRIC_UNREAD_CLOSED);
    r.stalled_closed = metrics_sum(METRIC_STALLED_CLOSED);
    r.connections = now.connections;
    r.open_calls = now.open_calls;
    r.open_streams = now.open_streams;
    r.changes = changes;
    r.handlers_cancelled = cancels[CALL_CANCELLED];
    r.handlers_disconnected = cancels[CALL_DISCONNECTED];
    r.handlers_deadline = cancels[CALL_DEADLINE];
    call_reply(c, &r.base);
}

static const struct call_method echo_methods[] = {
    {"/stockade.test.EchoService/Echo", &stockade__test__echo_request__descriptor,
     &stockade__test__echo_response__descriptor, echo},
    {"/stockade.test.EchoService/Change", &stockade__test__change_request__descriptor,
     &stockade__test__change_response__descriptor, change},
    {"/stockade.test.EchoService/Count", &stockade__test__count_request__descriptor,
     &stockade__test__count_response__descriptor, count},
    {"/stockade.test.EchoService/Stats", &stockade__test__stats_request__descriptor,
     &stockade__test__stats_response__descriptor, stats},
    {0},
};

// ---- main

static const struct {
    const char *name;
    uint32_t *small;
    uint64_t *large;
} settings[] = {
    {"connections_max", &limits.connections_max, NULL},
    {"connections_per_uid_max", &limits.connections_per_uid_max, NULL},
    {"calls_max", &limits.calls_max, NULL},
    {"streams_max", &limits.streams_max, NULL},
    {"calls_per_uid_max", &limits.calls_per_uid_max, NULL},
    {"bytes_per_uid_max", NULL, &limits.bytes_per_uid_max},
    {"handshake_ms", &limits.handshake_ms, NULL},
    {"queue_bytes_pause", NULL, &limits.queue_bytes_pause},
    {"queue_bytes_kill", NULL, &limits.queue_bytes_kill},
    {"write_stall_ms", &limits.write_stall_ms, NULL},
    {"keepalive_idle_ms", &limits.keepalive_idle_ms, NULL},
    {"shared_cpu", &limits.shared_cpu, NULL},
    {"idempotency_ms", &limits.idempotency_ms, NULL},
    {"idempotency_keys_max", &limits.idempotency_keys_max, NULL},
    {"idempotency_bytes_max", NULL, &limits.idempotency_bytes_max},
    {"grace_ms", &grace_ms, NULL},
    {"old_tls", &tls.old, NULL},
};

static bool
set_file(const char *name, size_t n, const char *value)
{
    const struct {
        const char *name;
        char *path;
    } paths[] = {{"certificate", tls.certificate}, {"key", tls.key}, {"client_ca", tls.client_ca}};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (strlen(paths[i].name) != n || memcmp(paths[i].name, name, n) != 0)
            continue;
        (void)snprintf(paths[i].path, TLS_PATH_MAX, "%s", value);
        return true;
    }
    return false;
}

static bool
set_limit(const char *name, size_t n, const char *value)
{
    if (n == strlen("websocket") && memcmp(name, "websocket", n) == 0) {
        limits.websocket = value[0] == '1';
        return true;
    }
    if (set_file(name, n, value))
        return true;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        if (strlen(settings[i].name) != n || memcmp(settings[i].name, name, n) != 0)
            continue;
        uint64_t number = strtoull(value, NULL, 10);
        if (settings[i].small != NULL)
            *settings[i].small = (uint32_t)number;
        else
            *settings[i].large = number;
        return true;
    }
    return false;
}

static uv_signal_t terminate, interrupt;

static void
stop(void *cookie)
{
    (void)cookie;
    rpc_close(rpc);
    uv_close((uv_handle_t *)&terminate, NULL);
    uv_close((uv_handle_t *)&interrupt, NULL);
}

static void
on_signal(uv_signal_t *handle, int number)
{
    (void)handle;
    if (number == SIGINT || server.draining) {
        stop(NULL);
        return;
    }
    server.draining = true;
    if (server.on_serving_change != NULL)
        server.on_serving_change(server.serving_cookie);
    rpc_drain(rpc, grace_ms, stop, NULL);
}

static int
start_rpc(struct err *e)
{
    limits.tls = tls.certificate[0] != '\0';
    tls.clients_n = tls.client_ca[0] != '\0';
    tls.clients[0] =
        (struct tls_client){.name = "DNS:client", .tenant = "tls", .scopes = scopes_usual()};
    rpc = rpc_new(server.loop, server.dispatch, &limits, &tenants);
    return rpc != NULL ? rpc_use_certificates(rpc, &tls, e) : err_sys(e, ENOMEM, "start");
}

static int
listen_all(int argc, char **argv, struct err *e)
{
    char bound[128];
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        if (equals != NULL && set_limit(argv[i], (size_t)(equals - argv[i]), equals + 1))
            continue;
        int failed = rpc == NULL ? start_rpc(e) : 0;
        if (!failed)
            failed = rpc_listen(rpc, argv[i], 0660, -1, bound, sizeof bound, e);
        if (failed)
            return failed;
        (void)printf("listening %s\n", bound);
    }
    return rpc != NULL ? 0 : err_set(e, ERR_INVALID_ARGUMENT, "no address");
}

static int
set_up(int argc, char **argv, struct err *e)
{
    static const uint8_t set[] = {
#include "echo_set.inc"
    };
    server.loop = uv_default_loop();
    server.started_ns = uv_hrtime();
    server.dispatch = dispatch_new(&server);
    if (server.dispatch == NULL)
        return err_sys(e, ENOMEM, "start");
    int failed = validate_load(set, sizeof set, e);
    if (!failed)
        failed = dispatch_add(server.dispatch, echo_methods, e);
    if (!failed)
        failed = dispatch_add(server.dispatch, health_methods, e);
    if (!failed)
        failed = dispatch_add(server.dispatch, reflection_methods, e);
    (void)uv_signal_init(server.loop, &terminate);
    (void)uv_signal_init(server.loop, &interrupt);
    (void)uv_signal_start(&terminate, on_signal, SIGTERM);
    (void)uv_signal_start(&interrupt, on_signal, SIGINT);
    return failed ? failed : listen_all(argc, argv, e);
}

int
main(int argc, char **argv)
{
    struct err e;
    struct rlimit files;
    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    rpc_limits_default(&limits);
    if (set_up(argc, argv, &e) != 0) {
        (void)fprintf(stderr, "echo-server: %s\n", e.text);
        return 1;
    }
    (void)printf("ready\n");
    (void)fflush(stdout);
    (void)uv_run(server.loop, UV_RUN_DEFAULT);
    rpc_free(rpc);
    dispatch_free(server.dispatch);
    (void)uv_loop_close(server.loop);
    return 0;
}
