// SPDX-License-Identifier: Apache-2.0
// proto/soon.h: who looks again before it sleeps, and who rests.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "proto/soon.h"

static void
exchange(struct soon *s, int times)
{
    for (int i = 0; i < times; i++) {
        soon_sent(s);
        s->sent_ns = soon_now(); // however slow this machine is
        soon_received(s);
    }
}

static void
nobody_looks_who_has_sent_nothing(void **state)
{
    (void)state;
    struct soon s = {0};
    assert_false(soon_look(&s));
    exchange(&s, SOON_AFTER);
    assert_false(soon_look(&s));
}

static void
a_few_quick_exchanges_are_not_enough(void **state)
{
    (void)state;
    struct soon s = {0};
    exchange(&s, SOON_AFTER - 1);
    soon_sent(&s);
    assert_false(soon_look(&s));
}

static void
a_slow_exchange_starts_the_count_again(void **state)
{
    (void)state;
    struct soon s = {0};
    exchange(&s, SOON_AFTER);
    soon_sent(&s);
    s.sent_ns -= SOON_GAP_NS + 1;
    soon_received(&s);
    assert_int_equal(s.quick, 0);
}

static void
a_look_in_vain_is_followed_by_a_rest(void **state)
{
    (void)state;
    struct soon s = {0};
    exchange(&s, SOON_AFTER);
    soon_sent(&s);
    s.sent_ns -= SOON_LOOK_NS;
    assert_false(soon_look(&s));
    assert_int_equal(s.quick, SOON_AFTER - SOON_REST);
    exchange(&s, SOON_REST - 1);
    soon_sent(&s);
    assert_false(soon_look(&s));
    soon_received(&s);
    exchange(&s, 1);
    assert_int_equal(s.quick, SOON_AFTER);
}

static void
who_looks_stops_in_the_end(void **state)
{
    (void)state;
    struct soon s = {0};
    exchange(&s, SOON_AFTER);
    soon_sent(&s);
    while (soon_look(&s))
        ;
    assert_true(s.quick < 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_looks_who_has_sent_nothing),
        cmocka_unit_test(a_few_quick_exchanges_are_not_enough),
        cmocka_unit_test(a_slow_exchange_starts_the_count_again),
        cmocka_unit_test(a_look_in_vain_is_followed_by_a_rest),
        cmocka_unit_test(who_looks_stops_in_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
