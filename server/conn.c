// See conn.h.
//
//   HELLO --(8 bytes of a REQ socket; we answer as REP)--> OPEN --(protocol error)--> LEAVING --(GOAWAY is out)--.
//     |                                                     |                                                   v
//     '---(deadline, other bytes)---------------------------'---(peer gone, slow, idle, rpc_close)---------> CLOSING
//                                                                            on_closed: calls are cancelled, freed
//
// Input: one buffer that begins small, grows to 64 KiB while the peer fills it, and beyond that only as the bytes of a
// larger frame really arrive. Output: a list of chunks into which frames are packed one behind the other, written in up
// to eight pieces at once. While the peer has a MiB of answers to read, nothing is read from it and no stream sends.
#include "conn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../proto/wire.h"
#include "outbox.h"
#include "status.h"

enum {
    RX_BYTES_FIRST = 4 * 1024,
    RX_BYTES_USUAL = 64 * 1024, // what is larger is taken from the tenant's share
    RX_SMALL_READS = 16,        // this many in a row give a large buffer back
    PING_INTERVAL_MS = 5000,
    LEAVE_MS = 1000, // for GOAWAY to be read
    ID_BYTES = 4,
};

#define NS_PER_MS UINT64_C(1000000)

enum conn_state { CONN_HELLO, CONN_OPEN, CONN_LEAVING, CONN_CLOSING };

struct conn {
    struct rpc *rpc;
    const struct transport_ops *ops; // of the stream
    struct transport_stream *stream;
    struct caller caller;
    struct tenant *tenant; // held
    struct conn *prev, *next;
    enum conn_state state;
    struct timer timer; // handshake, then idle, then leaving
    struct timer stall;
    uint64_t active_ns, ping_ns;
    uint64_t moved_ns; // when the write in progress began
    uint32_t last_id;
    bool reading, writing, processing, paused;
    uint8_t *rx;
    size_t rx_size, rx_n, rx_need; // need: of the frame that is coming in
    unsigned rx_small;
    uint64_t rx_arrived_ns;
    struct outbox tx;
    struct call *waiting_first, *waiting_last; // for room in the queue
    struct call *buckets[CALL_BUCKETS];
    uint32_t calls, streams;
};

static void conn_flush(struct conn *c);
static void conn_process(struct conn *c);

// ---- what others ask

struct rpc *
conn_rpc(const struct conn *c)
{
    return c->rpc;
}

const struct caller *
conn_caller(const struct conn *c)
{
    return &c->caller;
}

