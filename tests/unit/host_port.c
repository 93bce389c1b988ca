// SPDX-License-Identifier: Apache-2.0
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/host_port.h"

static void
brackets_that_do_not_match_and_a_host_too_long_are_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {"[::1", "[::1]x",  "[::1]80", "::1]",
                                       "a[b]", "[[::1]]", "a]:1"};
    struct host_port h = {.host = "kept"};
    char longer[400] = "";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_false(host_port_split(rows[i], &h));
    memset(longer, 'a', 256);
    assert_false(host_port_split(longer, &h));
    assert_string_equal(h.host, "kept");
    longer[255] = '\0';
    assert_true(host_port_split(longer, &h));
}

static void
invalid_ports_are_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {"",    "-1",  "+1",    "0x50",   "8x",
                                       " 80", "80 ", "65536", "000001", "1-2"};
    uint16_t port = 7;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_false(host_port_number(rows[i], &port));
    assert_int_equal(port, 7);
    assert_true(host_port_number("0", &port));
    assert_int_equal(port, 0);
    assert_true(host_port_number("65535", &port));
    assert_int_equal(port, 65535);
}

static void
each_form_is_split_into_its_parts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host, *port;
        bool bracket;
    } rows[] = {
        {"example.com", "example.com", NULL, false},
        {"example.com:443", "example.com", "443", false},
        {"host:80-90", "host", "80-90", false},
        {"host:", "host", "", false},
        {":80", "", "80", false},
        {"", "", NULL, false},
        {"2001:db8::1", "2001:db8::1", NULL, false},
        {"::1:80", "::1:80", NULL, false},
        {"[::1]", "::1", NULL, true},
        {"[::1]:80", "::1", "80", true},
        {"[2001:db8::/32]:53", "2001:db8::/32", "53", true},
        {"[]:80", "", "80", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct host_port h = {.port = "none"};
        assert_true(host_port_split(rows[i].text, &h));
        assert_string_equal(h.host, rows[i].host);
        assert_int_equal(h.bracket, rows[i].bracket);
        assert_int_equal(h.port == NULL, rows[i].port == NULL);
        if (h.port != NULL)
            assert_string_equal(h.port, rows[i].port);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brackets_that_do_not_match_and_a_host_too_long_are_refused),
        cmocka_unit_test(invalid_ports_are_refused),
        cmocka_unit_test(each_form_is_split_into_its_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
