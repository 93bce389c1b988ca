// Connections, frames, calls and idempotency keys over a transport that is memory: every byte and its moment are ours.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <sodium.h>

#include "proto/validate.h"
#include "proto/wire.h"
#include "server/calls.h"
#include "server/conn.h"
#include "server/dispatch.h"
#include "server/server.h"
#include "stockade/v1/sandbox_service.pb-c.h"

enum { OUT_MAX = 1 << 20 };

// ---- the transport

struct transport_stream {
    void *conn;
    uint8_t *buf;
    size_t room;
    uint8_t out[OUT_MAX];
    size_t out_n, read_at, write_n;
    bool writing, closed, stalls;
};

static void
memory_start(struct transport_stream *s, void *conn)
{
    s->conn = conn;
}

static void
memory_read(struct transport_stream *s, void *buf, size_t n)
{
    assert_null(s->buf); // one at a time
    s->buf = buf;
    s->room = n;
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
    .write = memory_write,
    .close = memory_close,
};

// ---- the layer, with one method

static struct {
    uv_loop_t loop;
    struct server server;
    struct rpc *rpc;
    struct call *last; // that the handler was given
    unsigned executed, cancelled;
} it;

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

static const char create_method[] = "/stockade.v1.SandboxService/Create";
static const struct call_method methods[] = {
    {create_method, &stockade__v1__sandbox_service_create_request__descriptor,
     &stockade__v1__sandbox_service_create_response__descriptor, create},
    {0},
};

static int
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
    it.rpc = rpc_new(&it.loop, it.server.dispatch, &l);
    it.executed = it.cancelled = 0;
    return dispatch_add(it.server.dispatch, methods, &e);
}

static int
tear_down(void **state)
{
    (void)state;
    rpc_close(it.rpc);
    (void)uv_run(&it.loop, UV_RUN_DEFAULT);
    rpc_free(it.rpc);
    dispatch_free(it.server.dispatch);
    return uv_loop_close(&it.loop);
}

// Lets the transport say what has happened, until nothing is left to say.
static void
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

static void
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

static void
let_pass(uint64_t ms)
{
    uint64_t until = uv_hrtime() + ms * 1000000;
    while (uv_hrtime() < until) {
        (void)uv_run(&it.loop, UV_RUN_NOWAIT);
        uv_sleep(2);
    }
    (void)uv_run(&it.loop, UV_RUN_NOWAIT); // however long the last sleep was
}

static struct transport_stream *
arrive(uint32_t uid)
{
    struct transport_stream *s = calloc(1, sizeof *s);
    const struct transport_peer peer = {.local = true, .uid = uid};
    assert_non_null(s);
    conn_accept(it.rpc, &memory, s, &peer);
    pump(s);
    return s;
}

static struct transport_stream *
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

static void
leave(struct transport_stream *s)
{
    if (!s->closed && s->conn != NULL)
        conn_close(s->conn);
    pump(s);
    free(s);
}

static void
give_frame(struct transport_stream *s, uint32_t id, const Stockade__V1__Frame *f)
{
    uint8_t bytes[4096];
    size_t n = wire_frame_bytes(true, &f->base);
    assert_true(n > 0 && n <= sizeof bytes);
    wire_put_frame(bytes, n, true, id, &f->base);
    give(s, bytes, n, SIZE_MAX);
}

static void
give_kind(struct transport_stream *s, uint32_t id, Stockade__V1__FrameKind kind)
{
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    f.kind = kind;
    give_frame(s, id, &f);
}

static void
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

// The next frame that was written: its kind and its status (0: none). 0: there is none.
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

static void
assert_next(struct transport_stream *s, uint32_t id, unsigned kind, int32_t code)
{
    int32_t got_code = 0;
    unsigned got = next(s, id, &got_code);
    if (got != kind || got_code != code)
        fail_msg("kind %u with code %d, not %u with %d", got, got_code, kind, code);
}

static void
reply(struct transport_stream *s)
{
    Stockade__V1__SandboxServiceCreateResponse r =
        STOCKADE__V1__SANDBOX_SERVICE_CREATE_RESPONSE__INIT;
    call_reply(it.last, &r.base);
    pump(s);
}

#define END    STOCKADE__V1__FRAME_KIND__FRAME_KIND_END
#define GOAWAY STOCKADE__V1__FRAME_KIND__FRAME_KIND_GOAWAY
#define PONG   STOCKADE__V1__FRAME_KIND__FRAME_KIND_PONG
#define ID(n)  (WIRE_ID_REQUEST | (n))

// ---- connections and frames

static void
a_hello_of_another_protocol_or_none_is_the_end(void **state)
{
    (void)state;
    struct transport_stream *s = arrive(1), *slow = arrive(1), *gone = arrive(1);
    give(s, "GET / HTTP/1.1\r\n", 16, SIZE_MAX);
    assert_true(s->closed && s->out_n == 0);
    give(slow, "\0SP\0", 4, 1);
    gone->buf = NULL;
    conn_on_read(gone->conn, 0);
    pump(gone);
    assert_true(gone->closed);
    let_pass(100);
    assert_true(slow->closed);
    struct rpc_stats now;
    rpc_stats(it.rpc, &now);
    assert_int_equal(now.handshake_failed, 3);
    leave(s);
    leave(slow);
    leave(gone);
    rpc_stats(it.rpc, &now);
    assert_int_equal(now.connections, 0);
}

