// SPDX-License-Identifier: Apache-2.0
// server/base/metrics.c: the table is one that Prometheus accepts, and no value is lost, wrapped or added to a neighbour's.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "server/base/metrics.h"
#include "server/spawner/ops.h"

enum {
    DEGRADED_MAX = 64,
    NAME_MAX_BYTES = 128,
    HELP_MAX_BYTES = 256
}; // system_service.proto, metrics_service.proto

static int
setup(void **state)
{
    (void)state;
    metrics_clear();
    return 0;
}

static bool
ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

// ---- the table

static void
names_are_unique_and_follow_the_conventions(void **state)
{
    (void)state;
    for (unsigned i = 0; i < METRICS_N; i++) {
        const char *name = metrics_row((enum metric)i)->name;
        assert_true(strncmp(name, "stockade_", 9) == 0 && strlen(name) < NAME_MAX_BYTES);
        assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_"), strlen(name));
        assert_null(strstr(name, "__"));
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(name, metrics_row((enum metric)k)->name);
    }
}

// OpenMetrics reserves the suffixes of histograms.
static void
a_name_ends_with_what_its_type_and_unit_ask_for(void **state)
{
    static const char *const reserved[] = {"_count", "_sum", "_bucket", "_created"};
    (void)state;
    for (unsigned i = 0; i < METRICS_N; i++) {
        const struct metric_row *r = metrics_row((enum metric)i);
        assert_int_equal(ends_with(r->name, "_total"), r->type == METRIC_COUNTER);
        for (size_t k = 0; k < sizeof reserved / sizeof reserved[0]; k++)
            assert_false(ends_with(r->name, reserved[k]));
        if (r->unit == METRIC_BYTES)
            assert_true(ends_with(r->name, r->type == METRIC_COUNTER ? "_bytes_total" : "_bytes"));
        if (r->unit == METRIC_SECONDS)
            assert_true(
                ends_with(r->name, r->type == METRIC_COUNTER ? "_seconds_total" : "_seconds"));
        if (r->unit == METRIC_NUMBER)
            assert_false(ends_with(r->name, "_seconds") || ends_with(r->name, "_seconds_total") ||
                         ends_with(r->name, "_bytes_total"));
    }
}

static void
every_metric_has_one_sentence_of_help(void **state)
{
    (void)state;
    for (unsigned i = 0; i < METRICS_N; i++) {
        const char *help = metrics_row((enum metric)i)->help;
        assert_true(strlen(help) > 10 && strlen(help) < HELP_MAX_BYTES);
        assert_true(ends_with(help, ".") && help[0] >= 'A' && help[0] <= 'Z');
    }
}

static void
every_label_has_a_name_and_stands_before_none(void **state)
{
    (void)state;
    for (unsigned l = METRIC_BY_NONE + 1; l < METRIC_LABELS_N; l++) {
        const char *name = metrics_label((enum metric_label)l);
        assert_true(strlen(name) > 0 && strspn(name, "abcdefghijklmnopqrstuvwxyz") == strlen(name));
        assert_string_not_equal(name, "le"); // of the buckets
    }
    for (unsigned i = 0; i < METRICS_N; i++) {
        const struct metric_row *r = metrics_row((enum metric)i);
        assert_true(r->label[0] != METRIC_BY_NONE || r->label[1] == METRIC_BY_NONE);
        assert_true(r->label[1] == METRIC_BY_NONE || r->type != METRIC_HISTOGRAM);
        assert_true(r->label[0] == METRIC_BY_NONE || r->label[0] != r->label[1]);
    }
}

static void
losses_are_counters_and_all_of_them_fit_into_one_answer(void **state)
{
    unsigned losses = 0;
    (void)state;
    for (unsigned i = 0; i < METRICS_N; i++) {
        const struct metric_row *r = metrics_row((enum metric)i);
        assert_int_equal(r->part != NULL, r->sentence != NULL);
        losses += r->sentence != NULL;
        if (r->sentence != NULL)
            assert_int_equal(r->type, METRIC_COUNTER);
    }
    assert_true(losses > 0 && losses + SPAWN_FEATURES_MAX + 1 <= DEGRADED_MAX);
}

