// SPDX-License-Identifier: Apache-2.0
// proto/detect: the decision table of every operator; counts; what a file may not say; bounds.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/detect.h"
#include "proto/utf8.h"
#include "proto/validate.h"

static const uint8_t seed[16] = {1, 2, 3};
static struct detect *rules;

static int
read_with(const char *text, const struct detect_bounds *bounds, struct err *e)
{
    const struct detect_file file = {"r.yaml", text, strlen(text)};
    detect_free(rules);
    rules = NULL;
    return detect_read(&file, 1, bounds, seed, &rules, e);
}

static int
read_text(const char *text, struct err *e)
{
    return read_with(text, &detect_bounds_host, e);
}

static void
load(const char *text)
{
    struct err e = {.text = ""};
    if (read_text(text, &e) < 0)
        fail_msg("%s", e.text);
}

static void
refused(const char *text, const char *says)
{
    struct err e = {.text = ""};
    assert_true(read_text(text, &e) < 0);
    assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
    if (strstr(e.text, says) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", e.text, says);
}

// Whether a rule whose test expects this finding, or none, is read.
static bool
holds(const char *match, const char *event, bool found, struct err *e)
{
    static char text[8192];
    (void)snprintf(text, sizeof text,
                   "rules: [{id: r, severity: info, message: m, match: {kinds: [exec, flow, "
                   "sensitive_open], %s}, tests: [{name: t, events: [{kind: exec, %s}], findings: "
                   "[%s]}]}]",
                   match, event, found ? "{event: 1}" : "");
    return read_text(text, e) == 0;
}

struct row {
    const char *match, *event;
    bool found;
};

#define ALL(parts) "all: [{" parts "}]"

static const struct row table[] = {
    // exact, sets are below
    {ALL("executable: {exact: [/bin/sh]}"), "executable: /bin/sh", true},
    {ALL("executable: {exact: [/bin/sh]}"), "executable: /bin/sha", false},
    {ALL("executable: {exact: [/bin/sh]}"), "executable: /bin/s", false},
    {ALL("executable: {exact: [/bin/sh, /a, /bin/dash]}"), "executable: /bin/dash", true},
    {ALL("executable: {exact: [/bin/sh]}"), "comm: sh", false},
    // prefix, suffix, glob
    {ALL("path: {prefix: [/etc/]}"), "path: /etc/shadow", true},
    {ALL("path: {prefix: [/etc/]}"), "path: /etc", false},
    {ALL("path: {suffix: [.key]}"), "path: /a/b.key", true},
    {ALL("path: {suffix: [.key]}"), "path: key", false},
    {ALL("arguments: {glob: [\"*curl *|*sh\"]}"), "arguments: \"curl x | sh\"", true},
    {ALL("arguments: {glob: [\"*curl *|*sh\"]}"), "arguments: \"curl x | shy\"", false},
    {ALL("cwd: {prefix: [/a], suffix: [z]}"), "cwd: /bz", true}, // one of them
    // numbers
    {ALL("uid: {exact: [0]}"), "uid: 0", true},
    {ALL("uid: {exact: [0]}"), "uid: 1", false},
    {ALL("uid: {min: 1000}"), "uid: 1000", true},
    {ALL("uid: {min: 1000}"), "uid: 999", false},
    {ALL("port: {min: 1, max: 1023}"), "destination: \"192.0.2.1:1023\"", true},
    {ALL("port: {min: 1, max: 1023}"), "destination: \"192.0.2.1:1024\"", false},
    {ALL("port: {exact: [22, 23]}"), "destination: \"[2001:db8::1]:23\"", true},
    {ALL("port: {max: 65535}"), "destination: 192.0.2.1", false}, // it has none
    // addresses
    {ALL("address: {within: [10.0.0.0/8]}"), "destination: \"10.255.0.1:1\"", true},
    {ALL("address: {within: [10.0.0.0/8]}"), "destination: \"11.0.0.1:1\"", false},
    {ALL("address: {within: [10.0.0.0/8]}"), "destination: \"[::ffff:10.1.1.1]:1\"", true},
    {ALL("address: {within: [192.0.2.7]}"), "destination: \"192.0.2.7:1\"", true},
    {ALL("address: {within: [192.0.2.7]}"), "destination: \"192.0.2.6:1\"", false},
    {ALL("address: {within: [\"2001:db8::/32\"]}"), "destination: \"[2001:db8:1::]:1\"", true},
    {ALL("address: {within: [\"2001:db8::/32\"]}"), "destination: \"2001:db8:1::\"", true},
    {ALL("address: {within: [\"2001:db8::/32\"]}"), "destination: \"[2001:db9::]:1\"", false},
    {ALL("address: {within: [0.0.0.0/0]}"), "destination: \"[2001:db9::]:1\"", false},
    {ALL("address: {within: [0.0.0.0/0]}"), "destination: \"example.org:1\"", false},
    {ALL("name: {exact: [example.org]}"), "destination: \"example.org:443\"", true},
    {ALL("name: {exact: [a.org]}"), "{}", false},
    {ALL("name: {exact: [a.org]}"), "name: a.org, destination: \"b.org:1\"", true},
    // labels
    {ALL("labels: [\"team=a*\"]"), "labels: {x: y, team: abc}", true},
    {ALL("labels: [\"team=a*\"]"), "labels: {team: b}", false},
    {ALL("labels: [\"*\"]"), "comm: x", false},
    // several fields, all, any, not
    {ALL("comm: {exact: [a]}, uid: {exact: [1]}"), "comm: a, uid: 1", true},
    {ALL("comm: {exact: [a]}, uid: {exact: [1]}"), "comm: a, uid: 2", false},
    {"all: [{comm: {exact: [a]}}, {uid: {exact: [1]}}]", "comm: a, uid: 1", true},
    {"all: [{comm: {exact: [a]}}, {uid: {exact: [1]}}]", "comm: a, uid: 2", false},
    {"any: [{comm: {exact: [a]}}, {comm: {exact: [b]}}]", "comm: b", true},
    {"any: [{comm: {exact: [a]}}, {comm: {exact: [b]}}]", "comm: c", false},
    {"not: [{comm: {exact: [a]}}]", "comm: b", true},
    {"not: [{comm: {exact: [a]}}]", "comm: a", false},
    {"not: [{path: {exact: [a]}}]", "comm: a", true}, // a field that is not there does not match
    {"any: [{comm: {prefix: [a]}}], not: [{comm: {suffix: [z]}}]", "comm: ab", true},
    {"any: [{comm: {prefix: [a]}}], not: [{comm: {suffix: [z]}}]", "comm: az", false},
};

static void
every_operator_decides_as_the_table_says(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct err e = {.text = ""};
        const struct row *r = &table[i];
        const char *event = strcmp(r->event, "{}") == 0 ? "comm: none" : r->event;
        if (!holds(r->match, event, r->found, &e))
            fail_msg("row %zu: %s / %s: %s", i, r->match, r->event, e.text);
        if (holds(r->match, event, !r->found, &e))
            fail_msg("row %zu: its test cannot fail", i);
    }
}