static void
an_id_without_its_top_bit_and_a_flood_of_pings_get_GOAWAY(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1), *other = open_one(1);
    give_call(s, 5, NULL, "");
    assert_next(s, WIRE_ID_REQUEST, GOAWAY, ERR_INVALID_ARGUMENT);
    assert_true(s->closed && it.executed == 0);
    give_kind(other, ID(1), STOCKADE__V1__FRAME_KIND__FRAME_KIND_PING);
    assert_next(other, ID(1), PONG, 0);
    give_kind(other, ID(2), STOCKADE__V1__FRAME_KIND__FRAME_KIND_PING);
    assert_next(other, 0, GOAWAY, ERR_RESOURCE_EXHAUSTED);
    assert_true(other->closed);
    leave(s);
    leave(other);
}

static void
frames_for_calls_that_are_not_there_are_nothing(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1);
    static const unsigned kinds[] = {2, 3, 4, 5, 7, 8, 77};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        give_kind(s, ID(9), (Stockade__V1__FrameKind)kinds[i]);
    assert_true(!s->closed && s->out_n == s->read_at);
    leave(s);
}

static void
a_frame_is_read_whatever_pieces_it_comes_in(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1);
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    uint8_t bytes[512];
    f.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_CALL;
    f.method = create_method;
    size_t n = wire_frame_bytes(true, &f.base);
    wire_put_frame(bytes, n, true, ID(1), &f.base);
    wire_put_frame(bytes + n, n, true, ID(2), &f.base);
    give(s, bytes, 2 * n, 1);
    assert_int_equal(it.executed, 2);
    leave(s);
    assert_int_equal(it.cancelled, 2);
}

static void
the_same_request_again_is_one_call_and_another_under_its_id_is_none(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1);
    give_call(s, ID(1), NULL, "a");
    give_call(s, ID(1), NULL, "a"); // as a stock REQ socket does
    assert_int_equal(it.executed, 1);
    reply(s);
    assert_next(s, ID(1), END, 0);
    give_call(s, ID(2), NULL, "a");
    give_call(s, ID(2), NULL, "b");
    assert_next(s, ID(2), END, ERR_INVALID_ARGUMENT);
    assert_true(it.executed == 2 && it.cancelled == 1 && !s->closed);
    leave(s);
}

static void
a_peer_that_takes_nothing_is_closed_when_its_time_is_over_and_not_before(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1);
    let_pass(500); // nothing is queued
    assert_false(s->closed);
    s->stalls = true;
    give_call(s, ID(1), NULL, "a");
    reply(s);
    let_pass(50);
    assert_false(s->closed);
    let_pass(500);
    assert_true(s->closed);
    struct rpc_stats now;
    rpc_stats(it.rpc, &now);
    assert_int_equal(now.stalled_closed, 1);
    leave(s);
}

static void
a_call_that_says_a_stream_follows_or_ends_is_refused(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1);
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    f.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_CALL;
    f.method = create_method;
    f.end_stream = 1;
    give_frame(s, ID(1), &f);
    assert_next(s, ID(1), END, ERR_INVALID_ARGUMENT);
    assert_true(it.executed == 0 && !s->closed);
    leave(s);
}

// Ids need not rise, and whatever GOAWAY names as begun is not begun anew.
static void
GOAWAY_names_the_highest_id_that_was_begun(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1);
    give_call(s, ID(9), NULL, "a");
    give_call(s, ID(3), NULL, "b");
    give_call(s, 5, NULL, "");
    assert_next(s, ID(9), GOAWAY, ERR_INVALID_ARGUMENT);
    leave(s);
}

// ---- idempotency keys

static void
a_key_that_is_empty_too_long_or_came_with_another_request_is_refused(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1);
    char key[130];
    memset(key, 'k', sizeof key - 1);
    key[129] = '\0';
    give_call(s, ID(1), "", "a");
    assert_next(s, ID(1), END, ERR_INVALID_ARGUMENT);
    give_call(s, ID(2), key, "a");
    assert_next(s, ID(2), END, ERR_INVALID_ARGUMENT);
    assert_int_equal(it.executed, 0);
    key[128] = '\0';
    give_call(s, ID(3), key, "a");
    give_call(s, ID(4), key, "b");
    assert_next(s, ID(4), END, ERR_INVALID_ARGUMENT);
    reply(s);
    assert_next(s, ID(3), END, 0);
    give_call(s, ID(5), key, "b");
    assert_next(s, ID(5), END, ERR_INVALID_ARGUMENT);
    assert_int_equal(it.executed, 1);
    leave(s);
}

