// SPDX-License-Identifier: Apache-2.0
// proto/soon.h: when an end polls before it sleeps, and when it does not.
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
        s->sent_ns = soon_now(); // independent of the speed of this machine
        soon_received(s);
    }
}

static void
without_a_sent_frame_there_is_no_polling(void **state)
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
polling_without_result_is_followed_by_a_pause(void **state)
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
polling_stops_after_some_time(void **state)
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
        cmocka_unit_test(without_a_sent_frame_there_is_no_polling),
        cmocka_unit_test(a_few_quick_exchanges_are_not_enough),
        cmocka_unit_test(a_slow_exchange_starts_the_count_again),
        cmocka_unit_test(polling_without_result_is_followed_by_a_pause),
        cmocka_unit_test(polling_stops_after_some_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