#define RULE(rest) "rules: [{id: r, severity: info, message: \"{count} {name}\", " rest "}]"
#define EXECS      "match: {kinds: [exec]}, "

static void
kinds_and_sets_decide(void **unused)
{
    (void)unused;
    load("sets: [{name: shells, values: [/bin/sh, /bin/bash]}]\n"
         "rules: [{id: r, severity: info, message: m, match: {kinds: [exec], all: [{executable: "
         "{sets: [shells], exact: [/x]}}]}, tests: [{name: in, events: [{kind: exec, executable: "
         "/bin/bash}], findings: [{}]}, {name: beside, events: [{kind: exec, executable: /x}], "
         "findings: [{}]}, {name: out, events: [{kind: exec, executable: bash}]}, {name: other "
         "kind, events: [{kind: exit, executable: /x}]}]}]");
    assert_int_equal(detect_tests(rules), 4);
}

static void
a_finding_is_reported_once_in_a_window_and_again_after_it(void **unused)
{
    (void)unused;
    load(RULE(EXECS "aggregate: {window: 10s}, tests: [{name: t, events: [{kind: exec, times: 25, "
                    "after: 1s}], findings: [{event: 1}, {event: 11}, {event: 21}]}]"));
}

static void
each_job_counts_for_itself(void **unused)
{
    (void)unused;
    load(RULE(EXECS "aggregate: {threshold: 3, window: 10s}, tests: [{name: jobs, events: [{kind: "
                    "exec, job: a, times: 2}, {kind: exec, job: b, times: 2}]}, {name: one, "
                    "events: [{kind: exec, job: a, times: 2}, {kind: exec, job: b, times: 2}, "
                    "{kind: exec, job: a}, {kind: exec, job: b}], findings: [{event: 5, message: "
                    "\"3 none\"}, {event: 6}]}]"));
    load(RULE(EXECS "aggregate: {threshold: 3, per: sandbox}, tests: [{name: t, events: [{kind: "
                    "exec, job: a, times: 2}, {kind: exec, job: b}], findings: [{event: 3}]}]"));
    load(RULE(EXECS "aggregate: {threshold: 3, per: tenant}, tests: [{name: t, events: [{kind: "
                    "exec, sandbox: a, tenant: x, times: 2}, {kind: exec, tenant: y}, {kind: "
                    "exec, sandbox: b, tenant: x}], findings: [{event: 4}]}]"));
}

