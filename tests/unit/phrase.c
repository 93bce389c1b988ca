// SPDX-License-Identifier: Apache-2.0
#include "proto/phrase.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void
what_does_not_fit_is_cut_and_nothing_follows_it(void **state)
{
    (void)state;
    char out[8];
    memset(out, 'x', sizeof out);
    struct phrase p = {.bytes = out, .n = 4};
    phrase_add(&p, "%s", "abcdef");
    assert_string_equal(out, "abc");
    assert_int_equal(p.used, 6);
    phrase_add(&p, "g");
    assert_string_equal(out, "abc");
    assert_int_equal(out[4], 'x');
}

static void
an_exact_fit_leaves_room_for_the_nul_alone(void **state)
{
    (void)state;
    char out[4];
    struct phrase p = {.bytes = out, .n = sizeof out};
    phrase_add(&p, "ab");
    phrase_add(&p, "%c", 'c');
    assert_string_equal(out, "abc");
    assert_int_equal(p.used, 3);
    phrase_add(&p, "d");
    assert_string_equal(out, "abc");
}

static void
no_buffer_is_no_text(void **state)
{
    (void)state;
    struct phrase p = {0};
    phrase_add(&p, "%d", 1);
    assert_int_equal(p.used, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_fit_is_cut_and_nothing_follows_it),
        cmocka_unit_test(an_exact_fit_leaves_room_for_the_nul_alone),
        cmocka_unit_test(no_buffer_is_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
