// SPDX-License-Identifier: Apache-2.0
// Limits can only be lowered: a value above the maximum is refused, and both values are named.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/quantity.h"
#include "server/sandbox/limits.h"
#include "stockade/v1/limits.pb-c.h"

static void
a_value_above_the_maximum_is_refused_and_names_both(void **state)
{
    (void)state;
    struct limits usual, most, out;
    limits_usual(&usual);
    limits_most(&most);
    for (int i = 0; i < LIMITS_N; i++) {
        struct limits asked = {0};
        struct err e = {0};
        char value[QUANTITY_TEXT];
        if (most.v[i] == 0)
            continue; // there is no maximum
        asked.v[i] = most.v[i] + 1;
        assert_true(limits_resolve(&usual, &most, &most, &asked, &out, &e) < 0);
        assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
        assert_string_equal(e.reason, "LIMIT_ABOVE_MAXIMUM");
        assert_true(strncmp(e.rule, "limits_max.", 11) == 0);
        assert_string_equal(e.rule + 11, limit_table[i].key);
        assert_non_null(strstr(e.allowed, quantity_write(most.v[i], limits_units(i), value)));
        assert_non_null(strstr(e.subject, limit_table[i].name));
        assert_non_null(strstr(e.text, quantity_write(most.v[i], limits_units(i), value)));
        assert_non_null(strstr(
            e.hint, limit_table[i].owner == LIMIT_OF_SANDBOX ? "restart the broker" : "reload it"));
        struct limits held = most;
        held.v[i] = most.v[i] + 1; // the configuration was reloaded with a lower maximum
        assert_true(limits_resolve(&usual, &most, &held, &asked, &out, &e) < 0);
        assert_non_null(strstr(e.hint, "reload it"));
        asked.v[i] = most.v[i];
        assert_int_equal(limits_resolve(&usual, &most, &most, &asked, &out, &e), 0);
        assert_int_equal(out.v[i], most.v[i]);
    }
}

static void
a_value_below_the_minimum_is_refused(void **state)
{
    (void)state;
    struct limits usual, most, out;
    limits_usual(&usual);
    limits_most(&most);
    struct limits asked = {.v[LIMIT_MEMORY_BYTES] = 4096};
    struct err e = {0};
    assert_true(limits_resolve(&usual, &most, &most, &asked, &out, &e) < 0);
    assert_string_equal(e.subject, "limits.memory_bytes");
    assert_non_null(strstr(e.text, "4K is below the minimum of 4M"));
}

static void
a_sandbox_limit_for_one_process_is_refused(void **state)
{
    (void)state;
    struct limits own, most, out;
    limits_usual(&own);
    limits_most(&most);
    own.v[LIMIT_OUTPUT_BYTES] = 1000; // one that was requested
    const struct limits_of_box box = {.own = &own, .asked = &own, .most = &most};
    for (int i = 0; i < LIMITS_N; i++) {
        struct limits asked = {0};
        struct err e = {0};
        asked.v[i] = own.v[i];
        int r = limits_resolve_job(&box, &asked, false, &out, &e);
        bool of_box = limit_table[i].owner == LIMIT_OF_SANDBOX;
        assert_int_equal(r == 0, !of_box);
        asked.v[i] = own.v[i] + 1; // never above the value that was requested for the sandbox
        assert_true(limits_resolve_job(&box, &asked, true, &out, &e) < 0);
        if (!of_box)
            assert_string_equal(e.hint, "request less, or create the sandbox with more");
    }
}

static void
a_job_that_stays_has_no_time_limit_unless_requested(void **state)
{
    (void)state;
    struct limits own, most, out;
    struct limits nothing = {0}, asked = {.v[LIMIT_WALL_MS] = 5000};
    struct err e = {0};
    limits_usual(&own);
    limits_most(&most);
    struct limits_of_box box = {.own = &own, .asked = &nothing, .most = &most};
    own.v[LIMIT_OUTPUT_BYTES] = 1000; // the template's
    assert_int_equal(limits_resolve_job(&box, &nothing, true, &out, &e), 0);
    assert_int_equal(out.v[LIMIT_WALL_MS], 0);
    assert_int_equal(out.v[LIMIT_CPU_TIME_MS], 0);
    assert_int_equal(out.v[LIMIT_OUTPUT_BYTES], 0);
    assert_int_equal(out.v[LIMIT_FILES], own.v[LIMIT_FILES]);
    assert_int_equal(limits_resolve_job(&box, &nothing, false, &out, &e), 0);
    assert_memory_equal(&out, &own, sizeof out);
    assert_int_equal(limits_resolve_job(&box, &asked, true, &out, &e), 0);
    assert_int_equal(out.v[LIMIT_WALL_MS], 5000);
    asked.v[LIMIT_WALL_MS] =
        own.v[LIMIT_WALL_MS] * 10; // the template's maximum counts, not its default
    assert_int_equal(limits_resolve_job(&box, &asked, false, &out, &e), 0);
    asked.v[LIMIT_WALL_MS] = most.v[LIMIT_WALL_MS] + 1;
    assert_true(limits_resolve_job(&box, &asked, true, &out, &e) < 0);
    own.v[LIMIT_WALL_MS] = nothing.v[LIMIT_WALL_MS] = 3000; // Create has set it
    assert_int_equal(limits_resolve_job(&box, &(struct limits){0}, true, &out, &e), 0);
    assert_int_equal(out.v[LIMIT_WALL_MS], 3000);
}

