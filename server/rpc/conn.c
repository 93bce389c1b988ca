// SPDX-License-Identifier: Apache-2.0
// See conn.h.
//
//   HELLO --(8 bytes of a REQ socket; we answer as REP)--> OPEN --(protocol error)--> LEAVING --(GOAWAY is out)--.
//     |                                                     |                                                   v
//     '---(deadline, other bytes)---------------------------'---(peer gone, slow, idle, rpc_close)---------> CLOSING
//                                                                            on_closed: calls are cancelled, freed
#include "proto/container_of.h"
#include "proto/plural.h"
#include "conn_private.h"

#include <stdio.h>
#include <stdlib.h>

#include "proto/wire.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "status.h"

enum {
    PING_INTERVAL_MS = 5000,
    LEAVE_MS = 1000, // time for the peer to read GOAWAY
    LOG_PAUSE_MS = 10 * 1000,
    LOG_LINES_MAX = 10, // within that interval
    // this fraction of all connections is reserved for tenants without one, and for root
    KEPT_PART = 8,
    KEPT_MAX = 64,
};

struct rpc *
conn_rpc(const struct conn *c)
{
    return c->rpc;
}

const struct principal *
conn_principal(const struct conn *c)
{
    return &c->principal;
}

struct tenant *
conn_tenant(const struct conn *c)
{
    return c->tenant;
}

bool
conn_is_local(const struct conn *c)
{
    return c->local;
}

uint32_t
conn_calls(const struct conn *c)
{
    return c->calls;
}

uint32_t
conn_streams(const struct conn *c)
{
    return c->streams;
}

struct conn *
conn_next(const struct conn *c)
{
    return c->next;
}

// ---- what an operator reads

// Logs a line about a peer that is not a client. Such a peer may send garbage fast, so the number of lines per interval
// is limited; the next line reports how many were omitted.
static void
log_peer_as(struct rpc *r, const char *tenant, int32_t pid, const char *event, const char *text)
{
    uint64_t now = uv_hrtime();
    const struct log_about about = {.tenant = tenant};
    if (now - r->log_from_ns >= LOG_PAUSE_MS * NS_PER_MS) {
        if (r->unlogged > 0)
            log_event(LOG_WARNING, "peers", "%u more %s", (unsigned)r->unlogged,
                      plural(r->unlogged, "line like this", "lines like these"));
        r->log_from_ns = now;
        r->logged = r->unlogged = 0;
    }
    if (r->logged == LOG_LINES_MAX) {
        r->unlogged++;
        metrics_add(METRIC_LOG_OMITTED, 1);
        return;
    }
    r->logged++;
    log_event_about(LOG_WARNING, event, &about, "%s (pid %d): %s", tenant, (int)pid, text);
}

static void
log_peer(struct conn *c, const char *event, const char *text)
{
    log_peer_as(c->rpc, c->principal.tenant, c->principal.pid, event, text);
}

// ---- start

void
conn_greet(struct conn *c, const uint8_t *hello)
{
    struct rpc *r = c->rpc;
    uint8_t *p;
    if (!sp_hello_is(hello, SP_PROTO_REQ)) {
        metrics_add(METRIC_HANDSHAKE_FAILED, 1);
        log_peer(c, "handshake", "its first bytes are not those of an SP REQ socket");
        conn_close(c);
        return;
    }
    p = conn_reserve(c, SP_HELLO_BYTES);
    if (p == NULL)
        return;
    sp_hello(p, SP_PROTO_REP);
    c->state = CONN_OPEN;
    timers_clear(r->timers, &c->timer);
    if (r->limits.keepalive_idle_ms != 0 &&
        timers_set(r->timers, &c->timer, c->active_ns + r->limits.keepalive_idle_ms * NS_PER_MS) !=
            0)
        conn_close(c);
}

static void
on_idle(struct timer *t)
{
    struct conn *c = container_of(t, struct conn, timer);
    uint64_t idle_ns = c->rpc->limits.keepalive_idle_ms * NS_PER_MS;
    uint64_t now = uv_hrtime();
    if (c->state == CONN_OPEN && c->calls > 0)
        c->active_ns = now;
    if (c->state != CONN_OPEN || now - c->active_ns >= idle_ns ||
        timers_set(c->rpc->timers, t, c->active_ns + idle_ns) != 0) {
        if (c->state == CONN_HELLO) {
            metrics_add(METRIC_HANDSHAKE_FAILED, 1);
            log_peer(c, "handshake", "no greeting in time");
        }
        conn_close(c);
    }
}

