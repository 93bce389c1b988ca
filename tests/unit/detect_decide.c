// SPDX-License-Identifier: Apache-2.0
// proto/detect_decide: who decides a rule; the system calls that it knows are those of the BPF programs.
#include <arpa/inet.h>
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

static void
count_tripwire(void *cookie, const struct detect *d, uint32_t i, const struct detect_event *ev)
{
    (void)d;
    (void)i;
    (void)ev;
    ++*(size_t *)cookie;
}

static size_t
tripwires_of(struct detect *d, const char *call, bool uring, int64_t result)
{
    Stockade__V1__Event m = STOCKADE__V1__EVENT__INIT;
    Stockade__V1__SystemCall c = STOCKADE__V1__SYSTEM_CALL__INIT;
    struct detect_event ev;
    size_t fired = 0;
    m.kind = uring ? STOCKADE__V1__EVENT_KIND__EVENT_KIND_IO_URING
                   : STOCKADE__V1__EVENT_KIND__EVENT_KIND_DANGEROUS_CALL;
    m.detail_case = STOCKADE__V1__EVENT__DETAIL_CALL;
    m.comm = "work";
    m.call = &c;
    c.name = call;
    c.result = result;
    detect_fill(&m, 1000000000, &ev);
    ev.sentence = "it happened";
    detect_tripwires(d, &ev, count_tripwire, &fired);
    return fired;
}