static void
a_count_ends_with_its_window(void **unused)
{
    (void)unused;
    load(RULE(EXECS "aggregate: {threshold: 3, window: 2s}, tests: [{name: slow, events: [{kind: "
                    "exec, times: 50, after: 1500ms}]}, {name: fast, events: [{kind: exec, times: "
                    "3, after: 500ms}], findings: [{event: 3}]}]"));
}

static void
distinct_values_sums_and_rates_are_counted(void **unused)
{
    (void)unused;
    load(
        RULE("match: {kinds: [lookup]}, aggregate: {function: distinct, of: name, threshold: 5}, "
             "tests: [{name: same, events: [{kind: lookup, name: a, times: 90}]}, {name: "
             "different, events: [{kind: lookup, name: \"{n}.org\", times: 5}], findings: [{event: "
             "5, message: \"5 5.org\"}]}, {name: none, events: [{kind: lookup, times: 9}]}, "
             "{name: too slow, events: [{kind: lookup, name: \"{n}\", times: 40, after: 20s}]}]"));
    load(RULE("match: {kinds: [flow_ended]}, aggregate: {function: sum, of: bytes, threshold: "
              "1000}, tests: [{name: t, events: [{kind: flow_ended, bytes: 999}, {kind: "
              "flow_ended, bytes: 1}], findings: [{event: 2, message: \"1000 *\"}]}, {name: huge, "
              "events: [{kind: flow_ended, bytes: 18446744073709551615, times: 3}], findings: "
              "[{event: 1}]}]"));
    load(RULE(EXECS "aggregate: {function: rate, threshold: 10, window: 2s}, tests: [{name: t, "
                    "events: [{kind: exec, times: 20, after: 50ms}], findings: [{event: 20}]}, "
                    "{name: slow, events: [{kind: exec, times: 60, after: 150ms}]}]"));
}

static void
a_value_can_have_a_count_of_its_own(void **unused)
{
    (void)unused;
    load(RULE("match: {kinds: [lookup]}, aggregate: {threshold: 3, by: name}, tests: [{name: t, "
              "events: [{kind: lookup, name: a, times: 2}, {kind: lookup, name: b, times: 3}], "
              "findings: [{event: 5}]}]"));
}

#define STEPS                                                                                      \
    "aggregate: {function: sequence, window: 10s, steps: [{kinds: [exec], all: [{comm: {exact: "   \
    "[a]}}]}, {kinds: [exec]}, {kinds: [denied]}]}, "