static void
bounds_ascend_and_the_last_one_is_infinite(void **state)
{
    (void)state;
    for (uint32_t i = 1; i < METRIC_BUCKETS; i++)
        assert_true(metrics_bound_ns(i) > metrics_bound_ns(i - 1));
    assert_int_equal(metrics_bound_ns(0), 10000);
    assert_int_equal(metrics_bound_ns(METRIC_BUCKETS - 2), UINT64_C(100000000000));
    assert_int_equal(metrics_bound_ns(METRIC_BUCKETS - 1), UINT64_MAX);
}

// ---- values

// Sets each cell of the table to a number of its own and reads all of them back.
static void
no_value_is_another_metrics(void **state)
{
    (void)state;
    uint64_t n = 0;
    for (unsigned pass = 0; pass < 2; pass++) {
        n = 0;
        for (unsigned i = 0; i < METRICS_N; i++) {
            const struct metric_row *r = metrics_row((enum metric)i);
            for (uint32_t a = 0; a < metrics_label_values(r->label[0]); a++) {
                struct metric_histogram h;
                n++;
                if (r->type == METRIC_HISTOGRAM && pass == 0) {
                    metrics_observe((enum metric)i, a, n);
                } else if (r->type == METRIC_HISTOGRAM) {
                    metrics_histogram((enum metric)i, a, &h);
                    assert_true(h.sum_ns == n && h.count == 1);
                }
                for (uint32_t b = 0;
                     r->type != METRIC_HISTOGRAM && b < metrics_label_values(r->label[1]); b++) {
                    n++;
                    if (pass == 1)
                        assert_int_equal(metrics_value((enum metric)i, a, b), n);
                    else if (r->type == METRIC_GAUGE)
                        metrics_move_by((enum metric)i, a, b, (int64_t)n);
                    else
                        metrics_add_by((enum metric)i, a, b, n);
                }
            }
        }
    }
    assert_true(n > 1000);
    metrics_clear();
    assert_int_equal(metrics_sum(METRIC_CALLS), 0);
}

// The first have values of their own until the end; a lower maximum later takes none away.
static void
only_so_many_tenants_have_values_of_their_own(void **state)
{
    (void)state;
    assert_int_equal(metrics_tenant("uid:1", 0), 0);
    assert_int_equal(metrics_tenant("uid:1", 2), 1);
    assert_int_equal(metrics_tenant("uid:2", 2), 2);
    assert_int_equal(metrics_tenant("uid:3", 2), 0);
    assert_int_equal(metrics_tenant("uid:2", 0), 2);
    assert_int_equal(metrics_tenant("uid:1", 2), 1);
    assert_string_equal(metrics_label_value(METRIC_BY_TENANT, 2), "uid:2");
    for (uint32_t i = 3; i < METRIC_VALUES_TENANT; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "tenant-%u-with-a-name-of-more-than-31-bytes", i);
        assert_int_equal(metrics_tenant(name, METRIC_VALUES_TENANT), i);
        assert_int_equal(metrics_tenant(name, METRIC_VALUES_TENANT), i);
    }
    assert_int_equal(metrics_tenant("one-more", METRIC_VALUES_TENANT), 0);
}

static void
a_counter_adds_and_its_sum_is_that_of_all_labels(void **state)
{
    (void)state;
    metrics_add(METRIC_POOL_HITS, 1);
    metrics_add(METRIC_POOL_HITS, 2);
    assert_int_equal(metrics_sum(METRIC_POOL_HITS), 3);
    metrics_add_by(METRIC_CALLS, 1, 2, 5);
    metrics_add_by(METRIC_CALLS, METRIC_VALUES_METHOD - 1, METRIC_VALUES_CODE - 1, 7);
    assert_int_equal(metrics_value(METRIC_CALLS, 1, 2), 5);
    assert_int_equal(metrics_value(METRIC_CALLS, 2, 1), 0);
    assert_int_equal(metrics_sum(METRIC_CALLS), 12);
    assert_int_equal(metrics_sum(METRIC_POOL_HITS), 3);
}