static void
no_reported_call_is_silent(void **state)
{
    static const uint8_t seed[16] = {1};
    const struct detect_file file = detect_tripwire_file();
    struct detect *d = NULL;
    struct err e;
    (void)state;
    assert_int_equal(detect_read(&file, 1, &detect_bounds_host, seed, &d, &e), 0);
    for (uint32_t i = 0; i < WATCH_SYSCALLS; i++) {
        const char *name = syscall_name(i);
        if (!detect_reports_call(name))
            continue;
        const bool uring = special_calls[i] == URING;
        if (tripwires_of(d, name, uring, -EPERM) == 0 || tripwires_of(d, name, uring, 0) == 0)
            fail_msg("%s: no tripwire is about it", name);
    }
    detect_free(d);
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
        {"kinds: [io_uring], all: [{call: {exact: [getpid, openat]}}]", "no program", true, false},
        {"kinds: [dangerous_call], all: [{call: {exact: [getpid, openat]}}]", "report the call",
         false, true},
        {"kinds: [dangerous_call, io_uring], all: [{comm: {exact: [x]}}, {call: {exact: [clone]}}]",
         "compares the rest", false, false},
        {"kinds: [dangerous_call], all: [{call: {exact: [getpid, ptrace]}}]", "report the call",
         false, true},
        {"kinds: [dangerous_call], all: [{call: {exact: [ptrace]}}]", "only what is", false, false},
        {"kinds: [dangerous_call], all: [{call: {exact: [getpid], prefix: [p]}}]", "only what is",
         false, false},
        {"kinds: [dangerous_call], any: [{call: {exact: [getpid]}}, {comm: {exact: [x]}}]",
         "only what is", false, false},
        {"kinds: [profile, dangerous_call], all: [{call: {exact: [getpid]}}]", "compares the rest",
         false, false},
        {"kinds: [dangerous_call]", "only events that match", false, true},
        {"kinds: [sensitive_open], all: [{path: {exact: [/a/b]}}]", "only events that match", false,
         true},
        {"kinds: [connect], all: [{address: {within: [10.0.0.0/8]}, port: {exact: [22]}}]",
         "find the destination and count it", false, true},
        {"kinds: [connect], all: [{port: {min: 6000}}]", "find the destination and count it", false,
         true},
        {"kinds: [denied], all: [{address: {within: ['2001:db8::/32']}, protocol: {exact: [tcp]}}]",
         "find the destination and count it", false, true},
        {"kinds: [connect], all: [{address: {within: [10.0.0.0/8]}, comm: {exact: [x]}}]",
         "compares the rest", false, false},
        {"kinds: [connect], not: [{address: {within: [10.0.0.0/8]}}]", "all events", false, false},
        {"kinds: [connect], all: [{address: {within: [10.0.0.0/8]}}, {address: {within: "
         "[10.1.0.0/16]}}]",
         "compares the rest", false, false},
        {"kinds: [connect, flow], all: [{port: {exact: [22]}}]", "compares the rest", false, false},
        {"kinds: [flow], all: [{port: {exact: [22]}}]", "all events", false, false},
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

// ---- what the kernel's tables hold

static struct detect *
read_rules(const char *text, const struct detect_bounds *bounds)
{
    static const uint8_t seed[16] = {1};
    const struct detect_file file = {"r.yaml", text, strlen(text)};
    struct detect *d = NULL;
    struct err e = {.text = ""};
    if (detect_read(&file, 1, bounds, seed, &d, &e) < 0)
        fail_msg("%s", e.text);
    return d;
}

static const struct detect_mark_prefix *
prefix_of(const struct detect_kernel *k, const char *address, uint32_t bits)
{
    uint8_t bytes[16] = {[10] = 0xff, [11] = 0xff};
    if (inet_pton(AF_INET6, address, bytes) != 1)
        assert_int_equal(inet_pton(AF_INET, address, bytes + 12), 1);
    for (uint32_t i = 0; i < k->prefixes_n; i++)
        if (k->prefix[i].bits == bits && memcmp(k->prefix[i].address, bytes, sizeof bytes) == 0)
            return &k->prefix[i];
    fail_msg("%s/%u is not there", address, bits);
    return NULL;
}

#define CONNECTS(id, what)                                                                         \
    "  - {id: " id ", severity: info, message: m, match: {kinds: [connect], all: [{" what "}]}}\n"

static void
rules_of_a_tenant_have_nothing_in_the_kernel(void **state)
{
    struct detect_view v;
    (void)state;
    assert_null(detect_kernel(NULL));
    struct detect *d =
        read_rules("rules:\n" CONNECTS("a", "port: {exact: [22]}"), &detect_bounds_tenant);
    assert_null(detect_kernel(d));
    assert_true(detect_view(d, 0, &v) && !v.in_kernel && v.kernel_destinations == 0);
    detect_free(d);
}

// The kernel takes the longest prefix only, so it has the ranges of those around it, whatever the order of the rules.
static void
a_prefix_has_the_ranges_of_those_around_it(void **state)
{
    (void)state;
    struct detect *d = read_rules(
        "rules:\n" CONNECTS("inner", "address: {within: [10.1.0.0/16]}, port: {exact: [22, 23]}")
            CONNECTS("outer", "address: {within: [10.0.0.0/8]}, protocol: {exact: [udp]}")
                CONNECTS("other", "address: {within: ['2001:db8::/32', 10.1.2.3]}")
                    CONNECTS("all", "port: {min: 6000, max: 6010}"),
        &detect_bounds_host);
    const struct detect_kernel *k = detect_kernel(d);
    assert_int_equal(k->marks_n, 4);
    assert_int_equal(k->prefixes_n, 5);
    assert_int_equal(prefix_of(k, "10.0.0.0", 104)->n, 2);  // outer, all
    assert_int_equal(prefix_of(k, "10.1.0.0", 112)->n, 4);  // and two of inner
    assert_int_equal(prefix_of(k, "10.1.2.3", 128)->n, 5);  // and other
    assert_int_equal(prefix_of(k, "2001:db8::", 32)->n, 2); // other, all
    const struct detect_mark_prefix *all = prefix_of(k, "::", 0);
    assert_int_equal(all->n, 1);
    assert_true(all->range[0].any && all->range[0].first == 6000 && all->range[0].last == 6010);
    assert_int_equal(k->mark_rule[all->range[0].mark], 3);
    const struct detect_mark_range *r = &prefix_of(k, "10.1.0.0", 112)->range[0];
    assert_true(!r->any && r->connect && !r->denied && r->first == 22 && r->last == 22);
    detect_free(d);
}

// Of those rules that come first; the others say so, and are left to the broker as a whole.
static void
a_full_table_leaves_the_rest_to_the_broker(void **state)
{
    static char text[65536];
    struct detect_view v;
    int at = snprintf(text, sizeof text, "rules:\n");
    (void)state;
    for (int i = 0; i < 10; i++) // more ranges than one address may have
        at += snprintf(text + at, sizeof text - (size_t)at,
                       CONNECTS("port-%d", "port: {exact: [%d]}"), i, 100 + i);
    struct detect *d = read_rules(text, &detect_bounds_host);
    assert_int_equal(detect_kernel(d)->marks_n, DETECT_MARK_RANGES);
    assert_true(detect_view(d, DETECT_MARK_RANGES - 1, &v) && v.in_kernel);
    for (uint32_t i = DETECT_MARK_RANGES; i < 10; i++) {
        assert_true(detect_view(d, i, &v) && !v.in_kernel && v.kernel_destinations == 0);
        assert_non_null(strstr(v.why, "are full"));
    }
    detect_free(d);
    at = snprintf(text, sizeof text, "rules:\n");
    for (int i = 0; i < DETECT_MARKS + 1; i++)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       CONNECTS("a-%d", "address: {within: [10.0.%d.0/24]}"), i, i);
    d = read_rules(text, &detect_bounds_host);
    assert_int_equal(detect_kernel(d)->marks_n, DETECT_MARKS);
    assert_true(detect_view(d, DETECT_MARKS, &v) && !v.in_kernel);
    detect_free(d);
}