static void
a_sequence_needs_its_steps_in_order(void **unused)
{
    (void)unused;
    load(RULE(STEPS
              "tests: [{name: order, events: [{kind: exec, comm: a}, {kind: exec, comm: b}, "
              "{kind: denied}], findings: [{event: 3}]}, {name: one event is one step, events: "
              "[{kind: exec, comm: a}, {kind: denied}]}, {name: the same event twice, events: "
              "[{kind: exec, comm: a}, {kind: exec, comm: a}, {kind: denied}], findings: [{event: "
              "3}]}, {name: wrong order, events: [{kind: denied}, {kind: exec, comm: b}, {kind: "
              "exec, comm: a}, {kind: denied}]}, {name: too late, events: [{kind: exec, comm: a}, "
              "{kind: exec}, {kind: denied, after: 11s}]}, {name: begun again, events: [{kind: "
              "exec, comm: a}, {kind: exec, comm: a, after: 9s}, {kind: exec, after: 1s}, {kind: "
              "denied, after: 8s}], findings: [{event: 4}]}, {name: other jobs, events: [{kind: "
              "exec, comm: a}, {kind: exec, job: b}, {kind: denied, job: b}]}]"));
}

static void
exceptions_are_no_findings(void **unused)
{
    (void)unused;
    load(RULE(EXECS "exceptions: [{reason: ours, match: {comm: {exact: [ours]}}}], tests: [{name: "
                    "t, events: [{kind: exec, comm: ours}, {kind: exec}], findings: [{event: "
                    "2}]}]"));
}

// ---- events

struct seen {
    uint32_t found, repeated, crowded;
    char text[DETECT_TEXT];
};

static void
on_found(void *cookie, const struct detect_finding *f)
{
    struct seen *s = cookie;
    s->found += f->why == DETECT_FOUND;
    s->repeated += f->why == DETECT_REPEATED;
    s->crowded += f->why == DETECT_CROWDED;
    (void)snprintf(s->text, sizeof s->text, "%s", f->text);
}

static void
give(const char *job, const char *executable, uint64_t now_ns, struct seen *s)
{
    struct detect_event ev = {.kind = STOCKADE__V1__EVENT_KIND__EVENT_KIND_EXEC,
                              .has = 1U << DETECT_EXECUTABLE,
                              .job = job,
                              .sandbox = "s",
                              .now_ns = now_ns};
    ev.text[DETECT_EXECUTABLE] = executable;
    detect_event(rules, &ev, on_found, s);
}

static void
messages_are_bounded_and_free_of_control_bytes(void **unused)
{
    (void)unused;
    static char text[1024];
    struct seen s = {0};
    load(
        "rules: [{id: r, severity: info, message: \"{executable}|{port}|{window}|{count}|\", match: "
        "{kinds: [exec]}}]");
    give("j", "a\nb\x1b[1m\xff\xc3\xa4", 1000000000, &s);
    assert_string_equal(s.text, "a?b?[1m?\xc3\xa4|none|60 s|1|");
    for (size_t i = 0; i + 3 < sizeof text; i += 3)
        memcpy(text + i, (const uint8_t[]){0xe2, 0x82, 0xac}, 3);
    give("k", text, 1000000000, &s);
    assert_true(strlen(s.text) < DETECT_TEXT);
    assert_true(utf8_is_text(s.text, strlen(s.text)));
}

static void
a_repeated_finding_is_not_a_new_one(void **unused)
{
    (void)unused;
    struct seen s = {0};
    load(RULE("match: {kinds: [exec], all: [{executable: {exact: [/a, /b, /a]}}]}"));
    for (uint64_t i = 0; i < 10; i++)
        give("j", "/a", 1000000000 + i, &s);
    assert_int_equal(s.found, 1);
    assert_int_equal(s.repeated, 9);
    give("k", "/b", 1000000000, &s);
    give("k", "/c", 1000000000, &s);
    assert_int_equal(s.found, 2);
    struct detect_view v;
    assert_true(detect_view(rules, 0, &v));
    assert_int_equal(v.looked_at, 11); // the index skips /c, and /a is compared once
    assert_int_equal(v.matched, 11);
    detect_enable(rules, 0, false);
    give("l", "/a", 1000000000, &s);
    assert_int_equal(s.found, 2);
    detect_enable(rules, 0, true);
    give("j", "/a", 1000000000, &s);
    assert_int_equal(s.found, 3);
}