// The last connections are reserved for tenants without a connection, and the very last for root, who may have to find
// the problem. So no tenant can lock out another.
static bool
has_room(const struct rpc *r, const struct tenant *t, const struct principal *who)
{
    uint32_t most = r->limits.connections_max;
    uint32_t kept = most / KEPT_PART < KEPT_MAX ? most / KEPT_PART : KEPT_MAX;
    bool root = who->proof == PROOF_PEER && who->uid == 0;
    if (root && tenant_held(t, LEDGER_CONNECTIONS) < KEPT_MAX)
        kept = 0;
    else if (tenant_held(t, LEDGER_CONNECTIONS) == 0)
        kept /= 2;
    return r->stats.connections < most - kept;
}

enum refusal {
    REFUSED_BY_NONE,
    REFUSED_FULL,
    REFUSED_TENANT_FULL,
    REFUSED_SHUTDOWN,
    REFUSED_HELPER,
    REFUSALS_N
};
_Static_assert((int)REFUSALS_N == (int)METRIC_VALUES_REFUSAL, "a value for each reason");

void
conn_name_refusals(void)
{
    metrics_name_value(METRIC_BY_REFUSAL, REFUSED_FULL, "full");
    metrics_name_value(METRIC_BY_REFUSAL, REFUSED_TENANT_FULL, "tenant-full");
    metrics_name_value(METRIC_BY_REFUSAL, REFUSED_SHUTDOWN, "shutdown");
    metrics_name_value(METRIC_BY_REFUSAL, REFUSED_HELPER, "helper");
}

// Charges one more connection to the tenant, or returns why it may not have one.
static enum refusal
charge(const struct rpc *r, struct tenant *t, const struct principal *who)
{
    struct err ignored; // the peer has not greeted yet, and gets no words
    const uint32_t most = r->limits.connections_per_uid_max;
    if (r->closing)
        return REFUSED_SHUTDOWN;
    if (!has_room(r, t, who))
        return REFUSED_FULL;
    return tenant_charge(t, LEDGER_CONNECTIONS, 1, most, &ignored) == 0 ? REFUSED_BY_NONE
                                                                        : REFUSED_TENANT_FULL;
}

static struct conn *
conn_new(void)
{
    struct conn *c = calloc(1, sizeof *c);
    if (c == NULL || conn_rx_init(c))
        return c;
    free(c);
    return NULL;
}

// By what the kernel says of the peer.
static bool
is_helper(const struct rpc *r, const struct transport_peer *peer)
{
    const struct rpc_limits *l = &r->limits;
    if (!peer->local || peer->uid == 0 || peer->uid == r->own_uid)
        return false;
    return peer->uid == l->helper_uid || (peer->uid >= l->ids_first && peer->uid < l->ids_after);
}

static void
refuse_helper(struct rpc *r, const struct transport_ops *ops, struct transport_stream *s,
              const struct transport_peer *peer)
{
    char who[PRINCIPAL_TENANT];
    (void)snprintf(who, sizeof who, "uid:%u", (unsigned)peer->uid);
    log_peer_as(r, who, peer->pid, "helper-refused",
                "an account of the broker's helpers or of jobs has called the broker");
    metrics_add_by(METRIC_REFUSED, REFUSED_HELPER, 0, 1);
    ops->close(s);
}

