// SPDX-License-Identifier: Apache-2.0
// proto/detect: tripwires and what later files say of them, findings that are reported for each value, paths for the kernel.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/detect.h"
#include "proto/validate.h"

#define RULE(rest) "rules: [{id: r, severity: info, message: \"{count} {name}\", " rest "}]"
#define EXECS      "match: {kinds: [exec]}, "

static const uint8_t seed[16] = {1, 2, 3};
static struct detect *rules;

// After the tripwires that ship, or alone.
static void
load_after(const char *text, bool shipped)
{
    const struct detect_file files[2] = {detect_tripwire_file(), {"r.yaml", text, strlen(text)}};
    struct err e = {.text = ""};
    detect_free(rules);
    rules = NULL;
    if (detect_read(shipped ? files : files + 1, shipped ? 2 : 1, &detect_bounds_host, seed, &rules,
                    &e) < 0)
        fail_msg("%s", e.text);
}

static void
load(const char *text)
{
    load_after(text, false);
}

struct fired {
    char all[256];
};

static void
on_tripwire(void *cookie, const struct detect *d, uint32_t i, const struct detect_event *ev)
{
    struct fired *f = cookie;
    struct detect_view v;
    char text[DETECT_TEXT];
    const size_t n = strlen(f->all);
    assert_true(detect_view(d, i, &v));
    (void)snprintf(f->all + n, sizeof f->all - n, "%s: %s; ", v.rule->id,
                   detect_tripwire_text(d, i, ev, 1, 1000, text));
}

static const char *
give(const char *path, const char *operation, const char *comm)
{
    static struct fired f;
    Stockade__V1__Event m = STOCKADE__V1__EVENT__INIT;
    Stockade__V1__FileOpen o = STOCKADE__V1__FILE_OPEN__INIT;
    struct detect_event ev;
    f.all[0] = '\0';
    m.kind = STOCKADE__V1__EVENT_KIND__EVENT_KIND_SENSITIVE_OPEN;
    m.detail_case = STOCKADE__V1__EVENT__DETAIL_FILE;
    m.comm = comm;
    m.file = &o;
    o.path = path;
    o.operation = operation;
    detect_fill(&m, 1000000000, &ev);
    ev.sentence = "it happened";
    detect_tripwires(rules, &ev, on_tripwire, &f);
    return f.all;
}

static void
what_a_later_file_does_not_say_stays(void **unused)
{
    (void)unused;
    struct detect_view v;
    load_after("rules: []", true);
    assert_string_equal(give("/x", "open", "a"), "sensitive-path: it happened; ");
    assert_string_equal(give("/x", "stat", "a"), "sensitive-look: it happened; ");
    load_after("rules: [{id: sensitive-path, tripwire: true, severity: critical, exceptions: "
               "[{reason: r, match: {comm: {exact: [known]}}}], message: \"{path}\"}]",
               true);
    assert_string_equal(give("/x", "open", "a"), "sensitive-path: /x; ");
    assert_string_equal(give("/x", "open", "known"), "");
    assert_true(detect_view(rules, (uint32_t)detect_find(rules, "sensitive-path"), &v));
    assert_int_equal(v.rule->n_exceptions, 2); // that of the file that ships is there
    assert_string_equal(v.rule->counter, "sensitive_uses");
    assert_int_equal(v.rule->response, STOCKADE__V1__DETECTION_RESPONSE__DETECTION_RESPONSE_ALERT);
    assert_int_equal(v.window_ms, 60000);
    assert_true(v.excepted == 1 && v.matched == 1 && v.looked_at == 2);
    // Another condition: its exceptions are those that stand there.
    load_after("rules: [{id: sensitive-path, tripwire: true, severity: critical, match: {kinds: "
               "[sensitive_open], all: [{path: {exact: [/y]}}]}}]",
               true);
    assert_string_equal(give("/x", "open", "a"), "");
    assert_string_equal(give("/y", "stat", "a"),
                        "sensitive-path: it happened; sensitive-look: it happened; ");
    assert_true(detect_view(rules, (uint32_t)detect_find(rules, "sensitive-path"), &v));
    assert_int_equal(v.rule->n_exceptions, 0);
}

