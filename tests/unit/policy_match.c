// SPDX-License-Identifier: Apache-2.0
// server/access/policy: everything that a rule can match on decides alone. The rows are checked against the schema, so that a part that is
// added without a row fails.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/access/policy.h"
#include "tests/harness/policies.h"

enum { POLICY_TEXT = 1024 };

// A part of `match`; a call that it matches, and one that differs in nothing else and that it does not.
static const struct row {
    const char *field, *match, *fits, *differs;
} rows[] = {
    {"tenants", "[\"team-*\"]", "{tenant: team-a}", "{tenant: guests}"},
    {"methods", "[\"FileService/*\"]", "{method: FileService/Stat}", "{method: VolumeService/Get}"},
    {"templates", "[py*]", "{template: python}", "{template: node}"},
    {"commands", "[\"git push ...\"]", "{command: [git, push, x]}", "{command: [git, pull, x]}"},
    {"lines", "[\"*rm -rf*\"]", "{command: [sh, -c, \"rm -rf /\"]}", "{command: [sh, -c, rm /]}"},
    {"languages", "[bash]", "{method: CodeService/RunCode, language: bash}",
     "{method: CodeService/RunCode, language: python}"},
    {"languages", "[java*]", "{method: CodeService/RunCode, language: node}",
     "{method: CodeService/RunCode, language: sh}"},
    {"paths", "[\"/etc/*\"]", "{method: FileService/Read, paths: [/tmp/../etc/passwd]}",
     "{method: FileService/Read, paths: [/etc/../tmp/passwd]}"},
    {"destinations", "[\"example.org:443\"]", "{destinations: [\"example.org:443\"]}",
     "{destinations: [\"example.org:80\"]}"},
    {"limits_above", "{memory: 512M}", "{limits: {memory: 513M}}", "{limits: {memory: 512M}}"},
    {"limits_within", "{memory: 512M}", "{limits: {memory: 512M}}", "{limits: {memory: 513M}}"},
    {"labels", "[\"env=prod\"]", "{labels: [env=prod]}", "{labels: [env=test]}"},
    {"credentials", "[token]", "{credential: token}", "{credential: key}"},
    {"times", "{days: [mon], from: \"08:00\", until: \"18:00\"}",
     "{time: \"2026-11-23T08:00:00Z\"}", "{time: \"2026-11-23T18:00:00Z\"}"},
    {"history", "{calls_over: 2, period: 1h}", "{calls_before: 2}", "{calls_before: 1}"},
    {"mode", "simulate", "{mode: simulate}", "{mode: execute}"},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

static void
load_row(const struct row *r, const char *verdict, const char *tests)
{
    char text[POLICY_TEXT];
    const int n = snprintf(text, sizeof text,
                           "layers: [{name: a, rules: [{id: r, match: {%s: %s}, verdict: %s%s}]}]",
                           r->field, r->match, verdict, tests);
    assert_in_range(n, 1, sizeof text - 1);
    load(text);
}

static void
every_part_of_a_match_decides_alone(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < ROWS; i++) {
        load_row(&rows[i], "deny", "");
        DECIDES(rows[i].fits, "deny", "a/r");
        DECIDES(rows[i].differs, "allow", "");
        load_row(&rows[i], "ask, reason: why, ask: {approvers: [team]}", "");
        DECIDES(rows[i].fits, "ask", "a/r");
        DECIDES(rows[i].differs, "allow", "");
    }
}

static void
every_rule_carries_tests_that_a_policy_must_pass(void **unused)
{
    char tests[POLICY_TEXT], text[2 * POLICY_TEXT];
    struct err e;
    (void)unused;
    for (size_t i = 0; i < ROWS; i++) {
        (void)snprintf(tests, sizeof tests,
                       ", tests: [{call: %s, expect: deny, rule: a/r}, {call: %s, expect: allow}]",
                       rows[i].fits, rows[i].differs);
        load_row(&rows[i], "deny", tests);
        (void)snprintf(text, sizeof text,
                       "layers: [{name: a, rules: [{id: r, match: {%s: %s}, verdict: deny, "
                       "tests: [{call: %s, expect: deny}]}]}]",
                       rows[i].field, rows[i].match, rows[i].differs);
        assert_true(read_text(text, &e) < 0);
        assert_non_null(strstr(e.text, "rule a/r: test 1 fails"));
    }
}

static void
a_refusal_by_each_part_says_what_would_be_allowed(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < ROWS; i++) {
        load_row(&rows[i], "deny, reason: because", "");
        DECIDES(rows[i].fits, "deny", "a/r");
        assert_string_equal(decision.reason, "because");
        if (decision.allowed[0] == '\0')
            fail_msg("a refusal because of %s does not say what is allowed", rows[i].field);
    }
}

static void
the_rows_are_all_that_a_rule_can_match_on(void **unused)
{
    const ProtobufCMessageDescriptor *d = &stockade__v1__policy_match__descriptor;
    (void)unused;
    for (unsigned f = 0; f < d->n_fields; f++) {
        size_t found = 0;
        for (size_t i = 0; i < ROWS; i++)
            found += strcmp(rows[i].field, d->fields[f].name) == 0;
        if (found == 0)
            fail_msg("no row about %s", d->fields[f].name);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rows_are_all_that_a_rule_can_match_on),
        cmocka_unit_test(every_part_of_a_match_decides_alone),
        cmocka_unit_test(every_rule_carries_tests_that_a_policy_must_pass),
        cmocka_unit_test(a_refusal_by_each_part_says_what_would_be_allowed),
    };
    return cmocka_run_group_tests(tests, policies_set_up, policies_tear_down);
}