void
conn_accept(struct rpc *r, const struct transport_ops *ops, struct transport_stream *s,
            const struct transport_peer *peer)
{
    struct principal who;
    if (is_helper(r, peer)) {
        refuse_helper(r, ops, s, peer);
        return;
    }
    principal_of_peer(peer, r->own_uid, r->map, &who);
    if (peer->local && peer->uid != 0 && peer->uid == r->limits.reader_uid)
        principal_make_reader(&who);
    struct tenant *t = tenant_hold(r->tenants, who.tenant);
    enum refusal why = t != NULL ? charge(r, t, &who) : REFUSED_BY_NONE;
    bool charged = t != NULL && why == REFUSED_BY_NONE;
    struct conn *c = charged ? conn_new() : NULL;
    if (c == NULL) {
        if (charged)
            tenant_release(t, LEDGER_CONNECTIONS, 1);
        if (t != NULL)
            tenant_drop(t);
        if (why == REFUSED_BY_NONE)
            metrics_add(METRIC_ACCEPT_FAILED, 1); // out of memory
        else
            metrics_add_by(METRIC_REFUSED, why, 0, 1);
        ops->close(s);
        return;
    }
    c->rpc = r;
    c->ops = ops;
    c->stream = s;
    c->local = peer->local;
    c->principal = who;
    c->tenant = t;
    c->payer = tenant_hold_again(t);
    list_init(&c->turn);
    c->active_ns = uv_hrtime();
    c->next = r->conns;
    if (r->conns != NULL)
        r->conns->prev = c;
    r->conns = c;
    metrics_add(METRIC_ACCEPTED, 1);
    metrics_move(METRIC_CONNECTIONS, 0, 1);
    r->stats.connections++;
    trim_one_more(&r->trim);
    ops->start(s, c);
    c->timer.fire = on_idle;
    c->stall.fire = conn_on_stall;
    if (timers_set(r->timers, &c->timer, c->active_ns + r->limits.handshake_ms * NS_PER_MS) != 0)
        conn_close(c);
    else
        conn_read(c);
}

// ---- end

void
conn_close(struct conn *c)
{
    if (c->state == CONN_CLOSING)
        return;
    c->state = CONN_CLOSING;
    timers_clear(c->rpc->timers, &c->timer);
    timers_clear(c->rpc->timers, &c->stall);
    conn_turn_drop(c);
    c->ops->close(c->stream);
}

void
conn_on_closed(void *conn)
{
    struct conn *c = conn;
    struct rpc *r = c->rpc;
    for (size_t i = 0; i < CALL_BUCKETS; i++)
        while (c->buckets[i] != NULL)
            call_cancel(c->buckets[i], CALL_DISCONNECTED);
    outbox_drop(&c->tx, r, c->tenant, c->tx.bytes);
    conn_rx_free(c);
    *(c->prev != NULL ? &c->prev->next : &r->conns) = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    metrics_move(METRIC_CONNECTIONS, 0, -1);
    r->stats.connections--;
    tenant_release(c->tenant, LEDGER_CONNECTIONS, 1);
    tenant_drop(c->payer);
    tenant_drop(c->tenant);
    free(c);
    trim_one_less(&r->trim);
    rpc_call_gone(r);
}

static void
send_go_away(struct conn *c, const struct err *why)
{
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    struct arena *a = rpc_arena(c->rpc);
    if (a == NULL)
        return;
    f.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_GOAWAY;
    f.status = status_of(why, c->principal.tenant, NULL, 0, a);
    conn_send(c, c->last_id != 0 ? c->last_id : WIRE_ID_REQUEST, &f);
    rpc_arena_back(c->rpc, a);
}

void
conn_go_away(struct conn *c, const struct err *why)
{
    if (c->state == CONN_OPEN)
        send_go_away(c, why);
}

void
conn_fail(struct conn *c, enum err_code code, const char *reason, const char *text)
{
    struct err e;
    if ((c->state == CONN_LEAVING || c->state == CONN_CLOSING))
        return;
    (void)err_set(&e, code, "%s", text);
    err_detail(&e, reason, NULL, NULL);
    metrics_add(METRIC_PROTOCOL_ERRORS, 1);
    log_peer(c, "protocol", text);
    send_go_away(c, &e);
    if (c->state == CONN_CLOSING)
        return;
    c->state = CONN_LEAVING;
    if (timers_set(c->rpc->timers, &c->timer, uv_hrtime() + LEAVE_MS * NS_PER_MS) != 0)
        conn_close(c);
}

bool
conn_may_ping(struct conn *c)
{
    uint64_t now = uv_hrtime();
    if (c->ping_ns != 0 && now - c->ping_ns < PING_INTERVAL_MS * NS_PER_MS)
        return false;
    c->ping_ns = now;
    return true;
}