static void
a_counter_at_its_greatest_value_stays_there(void **state)
{
    (void)state;
    metrics_add(METRIC_SENT_BYTES, UINT64_MAX - 1);
    metrics_add(METRIC_SENT_BYTES, 5);
    assert_int_equal(metrics_sum(METRIC_SENT_BYTES), UINT64_MAX);
    metrics_add(METRIC_SENT_BYTES, 1);
    assert_int_equal(metrics_sum(METRIC_SENT_BYTES), UINT64_MAX);
    struct metric_histogram h;
    metrics_observe(METRIC_POOL_WAIT, 0, UINT64_MAX);
    metrics_observe(METRIC_POOL_WAIT, 0, UINT64_MAX);
    metrics_histogram(METRIC_POOL_WAIT, 0, &h);
    assert_int_equal(h.sum_ns, UINT64_MAX);
    assert_int_equal(h.bucket[METRIC_BUCKETS - 1], 2);
}

static void
a_gauge_goes_up_and_down_and_below_zero(void **state)
{
    (void)state;
    metrics_move(METRIC_SANDBOXES, 2, 3);
    metrics_move(METRIC_SANDBOXES, 2, -1);
    assert_int_equal(metrics_value(METRIC_SANDBOXES, 2, 0), 2);
    metrics_set(METRIC_SANDBOXES, 2, 9);
    assert_int_equal(metrics_value(METRIC_SANDBOXES, 2, 0), 9);
    metrics_move(METRIC_JOBS, 0, -1);
    assert_int_equal((int64_t)metrics_value(METRIC_JOBS, 0, 0), -1);
}

static void
an_observation_belongs_to_the_bucket_whose_bound_it_does_not_exceed(void **state)
{
    struct metric_histogram h;
    (void)state;
    metrics_observe(METRIC_JOB_TIME, 0, 0);
    metrics_observe(METRIC_JOB_TIME, 0, 10000);
    metrics_observe(METRIC_JOB_TIME, 0, 10001);
    metrics_observe(METRIC_JOB_TIME, 0, UINT64_C(100000000000));
    metrics_observe(METRIC_JOB_TIME, 0, UINT64_C(100000000001));
    metrics_histogram(METRIC_JOB_TIME, 0, &h);
    assert_int_equal(h.bucket[0], 2);
    assert_int_equal(h.bucket[1], 1);
    assert_int_equal(h.bucket[METRIC_BUCKETS - 2], 1);
    assert_int_equal(h.bucket[METRIC_BUCKETS - 1], 1);
    assert_int_equal(h.count, 5);
    assert_int_equal(h.sum_ns, UINT64_C(200000020002));
}

static void
a_value_without_a_name_is_not_in_use(void **state)
{
    (void)state;
    assert_string_equal(metrics_label_value(METRIC_BY_NONE, 0), "");
    assert_null(metrics_label_value(METRIC_BY_TEMPLATE, 3));
    metrics_name_value(METRIC_BY_TEMPLATE, 3, "python");
    assert_string_equal(metrics_label_value(METRIC_BY_TEMPLATE, 3), "python");
    metrics_name_value(METRIC_BY_TEMPLATE, 3, "");
    assert_null(metrics_label_value(METRIC_BY_TEMPLATE, 3));
    metrics_name_value(METRIC_BY_TEMPLATE, 3, NULL);
    assert_null(metrics_label_value(METRIC_BY_TEMPLATE, 3));
}

int
main(void)
{
#define TEST(t) cmocka_unit_test_setup(t, setup)
    const struct CMUnitTest tests[] = {
        TEST(names_are_unique_and_follow_the_conventions),
        TEST(a_name_ends_with_what_its_type_and_unit_ask_for),
        TEST(every_metric_has_one_sentence_of_help),
        TEST(every_label_has_a_name_and_stands_before_none),
        TEST(losses_are_counters_and_all_of_them_fit_into_one_answer),
        TEST(bounds_ascend_and_the_last_one_is_infinite),
        TEST(a_counter_at_its_greatest_value_stays_there),
        TEST(no_value_is_another_metrics),
        TEST(only_so_many_tenants_have_values_of_their_own),
        TEST(a_counter_adds_and_its_sum_is_that_of_all_labels),
        TEST(a_gauge_goes_up_and_down_and_below_zero),
        TEST(an_observation_belongs_to_the_bucket_whose_bound_it_does_not_exceed),
        TEST(a_value_without_a_name_is_not_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
