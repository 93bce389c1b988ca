// SPDX-License-Identifier: Apache-2.0
// server/rpc/fair.c: shares of the broker's CPU time, on a clock of the test.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/rpc/fair.h"

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)

static const uint64_t start = 50 * SECOND;

// `u` calls all the time from now_ns for `ns`, each call taking `call_ns` of CPU time and as long on the clock; another tenant calls once
// in 100 ms if there is one. Returns the CPU time that it got.
static uint64_t
calls_all_the_time(struct fair *f, struct fair_use *u, struct fair_use *other, uint64_t ns)
{
    const uint64_t call_ns = MS / 10;
    uint64_t got_ns = 0;
    uint64_t now_ns = start;
    uint64_t other_ns = start;
    bool waits = false;
    while (now_ns < start + ns) {
        if (other != NULL && now_ns >= other_ns) {
            fair_seen(f, other, 1, now_ns);
            fair_charge(f, other, (int64_t)call_ns, now_ns);
            assert_int_equal(fair_wait_ns(f, other, false, now_ns), 0);
            other_ns += 100 * MS;
        }
        uint64_t wait_ns = fair_wait_ns(f, u, waits, now_ns);
        waits = wait_ns > 0;
        if (waits) {
            now_ns += wait_ns < MS ? wait_ns : MS;
            continue;
        }
        fair_seen(f, u, u->weight > 0 ? u->weight : 1, now_ns);
        now_ns += call_ns;
        got_ns += call_ns;
        fair_charge(f, u, (int64_t)call_ns, now_ns);
    }
    return got_ns;
}

static void
above_its_share_a_tenant_waits_while_another_is_active(void **state)
{
    struct fair f = {.part = 400};
    struct fair_use u = {0}, other = {0};
    (void)state;
    fair_seen(&f, &u, 1, start);
    fair_seen(&f, &other, 1, start);
    fair_charge(&f, &u, FAIR_BRIM_NS, start);
    assert_int_equal(fair_wait_ns(&f, &u, false, start), 0);
    fair_charge(&f, &u, 1, start);
    const uint64_t wait_ns = fair_wait_ns(&f, &u, false, start);
    assert_in_range(wait_ns, 10 * MS, 11 * MS); // 2 ms of a fifth of a CPU
    assert_int_equal(fair_wait_ns(&f, &other, false, start), 0);
    assert_int_not_equal(fair_wait_ns(&f, &u, true, start + wait_ns - MS), 0);
    assert_int_equal(fair_wait_ns(&f, &u, true, start + wait_ns + MS), 0);
}

static void
a_tenant_that_waited_goes_on_when_it_is_alone(void **state)
{
    struct fair f = {.part = 400};
    struct fair_use u = {0}, other = {0};
    (void)state;
    fair_seen(&f, &other, 1, start);
    fair_seen(&f, &u, 1, start);
    fair_charge(&f, &u, 100 * FAIR_BRIM_NS, start);
    for (uint64_t ns = 0; ns <= FAIR_ACTIVE_NS; ns += 100 * MS)
        assert_int_not_equal(fair_wait_ns(&f, &u, true, start + ns),
                             0); // it does not become silent itself
    assert_int_equal(fair_wait_ns(&f, &u, true, start + FAIR_ACTIVE_NS + MS), 0);
}

static void
one_that_calls_all_the_time_gets_its_share_and_all_when_alone(void **state)
{
    struct fair f = {.part = 400};
    struct fair_use u = {0}, other = {0};
    (void)state;
    const uint64_t beside_ns = calls_all_the_time(&f, &u, &other, 10 * SECOND);
    assert_in_range(beside_ns, 1900 * MS, 2100 * MS); // a fifth, and what it may use at once
    struct fair g = {.part = 400};
    struct fair_use v = {0};
    assert_int_equal(calls_all_the_time(&g, &v, NULL, SECOND), SECOND);
    struct fair without = {.part = 0};
    struct fair_use w = {0}, next = {0};
    assert_int_equal(calls_all_the_time(&without, &w, &next, SECOND), SECOND);
}

