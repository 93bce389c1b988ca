// SPDX-License-Identifier: Apache-2.0
// client/pump.c: what a broker may send beside its answers, and when it counts as gone.
#include "client/handle.h"
#include "tests/harness/peer.h"

// Sends PINGs itself, then replies to the call.
static void
script_pings(struct peer *p, int fd)
{
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    uint32_t id = p->id;
    peer_say(fd, WIRE_ID_REQUEST | 77, STOCKADE__V1__FRAME_KIND__FRAME_KIND_PING, "12345678", 8);
    if (!peer_frame(p, fd))
        return;
    bool pong =
        p->kind == STOCKADE__V1__FRAME_KIND__FRAME_KIND_PONG && p->id == (WIRE_ID_REQUEST | 77);
    peer_say(fd, id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_END, pong ? "pong" : "none", 4);
    script_silent(p, fd);
}

static void
a_ping_is_answered(void **state)
{
    struct peer p;
    struct stockade_error e;
    const struct stockade_bytes *out = NULL;
    (void)state;
    peer_start(&p, script_pings, 1);
    struct stockade *s = open_handle(&p);
    assert_int_equal(ask(s, 5000, &out, &e), 0);
    assert_memory_equal(out->bytes, "pong", 4);
    stockade_free(out);
    stockade_close(s);
    peer_stop(&p);
}

static void
send_pings(int fd, int n, const char *payload, size_t bytes)
{
    for (int i = 0; i < n; i++)
        peer_say(fd, WIRE_ID_REQUEST | 77, STOCKADE__V1__FRAME_KIND__FRAME_KIND_PING, payload,
                 bytes);
}

// Sends one PING more than the library answers, and reads the answers.
static void
script_17_pings(struct peer *p, int fd)
{
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    uint32_t id = p->id;
    send_pings(fd, 16, "12345678", 8);
    for (int i = 0; i < 16; i++)
        if (!peer_frame(p, fd) || p->kind != STOCKADE__V1__FRAME_KIND__FRAME_KIND_PONG)
            return;
    send_pings(fd, 1, "12345678", 8);
    peer_say(fd, id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_END, "late", 4);
    script_silent(p, fd);
}

static void
more_than_16_pings_in_5_s_are_refused(void **state)
{
    (void)state;
    struct stockade_error e = fails(script_17_pings, 60000);
    assert_int_equal(e.code, STOCKADE_DATA_LOSS);
    assert_string_equal(e.text, "the broker sent more than 16 PINGs in 5 s");
}

static void
script_long_ping(struct peer *p, int fd)
{
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    send_pings(fd, 1, "123456789", 9);
    script_silent(p, fd);
}

static void
a_ping_of_more_than_8_bytes_is_refused(void **state)
{
    (void)state;
    struct stockade_error e = fails(script_long_ping, 60000);
    assert_int_equal(e.code, STOCKADE_DATA_LOSS);
    assert_string_equal(e.text, "the broker sent a PING of 9 bytes; at most 8 are allowed");
}

static void
script_window(struct peer *p, int fd)
{
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    peer_say(fd, p->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_WINDOW, NULL, 0);
    script_silent(p, fd);
}

static void
a_frame_that_only_a_client_sends_is_refused(void **state)
{
    (void)state;
    struct stockade_error e = fails(script_window, 60000);
    assert_int_equal(e.code, STOCKADE_DATA_LOSS);
    assert_string_equal(e.text, "the broker sent WINDOW, which only a client sends");
}

// Sends frames of an unknown kind for 5 s, more often than the keepalive; they answer no PING.
static void
script_unknown_kinds(struct peer *p, int fd)
{
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    struct pollfd hung_up = {.fd = fd, .events = POLLRDHUP};
    for (int i = 0; i < 100 && poll(&hung_up, 1, 50) == 0; i++)
        peer_say(fd, p->id, 99, "?", 1);
    peer_say(fd, p->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_END, "late", 4);
    script_silent(p, fd);
}

static void
frames_of_an_unknown_kind_do_not_keep_a_call_without_a_deadline(void **state)
{
    struct peer p;
    struct stockade_error e;
    (void)state;
    peer_start(&p, script_unknown_kinds, 1);
    struct stockade *s = open_handle(&p);
    s->keepalive_ms = 300; // stockade_open() accepts no less than 6 s
    assert_true(ask(s, 0, NULL, &e) < 0);
    assert_int_equal(e.code, STOCKADE_UNAVAILABLE);
    assert_string_equal(e.text, "the broker has not responded for 600ms");
    stockade_close(s);
    peer_stop(&p);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ping_is_answered),
        cmocka_unit_test(more_than_16_pings_in_5_s_are_refused),
        cmocka_unit_test(a_ping_of_more_than_8_bytes_is_refused),
        cmocka_unit_test(a_frame_that_only_a_client_sends_is_refused),
        cmocka_unit_test(frames_of_an_unknown_kind_do_not_keep_a_call_without_a_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
