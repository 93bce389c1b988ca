// SPDX-License-Identifier: Apache-2.0
// See rpc.h: the common part of all connections, their start and their end.
#include "rpc.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/container_of.h"
#include "proto/wire.h"
#include "server/base/metrics.h"
#include "listen.h"
#include "calls.h"
#include "conn.h"
#include "idempotency.h"
#include "outbox.h"
#include "tls.h"

#define NS_PER_MS UINT64_C(1000000)

void
rpc_limits_default(struct rpc_limits *l)
{
    *l = (struct rpc_limits){
        .connections_max = 4096,
        .connections_per_uid_max = 2048,
        .calls_max = 1024,
        .streams_max = 128,
        .calls_per_uid_max = 8192,
        .bytes_per_uid_max = UINT64_C(256) << 20,
        .handshake_ms = 5000,
        .queue_bytes_pause = UINT64_C(1) << 20,
        .queue_bytes_kill = UINT64_C(8) << 20,
        .write_stall_ms = 60000,
        .keepalive_idle_ms = 300000,
        .idempotency_ms = 600000,
        .idempotency_keys_max = 100000,
        .idempotency_bytes_max = UINT64_C(64) << 20,
        .shared_cpu = 20,
    };
}

static void
on_accept(void *cookie, struct transport_stream *s, const struct transport_peer *peer)
{
    struct rpc_engine *g = cookie;
    conn_accept(g->rpc, g->ops, s, peer);
}

static void
on_refused(void *cookie, const struct transport_peer *peer, const char *reason, const char *text)
{
    const struct rpc *r = ((const struct rpc_engine *)cookie)->rpc;
    char address[PRINCIPAL_ADDRESS];
    if (r->refused == NULL)
        return;
    principal_address(peer, address);
    r->refused(r->refused_cookie, address, reason, text);
}

static void
on_shut(void *cookie)
{
    struct rpc_engine *g = cookie;
    g->transport = NULL;
}

static const struct transport_events events = {
    .on_accept = on_accept,
    .on_refused = on_refused,
    .on_read = conn_on_read,
    .on_written = conn_on_written,
    .on_closed = conn_on_closed,
    .on_shut = on_shut,
};

static void
on_grace_over(struct timer *t)
{
    struct rpc *r = container_of(t, struct rpc, drain_timer);
    void (*drained)(void *) = r->drained;
    r->drained = NULL;
    if (drained != NULL)
        drained(r->drained_cookie);
}

static void
name_values(void)
{
    for (uint32_t i = 0; i < METRIC_VALUES_CODE; i++)
        metrics_name_value(METRIC_BY_CODE, i, err_code_name((int)i));
    conn_name_refusals();
}

static const struct principal_map no_rows;

struct rpc *
rpc_new(uv_loop_t *loop, struct dispatch *d, const struct rpc_limits *l, struct tenants *tenants)
{
    struct rpc *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    name_values();
    r->loop = loop;
    r->dispatch = d;
    r->limits = *l;
    r->own_uid = geteuid();
    r->map = &no_rows;
    r->tenants = tenants;
    tenants->fair.part = fair_part(l->shared_cpu, sysconf(_SC_NPROCESSORS_ONLN));
    r->engines[0] = (struct rpc_engine){r, &transport_socket, NULL};
    r->engines[1] = (struct rpc_engine){r, &transport_ws, NULL};
    r->engines[2] = (struct rpc_engine){r, &transport_tls, NULL};
    r->tls = tls_new();
    r->drain_timer.fire = on_grace_over;
    r->timers = timers_new(loop);
    r->keys = keys_new(r);
    if (r->timers == NULL || r->keys == NULL || r->tls == NULL ||
        rpc_scratch(r, WIRE_DATA_BYTES_MAX) == NULL || !meter_start(r)) {
        timers_close(r->timers);
        keys_free(r->keys);
        tls_free(r->tls);
        free(r->scratch);
        free(r);
        return NULL;
    }
    return r;
}

void
rpc_set_audit(struct rpc *r, struct audit *a)
{
    r->audit = a;
}

int
rpc_read_keys(struct state *s, struct keys_earlier **out, struct err *e)
{
    return keys_read(s, out, e);
}

void
rpc_set_state(struct rpc *r, struct state *s, struct keys_earlier *earlier)
{
    keys_store_in(r->keys, s, earlier);
}

void
rpc_set_refused(struct rpc *r, rpc_refused_fn *refused, void *cookie)
{
    r->refused = refused;
    r->refused_cookie = cookie;
}

void
rpc_forget_answers(struct rpc *r, const char *tenant)
{
    keys_forget(r->keys, tenant);
}

void
rpc_set_principals(struct rpc *r, const struct principal_map *map)
{
    r->map = map;
}

bool
rpc_is_closed(const struct rpc *r)
{
    if (r == NULL)
        return true;
    for (size_t i = 0; i < RPC_ENGINES; i++)
        if (r->engines[i].transport != NULL)
            return false;
    return r->conns == NULL && r->detached == NULL && r->timers == NULL;
}

void
rpc_free(struct rpc *r)
{
    if (r == NULL)
        return;
    assert(rpc_is_closed(r));
    keys_free(r->keys);
    tls_free(r->tls);
    while (r->spare_arenas_n > 0)
        arena_free(r->spare_arenas[--r->spare_arenas_n]);
    outbox_free_spares(r);
    free(r->scratch);
    free(r);
}