static void
calls_are_named_once_and_a_full_table_finds_nothing(void **state)
{
    static char text[16384];
    struct detect_view v;
    (void)state;
#define CALLS(id, what)                                                                            \
    "  - {id: " id ", severity: info, message: m, match: {kinds: [dangerous_call], all: [{call: "  \
    "{exact: [" what "]}}]}}\n"
    int at = snprintf(text, sizeof text,
                      "rules:\n" CALLS("a", "getpid, ptrace") CALLS("b", "getpid, getuid")
                          CALLS("many", "c0"));
    for (int i = 1; i < DETECT_CALLS - 2; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, CALLS("c-%d", "c%d"), i, i);
    (void)snprintf(text + at, sizeof text - (size_t)at,
                   CALLS("full", "getpid, gettid") CALLS("known", "getuid"));
    struct detect *d = read_rules(text, &detect_bounds_host);
    const struct detect_kernel *k = detect_kernel(d);
    assert_int_equal(k->calls_n, DETECT_CALLS);
    assert_string_equal(k->call[0], "getpid");
    assert_string_equal(k->call[1], "getuid");
    assert_true(detect_view(d, 0, &v) && v.kernel_calls == 1 && v.in_kernel);
    const int full = detect_find(d, "full"), known = detect_find(d, "known");
    assert_true(detect_view(d, (uint32_t)full, &v) && v.never && v.kernel_calls == 0);
    assert_non_null(strstr(v.why, "no room"));
    assert_true(detect_view(d, (uint32_t)known, &v) && v.in_kernel);
    detect_free(d);
}

static uint64_t found_score;

static void
on_found(void *cookie, const struct detect_finding *f)
{
    ++*(uint32_t *)cookie;
    found_score = f->score;
}

// An event that only a rule asks for is for this rule alone; and one may stand for many.
static void
other_rules_do_not_see_a_call_that_only_a_rule_asks_for(void **state)
{
    struct detect_event ev = {.kind = STOCKADE__V1__EVENT_KIND__EVENT_KIND_DANGEROUS_CALL,
                              .now_ns = 1000000000,
                              .ruled = true,
                              .job = "j",
                              .sandbox = "s"};
    uint32_t n = 0;
    (void)state;
    struct detect *d = read_rules(
        "rules:\n" CALLS(
            "asks",
            "getpid") "  - {id: any, severity: info, message: m, match: {kinds: [dangerous_call]}}\n"
                      "  - {id: comm, severity: info, message: m, match: {kinds: [dangerous_call], all: "
                      "[{comm: {exact: [x]}}]}}\n"
                      "  - {id: hundred, severity: info, message: m, aggregate: {threshold: 100}, match: "
                      "{kinds: [dangerous_call], all: [{call: {exact: [getpid]}}]}}\n",
        &detect_bounds_host);
    detect_set_text(&ev, DETECT_CALL, "getpid");
    detect_set_text(&ev, DETECT_COMM, "x");
    detect_event(d, &ev, on_found, &n);
    assert_int_equal(n, 1);
    ev.times = 98;
    detect_counted(d, -1, &ev, on_found, &n); // the first rule is quiet, but its response is due
    assert_int_equal(n, 2);
    ev.times = 1;
    detect_counted(d, 3, &ev, on_found, &n);
    assert_int_equal(n, 3);
    assert_int_equal(found_score, 100);
    ev.ruled = false;
    detect_event(d, &ev, on_found, &n);
    assert_int_equal(n, 7);
    detect_free(d);
}

