// SPDX-License-Identifier: Apache-2.0
// The use of each tenant is counted separately and given back.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <uv.h>

#include "server/rpc/tenants.h"

static void
bytes_beyond_the_share_are_refused(void **state)
{
    (void)state;
    struct tenants ts = {0};
    struct tenant *t = tenant_hold(&ts, "uid:1");
    assert_false(tenant_take_bytes(t, 101, 100));
    assert_false(tenant_take_bytes(t, UINT64_MAX, 100));
    assert_true(tenant_take_bytes(t, 60, 100));
    assert_false(tenant_take_bytes(t, 41, 100));
    assert_true(tenant_take_bytes(t, 40, 100));
    tenant_give_bytes(t, 100);
    tenant_drop(t);
}

static void
a_tenant_exists_while_it_is_held(void **state)
{
    (void)state;
    struct tenants ts = {0};
    struct tenant *held[200];
    char name[32];
    for (int i = 0; i < 200; i++) {
        (void)snprintf(name, sizeof name, "uid:%d", i);
        held[i] = tenant_hold(&ts, name);
        assert_ptr_equal(tenant_hold(&ts, name), held[i]);
        tenant_drop(held[i]);
    }
    assert_ptr_not_equal(held[1], held[2]);
    for (int i = 0; i < 200; i++)
        tenant_drop(held[i]);
    for (size_t i = 0; i < sizeof ts.buckets / sizeof ts.buckets[0]; i++)
        assert_null(ts.buckets[i]);
}

static void
sandboxes_and_connections_of_a_tenant_are_counted_together(void **state)
{
    (void)state;
    struct tenants ts = {0};
    assert_null(tenant_find(&ts, "uid:1"));
    struct tenant *connection = tenant_hold(&ts, "uid:1");
    struct tenant *sandbox = tenant_hold(&ts, "uid:1");
    assert_ptr_equal(connection, sandbox);
    struct err e;
    assert_int_equal(tenant_charge(sandbox, LEDGER_SANDBOXES, 1, 1, &e), 0);
    tenant_drop(connection); // the connection has ended, its sandboxes stay
    assert_int_equal(tenant_held(tenant_find(&ts, "uid:1"), LEDGER_SANDBOXES), 1);
    struct tenant *job = tenant_hold_again(sandbox);
    tenant_release(sandbox, LEDGER_SANDBOXES, 1);
    tenant_drop(sandbox);
    assert_ptr_equal(tenant_find(&ts, "uid:1"), job);
    tenant_drop(job);
    assert_null(tenant_find(&ts, "uid:1"));
}

static void
a_tenant_that_used_much_cpu_is_remembered_until_its_bucket_is_empty(void **state)
{
    (void)state;
    struct tenants ts = {0};
    struct tenant *t = tenant_hold(&ts, "uid:1");
    t->share.used_ns = 7;
    t->keep_until_ns = UINT64_MAX;
    tenant_drop(t);
    assert_ptr_equal(tenant_hold(&ts, "uid:1"), t);
    assert_int_equal(t->share.used_ns, 7);
    tenant_drop(t);
    t->keep_until_ns = 1;
    tenant_drop(tenant_hold(&ts, "uid:2")); // a new tenant makes room
    assert_null(tenant_find(&ts, "uid:1"));
}

static void
what_a_tenant_used_of_its_shares_outlasts_its_last_connection(void **state)
{
    (void)state;
    struct tenants ts = {.fair = {.part = 400}};
    struct tenant *t = tenant_hold(&ts, "uid:1");
    const uint64_t now = uv_hrtime();
    fair_seen(&ts.fair, &t->use, 1, now);
    t->use.used_ns = 7;
    tenant_drop(t);
    assert_ptr_equal(tenant_hold(&ts, "uid:1"), t);
    assert_int_equal(t->use.used_ns, 7);
    assert_int_equal(ts.fair.active_n, 1); // others have it beside them
    tenant_drop(t);
    t->use.seen_ns = now - FAIR_KEPT_NS;
    tenant_drop(tenant_hold(&ts, "uid:2")); // a new tenant makes room
    assert_null(tenant_find(&ts, "uid:1"));
    assert_int_equal(ts.fair.active_n, 0);
    assert_int_equal(ts.resting_n, 0);
}

// A caller with very many names is not remembered under all of them.
static void
the_number_of_those_that_are_remembered_has_a_bound(void **state)
{
    (void)state;
    struct tenants ts = {.fair = {.part = 400}};
    char name[32];
    for (int i = 0; i < 3000; i++) {
        (void)snprintf(name, sizeof name, "uid:%d", i);
        struct tenant *t = tenant_hold(&ts, name);
        fair_seen(&ts.fair, &t->use, 1, uv_hrtime());
        tenant_drop(t);
    }
    assert_int_equal(ts.resting_n, 1024);
    assert_int_equal(ts.fair.active_n, 1024);
    assert_int_equal(tenants_forget(&ts), 0);
    assert_int_equal(ts.resting_n, 0);
    assert_int_equal(ts.fair.weights, 0);
}