int
rpc_check_address(const struct rpc_limits *l, const char *address, struct err *e)
{
    const struct transport_address a = {.url = address, .any = l->tcp_any_address};
    if (listen_is_tls(address) && !l->tls) {
        int rc = err_set(e, ERR_FAILED_PRECONDITION,
                         "listen on %s: needs a certificate and its key", address);
        err_detail(e, "TLS_CERTIFICATE", "tls.certificate", "set tls.certificate and tls.key");
        return rc;
    }
    if (!listen_is_ws(address))
        return listen_check(&a, e);
    if (!l->websocket)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "listen on %s: websockets are disabled (rpc.websocket enables them)",
                       address);
    return listen_check_ws(&a, transport_ws_version(), e);
}

int
rpc_use_certificates(struct rpc *r, const struct tls_files *files, struct err *e)
{
    return tls_load(r->tls, files, e);
}

int
rpc_address_is_free(const char *address, struct err *e)
{
    return listen_is_free(address, e);
}

static struct rpc_engine *
engine_of(struct rpc *r, const char *address)
{
    for (struct rpc_engine *g = r->engines; g < r->engines + RPC_ENGINES; g++)
        if ((g->ops == &transport_ws && listen_is_ws(address)) ||
            (g->ops == &transport_tls && listen_is_tls(address)))
            return g;
    return r->engines;
}

int
rpc_listen(struct rpc *r, const char *address, uint32_t mode, int group, char *bound,
           size_t bound_n, struct err *e)
{
    char where[TRANSPORT_BOUND_BYTES];
    struct transport_address a = {.url = address,
                                  .mode = mode,
                                  .group = group,
                                  .any = r->limits.tcp_any_address,
                                  .tls = r->tls,
                                  .handshake_ms = r->limits.handshake_ms};
    struct rpc_engine *g = engine_of(r, address);
    int failed = rpc_check_address(&r->limits, address, e);
    if (!failed && g->transport == NULL)
        failed = g->ops->open(r->loop, &events, g, &g->transport, e);
    if (!failed)
        failed = g->ops->listen(g->transport, &a, where, e);
    if (failed)
        return failed;
    (void)snprintf(bound, bound_n, "%s", where);
    return 0;
}

static void
end_drain_if_over(struct rpc *r)
{
    if (!r->draining || r->drained == NULL || r->stats.open_calls > r->stats.watching_calls)
        return;
    // on the loop's next turn: the function that ended the last call is still running
    if (r->timers == NULL || timers_set(r->timers, &r->drain_timer, uv_hrtime()) != 0)
        on_grace_over(&r->drain_timer);
}

void
rpc_drain(struct rpc *r, uint32_t grace_ms, void (*done)(void *), void *cookie)
{
    struct err e;
    assert(!r->draining);
    r->draining = true;
    r->drain_until_ns = uv_hrtime() + grace_ms * NS_PER_MS;
    r->drained = done;
    r->drained_cookie = cookie;
    (void)err_set(&e, ERR_UNAVAILABLE, "the broker is shutting down");
    err_detail(&e, "DRAINING", NULL, NULL);
    for (struct conn *c = r->conns; c != NULL; c = conn_next(c))
        conn_go_away(c, &e);
    if (timers_set(r->timers, &r->drain_timer, r->drain_until_ns) != 0)
        on_grace_over(&r->drain_timer);
    else
        end_drain_if_over(r);
}

// Frees the timers when nothing can set one any more.
static void
end_if_closed(struct rpc *r)
{
    if (!r->closing || r->conns != NULL || r->stats.open_calls > 0 || r->timers == NULL)
        return;
    timers_close(r->timers);
    r->timers = NULL;
    meter_stop(r);
}

void
rpc_close(struct rpc *r)
{
    struct conn *next;
    if (r == NULL || r->closing)
        return;
    r->closing = true;
    r->draining = true;
    r->drained = NULL;
    for (struct conn *c = r->conns; c != NULL; c = next) {
        next = conn_next(c);
        conn_close(c);
    }
    while (r->detached != NULL)
        call_cancel(r->detached, CALL_CANCELLED);
    for (struct rpc_engine *g = r->engines; g < r->engines + RPC_ENGINES; g++)
        if (g->transport != NULL)
            g->ops->shut(g->transport);
    end_if_closed(r);
}

void
rpc_call_gone(struct rpc *r)
{
    end_drain_if_over(r);
    end_if_closed(r);
}

void
rpc_stats(const struct rpc *r, struct rpc_stats *out)
{
    *out = r->stats;
}

bool
rpc_tenant_take(const struct rpc *r, struct tenant *t, size_t n)
{
    return tenant_take_bytes(t, n, r->limits.bytes_per_uid_max / 4 * 3);
}

const char *
rpc_nng_version(void)
{
    return transport_ws_version();
}

struct arena *
rpc_arena(struct rpc *r)
{
    if (r->spare_arenas_n > 0)
        return r->spare_arenas[--r->spare_arenas_n];
    return arena_new(WIRE_ARENA_BYTES_MAX);
}

void
rpc_arena_back(struct rpc *r, struct arena *a)
{
    if (r->spare_arenas_n == SPARE_ARENAS_MAX) {
        arena_free(a);
        return;
    }
    arena_reset(a);
    r->spare_arenas[r->spare_arenas_n++] = a;
}

uint8_t *
rpc_scratch(struct rpc *r, size_t n)
{
    if (n > r->scratch_bytes || r->scratch == NULL) {
        size_t size = n > WIRE_DATA_BYTES_MAX ? n : WIRE_DATA_BYTES_MAX;
        uint8_t *bigger = realloc(r->scratch, size);
        if (bigger == NULL)
            return NULL;
        r->scratch = bigger;
        r->scratch_bytes = size;
    }
    return r->scratch;
}
