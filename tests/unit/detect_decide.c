// SPDX-License-Identifier: Apache-2.0
// proto/detect_decide: who decides a rule; the system calls that it knows are those of the BPF programs.
#include <asm/unistd.h>
#include <linux/errno.h>
#include <linux/types.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bpf/watch_calls.h"
#include "proto/detect.h"
#include "proto/validate.h"
#include "server/base/syscall_names.h"

static void
the_calls_that_rules_know_are_those_of_the_programs(void **state)
{
    (void)state;
    assert_int_equal(error_class[EPERM], WATCH_DENIED);
    for (uint32_t i = 0; i < WATCH_SYSCALLS; i++) {
        const uint8_t what = special_calls[i];
        const bool reported =
            what == DANGEROUS || what == URING || what == CHMOD || what == CHMODAT;
        if (detect_reports_call(syscall_name(i)) != reported)
            fail_msg("%s: %d", syscall_name(i), reported);
    }
    assert_true(detect_reports_call("i386_5") && detect_reports_call("x32_ptrace"));
    assert_false(detect_reports_call("getpid") || detect_reports_call(""));
}

struct row {
    const char *match, *why;
    bool never, in_kernel;
};

static void
a_rule_says_who_decides_and_why(void **state)
{
    static const uint8_t seed[16] = {1};
    static const struct row rows[] = {
        {"kinds: [dangerous_call], all: [{call: {exact: [getpid, openat]}}]", "no program", true,
         false},
        {"kinds: [dangerous_call, io_uring], all: [{comm: {exact: [x]}}, {call: {exact: [clone]}}]",
         "no program", true, false},
        {"kinds: [dangerous_call], all: [{call: {exact: [getpid, ptrace]}}]", "only what is", false,
         false},
        {"kinds: [dangerous_call], all: [{call: {exact: [getpid], prefix: [p]}}]", "only what is",
         false, false},
        {"kinds: [dangerous_call], any: [{call: {exact: [getpid]}}, {comm: {exact: [x]}}]",
         "only what is", false, false},
        {"kinds: [profile, dangerous_call], all: [{call: {exact: [getpid]}}]", "only what is",
         false, false},
        {"kinds: [dangerous_call]", "only events that match", false, true},
        {"kinds: [sensitive_open], all: [{path: {exact: [/a/b]}}]", "only events that match", false,
         true},
        {"kinds: [connect], all: [{address: {within: [10.0.0.0/8]}, port: {exact: [22]}}]",
         "all events", false, false},
        {"kinds: [connect, sensitive_open]", "of some of these kinds", false, false},
    };
    struct err e = {.text = ""};
    (void)state;
    assert_int_equal(validate_init(&e), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512];
        struct detect *d = NULL;
        struct detect_view v;
        (void)snprintf(text, sizeof text,
                       "rules: [{id: r, severity: info, message: m, match: {%s}}]", rows[i].match);
        const struct detect_file file = {"r.yaml", text, strlen(text)};
        if (detect_read(&file, 1, &detect_bounds_host, seed, &d, &e) < 0)
            fail_msg("%s", e.text);
        assert_true(detect_view(d, 0, &v));
        if (v.never != rows[i].never || v.in_kernel != rows[i].in_kernel ||
            strstr(v.why, rows[i].why) == NULL)
            fail_msg("%s: %d %d %s", rows[i].match, v.never, v.in_kernel, v.why);
        detect_free(d);
    }
}

static void
rules_about_a_kind_are_named_as_far_as_they_fit(void **state)
{
    static const uint8_t seed[16] = {1};
    static const char text[] =
        "rules: [{id: one, severity: info, message: m, match: {kinds: [exec, connect]}}, "
        "{id: off, disabled: true, severity: info, message: m, match: {kinds: [exec]}}, "
        "{id: two, severity: info, message: m, match: {kinds: [connect]}}]";
    const struct detect_file file = {"r.yaml", text, strlen(text)};
    const uint64_t exec = UINT64_C(1) << STOCKADE__V1__EVENT_KIND__EVENT_KIND_EXEC;
    const uint64_t connect = UINT64_C(1) << STOCKADE__V1__EVENT_KIND__EVENT_KIND_CONNECT;
    struct detect *d = NULL;
    struct err e = {.text = ""};
    char out[16] = "x";
    (void)state;
    if (detect_read(&file, 1, &detect_bounds_host, seed, &d, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(detect_about(NULL, exec, out, sizeof out), 0);
    assert_string_equal(out, "");
    assert_int_equal(detect_about(d, exec, out, sizeof out), 1);
    assert_string_equal(out, "one");
    assert_int_equal(detect_about(d, exec | connect, out, sizeof out), 2);
    assert_string_equal(out, "one, two");
    assert_int_equal(detect_about(d, connect, out, 8), 2);
    assert_string_equal(out, "one");
    detect_free(d);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_calls_that_rules_know_are_those_of_the_programs),
        cmocka_unit_test(a_rule_says_who_decides_and_why),
        cmocka_unit_test(rules_about_a_kind_are_named_as_far_as_they_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