static void
a_caller_has_so_many_keys_and_no_more_until_their_time_is_over(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1), *other = open_one(2);
    char key[] = "0";
    for (uint32_t i = 0; i < 8; i++, key[0]++) {
        give_call(s, ID(i + 1), key, "a");
        reply(s);
        assert_next(s, ID(i + 1), END, 0);
    }
    give_call(s, ID(20), key, "a");
    assert_next(s, ID(20), END, ERR_RESOURCE_EXHAUSTED);
    give_call(other, ID(1), key, "a");
    reply(other);
    assert_next(other, ID(1), END, 0);
    let_pass(150);
    give_call(s, ID(21), key, "a");
    reply(s);
    assert_next(s, ID(21), END, 0);
    assert_int_equal(it.executed, 10);
    leave(s);
    leave(other);
}

static void
one_execution_answers_all_who_ask_with_its_key_while_and_after_it_runs(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1), *second = open_one(1), *stranger = open_one(2);
    give_call(s, ID(1), "k", "a");
    give_call(second, ID(1), "k", "a");
    assert_int_equal(it.executed, 1);
    leave(s); // the one that executes goes on without its connection
    assert_int_equal(it.cancelled, 0);
    assert_true(second->out_n == second->read_at);
    reply(second);
    assert_next(second, ID(1), END, 0);
    give_call(second, ID(2), "k", "a");
    assert_next(second, ID(2), END, 0);
    assert_int_equal(it.executed, 1);
    give_call(stranger, ID(1), "k", "a"); // of another user: another key
    assert_int_equal(it.executed, 2);
    reply(stranger);
    leave(second);
    leave(stranger);
}

static void
what_was_not_done_may_be_done_again_and_what_failed_for_good_may_not(void **state)
{
    (void)state;
    static const struct {
        enum err_code code;
        bool again;
    } ends[] = {
        {ERR_UNAVAILABLE, true},
        {ERR_RESOURCE_EXHAUSTED, true},
        {ERR_NOT_FOUND, false},
    };
    struct transport_stream *s = open_one(1);
    uint32_t id = 1;
    char key[] = "a";
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++, key[0]++) {
        struct err e;
        unsigned before = it.executed;
        (void)err_set(&e, ends[i].code, "no");
        give_call(s, ID(id), key, "a");
        call_fail(it.last, &e);
        pump(s);
        assert_next(s, ID(id++), END, (int32_t)ends[i].code);
        give_call(s, ID(id), key, "a");
        assert_int_equal(it.executed - before, ends[i].again ? 2 : 1);
        if (ends[i].again)
            reply(s);
        assert_next(s, ID(id++), END, ends[i].again ? 0 : (int32_t)ends[i].code);
    }
    leave(s);
}

static void
a_callers_mistake_is_neither_kept_nor_anybody_elses_answer(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1), *other = open_one(1);
    give_call(s, ID(1), "k", "a");
    give_call(s, ID(1), "k", "b");
    assert_next(s, ID(1), END, ERR_INVALID_ARGUMENT);
    assert_int_equal(it.cancelled, 1);
    give_call(s, ID(2), "k", "a"); // it was not done, so it is done now
    assert_int_equal(it.executed, 2);
    give_call(other, ID(1), "k", "a");
    give_kind(s, ID(2), STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA);
    assert_next(s, ID(2), END, ERR_INVALID_ARGUMENT);
    assert_true(other->out_n == other->read_at && it.cancelled == 1);
    reply(other);
    assert_next(other, ID(1), END, 0);
    assert_int_equal(it.executed, 2);
    leave(s);
    leave(other);
}

static void
closing_ends_what_goes_on_without_its_connection_whoever_waits_for_it(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1), *other = open_one(1), *last = open_one(1);
    give_call(s, ID(1), "k", "a");
    give_call(other, ID(1), "k", "a");
    leave(s);
    give_call(last, ID(1), "l", "a");
    assert_true(it.executed == 2 && it.cancelled == 0);
    rpc_close(it.rpc);
    assert_int_equal(it.cancelled, 1);
    leave(other);
    leave(last);
    assert_int_equal(it.cancelled, 2);
    struct rpc_stats now;
    rpc_stats(it.rpc, &now);
    assert_int_equal(now.open_calls, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_hello_of_another_protocol_or_none_is_the_end),
        TEST(an_id_without_its_top_bit_and_a_flood_of_pings_get_GOAWAY),
        TEST(frames_for_calls_that_are_not_there_are_nothing),
        TEST(a_frame_is_read_whatever_pieces_it_comes_in),
        TEST(the_same_request_again_is_one_call_and_another_under_its_id_is_none),
        TEST(a_peer_that_takes_nothing_is_closed_when_its_time_is_over_and_not_before),
        TEST(a_call_that_says_a_stream_follows_or_ends_is_refused),
        TEST(GOAWAY_names_the_highest_id_that_was_begun),
        TEST(a_key_that_is_empty_too_long_or_came_with_another_request_is_refused),
        TEST(a_caller_has_so_many_keys_and_no_more_until_their_time_is_over),
        TEST(one_execution_answers_all_who_ask_with_its_key_while_and_after_it_runs),
        TEST(what_was_not_done_may_be_done_again_and_what_failed_for_good_may_not),
        TEST(a_callers_mistake_is_neither_kept_nor_anybody_elses_answer),
        TEST(closing_ends_what_goes_on_without_its_connection_whoever_waits_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
