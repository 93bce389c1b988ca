// SPDX-License-Identifier: Apache-2.0
// client/address.c: addresses of a broker.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "client/address.h"

static void
invalid_addresses_are_refused_and_leave_the_result(void **state)
{
    static const char *const wrong[] = {
        "",           "ipc://",           "ipc://relative", "unix:",          "/run/x",
        "tcp://",     "tcp://host",       "tcp://:80",      "tcp://host:",    "tcp://host:0",
        "tcp://h:-1", "tcp://host:65536", "tcp://host:8x",  "tcp://::1:80",   "tcp://[]:80",
        "ws://h:80",  "tls+tcp://h",      "tcp://h:0x50",   "tcp://h:000001",
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct address a = {.host = "kept"};
        struct err e;
        assert_true(address_parse(&a, wrong[i], &e) < 0);
        assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
        assert_string_equal(e.subject, "address");
        assert_string_equal(a.host, "kept");
    }
}

static void
a_path_that_does_not_fit_a_socket_address_is_refused(void **state)
{
    char text[200];
    struct address a;
    struct err e;
    (void)state;
    memset(text, 'x', sizeof text);
    memcpy(text, "ipc:///", 7);
    text[6 + 108] = '\0';
    assert_true(address_parse(&a, text, &e) < 0);
    text[6 + 107] = '\0';
    assert_int_equal(address_parse(&a, text, &e), 0);
    assert_int_equal(strlen(a.path), 107);
}

static void
each_kind_of_address_is_read(void **state)
{
    struct address a;
    struct err e;
    (void)state;
    assert_int_equal(address_parse(&a, "ipc:///run/s.sock", &e), 0);
    assert_true(a.ipc);
    assert_string_equal(a.path, "/run/s.sock");
    assert_int_equal(address_parse(&a, "unix:/run/s.sock", &e), 0);
    assert_string_equal(a.path, "/run/s.sock");
    assert_int_equal(address_parse(&a, "unix:///run/s.sock", &e), 0);
    assert_string_equal(a.path, "/run/s.sock");
    assert_int_equal(address_parse(&a, "tcp://broker.local:7000", &e), 0);
    assert_false(a.ipc);
    assert_string_equal(a.host, "broker.local");
    assert_string_equal(a.port, "7000");
    assert_int_equal(address_parse(&a, "tcp://[::1]:80", &e), 0);
    assert_string_equal(a.host, "::1");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_addresses_are_refused_and_leave_the_result),
        cmocka_unit_test(a_path_that_does_not_fit_a_socket_address_is_refused),
        cmocka_unit_test(each_kind_of_address_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