static void
a_flood_of_keys_is_a_finding_and_displaces_its_own_job_only(void **unused)
{
    (void)unused;
    struct seen s = {0};
    char name[32];
    load(RULE("match: {kinds: [exec]}, aggregate: {threshold: 3, by: executable, window: 1m}"));
    give("victim", "/bin/x", 1000000000, &s);
    give("victim", "/bin/x", 1000000001, &s);
    for (uint32_t i = 0; i < 100000; i++) {
        (void)snprintf(name, sizeof name, "/tmp/%u", i);
        give("flood", name, 2000000000, &s);
    }
    assert_int_equal(s.crowded, 1);
    assert_non_null(strstr(s.text, "too many"));
    assert_int_equal(s.found, 0);
    give("victim", "/bin/x", 3000000000, &s);
    assert_int_equal(s.found, 1);
    // It is reported again after its window.
    for (uint32_t i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof name, "/tmp/%u", i);
        give("flood", name, 63000000000, &s);
    }
    assert_int_equal(s.crowded, 2);
    struct detect_view v;
    assert_true(detect_view(rules, 0, &v));
    assert_true(v.displaced > 99000);
}

// ---- refusals

static void
a_wrong_file_says_where_it_is_wrong(void **unused)
{
    (void)unused;
    refused("rules: [{id: r}]", "r.yaml:1:9:");
    refused("rulez: []", "r.yaml:1:8: rulez: there is no such key; did you mean rules?");
    refused("rules:\n  - id: r\n    severity: high\n", "r.yaml:3:");
    refused("rules:\n  - id: r\n    severity: info\n    message: \"{who}\"\n    match: {kinds: "
            "[exec]}\n",
            "r.yaml:4:14: message: {who} is no field");
    refused(RULE("match: {}"), "needs kinds");
    refused(RULE("match: {kinds: [execs]}"), "must be ");
    refused(RULE("match: {kinds: [exec], all: [{}]}"), "names no field");
    refused(RULE("match: {kinds: [exec], all: [{comm: {}}]}"), "needs exact");
    refused(RULE("match: {kinds: [exec], all: [{comm: {sets: [x]}}]}"), "no set x");
    refused(RULE("match: {kinds: [exec], all: [{uid: {}}]}"), "needs exact, min or max");
    refused(RULE("match: {kinds: [exec], all: [{uid: {min: 3, max: 2}}]}"), "lower than min");
    refused(RULE("match: {kinds: [exec], all: [{address: {within: [10.0.0.0/33]}}]}"), "network");
    refused(RULE("match: {kinds: [exec], all: [{address: {within: [example.org]}}]}"), "network");
    refused(RULE("aggregate: {threshold: 2}"), "needs match");
    refused("rules: [{id: r, severity: info, match: {kinds: [exec]}}]", "needs a message");
    refused(RULE(EXECS "aggregate: {window: 99ms}"), "100ms to 1h");
    refused(RULE(EXECS "aggregate: {window: 61m}"), "100ms to 1h");
    refused(RULE(EXECS "aggregate: {function: distinct}"), "need the field");
    refused(RULE(EXECS "aggregate: {of: name}"), "only distinct, sum and greatest");
    refused(RULE(EXECS "aggregate: {function: sum, of: name}"), "a sum needs a number");
    refused(RULE(EXECS "aggregate: {function: distinct, of: name, threshold: 1025}"), "1024");
    refused(RULE(EXECS "aggregate: {function: sequence, steps: [{kinds: [exec]}, {kinds: "
                       "[exec]}]}"),
            "no match beside");
    refused(RULE("aggregate: {function: sequence, steps: [{kinds: [exec]}]}"), "at least 2");
    refused(RULE(EXECS "aggregate: {steps: [{kinds: [exec]}]}"), "only a sequence has steps");
    refused(RULE(EXECS) "\n" RULE(EXECS), "rules");
    refused(
        "rules: [{id: r, severity: info, message: m, match: {kinds: [exec]}}, {id: r, severity: "
        "info, message: m, match: {kinds: [exec]}}]",
        "is the id of a rule at r.yaml:1");
    load("rules: [{id: oom, tripwire: true, severity: info, aggregate: {window: 24h}}]");
    refused(
        "rules: [{id: oom, tripwire: true, severity: info}, {id: oom, tripwire: true, severity: "
        "info}]",
        "already");
    refused("rules: [{id: oom, tripwire: true, severity: info, aggregate: {per: job}}]",
            "it has only function");
    refused("rules: [{id: oom, tripwire: true, severity: info, aggregate: {function: sum, of: "
            "bytes}}]",
            "it has only function");
    refused("rules: [{id: oom, tripwire: true, severity: info, match: {kinds: [exec]}, builtin: "
            "{condition: x}}]",
            "not both");
    refused("rules: [{id: oom, tripwire: true, severity: info, builtin: {condition: x}, "
            "exceptions: [{reason: r, match: {comm: {exact: [x]}}}]}]",
            "has none");
    refused(RULE(EXECS "counter: ooms"), "only tripwires");
    refused(RULE(EXECS "builtin: {condition: x}"), "only tripwires");
    refused("rules: [{id: r, severity: info, message: \"{event}\", match: {kinds: [exec]}}]",
            "is no field");
    refused(RULE(EXECS "aggregate: {function: greatest, of: name}"), "so does greatest");
    refused(RULE(EXECS "aggregate: {function: greatest}"), "need the field");
}

