// SPDX-License-Identifier: Apache-2.0
// Converts a stream of SP over tcp to whole messages and back, with every split of its bytes.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "server/rpc/messages.h"

static const uint8_t one[] = "\x80\0\0\1first";
static const uint8_t two[] = "\x80\0\0\2";
enum { ONE = sizeof one - 1, TWO = sizeof two - 1 };

static uint8_t *
no_memory(void *cookie, size_t n)
{
    (void)cookie;
    (void)n;
    return NULL;
}

// Memory for the message; *cookie counts the messages.
static uint8_t *
room(void *cookie, size_t n)
{
    static uint8_t bytes[64];
    assert_true(n <= sizeof bytes);
    ++*(int *)cookie;
    return bytes;
}

// Our hello, and two messages with their lengths.
static size_t
make_stream(uint8_t *out)
{
    sp_hello(out, SP_PROTO_REP);
    size_t n = SP_HELLO_BYTES;
    n += sp_header(out + n, false, ONE);
    memcpy(out + n, one, ONE);
    n += ONE;
    n += sp_header(out + n, false, TWO);
    memcpy(out + n, two, TWO);
    return n + TWO;
}

static void
without_memory_for_a_message_the_stream_fails(void **state)
{
    (void)state;
    uint8_t stream[64];
    size_t n = make_stream(stream);
    struct messages_out m = {0};
    assert_int_equal(messages_out_take(&m, stream, n, no_memory, NULL), -1);
}

static void
input_begins_with_the_hello_of_a_req_socket(void **state)
{
    (void)state;
    struct messages_in m;
    uint8_t got[32];
    messages_in_init(&m);
    assert_false(messages_in_empty(&m));
    assert_int_equal(messages_in_read(&m, got, sizeof got), SP_HELLO_BYTES);
    assert_true(sp_hello_is(got, SP_PROTO_REQ));
    assert_true(messages_in_empty(&m));
    assert_int_equal(messages_in_read(&m, got, sizeof got), 0);
}

static void
a_message_follows_its_length_with_reads_of_any_size(void **state)
{
    (void)state;
    for (size_t step = 1; step < 32; step++) {
        struct messages_in m;
        uint8_t got[64];
        uint8_t want[64];
        size_t n = 0;
        messages_in_init(&m);
        while (!messages_in_empty(&m))
            n += messages_in_read(&m, got + n, step);
        messages_in_put(&m, one, ONE);
        while (!messages_in_empty(&m))
            n += messages_in_read(&m, got + n, step);
        sp_hello(want, SP_PROTO_REQ);
        (void)sp_header(want + SP_HELLO_BYTES, false, ONE);
        memcpy(want + SP_HELLO_BYTES + MESSAGES_LENGTH_BYTES, one, ONE);
        assert_int_equal(n, SP_HELLO_BYTES + MESSAGES_LENGTH_BYTES + ONE);
        assert_memory_equal(got, want, n);
    }
}

static void
an_empty_message_has_length_zero(void **state)
{
    (void)state;
    struct messages_in m;
    uint8_t got[32];
    uint64_t body = 0;
    messages_in_init(&m);
    (void)messages_in_read(&m, got, sizeof got);
    messages_in_put(&m, NULL, 0);
    assert_int_equal(messages_in_read(&m, got, sizeof got), MESSAGES_LENGTH_BYTES);
    assert_true(sp_header_read(got, MESSAGES_LENGTH_BYTES, false, &body) < 0);
}

static void
messages_are_sent_one_at_a_time_with_any_split(void **state)
{
    (void)state;
    uint8_t stream[64];
    size_t n = make_stream(stream);
    for (size_t step = 1; step <= n; step++) {
        struct messages_out m = {0};
        int rooms = 0;
        int whole = 0;
        for (size_t at = 0; at < n;) {
            size_t more = n - at < step ? n - at : step;
            at += (size_t)messages_out_take(&m, stream + at, more, room, &rooms);
            if (!messages_out_whole(&m))
                continue;
            assert_int_equal(m.body_n, whole == 0 ? ONE : TWO);
            assert_memory_equal(m.body, whole == 0 ? one : two, m.body_n);
            whole++;
            messages_out_next(&m);
        }
        assert_int_equal(whole, 2);
        assert_int_equal(rooms, 2);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory_for_a_message_the_stream_fails),
        cmocka_unit_test(input_begins_with_the_hello_of_a_req_socket),
        cmocka_unit_test(a_message_follows_its_length_with_reads_of_any_size),
        cmocka_unit_test(an_empty_message_has_length_zero),
        cmocka_unit_test(messages_are_sent_one_at_a_time_with_any_split),
    };
    return cmocka_run_group_tests_name("messages", tests, NULL, NULL);
}
