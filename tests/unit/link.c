// SPDX-License-Identifier: Apache-2.0
// client/link.c and dial.c: peers that are not brokers, and bytes that are not frames.
#include "tests/harness/peer.h"

// ---- not a broker

static void
script_http(struct peer *p, int fd)
{
    (void)p;
    peer_write(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
}

static void
script_other_protocol(struct peer *p, int fd)
{
    uint8_t hello[SP_HELLO_BYTES];
    (void)p;
    sp_hello(hello, SP_PROTO_REQ);
    peer_write(fd, hello, sizeof hello);
}

static void
script_close(struct peer *p, int fd)
{
    (void)p;
    (void)fd;
}

static void
a_missing_broker_is_reported_with_a_hint(void **state)
{
    struct stockade_options o = STOCKADE_OPTIONS_INIT;
    struct stockade_error e;
    struct stockade *s = NULL;
    (void)state;
    o.address = "ipc:///nonexistent/stockade.sock";
    assert_int_equal(stockade_open(&s, &o, &e), 0);
    assert_true(ask(s, 0, NULL, &e) < 0);
    assert_int_equal(e.code, STOCKADE_UNAVAILABLE);
    assert_non_null(strstr(e.hint, "stockaded"));
    stockade_close(s);
    o.address = "carrier-pigeon://x";
    assert_true(stockade_open(&s, &o, &e) < 0);
    assert_int_equal(e.code, STOCKADE_INVALID_ARGUMENT);
}

static void
a_peer_that_is_not_a_broker_is_refused(void **state)
{
    (void)state;
    assert_int_equal(fails_within(script_silent, 500, 0).code, STOCKADE_UNAVAILABLE);
    assert_int_equal(fails(script_http, 0).code, STOCKADE_FAILED_PRECONDITION);
    assert_int_equal(fails(script_other_protocol, 0).code, STOCKADE_FAILED_PRECONDITION);
    assert_int_equal(fails(script_close, 0).code, STOCKADE_UNAVAILABLE);
}

// ---- bytes that are not frames

static const uint8_t *garbage;
static size_t garbage_n;

static void
script_garbage(struct peer *p, int fd)
{
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    peer_write(fd, garbage, garbage_n);
    script_silent(p, fd);
}

static void
garbage_and_wrong_lengths_end_the_call_immediately(void **state)
{
    static const uint8_t huge[] = {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    static const uint8_t above[] = {1, 0, 0, 0, 0, 0, 0x40, 0, 1, 0x80, 0, 0, 1};
    static const uint8_t tiny[] = {1, 0, 0, 0, 0, 0, 0, 0, 3, 0x80, 0, 0};
    static const uint8_t not_sp[] = {7, 0, 0, 0, 0, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8};
    static const uint8_t no_proto[] = {1,    0, 0, 0, 0,    0,    0,    0,   8,
                                       0x80, 0, 0, 1, 0xff, 0xff, 0xff, 0xff};
    static const struct stockade_bytes all[] = {
        {huge, sizeof huge},     {above, sizeof above},       {tiny, sizeof tiny},
        {not_sp, sizeof not_sp}, {no_proto, sizeof no_proto},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        garbage = all[i].bytes;
        garbage_n = all[i].n;
        assert_int_equal(fails(script_garbage, 60000).code, STOCKADE_DATA_LOSS);
    }
}

// 64 KiB of nested fields, which would overflow the stack of a recursive decoder.
static void
script_nesting(struct peer *p, int fd)
{
    static uint8_t deep[65536];
    peer_hello(fd);
    if (!peer_frame(p, fd))
        return;
    memset(deep, 0x22, sizeof deep); // field 4 (status), length 34, again and again
    uint8_t header[9];
    (void)sp_header(header, true, sizeof deep);
    deep[0] = 0x80;
    peer_write(fd, header, sizeof header);
    peer_write(fd, deep, sizeof deep);
    script_silent(p, fd);
}

static void
wrong_lengths_of_nested_messages_are_refused(void **state)
{
    (void)state;
    assert_int_equal(fails(script_nesting, 60000).code, STOCKADE_DATA_LOSS);
}

static void
script_half_frame(struct peer *p, int fd)
{
    static const uint8_t half[] = {1, 0, 0, 0, 0, 0, 0, 0, 100, 0x80, 0, 0, 1, 8};
    peer_hello(fd);
    if (peer_frame(p, fd))
        peer_write(fd, half, sizeof half);
}

static void
a_connection_that_breaks_within_a_frame_is_unavailable(void **state)
{
    (void)state;
    struct stockade_error e = fails(script_half_frame, 60000);
    assert_int_equal(e.code, STOCKADE_UNAVAILABLE);
    assert_string_equal(e.reason, "CONNECTION_LOST");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_broker_is_reported_with_a_hint),
        cmocka_unit_test(a_peer_that_is_not_a_broker_is_refused),
        cmocka_unit_test(garbage_and_wrong_lengths_end_the_call_immediately),
        cmocka_unit_test(wrong_lengths_of_nested_messages_are_refused),
        cmocka_unit_test(a_connection_that_breaks_within_a_frame_is_unavailable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