static void
tests_that_fail_refuse_the_file(void **unused)
{
    (void)unused;
    refused(RULE(EXECS "tests: [{name: t, events: [{kind: exec}]}]"), "not expected: 1 none");
    refused(RULE(EXECS "tests: [{name: t, events: [{kind: exit}], findings: [{}]}]"),
            "finding 1 of 1 did not come");
    refused(RULE(EXECS "tests: [{name: t, events: [{kind: exec}], findings: [{event: 2}]}]"),
            "event 1 caused finding 1, and event 2 should");
    refused(RULE(EXECS "tests: [{name: t, events: [{kind: exec}], findings: [{message: x}]}]"),
            "should say \"x\", and says \"1 none\"");
    refused(RULE(EXECS "tests: [{name: t, events: [{kind: exec, after: yes}]}]"), "must be a time");
}

static void
the_cost_of_rules_is_bounded(void **unused)
{
    (void)unused;
    struct err e;
    static char text[200000];
    size_t n = (size_t)snprintf(text, sizeof text, "rules:\n");
    for (int i = 0; i < 33; i++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "  - {id: r%d, severity: info, message: m, match: {kinds: [exec]}}\n",
                              i);
    assert_true(read_with(text, &detect_bounds_tenant, &e) < 0);
    assert_non_null(strstr(e.text, "more than 32 rules"));
    assert_int_equal(read_with(text, &detect_bounds_host, &e), 0);
    assert_true(read_with(RULE(EXECS "aggregate: {function: distinct, of: comm, threshold: 1024, "
                                     "keys: 4096}"),
                          &detect_bounds_tenant, &e) < 0);
    assert_non_null(strstr(e.text, "lower keys"));
    n = (size_t)snprintf(text, sizeof text,
                         "rules: [{id: r, severity: info, message: m, match: {kinds: [exec], any: "
                         "[");
    for (int i = 0; i < 16; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "{comm: {glob: [");
        for (int k = 0; k < 64; k++)
            n += (size_t)snprintf(text + n, sizeof text - n, "\"*a%d*\",", k);
        n += (size_t)snprintf(text + n, sizeof text - n, "]}},");
    }
    (void)snprintf(text + n, sizeof text - n, "]}}]");
    assert_true(read_with(text, &detect_bounds_tenant, &e) < 0);
    assert_non_null(strstr(e.text, "compares an event up to"));
    n = (size_t)snprintf(text, sizeof text,
                         "rules: [{id: r, severity: info, message: m, match: {kinds: [exec]}, "
                         "aggregate: {keys: 4096, function: distinct, of: comm, threshold: 1000}, "
                         "tests: [");
    for (int i = 0; i < 32; i++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "{name: t, events: [{kind: exec, times: 10000}]},");
    (void)snprintf(text + n, sizeof text - n, "]}]");
    refused(text, "take too long");
}

