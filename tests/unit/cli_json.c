// SPDX-License-Identifier: Apache-2.0
// client/cli/json.c: the form of `-o json`.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "client/cli/json.h"

static void
bytes_that_are_not_text_also_come_as_base64(void **state)
{
    (void)state;
    json_t *o = json_object();
    assert_int_equal(json_set_bytes(o, "stdout", "a\xff\xfe\x00z", 5), 0);
    assert_string_equal(json_string_value(json_object_get(o, "stdout_base64")), "Yf/+AHo=");
    assert_int_equal(json_string_length(json_object_get(o, "stdout")), 9);
    // a surrogate, an overlong form, above the last code point, a truncated sequence
    assert_int_equal(json_set_bytes(o, "a", "\xed\xa0\x80", 3), 0);
    assert_int_equal(json_set_bytes(o, "b", "\xe0\x80\x80", 3), 0);
    assert_int_equal(json_set_bytes(o, "c", "\xf4\x90\x80\x80", 4), 0);
    assert_int_equal(json_set_bytes(o, "d", "\xe2\x82", 2), 0);
    assert_non_null(json_object_get(o, "a_base64"));
    assert_non_null(json_object_get(o, "b_base64"));
    assert_non_null(json_object_get(o, "c_base64"));
    assert_string_equal(json_string_value(json_object_get(o, "d_base64")), "4oI=");
    json_decref(o);
}

static void
text_is_unchanged(void **state)
{
    (void)state;
    json_t *o = json_object();
    assert_int_equal(json_set_bytes(o, "stdout", "h\u00e9\n", 4), 0);
    assert_int_equal(json_set_bytes(o, "stderr", "", 0), 0);
    assert_string_equal(json_string_value(json_object_get(o, "stdout")), "h\u00e9\n");
    assert_string_equal(json_string_value(json_object_get(o, "stderr")), "");
    assert_int_equal(json_object_size(o), 2);
    json_decref(o);
}

static void
an_unknown_figure_is_null(void **state)
{
    static const char *const unknown[] = {"io_read_bytes: no io controller"};
    static const struct stockade_limit_hit hits[] = {
        {.name = "memory_bytes", .value = 4096, .over = 1},
        {.name = "pids", .value = 8, .over = 3, .count = true}};
    struct stockade_result r = {.outcome = STOCKADE_OUTCOME_LIMIT,
                                .signal = 9,
                                .reason = "memory",
                                .limits = hits,
                                .limits_n = 2};
    (void)state;
    r.bill.wall_us = (struct stockade_figure){12400, STOCKADE_SOURCE_BROKER, STOCKADE_SCOPE_JOB};
    r.bill.memory_peak_bytes = (struct stockade_figure){UINT64_MAX, 77, 77};
    r.bill.unknown = unknown;
    r.bill.unknown_n = 1;
    json_t *o = json_of_result(&r);
    json_t *bill = json_object_get(o, "bill"), *sources = json_object_get(bill, "sources");
    assert_string_equal(json_string_value(json_object_get(o, "outcome")), "LIMIT");
    assert_int_equal(json_integer_value(json_object_get(bill, "wall_us")), 12400);
    assert_string_equal(json_string_value(json_object_get(sources, "wall_us")), "broker/job");
    assert_true(json_is_null(json_object_get(bill, "io_read_bytes")));
    assert_null(json_object_get(sources, "io_read_bytes"));
    assert_int_equal(json_integer_value(json_object_get(bill, "memory_peak_bytes")), INT64_MAX);
    assert_string_equal(json_string_value(json_object_get(sources, "memory_peak_bytes")),
                        "unknown/unknown");
    assert_int_equal(json_object_size(bill), 18 + 2);
    json_t *hit = json_object_get(o, "limit_hit"), *also = json_object_get(o, "limits_also_hit");
    assert_string_equal(json_string_value(json_object_get(hit, "name")), "memory_bytes");
    assert_int_equal(json_array_size(also), 1);
    assert_true(json_is_true(json_object_get(json_array_get(also, 0), "count")));
    json_decref(o);
}

static void
a_sandbox_has_every_field_and_its_times_are_utc(void **state)
{
    static const struct stockade_pair labels[] = {{"team", "search"}};
    struct stockade_sandbox box = {.id = "0123456789abcdef0123456789abcdef",
                                   .name = "",
                                   .template_name = "default",
                                   .state = 99,
                                   .labels = labels,
                                   .labels_n = 1,
                                   .created_ms = 1700000000123};
    (void)state;
    json_t *o = json_of_sandbox(&box);
    assert_string_equal(json_string_value(json_object_get(o, "state")), "UNKNOWN");
    assert_string_equal(json_string_value(json_object_get(o, "create_time")),
                        "2023-11-14T22:13:20.123Z");
    assert_true(json_is_null(json_object_get(o, "expire_time")));
    assert_int_equal(json_object_size(json_object_get(o, "limits")), 11);
    assert_string_equal(json_string_value(json_object_get(json_object_get(o, "labels"), "team")),
                        "search");
    static const char *const allow[] = {"example.com:443"};
    assert_int_equal(json_object_size(json_object_get(o, "policy")), 8);
    assert_true(json_is_null(json_object_get(o, "last_sleep")));
    assert_int_equal(json_object_size(o), 14);
    json_decref(o);
    box.policy =
        (struct stockade_policy){.mode = STOCKADE_NETWORK_ALLOWLIST, .allow = allow, .allow_n = 1};
    o = json_of_sandbox(&box);
    json_t *policy = json_object_get(o, "policy");
    assert_string_equal(json_string_value(json_object_get(policy, "mode")), "allowlist");
    assert_string_equal(json_string_value(json_array_get(json_object_get(policy, "outbound"), 0)),
                        allow[0]);
    json_decref(o);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_that_are_not_text_also_come_as_base64),
        cmocka_unit_test(text_is_unchanged),
        cmocka_unit_test(an_unknown_figure_is_null),
        cmocka_unit_test(a_sandbox_has_every_field_and_its_times_are_utc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