static void
shares_follow_weights_and_the_number_of_active_tenants(void **state)
{
    struct fair f = {.part = 400};
    struct fair_use u = {0}, one = {0}, other[3] = {0};
    (void)state;
    fair_seen(&f, &u, 3, start);
    fair_seen(&f, &one, 1, start);
    assert_in_range(calls_all_the_time(&f, &u, &one, 10 * SECOND), 2900 * MS, 3100 * MS);
    struct fair g = {.part = 400};
    struct fair_use v = {0};
    for (unsigned i = 0; i < 3; i++)
        fair_seen(&g, &other[i], 1, start);
    fair_seen(&g, &v, 1, start);
    for (unsigned i = 0; i < 3; i++)
        fair_charge(&g, &other[i], FAIR_BUSY_NS + 1, start);
    fair_charge(&g, &v, FAIR_BRIM_NS + 1, start);
    assert_in_range(fair_wait_ns(&g, &v, false, start), 20 * MS, 21 * MS); // 2 ms of a tenth
    fair_forget(&g, &other[0]);
    assert_in_range(fair_wait_ns(&g, &v, false, start), 15 * MS, 16 * MS);
}

static void
many_that_hardly_use_anything_take_no_more_than_one_does(void **state)
{
    enum { MANY = 200 };
    static struct fair_use other[MANY];
    struct fair f = {.part = 400};
    struct fair_use u = {0};
    (void)state;
    fair_seen(&f, &u, 1, start);
    for (unsigned i = 0; i < MANY; i++)
        fair_seen(&f, &other[i], 1, start);
    assert_in_range(calls_all_the_time(&f, &u, &other[0], SECOND / 2), 100 * MS, 130 * MS);
    for (unsigned i = 1; i < MANY; i++) { // now they use as much as they may
        fair_seen(&f, &other[i], 1, start + SECOND / 2);
        fair_charge(&f, &other[i], FAIR_BRIM_NS, start + SECOND / 2);
    }
    fair_seen(&f, &u, 1, start + SECOND / 2);
    fair_charge(&f, &u, FAIR_BRIM_NS, start + SECOND / 2);
    assert_true(fair_wait_ns(&f, &u, true, start + SECOND / 2) > SECOND / 2);
    assert_int_equal(f.busy, MANY);
    for (unsigned i = 1; i < MANY; i++) // later they hardly use anything again
        fair_seen(&f, &other[i], 1, start + 30 * SECOND);
    for (unsigned i = 1; i < MANY; i++)
        fair_charge(&f, &other[i], 1, start + 30 * SECOND);
    assert_int_equal(f.busy, 0);
    assert_int_equal(f.weights, MANY - 1);
}

static void
a_single_large_charge_is_paid_within_about_a_second(void **state)
{
    struct fair f = {.part = 400};
    struct fair_use u = {0}, other = {0};
    (void)state;
    fair_seen(&f, &u, 1, start);
    fair_seen(&f, &other, 1, start);
    fair_charge(&f, &u, INT64_MAX / 2, start);
    assert_in_range(fair_wait_ns(&f, &u, false, start), SECOND, SECOND + 20 * MS);
    fair_charge(&f, &other, -5, start); // a clock that goes back charges nothing
    assert_int_equal(other.used_ns, 0);
}

static void
forgotten_tenants_take_their_weight_along(void **state)
{
    struct fair f = {.part = 400};
    struct fair_use u[3] = {0};
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        fair_seen(&f, &u[i], i + 1, start);
    fair_forget(&f, &u[1]);
    fair_forget(&f, &u[1]);
    assert_int_equal(f.active_n, 2);
    assert_int_equal(f.weights, 4);
    assert_true(fair_counts(&f, start + FAIR_ACTIVE_NS));
    assert_false(fair_counts(&f, start + FAIR_ACTIVE_NS + 1));
    assert_int_equal(f.weights, 0);
}

static void
the_part_is_of_all_processors_but_at_most_one(void **state)
{
    (void)state;
    assert_int_equal(fair_part(20, 1), 200);
    assert_int_equal(fair_part(20, 2), 400);
    assert_int_equal(fair_part(20, 64), 1000);
    assert_int_equal(fair_part(0, 64), 0);
    assert_int_equal(fair_part(20, -1), 200);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(above_its_share_a_tenant_waits_while_another_is_active),
        cmocka_unit_test(a_tenant_that_waited_goes_on_when_it_is_alone),
        cmocka_unit_test(one_that_calls_all_the_time_gets_its_share_and_all_when_alone),
        cmocka_unit_test(shares_follow_weights_and_the_number_of_active_tenants),
        cmocka_unit_test(many_that_hardly_use_anything_take_no_more_than_one_does),
        cmocka_unit_test(a_single_large_charge_is_paid_within_about_a_second),
        cmocka_unit_test(forgotten_tenants_take_their_weight_along),
        cmocka_unit_test(the_part_is_of_all_processors_but_at_most_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