static int
set_up(void **unused)
{
    (void)unused;
    struct err e;
    return validate_init(&e);
}

static int
tear_down(void **unused)
{
    (void)unused;
    detect_free(rules);
    return 0;
}

// What the index finds is what a comparison with each event finds: `any` is not in the index.
static void
the_index_leaves_no_rule_out(void **state)
{
    static const char *const texts[] = {
        "exact: [abcd]",
        "prefix: [ab, abcde]",
        "suffix: [cd, xyz]",
        "glob: ['*bcda*']",
        "glob: ['abcd*']",
        "glob: ['*abcd']",
        "glob: ['a*c']",
        "glob: ['*abc*dab*']",
        "exact: [dcba], prefix: [abab]",
        "suffix: [abcdabcdabcd]",
        "prefix: [abcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcdabcd]",
    };
    char file[8192];
    size_t n = (size_t)snprintf(file, sizeof file, "rules:\n");
    const size_t rules_n = sizeof texts / sizeof texts[0];
    (void)state;
    for (size_t i = 0; i < 2 * rules_n; i++)
        n += (size_t)snprintf(file + n, sizeof file - n,
                              "- {id: r%zu, severity: info, message: m, match: {kinds: [exec], %s: "
                              "[{executable: {%s}}]}, aggregate: {threshold: 1000000}}\n",
                              i, i % 2 == 0 ? "all" : "any", texts[i / 2]);
    load(file);
    struct detect_event ev = {.kind = STOCKADE__V1__EVENT_KIND__EVENT_KIND_EXEC,
                              .has = 1U << DETECT_EXECUTABLE,
                              .job = "j",
                              .sandbox = "s"};
    uint32_t random = 1;
    for (int i = 0; i < 3000; i++) {
        char text[100];
        random = random * 1664525 + 1013904223;
        const size_t length = (random >> 16) % 70 + 1;
        for (size_t k = 0; k < length; k++) {
            if (k % 7 == 0)
                random = random * 1664525 + 1013904223;
            text[k] = "abcd"[(k + (i % 2 == 0 ? random >> 20 : random >> (k % 7 + 8))) % 4];
        }
        text[length] = '\0';
        ev.text[DETECT_EXECUTABLE] = i % 50 == 0 ? "abcd" : text;
        ev.now_ns = (uint64_t)i + 1;
        detect_event(rules, &ev, on_found, NULL);
    }
    struct detect_view indexed, plain;
    for (uint32_t i = 0; i < 2 * rules_n; i += 2) {
        assert_true(detect_view(rules, i, &indexed) && detect_view(rules, i + 1, &plain));
        assert_int_equal(indexed.matched, plain.matched);
        assert_true(plain.matched > 0 || i / 2 >= 8);
        assert_true(indexed.looked_at <= plain.looked_at);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_file_says_where_it_is_wrong),
        cmocka_unit_test(tests_that_fail_refuse_the_file),
        cmocka_unit_test(the_cost_of_rules_is_bounded),
        cmocka_unit_test(every_operator_decides_as_the_table_says),
        cmocka_unit_test(kinds_and_sets_decide),
        cmocka_unit_test(a_finding_is_reported_once_in_a_window_and_again_after_it),
        cmocka_unit_test(each_job_counts_for_itself),
        cmocka_unit_test(a_count_ends_with_its_window),
        cmocka_unit_test(distinct_values_sums_and_rates_are_counted),
        cmocka_unit_test(a_value_can_have_a_count_of_its_own),
        cmocka_unit_test(a_sequence_needs_its_steps_in_order),
        cmocka_unit_test(exceptions_are_no_findings),
        cmocka_unit_test(messages_are_bounded_and_free_of_control_bytes),
        cmocka_unit_test(a_repeated_finding_is_not_a_new_one),
        cmocka_unit_test(the_index_leaves_no_rule_out),
        cmocka_unit_test(a_flood_of_keys_is_a_finding_and_displaces_its_own_job_only),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