// What is shown is a rule that can be read again, and then is the same.
static void
a_definition_can_be_read_again(void **unused)
{
    (void)unused;
    static char text[16384], again[16384], indented[20000];
    for (uint32_t i = 0;; i++) {
        struct detect_view v;
        load_after("rules: []", true);
        if (!detect_view(rules, i, &v))
            break;
        assert_true(detect_definition(rules, i, text, sizeof text) < sizeof text);
        size_t n = (size_t)snprintf(indented, sizeof indented, "rules:\n  - ");
        for (const char *p = text; *p != '\0' && n + 8 < sizeof indented; p++) {
            indented[n++] = *p;
            if (*p == '\n' && p[1] != '\0')
                n += (size_t)snprintf(indented + n, sizeof indented - n, "    ");
        }
        indented[n] = '\0';
        load(indented);
        assert_true(detect_definition(rules, 0, again, sizeof again) < sizeof again);
        assert_string_equal(text, again);
    }
}

static void
a_finding_may_be_reported_once_for_each_value(void **unused)
{
    (void)unused;
    load(RULE(EXECS "aggregate: {once_for: [executable, uid]}, tests: [{name: n, events: [{kind: "
                    "exec, executable: a, times: 2}, {kind: exec, executable: b}, {kind: exec, "
                    "executable: b, uid: 1}, {kind: exec, executable: a, after: 61s}], findings: "
                    "[{event: 1}, {event: 3}, {event: 4}, {event: 5}]}]"));
    // Eight are known: after nine others the first is reported again.
    load(RULE(EXECS "aggregate: {once_for: [executable]}, tests: [{name: n, events: [{kind: exec, "
                    "executable: \"{n}\", times: 9}, {kind: exec, executable: \"9\"}, {kind: "
                    "exec, executable: \"1\"}], findings: [{}, {}, {}, {}, {}, {}, {}, {}, {}, "
                    "{event: 11}]}]"));
    // The threshold counts all values.
    load(RULE(EXECS "aggregate: {threshold: 3, once_for: [executable]}, tests: [{name: n, events: "
                    "[{kind: exec, executable: a}, {kind: exec, executable: b, times: 3}], "
                    "findings: [{event: 3}]}]"));
}

static void
the_greatest_number_decides(void **unused)
{
    (void)unused;
    load("rules: [{id: r, severity: info, message: \"{count} of {bytes}\", match: {kinds: "
         "[flow_ended]}, aggregate: {function: greatest, of: bytes, threshold: 100}, tests: "
         "[{name: n, events: [{kind: flow_ended, bytes: 99, times: 50}, {kind: flow_ended, bytes: "
         "101, times: 2}], findings: [{event: 51, message: 101 of 101}]}]}]");
}

// What the kernel has to report: whole paths and folders, of rules that need one of them.
static void
add_path(void *cookie, const char *path, bool below)
{
    char *all = cookie;
    const size_t n = strlen(all);
    (void)snprintf(all + n, 256 - n, "%s%s ", path, below ? "*" : "");
}

static void
paths_are_named_to_the_kernel(void **unused)
{
    (void)unused;
    static const struct {
        const char *match, *paths;
    } rows[] = {
        {"all: [{path: {exact: [/a, /b/c], prefix: [/d/e/]}}]", "/a /b/c /d/e/* "},
        {"all: [{comm: {exact: [x]}, path: {exact: [/a]}}]", "/a "},
        {"all: [{path: {exact: [/a], suffix: [x]}}]", ""},
        {"all: [{path: {exact: [a]}}]", ""},
        {"all: [{path: {prefix: [/home/]}}]", ""}, // used by everything
        {"all: [{path: {prefix: [/]}}]", ""},
        {"all: [{path: {prefix: [/a/b]}}]", ""}, // no folder
        {"any: [{path: {exact: [/a]}}]", ""},
        {"not: [{path: {exact: [/a]}}]", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[512], paths[256] = "";
        (void)snprintf(text, sizeof text,
                       "rules: [{id: r, severity: info, message: m, match: {kinds: "
                       "[sensitive_open], %s}}]",
                       rows[i].match);
        load(text);
        detect_paths(rules, add_path, paths);
        assert_string_equal(paths, rows[i].paths);
        detect_enable(rules, 0, false);
        paths[0] = '\0';
        detect_paths(rules, add_path, paths);
        assert_string_equal(paths, "");
    }
    load(RULE("match: {kinds: [file_transfer], all: [{path: {exact: [/a]}}]}"));
    struct detect_view v;
    assert_true(detect_view(rules, 0, &v) && v.kernel_paths == 0);
}

static int
set_up(void **state)
{
    struct err e;
    (void)state;
    return validate_init(&e);
}

static int
tear_down(void **state)
{
    (void)state;
    detect_free(rules);
    return 0;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_later_file_does_not_say_stays),
        cmocka_unit_test(a_definition_can_be_read_again),
        cmocka_unit_test(a_finding_may_be_reported_once_for_each_value),
        cmocka_unit_test(the_greatest_number_decides),
        cmocka_unit_test(paths_are_named_to_the_kernel),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
