// SPDX-License-Identifier: Apache-2.0
// Many deadlines on one libuv timer fire in order, once, and not after they were cleared.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "server/base/timers.h"

enum { N = 500 };

static uv_loop_t loop;
static struct timers *timers;
static struct timer entries[N];
static uint64_t fired_at[N]; // the deadline of an entry when it fired
static size_t fired;

static void
on_fire(struct timer *t)
{
    assert_int_equal(t->index, 0);
    assert_true(uv_hrtime() >= t->at_ns);
    fired_at[fired++] = t->at_ns;
}

static int
set_up(void **state)
{
    (void)state;
    memset(entries, 0, sizeof entries);
    fired = 0;
    for (size_t i = 0; i < N; i++)
        entries[i].fire = on_fire;
    assert_int_equal(uv_loop_init(&loop), 0);
    timers = timers_new(&loop);
    return timers == NULL;
}

static int
tear_down(void **state)
{
    (void)state;
    timers_close(timers);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    return uv_loop_close(&loop);
}

static void
cleared_deadlines_do_not_fire(void **state)
{
    (void)state;
    uint64_t now = uv_hrtime();
    for (size_t i = 0; i < N; i++)
        assert_int_equal(timers_set(timers, &entries[i], now + i * 10000), 0);
    for (size_t i = 0; i < N; i++)
        if (i % 3 != 0)
            timers_clear(timers, &entries[i]);
    timers_clear(timers, &entries[1]); // a second time
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(fired, (N + 2) / 3);
}

static void
deadlines_fire_in_their_order(void **state)
{
    (void)state;
    uint64_t now = uv_hrtime();
    for (size_t i = 0; i < N; i++)
        assert_int_equal(timers_set(timers, &entries[i], now + (i * 7919 % N) * 20000), 0);
    for (size_t i = 0; i < N; i += 5) // change some deadlines
        assert_int_equal(timers_set(timers, &entries[i], now + (i * 31 % N) * 20000), 0);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(fired, N);
    for (size_t i = 1; i < N; i++)
        assert_true(fired_at[i - 1] <= fired_at[i]);
}

static struct timer second;

static void
set_second(struct timer *t)
{
    on_fire(t);
    second.fire = on_fire;
    assert_int_equal(timers_set(timers, &second, uv_hrtime()), 0);
}

static void
one_may_be_set_while_another_fires(void **state)
{
    (void)state;
    entries[0].fire = set_second;
    assert_int_equal(timers_set(timers, &entries[0], 1), 0);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(fired, 2);
}

static void
closing_clears_the_deadlines(void **state)
{
    (void)state;
    assert_int_equal(timers_set(timers, &entries[0], uv_hrtime() + 1000000), 0);
    timers_close(timers);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(fired, 0);
    assert_int_equal(entries[0].index, 0);
    timers = timers_new(&loop);
    assert_non_null(timers);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(cleared_deadlines_do_not_fire),
        TEST(deadlines_fire_in_their_order),
        TEST(one_may_be_set_while_another_fires),
        TEST(closing_clears_the_deadlines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
