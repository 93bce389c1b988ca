// SPDX-License-Identifier: Apache-2.0
// server/sandbox/pace.c: how many sandboxes of one tenant begin at a time, on a clock of the test.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/sandbox/pace.h"

#define MS UINT64_C(1000000)

static const uint64_t start = 50000 * MS;

struct two {
    struct tenants all;
    struct tenant *busy, *other;
};

static void
begin(struct two *f)
{
    memset(f, 0, sizeof *f);
    f->busy = tenant_hold(&f->all, "uid:1");
    f->other = tenant_hold(&f->all, "uid:2");
    assert_non_null(f->busy);
    assert_non_null(f->other);
}

static void
end(struct two *f)
{
    tenant_drop(f->busy);
    tenant_drop(f->other);
    assert_int_equal(tenants_forget(&f->all), 0);
    assert_int_equal(f->all.starting.active_n, 0);
}

static void
a_tenant_beside_another_begins_as_many_as_its_share_of_the_processors(void **state)
{
    struct two f;
    struct pace_young y[3] = {0};
    uint64_t again_ns = 0;
    (void)state;
    begin(&f);
    pace_seen(f.busy, start);
    pace_seen(f.other, start);
    for (unsigned i = 0; i < 2; i++) {
        assert_true(pace_may(f.busy, 4, start, &again_ns));
        pace_begin(&y[i], f.busy, 4, start + i * MS);
    }
    assert_false(pace_may(f.busy, 4, start + 2 * MS, &again_ns));
    assert_int_equal(again_ns, start + PACE_YOUNG_NS);
    assert_true(pace_may(f.other, 4, start + 2 * MS, &again_ns));
    assert_true(pace_may(f.busy, 6, start + 2 * MS, &again_ns));
    assert_true(pace_end(&y[1]));
    assert_false(pace_end(&y[1]));
    assert_true(pace_may(f.busy, 4, start + 2 * MS, &again_ns));
    assert_true(pace_end(&y[0]));
    end(&f);
}

// A person with many names, each of which begins a sandbox now and then, takes no more from the busy one than one name would.
static void
many_that_begin_now_and_then_count_like_one(void **state)
{
    enum { MANY = 100 };
    struct two f;
    struct tenant *many[MANY];
    struct pace_young y[3] = {0};
    char name[16];
    uint64_t again_ns = 0;
    (void)state;
    begin(&f);
    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof name, "uid:%u", 100 + i);
        many[i] = tenant_hold(&f.all, name);
        assert_non_null(many[i]);
        pace_seen(many[i], start);
    }
    pace_seen(f.busy, start);
    pace_begin(&y[0], f.busy, 2, start);
    assert_int_equal(f.busy->starts.due_ns, start + PACE_COST_NS);
    assert_true(pace_end(&y[0]));
    // those that begin one after the other share by their weights
    pace_seen(f.other, start);
    for (unsigned i = 0; i < 2; i++) {
        pace_begin(&y[1], f.other, 2, start);
        assert_true(pace_end(&y[1]));
    }
    assert_true(pace_may(f.busy, 2, start + PACE_COST_NS, &again_ns));
    pace_begin(&y[0], f.busy, 2, start + PACE_COST_NS);
    assert_int_equal(f.busy->starts.due_ns, start + PACE_COST_NS + PACE_COST_NS * 3 / 2);
    assert_true(pace_end(&y[0]));
    for (unsigned i = 0; i < MANY; i++)
        tenant_drop(many[i]);
    end(&f);
}

static void
each_may_begin_one_and_a_job_that_lasts_is_not_young(void **state)
{
    struct two f;
    struct pace_young y[2] = {0};
    uint64_t again_ns = 0;
    (void)state;
    begin(&f);
    pace_seen(f.busy, start);
    pace_seen(f.other, start);
    assert_true(pace_may(f.busy, 1, start, &again_ns));
    pace_begin(&y[0], f.busy, 1, start);
    assert_false(pace_may(f.busy, 1, start + PACE_YOUNG_NS - 1, &again_ns));
    assert_true(pace_may(f.busy, 1, start + PACE_YOUNG_NS, &again_ns));
    assert_false(pace_end(&y[0]));
    pace_begin(&y[1], f.busy, 1, start + PACE_YOUNG_NS);
    assert_true(pace_end(&y[1]));
    end(&f);
}

