// SPDX-License-Identifier: Apache-2.0
// server/sandbox/pool_queue.c: the tenants' queues are served in turn.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/sandbox/pool_queue.h"

static const char *const ann = "ann";
static const char *const bob = "bob";
static const char *const eve = "eve";

static struct pool_owner
usual(const void *who)
{
    return (struct pool_owner){who, 1};
}

static void
a_tenant_with_many_requests_waits_longer(void **state)
{
    struct pool_queue q;
    struct pool_entry a[5] = {0};
    struct pool_entry b[2] = {0};
    struct pool_entry e = {0};
    (void)state;
    pool_queue_init(&q);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(pool_queue_add(&q, &a[i], usual(ann)), 0);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pool_queue_add(&q, &b[i], usual(bob)), 0);
    assert_int_equal(pool_queue_add(&q, &e, usual(eve)), 0);
    assert_int_equal(q.n, 8);
    struct pool_entry *const order[] = {&a[0], &b[0], &e, &a[1], &b[1], &a[2], &a[3], &a[4]};
    for (size_t i = 0; i < 8; i++)
        assert_ptr_equal(pool_queue_take(&q), order[i]);
    assert_null(pool_queue_take(&q));
    assert_int_equal(q.n, 0);
}

// The weights are 3 and 1. A tenant that comes later gets no turns for the time before.
static void
turns_are_in_proportion_to_weights(void **state)
{
    struct pool_queue q;
    struct pool_entry a[100] = {0};
    struct pool_entry b[100] = {0};
    struct pool_entry e[3] = {0};
    unsigned bobs = 0;
    (void)state;
    pool_queue_init(&q);
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(pool_queue_add(&q, &a[i], usual(ann)), 0);
        assert_int_equal(pool_queue_add(&q, &b[i], (struct pool_owner){bob, 3}), 0);
    }
    for (unsigned i = 1; i <= 80; i++) {
        assert_non_null(pool_queue_take(&q));
        bobs = 100 - pool_queue_of(&q, bob);
        assert_in_range(bobs * 4, i * 3 > 4 ? i * 3 - 4 : 0, i * 3 + 4);
    }
    assert_int_equal(bobs, 60);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pool_queue_add(&q, &e[i], usual(eve)), 0);
    for (unsigned i = 1; i <= 10; i++)
        assert_non_null(pool_queue_take(&q));
    assert_int_equal(pool_queue_of(&q, eve), 1);
    while (pool_queue_take(&q) != NULL)
        continue;
}

static void
after_its_turn_a_tenant_waits_behind_the_others(void **state)
{
    struct pool_queue q;
    struct pool_entry a[2] = {0};
    struct pool_entry b[2] = {0};
    (void)state;
    pool_queue_init(&q);
    assert_int_equal(pool_queue_add(&q, &a[0], usual(ann)), 0);
    assert_int_equal(pool_queue_add(&q, &b[0], usual(bob)), 0);
    assert_int_equal(pool_queue_add(&q, &b[1], usual(bob)), 0);
    assert_ptr_equal(pool_queue_take(&q), &a[0]);
    assert_int_equal(pool_queue_add(&q, &a[1], usual(ann)), 0);
    assert_ptr_equal(pool_queue_take(&q), &b[0]);
    assert_ptr_equal(pool_queue_take(&q), &a[1]);
    assert_ptr_equal(pool_queue_take(&q), &b[1]);
}

static bool
is_not_anns(void *cookie, struct pool_entry *p)
{
    (void)cookie;
    return p->line->who != ann;
}

static void
a_tenant_that_may_not_be_served_now_keeps_its_turn(void **state)
{
    struct pool_queue q;
    struct pool_entry a = {0};
    struct pool_entry b[2] = {0};
    (void)state;
    pool_queue_init(&q);
    assert_int_equal(pool_queue_add(&q, &a, usual(ann)), 0);
    assert_null(pool_queue_take_if(&q, is_not_anns, NULL));
    assert_int_equal(pool_queue_add(&q, &b[0], usual(bob)), 0);
    assert_int_equal(pool_queue_add(&q, &b[1], usual(bob)), 0);
    assert_ptr_equal(pool_queue_take_if(&q, is_not_anns, NULL), &b[0]);
    assert_ptr_equal(pool_queue_take(&q), &a);
    assert_ptr_equal(pool_queue_take_if(&q, is_not_anns, NULL), &b[1]);
    assert_int_equal(q.n, 0);
}

static void
removed_entries_leave_the_others_in_order(void **state)
{
    struct pool_queue q;
    struct pool_entry a[3] = {0};
    struct pool_entry b = {0};
    (void)state;
    pool_queue_init(&q);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pool_queue_add(&q, &a[i], usual(ann)), 0);
    assert_int_equal(pool_queue_add(&q, &b, usual(bob)), 0);
    assert_int_equal(pool_queue_of(&q, ann), 3);
    assert_ptr_equal(pool_line_last(pool_queue_longest(&q)), &a[2]);
    pool_queue_remove(&q, &a[0]);
    pool_queue_remove(&q, &a[0]); // it is in no queue
    pool_queue_remove(&q, &b);
    assert_int_equal(pool_queue_of(&q, bob), 0);
    assert_ptr_equal(pool_queue_take(&q), &a[1]);
    assert_ptr_equal(pool_queue_take(&q), &a[2]);
    assert_null(pool_queue_longest(&q));
}

static bool
remove_it(void *cookie, struct pool_entry *p)
{
    if (p->line->who == ann)
        return false;
    pool_queue_remove(cookie, p);
    return true;
}

static void
the_first_of_each_queue_can_be_removed_during_the_walk(void **state)
{
    struct pool_queue q;
    struct pool_entry a = {0};
    struct pool_entry b[2] = {0};
    (void)state;
    pool_queue_init(&q);
    assert_int_equal(pool_queue_add(&q, &a, usual(ann)), 0);
    assert_int_equal(pool_queue_add(&q, &b[0], usual(bob)), 0);
    assert_int_equal(pool_queue_add(&q, &b[1], usual(bob)), 0);
    while (pool_queue_each_first(&q, remove_it, &q)) {
    }
    assert_int_equal(q.n, 1);
    assert_ptr_equal(pool_queue_take(&q), &a);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tenant_with_many_requests_waits_longer),
        cmocka_unit_test(turns_are_in_proportion_to_weights),
        cmocka_unit_test(after_its_turn_a_tenant_waits_behind_the_others),
        cmocka_unit_test(a_tenant_that_may_not_be_served_now_keeps_its_turn),
        cmocka_unit_test(removed_entries_leave_the_others_in_order),
        cmocka_unit_test(the_first_of_each_queue_can_be_removed_during_the_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