static uint32_t
lost_of(struct detect *d, uint64_t kinds, char *out, size_t n)
{
    uint64_t missed = 0;
    const uint32_t found = detect_lost(d, &(struct detect_lost){kinds, 5, 100}, out, n, &missed);
    assert_int_equal(missed, 5 * (found > 2 ? 2 : found)); // the kernel stands for the third
    return found;
}

static void
rules_about_a_kind_are_named_as_far_as_they_fit(void **state)
{
    static const uint8_t seed[16] = {1};
    static const char text[] =
        "rules: [{id: one, severity: info, message: m, match: {kinds: [exec, connect]}}, "
        "{id: off, disabled: true, severity: info, message: m, match: {kinds: [exec]}}, "
        "{id: two, severity: info, message: m, match: {kinds: [connect]}, aggregate: {function: distinct, "
        "of: destination, threshold: 2, window: 1s}}, "
        "{id: counted, severity: info, message: m, match: {kinds: [connect], all: [{port: {exact: [1]}}]}}]";
    const struct detect_file file = {"r.yaml", text, strlen(text)};
    const uint64_t exec = UINT64_C(1) << STOCKADE__V1__EVENT_KIND__EVENT_KIND_EXEC;
    const uint64_t connect = UINT64_C(1) << STOCKADE__V1__EVENT_KIND__EVENT_KIND_CONNECT;
    struct detect *d = NULL;
    struct err e = {.text = ""};
    char out[16] = "x";
    (void)state;
    if (detect_read(&file, 1, &detect_bounds_host, seed, &d, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(lost_of(NULL, exec, out, sizeof out), 0);
    assert_string_equal(out, "");
    assert_int_equal(lost_of(d, exec, out, sizeof out), 1);
    assert_string_equal(out, "one");
    assert_int_equal(lost_of(d, exec | connect, out, sizeof out), 3);
    assert_string_equal(out, "one, two");
    assert_int_equal(lost_of(d, connect, out, 8), 3);
    assert_string_equal(out, "one");
    struct detect_view v;
    assert_true(detect_view(d, 0, &v) && v.missed == 15 && v.incomplete_ns == 60000000100);
    assert_true(detect_view(d, 1, &v) && v.missed == 0 && v.incomplete_ns == 0);
    assert_true(detect_view(d, 2, &v) && v.missed == 10 && v.incomplete_ns == 1000000100);
    assert_true(detect_view(d, 3, &v) && v.missed == 0 &&
                v.incomplete_ns == 0); // counted by the kernel
    detect_skip(d, 200);
    assert_true(detect_view(d, 3, &v) && v.missed == 0 && v.incomplete_ns == 60000000200);
    detect_free(d);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_calls_that_rules_know_are_those_of_the_programs),
        cmocka_unit_test(no_reported_call_is_silent),
        cmocka_unit_test(a_rule_says_who_decides_and_why),
        cmocka_unit_test(rules_of_a_tenant_have_nothing_in_the_kernel),
        cmocka_unit_test(a_prefix_has_the_ranges_of_those_around_it),
        cmocka_unit_test(a_full_table_leaves_the_rest_to_the_broker),
        cmocka_unit_test(calls_are_named_once_and_a_full_table_finds_nothing),
        cmocka_unit_test(other_rules_do_not_see_a_call_that_only_a_rule_asks_for),
        cmocka_unit_test(rules_about_a_kind_are_named_as_far_as_they_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
