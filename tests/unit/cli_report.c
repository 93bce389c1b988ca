// SPDX-License-Identifier: Apache-2.0
// client/cli/report.c: exit codes and names.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/cli/cli.h"

static int
of(uint32_t outcome, uint32_t exit_code, uint32_t signal, const char *limit)
{
    struct stockade_limit_hit hit = {.name = limit};
    struct stockade_result r = {.outcome = outcome,
                                .exit_code = exit_code,
                                .signal = signal,
                                .reason = "",
                                .limits = &hit,
                                .limits_n = limit != NULL};
    return exit_code_of_result(&r);
}

static void
an_unknown_end_is_a_failure_of_stockade(void **state)
{
    (void)state;
    assert_int_equal(of(STOCKADE_OUTCOME_UNKNOWN, 0, 0, NULL), EXIT_OURS);
    assert_int_equal(of(99, 0, 0, NULL), EXIT_OURS);
    assert_int_equal(of(STOCKADE_OUTCOME_FAILED, 0, 0, NULL), EXIT_OURS);
}

static void
a_job_that_never_succeeded_never_exits_with_0(void **state)
{
    (void)state;
    for (uint32_t outcome = 2; outcome < 9; outcome++)
        for (uint32_t signal = 0; signal < 300; signal++) {
            int code = of(outcome, 0, signal, "memory_bytes");
            assert_true(code > 0 && code < 256);
        }
}

static void
a_jobs_own_exit_code_is_passed_on(void **state)
{
    (void)state;
    assert_int_equal(of(STOCKADE_OUTCOME_EXITED, 0, 0, NULL), 0);
    assert_int_equal(of(STOCKADE_OUTCOME_EXITED, 255, 0, NULL), 255);
    assert_int_equal(of(STOCKADE_OUTCOME_SIGNALED, 0, 9, NULL), 137);
    assert_int_equal(of(STOCKADE_OUTCOME_SIGNALED, 0, 2, NULL), 130);
    assert_int_equal(of(STOCKADE_OUTCOME_NOT_EXECUTED, 127, 0, NULL), EXIT_NOT_FOUND);
    assert_int_equal(of(STOCKADE_OUTCOME_NOT_EXECUTED, 126, 0, NULL), EXIT_NOT_EXECUTABLE);
    assert_int_equal(of(STOCKADE_OUTCOME_REFUSED, 0, 0, NULL), EXIT_REFUSED);
}

static void
a_job_that_a_stopping_broker_cancelled_can_be_tried_again(void **state)
{
    struct stockade_result r = {.outcome = STOCKADE_OUTCOME_CANCELLED, .reason = ""};
    (void)state;
    assert_int_equal(exit_code_of_result(&r), 137);
    r.reason = "the broker is stopping";
    assert_int_equal(exit_code_of_result(&r), EXIT_WAITING);
}

static void
a_time_limit_is_124_and_memory_is_137(void **state)
{
    (void)state;
    assert_int_equal(of(STOCKADE_OUTCOME_LIMIT, 0, 9, "wall_ms"), EXIT_TIME);
    assert_int_equal(of(STOCKADE_OUTCOME_LIMIT, 0, 9, "cpu_time_ms"), EXIT_TIME);
    assert_int_equal(of(STOCKADE_OUTCOME_LIMIT, 0, 9, "memory_bytes"), 137);
    assert_int_equal(of(STOCKADE_OUTCOME_LIMIT, 0, 25, "file_size_bytes"), 153);
}

static void
errors_of_calls_have_codes_for_scripts(void **state)
{
    static const struct {
        int code, of_run, of_others;
    } rows[] = {
        {STOCKADE_PERMISSION_DENIED, EXIT_REFUSED, EXIT_REFUSED},
        {STOCKADE_UNAUTHENTICATED, EXIT_REFUSED, EXIT_REFUSED},
        {STOCKADE_UNAVAILABLE, EXIT_WAITING, EXIT_WAITING},
        {STOCKADE_RESOURCE_EXHAUSTED, EXIT_WAITING, EXIT_WAITING},
        {STOCKADE_DEADLINE_EXCEEDED, EXIT_TIME, EXIT_PROBLEM},
        {STOCKADE_INVALID_ARGUMENT, EXIT_OURS, EXIT_PROBLEM},
        {STOCKADE_NOT_FOUND, EXIT_OURS, EXIT_PROBLEM},
        {STOCKADE_INTERNAL, EXIT_OURS, EXIT_PROBLEM},
        {999, EXIT_OURS, EXIT_PROBLEM},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct stockade_error e = {.code = rows[i].code};
        assert_int_equal(exit_code_of_error(&e, true), rows[i].of_run);
        assert_int_equal(exit_code_of_error(&e, false), rows[i].of_others);
    }
}

