// SPDX-License-Identifier: Apache-2.0
// Connections and frames: invalid hellos and frames, partial input, and peers that do not read.
#include "tests/harness/conn_memory.h"

#include <errno.h>

static void
a_wrong_or_missing_hello_closes_the_connection(void **state)
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
    assert_int_equal(metrics_sum(METRIC_HANDSHAKE_FAILED), 3);
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
frames_for_missing_calls_are_ignored(void **state)
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
a_frame_is_read_in_any_pieces(void **state)
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
a_repeated_request_is_one_call_and_another_with_its_id_is_refused(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1);
    give_call(s, ID(1), NULL, "a");
    give_call(s, ID(1), NULL, "a"); // like an ordinary REQ socket
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
a_peer_that_does_not_read_is_closed_at_the_timeout(void **state)
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
    assert_int_equal(metrics_sum(METRIC_STALLED_CLOSED), 1);
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

// If there is no credit for the message, the call continues, and nothing is sent.
static void
the_last_message_of_a_stream_and_its_end_are_one_write(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1);
    Stockade__V1__HealthServiceWatchResponse m = STOCKADE__V1__HEALTH_SERVICE_WATCH_RESPONSE__INIT;
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    f.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_CALL;
    f.method = watch_method;
    f.credit = 1;
    give_frame(s, ID(1), &f);
    assert_int_equal(call_send(it.last, &m.base), 0);
    pump(s);
    assert_next(s, ID(1), DATA, 0);
    assert_int_equal(call_end_with(it.last, &m.base), -EAGAIN);
    assert_true(s->out_n == s->read_at && !s->writing);
    call_add_credit(it.last, 1);
    assert_int_equal(call_end_with(it.last, &m.base), 0);
    assert_true(s->writing);
    assert_next(s, ID(1), DATA, 0);
    assert_next(s, ID(1), END, 0);
    leave(s);
    assert_int_equal(it.cancelled, 0);
}

// Ids need not increase, and a call that GOAWAY names as begun is not begun later.
static void
GOAWAY_names_the_highest_id_that_has_begun(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1);
    give_call(s, ID(9), NULL, "a");
    give_call(s, ID(3), NULL, "b");
    give_call(s, 5, NULL, "");
    assert_next(s, ID(9), GOAWAY, ERR_INVALID_ARGUMENT);
    leave(s);
}

static void
a_peer_that_leaves_while_it_waits_for_its_turn_is_closed_at_once(void **state)
{
    (void)state;
    struct transport_stream *s = open_one(1), *other = open_one(2);
    struct tenant *t = tenant_find(&it.tenants, "uid:1");
    struct rpc_stats now;
    assert_non_null(t);
    it.tenants.fair.part = 1; // per mille: its turn comes much later
    give_call(other, ID(1), NULL, "");
    give_call(s, ID(1), NULL, "");
    assert_int_equal(it.executed, 2);
    assert_false(s->held);
    t->use.used_ns = 2 * FAIR_BRIM_NS;
    t->use.at_ns = uv_hrtime();
    give_call(s, ID(2), NULL, "");
    assert_true(s->held && s->buf == NULL && !s->closed);
    conn_on_read(s->conn, 0);
    assert_true(s->closed && list_empty(&t->held));
    pump(s);
    rpc_stats(it.rpc, &now);
    assert_int_equal(now.connections, 1);
    assert_int_equal(it.executed, 2); // its waiting call is dropped
    assert_int_equal(it.cancelled, 1);
    leave(s);
    leave(other);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_wrong_or_missing_hello_closes_the_connection),
        TEST(an_id_without_its_top_bit_and_a_flood_of_pings_get_GOAWAY),
        TEST(frames_for_missing_calls_are_ignored),
        TEST(a_frame_is_read_in_any_pieces),
        TEST(a_repeated_request_is_one_call_and_another_with_its_id_is_refused),
        TEST(a_peer_that_leaves_while_it_waits_for_its_turn_is_closed_at_once),
        TEST(a_peer_that_does_not_read_is_closed_at_the_timeout),
        TEST(a_call_that_says_a_stream_follows_or_ends_is_refused),
        TEST(the_last_message_of_a_stream_and_its_end_are_one_write),
        TEST(GOAWAY_names_the_highest_id_that_has_begun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
