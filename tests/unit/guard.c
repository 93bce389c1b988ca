// SPDX-License-Identifier: Apache-2.0
// The dashboard's checks of Host, Origin and Authorization (client/exporter/guard.h).
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "client/exporter/guard.h"

static void
other_names_are_refused(void **state)
{
    static const char *const hosts[] = {
        "",
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.2",
        "[::2]",
        "a@localhost",
        "localhost:",
        "localhost:65536",
        "localhost:80:80",
        "localhost ",
        " localhost",
        "xdash.example",
        "dash.examplex",
        "dash.example other",
        "0.0.0.0",
        "[::1",
        "10.0.0.6",
        "localhost/evil",
    };
    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
        assert_false(guard_host(hosts[i], "10.0.0.5:9478", "dash.example other.example"));
    assert_false(guard_host("0.0.0.0:9478", "0.0.0.0:9478", ""));
    assert_false(guard_host("[::]:9478", "[::]:9478", ""));
}

static void
its_own_names_are_accepted_with_any_port(void **state)
{
    static const char *const hosts[] = {"localhost",       "LocalHost:9478", "127.0.0.1:1",
                                        "[::1]:9478",      "10.0.0.5:9478",  "10.0.0.5:1234",
                                        "dash.example:80", "Other.Example"};
    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
        assert_true(guard_host(hosts[i], "10.0.0.5:9478", "dash.example other.example"));
    assert_true(guard_host("localhost:9478", "0.0.0.0:9478", ""));
}

static void
pages_of_others_are_refused(void **state)
{
    static const struct {
        const char *origin, *site;
    } other[] = {
        {"http://evil.example", ""},
        {"null", ""},
        {"http://localhost:9479", ""},
        {"http://localhost", ""},
        {"http://localhost:9478/", ""},
        {"http://localhost:9478.evil.example", ""},
        {"ftp://localhost:9478", ""},
        {"localhost:9478", ""},
        {"", "cross-site"},
        {"", "same-site"},
        {"", "Same-Origin"},
        {"http://localhost:9478", "cross-site"},
        {"http://127.0.0.1:9478", "same-origin"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        assert_false(guard_origin("localhost:9478", other[i].origin, other[i].site));
    assert_true(guard_origin("localhost:9478", "", ""));
    assert_true(guard_origin("localhost:9478", "http://localhost:9478", "same-origin"));
    assert_true(guard_origin("localhost:9478", "https://LOCALHOST:9478", ""));
    assert_true(guard_origin("localhost:9478", "", "none"));
}

static void
only_a_bearer_without_blanks_is_forwarded(void **state)
{
    static const char *const wrong[] = {
        "",           "Bearer",      "Bearer ",     "bearer x",        "Basic x",
        "Bearer a b", "Bearer a\tb", "Bearer \x7f", "Bearer \xc3\xa9", " Bearer x",
        "x"};
    char longest[8002] = "Bearer ";
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(guard_bearer(wrong[i]));
    memset(longest + 7, 'x', 7993);
    assert_true(guard_bearer(longest));
    longest[8000] = 'x';
    assert_false(guard_bearer(longest));
    assert_true(guard_bearer("Bearer stk_abc.DEF-1~+/="));
}

int
main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_names_are_refused),
        cmocka_unit_test(its_own_names_are_accepted_with_any_port),
        cmocka_unit_test(pages_of_others_are_refused),
        cmocka_unit_test(only_a_bearer_without_blanks_is_forwarded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