// The broker and the command find wrong values; the exit code is the same.
static void
a_wrong_value_of_an_option_has_the_code_of_a_wrong_command_line(void **state)
{
    struct stockade_error e = {.code = STOCKADE_INVALID_ARGUMENT, .subject = "network.outbound[0]"};
    (void)state;
    assert_int_equal(exit_code_of_error(&e, false), EXIT_USAGE);
    assert_int_equal(exit_code_of_error(&e, true), EXIT_OURS);
    e.code = STOCKADE_NOT_FOUND;
    assert_int_equal(exit_code_of_error(&e, false), EXIT_PROBLEM);
}

// The option that a message names must exist.
static void
every_option_that_raises_a_limit_exists(void **state)
{
    static const char *const limits[] = {
        "memory_bytes", "cpu_millis",      "cpu_time_ms", "wall_ms", "pids",
        "files",        "file_size_bytes", "disk_bytes",  "inodes",  "output_bytes"};
    const struct command *run = command_find("run");
    (void)state;
    assert_null(cli_option_of_limit("no_such_limit"));
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const char *option = cli_option_of_limit(limits[i]);
        bool found = false;
        assert_non_null(option);
        for (const struct option_row *const *g = run->options; *g != NULL; g++)
            for (const struct option_row *r = *g; r->name != NULL; r++)
                found |= strcmp(r->name, option) == 0;
        assert_true(found);
    }
}

static void
numbers_of_a_newer_broker_have_a_name_too(void **state)
{
    (void)state;
    assert_string_equal(cli_outcome_name(3), "LIMIT");
    assert_string_equal(cli_outcome_name(4000000000u), "UNKNOWN");
    assert_string_equal(cli_state_name(77), "UNKNOWN");
    assert_string_equal(cli_network_name(77), "unknown");
    assert_int_equal(cli_network_number("open"), STOCKADE_NETWORK_OPEN);
    assert_int_equal(cli_network_number(NULL), STOCKADE_NETWORK_TEMPLATE);
}

// What cli_fail() writes to stderr.
static void
failure_text(const struct stockade_error *e, char *out, size_t n)
{
    FILE *to = tmpfile();
    assert_non_null(to);
    int kept = dup(STDERR_FILENO);
    assert_true(dup2(fileno(to), STDERR_FILENO) >= 0);
    (void)cli_fail(command_find("run"), "", e);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    rewind(to);
    out[fread(out, 1, n - 1, to)] = '\0';
    (void)close(kept);
    (void)fclose(to);
}

static void
a_delay_until_a_retry_is_shown_in_seconds_and_not_beyond_an_hour(void **state)
{
    char text[512];
    struct stockade_error e = {.code = STOCKADE_RESOURCE_EXHAUSTED, .text = "full"};
    (void)state;
    e.retry_ms = STOCKADE_RETRY_MS_MAX;
    failure_text(&e, text, sizeof text);
    assert_string_equal(text, "stockade run: full\n  try again in 1 h or later\n");
    e.retry_ms = 2000;
    failure_text(&e, text, sizeof text);
    assert_string_equal(text, "stockade run: full\n  try again in 2 s\n");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_end_is_a_failure_of_stockade),
        cmocka_unit_test(a_job_that_never_succeeded_never_exits_with_0),
        cmocka_unit_test(a_jobs_own_exit_code_is_passed_on),
        cmocka_unit_test(a_job_that_a_stopping_broker_cancelled_can_be_tried_again),
        cmocka_unit_test(a_time_limit_is_124_and_memory_is_137),
        cmocka_unit_test(errors_of_calls_have_codes_for_scripts),
        cmocka_unit_test(a_wrong_value_of_an_option_has_the_code_of_a_wrong_command_line),
        cmocka_unit_test(every_option_that_raises_a_limit_exists),
        cmocka_unit_test(numbers_of_a_newer_broker_have_a_name_too),
        cmocka_unit_test(a_delay_until_a_retry_is_shown_in_seconds_and_not_beyond_an_hour),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