struct tenant *
conn_tenant(const struct conn *c)
{
    return c->tenant;
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

bool
conn_is_full(const struct conn *c)
{
    return c->state != CONN_OPEN || c->tx.bytes >= c->rpc->limits.queue_bytes_pause;
}

// ---- the table of calls

static size_t
bucket_of(uint32_t id)
{
    return (id * 2654435761u) >> 16 & (CALL_BUCKETS - 1);
}

struct call *
conn_find(const struct conn *c, uint32_t id)
{
    struct call *call = c->buckets[bucket_of(id)];
    while (call != NULL && call->id != id)
        call = call->bucket_next;
    return call;
}

void
conn_add(struct conn *c, struct call *call)
{
    struct call **bucket = &c->buckets[bucket_of(call->id)];
    call->bucket_next = *bucket;
    *bucket = call;
    c->calls++;
    c->last_id = call->id;
}

static void
stop_waiting(struct conn *c, struct call *call)
{
    if (!call->wants_queue)
        return;
    call->wants_queue = false;
    *(call->waiting_prev != NULL ? &call->waiting_prev->waiting_next : &c->waiting_first) =
        call->waiting_next;
    *(call->waiting_next != NULL ? &call->waiting_next->waiting_prev : &c->waiting_last) =
        call->waiting_prev;
}

void
conn_remove(struct conn *c, struct call *call)
{
    struct call **link = &c->buckets[bucket_of(call->id)];
    while (*link != call)
        link = &(*link)->bucket_next;
    *link = call->bucket_next;
    c->calls--;
    if (call->counted_stream)
        c->streams--;
    call->counted_stream = false;
    stop_waiting(c, call);
}

void
conn_count_stream(struct conn *c, struct call *call)
{
    call->counted_stream = true;
    c->streams++;
}

void
conn_wait_for_room(struct conn *c, struct call *call)
{
    if (call->wants_queue)
        return;
    call->wants_queue = true;
    call->waiting_next = NULL;
    call->waiting_prev = c->waiting_last;
    *(c->waiting_last != NULL ? &c->waiting_last->waiting_next : &c->waiting_first) = call;
    c->waiting_last = call;
}

// Those that wait are told in turn, until the queue is full again.
static void
tell_waiting(struct conn *c)
{
    while (c->waiting_first != NULL && !conn_is_full(c)) {
        struct call *call = c->waiting_first;
        stop_waiting(c, call);
        call_room(call);
    }
}

// ---- output

// Room for n bytes at the end of the queue. NULL: the peer does not read what it asked for, and is closed.
static uint8_t *
reserve(struct conn *c, size_t n)
{
    uint8_t *p = NULL;
    if (c->tx.bytes + n <= c->rpc->limits.queue_bytes_kill)
        p = outbox_reserve(&c->tx, c->rpc, c->tenant, n);
    if (p == NULL) {
        c->rpc->stats.slow_readers_closed++;
        conn_close(c);
    }
    return p;
}

static bool
swallows(const struct conn *c)
{
    return c->state == CONN_LEAVING || c->state == CONN_CLOSING;
}

void
conn_send(struct conn *c, uint32_t id, const Stockade__V1__Frame *frame)
{
    size_t n = wire_frame_bytes(c->caller.local, &frame->base);
    assert(n > 0); // whoever packs a payload looks at its size
    uint8_t *p = swallows(c) ? NULL : reserve(c, n);
    if (p == NULL)
        return;
    wire_put_frame(p, n, c->caller.local, id, &frame->base);
    conn_flush(c);
}

void
conn_send_packed(struct conn *c, uint32_t id, const uint8_t *frame, size_t n)
{
    size_t header = sp_header_bytes(c->caller.local);
    uint8_t *p = swallows(c) ? NULL : reserve(c, header + ID_BYTES + n);
    if (p == NULL)
        return;
    p += sp_header(p, c->caller.local, ID_BYTES + n);
    for (unsigned i = 0; i < ID_BYTES; i++)
        *p++ = (uint8_t)(id >> (24 - 8 * i));
    memcpy(p, frame, n);
    conn_flush(c);
}

// Set while a write is in progress; looks again where another one has begun since, so that writing costs no heap work.
static void
on_stall(struct timer *t)
{
    struct conn *c = (struct conn *)(void *)((char *)t - offsetof(struct conn, stall));
    uint64_t until_ns = c->moved_ns + c->rpc->limits.write_stall_ms * NS_PER_MS;
    if (!c->writing)
        return;
    if (uv_hrtime() < until_ns && timers_set(c->rpc->timers, t, until_ns) == 0)
        return;
    c->rpc->stats.stalled_closed++;
    conn_close(c);
}

static bool
watch_stall(struct conn *c)
{
    c->moved_ns = uv_hrtime();
    return c->stall.place != 0 ||
           timers_set(c->rpc->timers, &c->stall,
                      c->moved_ns + c->rpc->limits.write_stall_ms * NS_PER_MS) == 0;
}

// Starts to write what is queued, unless a write is in progress or more is about to be queued.
static void
conn_flush(struct conn *c)
{
    struct iovec iov[TRANSPORT_IOV_MAX];
    if (c->writing || c->processing || c->state == CONN_CLOSING || c->tx.bytes == 0)
        return;
    if (!watch_stall(c)) {
        conn_close(c);
        return;
    }
    unsigned n = outbox_pieces(&c->tx, iov, TRANSPORT_IOV_MAX);
    c->writing = true;
    c->ops->write(c->stream, iov, n);
}

void
conn_on_written(void *conn, size_t n)
{
    struct conn *c = conn;
    c->writing = false;
    if (n == 0) {
        conn_close(c);
        return;
    }
    outbox_drop(&c->tx, c->rpc, c->tenant, n);
    conn_flush(c);
    if (c->state == CONN_LEAVING && c->tx.bytes == 0)
        conn_close(c);
    if (c->state != CONN_OPEN || c->tx.bytes > c->rpc->limits.queue_bytes_pause / 2)
        return;
    tell_waiting(c);
    if (c->paused) {
        c->paused = false;
        conn_process(c);
    }
}

// ---- the end

void
conn_close(struct conn *c)
{
    if (c->state == CONN_CLOSING)
        return;
    c->state = CONN_CLOSING;
    timers_clear(c->rpc->timers, &c->timer);
    timers_clear(c->rpc->timers, &c->stall);
    c->ops->close(c->stream);
}

static void
give_rx(struct conn *c)
{
    if (c->rx_size > RX_BYTES_USUAL)
        tenant_give_bytes(c->tenant, c->rx_size);
    free(c->rx);
    c->rx = NULL;
    c->rx_size = 0;
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
    give_rx(c);
    *(c->prev != NULL ? &c->prev->next : &r->conns) = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    r->stats.connections--;
    c->tenant->connections--;
    tenant_drop(&r->tenants, c->tenant);
    free(c);
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
    f.status = status_of(why, c->caller.tenant, NULL, 0, a);
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
    if (swallows(c))
        return;
    (void)err_set(&e, code, "%s", text);
    err_detail(&e, reason, NULL, NULL);
    c->rpc->stats.protocol_errors++;
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

// ---- input

static void
on_idle(struct timer *t)
{
    struct conn *c = (struct conn *)(void *)((char *)t - offsetof(struct conn, timer));
    uint64_t idle_ns = c->rpc->limits.keepalive_idle_ms * NS_PER_MS;
    uint64_t now = uv_hrtime();
    if (c->state == CONN_OPEN && c->calls > 0)
        c->active_ns = now;
    if (c->state != CONN_OPEN || now - c->active_ns >= idle_ns ||
        timers_set(c->rpc->timers, t, c->active_ns + idle_ns) != 0) {
        if (c->state == CONN_HELLO)
            c->rpc->stats.handshake_failed++;
        conn_close(c);
    }
}

// The first 8 bytes. Answers them, or closes.
static void
handle_hello(struct conn *c)
{
    struct rpc *r = c->rpc;
    uint8_t *p;
    if (!sp_hello_is(c->rx, SP_PROTO_REQ)) {
        r->stats.handshake_failed++;
        conn_close(c);
        return;
    }
    p = reserve(c, SP_HELLO_BYTES);
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

// Handles what the first bytes at `off` hold. Returns how many that was; 0: more are needed, or none may be handled.
static size_t
handle_bytes(struct conn *c, size_t off)
{
    bool ipc = c->caller.local;
    uint64_t body = 0;
    if (c->state == CONN_HELLO) {
        if (c->rx_n - off < SP_HELLO_BYTES)
            return 0;
        handle_hello(c);
        return SP_HELLO_BYTES;
    }
    int found = sp_header_read(c->rx + off, c->rx_n - off, ipc, &body);
    if (found < 0)
        conn_fail(c, ERR_INVALID_ARGUMENT, "FRAME_INVALID",
                  "no SP message of 4 bytes to 4 MiB begins here");
    if (found <= 0)
        return 0;
    size_t header = sp_header_bytes(ipc);
    c->rx_need = header + (size_t)body;
    if (c->rx_n - off < c->rx_need)
        return 0;
    frame_handle(c, c->rx + off + header, (size_t)body, c->rx_arrived_ns);
    size_t taken = c->rx_need;
    c->rx_need = 0;
    return taken;
}

// Sets the buffer's size. False: no memory, or more than the tenant's share.
static bool
resize_rx(struct conn *c, size_t size)
{
    struct tenant *t = c->tenant;
    uint64_t before = c->rx_size > RX_BYTES_USUAL ? c->rx_size : 0;
    uint64_t after = size > RX_BYTES_USUAL ? size : 0;
    if (after > before && !tenant_take_bytes(t, after - before, c->rpc->limits.bytes_per_uid_max))
        return false;
    if (after < before)
        tenant_give_bytes(t, before - after);
    uint8_t *rx = realloc(c->rx, size);
    if (rx == NULL) {
        tenant_give_bytes(t, after);
        free(c->rx);
        c->rx_size = 0;
        c->rx = NULL;
        return false;
    }
    c->rx = rx;
    c->rx_size = size;
    return true;
}

// The size that fits what comes in.
static size_t
rx_size_wanted(const struct conn *c)
{
    size_t most = c->rx_need > RX_BYTES_USUAL ? c->rx_need : RX_BYTES_USUAL;
    if (c->rx_n == c->rx_size)
        return c->rx_size * 2 < most ? c->rx_size * 2 : most;
    bool large = c->rx_size > RX_BYTES_USUAL ||
                 (c->rx_size > RX_BYTES_FIRST && c->rx_small >= RX_SMALL_READS);
    return c->rx_n == 0 && large ? RX_BYTES_FIRST : c->rx_size;
}

static void
conn_read(struct conn *c)
{
    size_t size = rx_size_wanted(c);
    if (size != c->rx_size && !resize_rx(c, size)) {
        conn_fail(c, ERR_RESOURCE_EXHAUSTED, "BYTES_PER_UID",
                  "too many bytes of large frames are on their way from this user");
        return;
    }
    c->reading = true;
    c->ops->read(c->stream, c->rx + c->rx_n, c->rx_size - c->rx_n);
}

// Handles every whole frame that is there, then reads on.
static void
conn_process(struct conn *c)
{
    size_t off = 0;
    c->processing = true;
    while (c->state == CONN_HELLO || c->state == CONN_OPEN) {
        c->paused = c->tx.bytes > c->rpc->limits.queue_bytes_pause;
        size_t taken = c->paused || off == c->rx_n ? 0 : handle_bytes(c, off);
        if (taken == 0)
            break;
        off += taken;
    }
    c->rx_n -= off;
    if (off > 0 && c->rx_n > 0)
        memmove(c->rx, c->rx + off, c->rx_n);
    c->processing = false;
    conn_flush(c);
    if ((c->state == CONN_HELLO || c->state == CONN_OPEN) && !c->paused)
        conn_read(c);
}

void
conn_on_read(void *conn, size_t n)
{
    struct conn *c = conn;
    c->reading = false;
    if (n == 0) {
        if (c->state == CONN_HELLO)
            c->rpc->stats.handshake_failed++;
        conn_close(c);
        return;
    }
    if (c->state == CONN_LEAVING)
        return;
    c->rx_small = n * 8 <= c->rx_size ? c->rx_small + 1 : 0;
    c->rx_n += n;
    c->rx_arrived_ns = uv_hrtime();
    c->active_ns = c->rx_arrived_ns;
    conn_process(c);
}

// ---- the beginning

static void
name_caller(struct caller *caller, const struct transport_peer *peer)
{
    *caller = (struct caller){peer->local, peer->uid, peer->gid, peer->pid, "tcp"};
    if (peer->local)
        (void)snprintf(caller->tenant, sizeof caller->tenant, "uid:%u", (unsigned)peer->uid);
}

static bool
is_welcome(const struct rpc *r, const struct tenant *t)
{
    return !r->draining && !r->closing && r->stats.connections < r->limits.connections_max &&
           t->connections < r->limits.connections_per_uid_max;
}

void
conn_accept(struct rpc *r, const struct transport_ops *ops, struct transport_stream *s,
            const struct transport_peer *peer)
{
    struct caller caller;
    name_caller(&caller, peer);
    struct tenant *t = tenant_hold(&r->tenants, caller.tenant);
    struct conn *c = t != NULL && is_welcome(r, t) ? calloc(1, sizeof *c) : NULL;
    uint8_t *rx = c != NULL ? malloc(RX_BYTES_FIRST) : NULL;
    if (rx == NULL) {
        free(c);
        if (t != NULL)
            tenant_drop(&r->tenants, t);
        r->stats.rejected++;
        ops->close(s);
        return;
    }
    *c = (struct conn){.rpc = r, .ops = ops, .stream = s, .caller = caller, .tenant = t, .rx = rx};
    c->rx_size = RX_BYTES_FIRST;
    c->active_ns = uv_hrtime();
    c->next = r->conns;
    if (r->conns != NULL)
        r->conns->prev = c;
    r->conns = c;
    r->stats.accepted++;
    r->stats.connections++;
    t->connections++;
    ops->start(s, c);
    c->timer.fire = on_idle;
    c->stall.fire = on_stall;
    if (timers_set(r->timers, &c->timer, c->active_ns + r->limits.handshake_ms * NS_PER_MS) != 0)
        conn_close(c);
    else
        conn_read(c);
}
