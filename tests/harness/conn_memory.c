// SPDX-License-Identifier: Apache-2.0
// See conn_memory.h.
#include "tests/harness/conn_memory.h"

static void
memory_start(struct transport_stream *s, void *conn)
{
    s->conn = conn;
}

static void
memory_read(struct transport_stream *s, void *buf, size_t n)
{
    assert_null(s->buf); // one read at a time
    s->buf = buf;
    s->room = n;
    s->held = false;
}

static void
memory_hold(struct transport_stream *s)
{
    assert_null(s->buf);
    s->held = true;
}

static void
memory_write(struct transport_stream *s, const struct iovec *iov, unsigned n)
{
    assert_false(s->writing);
    s->writing = true;
    s->write_n = 0;
    for (unsigned i = 0; i < n; i++) {
        assert_true(s->out_n + iov[i].iov_len <= OUT_MAX);
        memcpy(s->out + s->out_n, iov[i].iov_base, iov[i].iov_len);
        s->out_n += iov[i].iov_len;
        s->write_n += iov[i].iov_len;
    }
}

static void
memory_close(struct transport_stream *s)
{
    assert_false(s->closed);
    s->closed = true;
}

static const struct transport_ops memory = {
    .name = "memory",
    .start = memory_start,
    .read = memory_read,
    .hold = memory_hold,
    .write = memory_write,
    .close = memory_close,
};

struct memory_layer it;

static void
on_cancel(void *cookie, enum call_cancel why)
{
    (void)cookie;
    (void)why;
    it.cancelled++;
}

static void
create(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    (void)s;
    (void)req;
    it.executed++;
    it.last = c;
    call_watch(c, on_cancel, NULL, NULL);
}

const char create_method[] = "/stockade.v1.SandboxService/Create";

const char watch_method[] = "/stockade.v1.HealthService/Watch";

static const struct call_method methods[] = {
    {create_method, &stockade__v1__sandbox_service_create_request__descriptor,
     &stockade__v1__sandbox_service_create_response__descriptor, create},
    {watch_method, &stockade__v1__health_service_watch_request__descriptor,
     &stockade__v1__health_service_watch_response__descriptor, create},
    {0},
};

int
set_up(void **state)
{
    (void)state;
    struct err e;
    struct rpc_limits l;
    if (sodium_init() < 0 || validate_init(&e) < 0 || uv_loop_init(&it.loop) < 0)
        return -1;
    it.server.loop = &it.loop;
    it.server.dispatch = dispatch_new(&it.server);
    rpc_limits_default(&l);
    l.idempotency_ms = 100;
    l.idempotency_keys_max = 8;
    l.handshake_ms = 50;
    l.write_stall_ms = 400;
    it.rpc = rpc_new(&it.loop, it.server.dispatch, &l, &it.tenants);
    it.executed = it.cancelled = 0;
    return dispatch_add(it.server.dispatch, methods, &e);
}

int
tear_down(void **state)
{
    (void)state;
    rpc_close(it.rpc);
    (void)uv_run(&it.loop, UV_RUN_DEFAULT);
    rpc_free(it.rpc);
    dispatch_free(it.server.dispatch);
    return uv_loop_close(&it.loop);
}

void
pump(struct transport_stream *s)
{
    while (s->writing && !s->stalls && !s->closed) {
        s->writing = false;
        conn_on_written(s->conn, s->write_n);
    }
    if (!s->closed || s->conn == NULL)
        return;
    void *conn = s->conn;
    s->conn = NULL;
    conn_on_closed(conn);
}

void
give(struct transport_stream *s, const void *bytes, size_t n, size_t at_once)
{
    const uint8_t *p = bytes;
    while (n > 0 && s->buf != NULL && !s->closed) {
        size_t part = n < s->room ? n : s->room;
        part = part < at_once ? part : at_once;
        memcpy(s->buf, p, part);
        s->buf = NULL;
        p += part;
        n -= part;
        conn_on_read(s->conn, part);
        pump(s);
    }
}

