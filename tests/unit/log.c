// SPDX-License-Identifier: Apache-2.0
// A log entry is always one line, whatever it contains.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <fcntl.h>
#include <unistd.h>
#include <jansson.h>

#include "server/base/log.h"
#include "server/base/metrics.h"

// NOLINTBEGIN(misc-misleading-bidirectional): this is tested
struct escape {
    const char *in, *out;
};

static const struct escape escapes[] = {
    {"two\nlines", "two\\u000alines"},
    {"\x1b[31mred", "\\u001b[31mred"},
    {"quote\" back\\", "quote\\\" back\\\\"},
    {"bad \xff\xc0\x80 bytes", "bad \\\\xff\\\\xc0\\\\x80 bytes"},
    {"a\xe2\x80\xae"
     "b",
     "a\\u202eb"}, // right-to-left override
    {"a\xe2\x81\xa6"
     "b",
     "a\\u2066b"}, // isolate
    {"a\xc2\x85"
     "b",
     "a\\u0085b"},                             // C1 control
    {"\xed\xa0\x80", "\\\\xed\\\\xa0\\\\x80"}, // surrogate
    {"\xf0\x9f\x98\x80", "\\ud83d\\ude00"},
    {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
    {"", ""},
};

static void
control_bidi_and_invalid_bytes_are_escaped(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof escapes / sizeof escapes[0]; i++) {
        char out[64];
        size_t n = log_escape(escapes[i].in, out, sizeof out);
        assert_string_equal(out, escapes[i].out);
        assert_int_equal(n, strlen(out));
    }
}

static void
text_that_does_not_fit_is_truncated_with_a_mark(void **state)
{
    (void)state;
    char out[16];
    assert_int_equal(log_escape("0123456789abcdefghij", out, sizeof out), 15);
    assert_string_equal(out, "0123456789ab...");
    assert_true(log_escape("\n\n\n\n\n\n", out, sizeof out) < sizeof out);
}

static void
a_line_of_JSON_is_valid_with_any_content(void **state)
{
    (void)state;
    int ends[2];
    char line[LOG_LINE_MAX + 1];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    log_setup(ends[1], LOG_INFO, true);
    log_event(LOG_DEBUG, "quiet", "below the level");
    log_event(LOG_ERROR, "evil", "%s", "\"}\n\x1b \xff \xe2\x80\xae \\");
    ssize_t n = read(ends[0], line, sizeof line - 1);
    assert_true(n > 0);
    line[n] = '\0';
    assert_ptr_equal(strchr(line, '\n'), line + n - 1);
    json_error_t error;
    json_t *j = json_loads(line, JSON_REJECT_DUPLICATES, &error);
    assert_non_null(j);
    assert_string_equal(json_string_value(json_object_get(j, "event")), "evil");
    json_decref(j);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

// NOLINTEND(misc-misleading-bidirectional)

static void
the_objects_of_a_line_are_fields_of_its_JSON(void **state)
{
    (void)state;
    int ends[2];
    char line[LOG_LINE_MAX + 1];
    const struct log_about about = {
        .sandbox = "5a", .job = "10", .rule = "fork\"storm", .tenant = ""};
    struct err e;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    log_setup(ends[1], LOG_INFO, true);
    (void)err_set(&e, ERR_NOT_FOUND, "no such thing");
    log_err_about(LOG_WARNING, "test", &about, &e);
    ssize_t n = read(ends[0], line, sizeof line - 1);
    assert_true(n > 0);
    json_t *o = json_loadb(line, (size_t)n, 0, NULL);
    assert_non_null(o);
    assert_string_equal(json_string_value(json_object_get(o, "sandbox")), "5a");
    assert_string_equal(json_string_value(json_object_get(o, "job")), "10");
    assert_string_equal(json_string_value(json_object_get(o, "rule")), "fork\"storm");
    assert_string_equal(json_string_value(json_object_get(o, "code")), "NOT_FOUND");
    assert_string_equal(json_string_value(json_object_get(o, "text")), "no such thing");
    assert_null(json_object_get(o, "tenant"));
    json_decref(o);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void
lines_lost_at_a_full_pipe_are_counted_and_reported(void **state)
{
    (void)state;
    int ends[2];
    char junk[65536];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    log_setup(ends[1], LOG_INFO, false);
    uint64_t before = metrics_sum(METRIC_LOG_LOST);
    for (int i = 0; i < 2000; i++)
        log_event(LOG_INFO, "flood", "%0100d", i);
    assert_true(metrics_sum(METRIC_LOG_LOST) > before);
    assert_true(read(ends[0], junk, sizeof junk) > 0);
    log_event(LOG_INFO, "after", "it goes on");
    ssize_t n = 0;
    while ((n = read(ends[0], junk, sizeof junk - 1)) == (ssize_t)sizeof junk - 1)
        continue;
    junk[n] = '\0';
    const char *tail = strstr(junk, "lines lost so far");
    assert_non_null(tail);
    assert_non_null(strstr(tail, "it goes on"));
    (void)close(ends[0]);
    (void)close(ends[1]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_bidi_and_invalid_bytes_are_escaped),
        cmocka_unit_test(text_that_does_not_fit_is_truncated_with_a_mark),
        cmocka_unit_test(a_line_of_JSON_is_valid_with_any_content),
        cmocka_unit_test(the_objects_of_a_line_are_fields_of_its_JSON),
        cmocka_unit_test(lines_lost_at_a_full_pipe_are_counted_and_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