static void
a_tenant_that_is_alone_begins_as_many_as_it_wants(void **state)
{
    struct two f;
    struct pace_young y[16] = {0};
    uint64_t again_ns = 0;
    (void)state;
    begin(&f);
    for (unsigned i = 0; i < 16; i++) {
        pace_seen(f.busy, start);
        assert_true(pace_may(f.busy, 2, start, &again_ns));
        pace_begin(&y[i], f.busy, 2, start);
    }
    pace_seen(f.other, start + MS);
    assert_false(pace_may(f.busy, 2, start + MS, &again_ns));
    pace_seen(f.busy, start + MS + FAIR_ACTIVE_NS);
    for (unsigned i = 0; i < 16; i++)
        pace_begin(&y[i], f.busy, 2, start + MS + FAIR_ACTIVE_NS);
    assert_true(
        pace_may(f.busy, 2, start + 2 * MS + FAIR_ACTIVE_NS, &again_ns)); // the other one is silent
    assert_int_equal(f.busy->starts.young_n, 16);
    for (unsigned i = 0; i < 16; i++)
        assert_true(pace_end(&y[i]));
    end(&f);
}

// The busy one leaves the second processor to the other, whose next sandbox does not wait, however many are young.
static void
a_tenant_that_uses_its_share_waits_while_the_other_one_begins(void **state)
{
    struct two f;
    struct pace_young y[3] = {0};
    uint64_t again_ns = 0;
    (void)state;
    begin(&f);
    pace_seen(f.busy, start);
    pace_seen(f.other, start);
    pace_begin(&y[0], f.busy, 2, start);
    assert_true(pace_end(&y[0]));
    assert_true(pace_may(f.other, 2, start + MS, &again_ns));
    pace_begin(&y[1], f.other, 2, start + MS);
    assert_false(pace_may(f.busy, 2, start + 6 * MS, &again_ns));
    assert_int_equal(again_ns, start + PACE_COST_NS);
    assert_true(pace_may(f.busy, 4, start + 6 * MS, &again_ns));
    assert_true(pace_may(f.busy, 2, again_ns, &again_ns)); // its share pays for it now
    assert_true(pace_end(&y[1]));
    assert_true(pace_may(f.busy, 2, start + 6 * MS, &again_ns));
    pace_begin(&y[2], f.busy, 2, start + 6 * MS);
    assert_true(pace_may(f.other, 2, start + 50 * MS, &again_ns));
    assert_true(pace_may(f.other, 2, start + 30 * MS, &again_ns)); // the young one of the other
    (void)pace_end(&y[2]);
    assert_int_equal(f.all.young_n, 0);
    end(&f);
}

// Two processors and two tenants: each beginning counts as PACE_COST_NS, so one in that time is the share, however soon each ends.
static void
short_jobs_begin_as_often_as_the_share_pays_for(void **state)
{
    struct two f;
    struct pace_young y = {0};
    uint64_t again_ns = 0;
    unsigned began = 0;
    (void)state;
    begin(&f);
    for (uint64_t at_ns = start; at_ns < start + 1000 * MS; at_ns += MS / 4) {
        pace_seen(f.other, at_ns);
        pace_seen(f.busy, at_ns);
        if (!pace_may(f.busy, 2, at_ns, &again_ns)) {
            assert_in_range(again_ns, at_ns + 1, at_ns + PACE_COST_NS);
            continue;
        }
        pace_begin(&y, f.busy, 2, at_ns);
        assert_true(pace_end(&y));
        began++;
    }
    assert_in_range(began, 1000 * MS / PACE_COST_NS,
                    (1000 * MS + PACE_YOUNG_NS) / PACE_COST_NS + 2);
    assert_true(pace_may(f.other, 2, start + 1000 * MS, &again_ns));
    end(&f);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tenant_beside_another_begins_as_many_as_its_share_of_the_processors),
        cmocka_unit_test(many_that_begin_now_and_then_count_like_one),
        cmocka_unit_test(each_may_begin_one_and_a_job_that_lasts_is_not_young),
        cmocka_unit_test(a_tenant_that_is_alone_begins_as_many_as_it_wants),
        cmocka_unit_test(a_tenant_that_uses_its_share_waits_while_the_other_one_begins),
        cmocka_unit_test(short_jobs_begin_as_often_as_the_share_pays_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