void
let_pass(uint64_t ms)
{
    uint64_t until = uv_hrtime() + ms * 1000000;
    while (uv_hrtime() < until) {
        (void)uv_run(&it.loop, UV_RUN_NOWAIT);
        uv_sleep(2);
    }
    (void)uv_run(&it.loop, UV_RUN_NOWAIT); // independent of the length of the last wait
}

struct transport_stream *
arrive(uint32_t uid)
{
    struct transport_stream *s = calloc(1, sizeof *s);
    const struct transport_peer peer = {.local = true, .uid = uid};
    assert_non_null(s);
    conn_accept(it.rpc, &memory, s, &peer);
    pump(s);
    return s;
}

struct transport_stream *
open_one(uint32_t uid)
{
    struct transport_stream *s = arrive(uid);
    uint8_t hello[SP_HELLO_BYTES];
    sp_hello(hello, SP_PROTO_REQ);
    give(s, hello, sizeof hello, SIZE_MAX);
    assert_true(s->out_n == SP_HELLO_BYTES && sp_hello_is(s->out, SP_PROTO_REP));
    s->read_at = SP_HELLO_BYTES;
    return s;
}

void
leave(struct transport_stream *s)
{
    if (!s->closed && s->conn != NULL)
        conn_close(s->conn);
    pump(s);
    free(s);
}

void
give_frame(struct transport_stream *s, uint32_t id, const Stockade__V1__Frame *f)
{
    uint8_t bytes[4096];
    size_t n = wire_frame_bytes(true, &f->base);
    assert_true(n > 0 && n <= sizeof bytes);
    wire_put_frame(bytes, n, true, id, &f->base);
    give(s, bytes, n, SIZE_MAX);
}

void
give_kind(struct transport_stream *s, uint32_t id, Stockade__V1__FrameKind kind)
{
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    f.kind = kind;
    give_frame(s, id, &f);
}

void
give_call(struct transport_stream *s, uint32_t id, const char *key, const char *name)
{
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    Stockade__V1__Metadata m = STOCKADE__V1__METADATA__INIT, *all[] = {&m};
    Stockade__V1__SandboxServiceCreateRequest r =
        STOCKADE__V1__SANDBOX_SERVICE_CREATE_REQUEST__INIT;
    uint8_t payload[128];
    r.name = name;
    f.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_CALL;
    f.method = create_method;
    f.payload.data = payload;
    f.payload.len = stockade__v1__sandbox_service_create_request__pack(&r, payload);
    m.key = "idempotency-key";
    m.value = key;
    if (key != NULL) {
        f.metadata = all;
        f.n_metadata = 1;
    }
    give_frame(s, id, &f);
}

// The kind of the next written frame, and its status (0: none). 0: no frame was written.
static unsigned
next(struct transport_stream *s, uint32_t id, int32_t *code)
{
    uint64_t body = 0;
    *code = 0;
    if (sp_header_read(s->out + s->read_at, s->out_n - s->read_at, true, &body) <= 0)
        return 0;
    const uint8_t *p = s->out + s->read_at + sp_header_bytes(true);
    s->read_at += sp_header_bytes(true) + body;
    assert_true(s->read_at <= s->out_n);
    if (id != 0)
        for (unsigned i = 0; i < 4; i++)
            assert_int_equal(p[i], id >> (24 - 8 * i) & 0xff);
    Stockade__V1__Frame *f = stockade__v1__frame__unpack(NULL, body - 4, p + 4);
    assert_non_null(f);
    unsigned kind = f->kind;
    if (f->status != NULL)
        *code = (int32_t)f->status->code;
    stockade__v1__frame__free_unpacked(f, NULL);
    return kind;
}

void
assert_next(struct transport_stream *s, uint32_t id, unsigned kind, int32_t code)
{
    int32_t got_code = 0;
    unsigned got = next(s, id, &got_code);
    if (got != kind || got_code != code)
        fail_msg("kind %u with code %d, not %u with %d", got, got_code, kind, code);
}

void
reply(struct transport_stream *s)
{
    Stockade__V1__SandboxServiceCreateResponse r =
        STOCKADE__V1__SANDBOX_SERVICE_CREATE_RESPONSE__INIT;
    call_reply(it.last, &r.base);
    pump(s);
}