static void
omitted_limits_are_the_defaults(void **state)
{
    (void)state;
    struct limits usual, most, out;
    struct err e;
    limits_usual(&usual);
    limits_most(&most);
    assert_int_equal(limits_resolve(&usual, &most, &most, NULL, &out, &e), 0);
    assert_memory_equal(&out, &usual, sizeof out);
}

static void
without_a_default_a_limit_is_off_until_a_request_sets_it(void **state)
{
    (void)state;
    struct limits usual, most, out;
    struct limits asked = {.v[LIMIT_OUTPUT_BYTES] = 1000};
    struct err e;
    limits_usual(&usual);
    limits_most(&most);
    assert_int_equal(limits_resolve(&usual, &most, &most, NULL, &out, &e), 0);
    assert_int_equal(out.v[LIMIT_OUTPUT_BYTES], 0);
    assert_int_equal(limits_resolve(&usual, &most, &most, &asked, &out, &e), 0);
    assert_int_equal(out.v[LIMIT_OUTPUT_BYTES], 1000);
    most.v[LIMIT_OUTPUT_BYTES] = 900;
    assert_true(limits_resolve(&usual, &most, &most, &asked, &out, &e) < 0);
}

static void
every_default_lies_within_its_bounds(void **state)
{
    (void)state;
    for (int i = 0; i < LIMITS_N; i++) {
        const struct limit_row *row = &limit_table[i];
        if (row->usual == 0)
            assert_int_equal(row->most, 0); // neither default nor maximum
        else
            assert_true(row->min <= row->usual && row->usual <= row->most && row->most <= row->max);
    }
}

static void
messages_survive_a_round_trip(void **state)
{
    (void)state;
    struct limits a, b;
    Stockade__V1__Limits m = STOCKADE__V1__LIMITS__INIT;
    for (int i = 0; i < LIMITS_N; i++)
        a.v[i] = (uint64_t)i + 1;
    limits_to_message(&a, &m);
    limits_from_message(&m, &b);
    assert_memory_equal(&a, &b, sizeof a);
    const ProtobufCMessageDescriptor *type = &stockade__v1__limits__descriptor;
    assert_int_equal(type->n_fields, LIMITS_N);
    for (unsigned i = 0; i < LIMITS_N; i++) // the table has the order of the fields
        assert_string_equal(type->fields[i].name, limit_table[i].name);
}

static void
sockets_follow_memory(void **state)
{
    (void)state;
    struct limits l = {.v = {[LIMIT_MEMORY_BYTES] = 512 << 20}};
    assert_int_equal(limits_sockets(&l), 1024);
    l.v[LIMIT_MEMORY_BYTES] = 4 << 20;
    assert_int_equal(limits_sockets(&l), 64);
    l.v[LIMIT_MEMORY_BYTES] = UINT64_MAX;
    assert_int_equal(limits_sockets(&l), 1 << 20);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_above_the_maximum_is_refused_and_names_both),
        cmocka_unit_test(a_value_below_the_minimum_is_refused),
        cmocka_unit_test(a_sandbox_limit_for_one_process_is_refused),
        cmocka_unit_test(a_job_that_stays_has_no_time_limit_unless_requested),
        cmocka_unit_test(omitted_limits_are_the_defaults),
        cmocka_unit_test(without_a_default_a_limit_is_off_until_a_request_sets_it),
        cmocka_unit_test(every_default_lies_within_its_bounds),
        cmocka_unit_test(messages_survive_a_round_trip),
        cmocka_unit_test(sockets_follow_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