// Three per minute: three at once, and then one each twenty seconds.
static void
jobs_of_a_minute_are_bounded_and_the_error_says_until_when(void **state)
{
    (void)state;
    const uint64_t second = 1000000000;
    static const struct quotas three = {.usual = {[QUOTA_JOBS_PER_MINUTE] = 3}};
    struct tenants ts = {.quotas = &three};
    struct tenant *t = tenant_hold(&ts, "uid:1");
    uint64_t now = 1000 * second;
    struct err e;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tenant_check_jobs(t, now, &e), 0);
        tenant_count_job(t, now);
    }
    assert_int_equal(tenant_jobs_begun(t, now), 3);
    assert_true(tenant_check_jobs(t, now, &e) < 0);
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(e.reason, "QUOTA_JOBS_PER_MINUTE");
    assert_in_range(e.retry_ms, 20000, 20001);
    now += 19 * second;
    assert_true(tenant_check_jobs(t, now, &e) < 0);
    assert_in_range(e.retry_ms, 1000, 1001);
    now += 2 * second;
    assert_int_equal(tenant_check_jobs(t, now, &e), 0);
    tenant_count_job(t, now);
    assert_true(tenant_check_jobs(t, now, &e) < 0);
    assert_true(t->keep_until_ns > now); // remembered after its connection
    now += 60 * second;
    assert_int_equal(tenant_jobs_begun(t, now), 0);
    t->keep_until_ns = 0;
    tenant_drop(t);
}

static void
begin_jobs(struct tenant *t, unsigned n, uint64_t now_ns)
{
    struct err e;
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(tenant_check_jobs(t, now_ns, &e), 0);
        tenant_count_job(t, now_ns);
    }
    assert_true(tenant_check_jobs(t, now_ns, &e) < 0);
}

// SIGHUP with another quota: what has begun stays what it is.
static void
jobs_of_a_minute_count_as_many_under_another_quota(void **state)
{
    (void)state;
    const uint64_t second = 1000000000;
    static struct quotas q = {.usual = {[QUOTA_JOBS_PER_MINUTE] = 3}};
    struct tenants ts = {.quotas = &q};
    struct tenant *t = tenant_hold(&ts, "uid:1");
    uint64_t now = 1000 * second;
    struct err e;
    begin_jobs(t, 3, now);
    q.usual[QUOTA_JOBS_PER_MINUTE] = 100000;
    assert_int_equal(tenant_jobs_begun(t, now), 3);
    q.usual[QUOTA_JOBS_PER_MINUTE] = 6;
    assert_int_equal(tenant_jobs_begun(t, now), 3);
    begin_jobs(t, 3, now);
    q.usual[QUOTA_JOBS_PER_MINUTE] = 2;
    assert_int_equal(tenant_jobs_begun(t, now),
                     2); // no more than the quota, so it ends within a minute
    assert_true(tenant_check_jobs(t, now, &e) < 0);
    assert_in_range(e.retry_ms, 30000, 30001);
    assert_int_equal(tenant_jobs_begun(t, now + 60 * second), 0);
    q.usual[QUOTA_JOBS_PER_MINUTE] = 0; // no limit
    assert_int_equal(tenant_check_jobs(t, now, &e), 0);
    assert_int_equal(tenant_jobs_begun(t, now), 0);
    t->keep_until_ns = 0;
    tenant_drop(t);
}

static void
a_tenant_may_have_quotas_of_its_own(void **state)
{
    (void)state;
    static struct quotas q = {.usual = {[QUOTA_SANDBOXES] = 2, [QUOTA_MEMORY_BYTES] = 100}, .n = 2};
    q.row[0] = (struct quota_of_tenant){.tenant = "ci",
                                        .weight = 5,
                                        .has = 1 << QUOTA_SANDBOXES | 1 << QUOTA_MEMORY_BYTES,
                                        .v = {[QUOTA_SANDBOXES] = 7}};
    q.row[1] = (struct quota_of_tenant){.tenant = "uid:1"};
    assert_int_equal(quota_of(&q, "ci", QUOTA_SANDBOXES), 7);
    assert_true(quota_of(&q, "ci", QUOTA_MEMORY_BYTES) == UINT64_MAX);
    assert_int_equal(quota_of(&q, "uid:1", QUOTA_SANDBOXES), 2);
    assert_int_equal(quota_of(&q, "uid:2", QUOTA_MEMORY_BYTES), 100);
    assert_int_equal(quota_weight(&q, "ci"), 5);
    assert_int_equal(quota_weight(&q, "uid:1"), 1);
    assert_int_equal(quota_weight(&q, "uid:2"), 1);
    assert_int_equal(quota_highest(&q, QUOTA_SANDBOXES), 7);
    assert_int_equal(quota_of(NULL, "ci", QUOTA_SANDBOXES), quota_table[QUOTA_SANDBOXES].usual);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_tenant_used_of_its_shares_outlasts_its_last_connection),
        cmocka_unit_test(the_number_of_those_that_are_remembered_has_a_bound),
        cmocka_unit_test(jobs_of_a_minute_are_bounded_and_the_error_says_until_when),
        cmocka_unit_test(jobs_of_a_minute_count_as_many_under_another_quota),
        cmocka_unit_test(a_tenant_may_have_quotas_of_its_own),
        cmocka_unit_test(bytes_beyond_the_share_are_refused),
        cmocka_unit_test(a_tenant_exists_while_it_is_held),
        cmocka_unit_test(sandboxes_and_connections_of_a_tenant_are_counted_together),
        cmocka_unit_test(a_tenant_that_used_much_cpu_is_remembered_until_its_bucket_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
