// SPDX-License-Identifier: Apache-2.0
// server/access/policy: the decision table. Each row is a policy, a call and what must come out; then what a file may not say.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/glob.h"
#include "proto/now.h"
#include "server/access/policy.h"
#include "server/policy/network.h"
#include "tests/harness/policies.h"

// ---- what matches

static void
a_policy_without_layers_allows_everything(void **unused)
{
    (void)unused;
    load("");
    DECIDES("{command: [rm, -rf, /]}", "allow", "");
    assert_false(policy_has_layers(policy));
}

static void
commands_match_word_by_word(void **unused)
{
    (void)unused;
    load(LAYER(
        "{id: r, match: {commands: [\"git push ...\", \"pip install *\", \"ls\", \"*/sh -c *\"]}, "
        "verdict: deny}"));
    DECIDES("{command: [git, push]}", "deny", "a/r");
    DECIDES("{command: [git, push, origin, main]}", "deny", "a/r");
    DECIDES("{command: [git, pull]}", "allow", "");
    DECIDES("{command: [git]}", "allow", "");
    DECIDES("{command: [pip, install, x]}", "deny", "a/r");
    DECIDES("{command: [pip, install]}", "allow", "");
    DECIDES("{command: [pip, install, x, y]}", "allow", "");
    DECIDES("{command: [ls]}", "deny", "a/r");
    DECIDES("{command: [ls, -l]}", "allow", "");
    DECIDES("{command: [/bin/sh, -c, \"a b\"]}", "deny", "a/r");
    DECIDES("{command: [sh, -c, \"a b\"]}", "allow", "");
    DECIDES("{language: python, method: CodeService/RunCode}", "allow", "");
    assert_string_equal(decide("{command: [git, push]}"), "deny");
    assert_string_equal(decision.field, "command.args");
    assert_non_null(strstr(decision.allowed, "commands other than git push"));
}

static void
lines_match_the_words_as_one_text(void **unused)
{
    (void)unused;
    load(LAYER("{id: r, match: {lines: [\"*rm -rf*\", \"curl *|*sh\"]}, verdict: deny}"));
    DECIDES("{command: [sh, -c, \"cd /; rm -rf .\"]}", "deny", "a/r");
    DECIDES("{command: [rm, -rf, x]}", "deny", "a/r");
    DECIDES("{command: [curl, x, \"|\", sh]}", "deny", "a/r");
    DECIDES("{command: [rm, -r, x]}", "allow", "");
}

static void
paths_are_cleaned_before_they_are_compared(void **unused)
{
    (void)unused;
    load(LAYER(
        "{id: r, match: {methods: [\"FileService/*\"], paths: [/etc, \"/etc/*\"]}, verdict: deny}"));
    DECIDES("{method: FileService/Read, paths: [/etc/passwd]}", "deny", "a/r");
    DECIDES("{method: FileService/Read, paths: [\"//work/.././etc//passwd\"]}", "deny", "a/r");
    DECIDES("{method: FileService/Read, paths: [/work/x/../../../../etc]}", "deny", "a/r");
    DECIDES("{method: FileService/Move, paths: [/work/a, /etc/b]}", "deny", "a/r");
    DECIDES("{method: FileService/Read, paths: [/etcetera]}", "allow", "");
    DECIDES("{method: FileService/Read, paths: [/]}", "allow", "");
}

static void
destinations_meet_for_deny_and_are_within_for_allow(void **unused)
{
    (void)unused;
    load(LAYER(
        "{id: no, match: {destinations: [\"*.evil.example\", \"8.8.8.0/24:80-90\"]}, verdict: deny}"));
    DECIDES("{destinations: [\"a.evil.example:443\"]}", "deny", "a/no");
    DECIDES("{destinations: [\"pypi.org:443\", \"8.8.8.7:85\"]}", "deny", "a/no");
    DECIDES("{destinations: [\"8.8.0.0/16\"]}", "deny", "a/no");
    DECIDES("{destinations: [\"8.8.8.7:91\"]}", "allow", "");
    DECIDES("{destinations: [\"evil.example\"]}", "allow", "");
    DECIDES("{destinations: [\"*\"]}", "deny", "a/no");
    DECIDES("{}", "allow", "");
    load(
        "layers: [{name: a, otherwise: deny, reason: closed, rules: [{id: yes, match: {destinations: "
        "[\"pypi.org:443\", \"*.pythonhosted.org\"]}, verdict: allow}]}]");
    DECIDES("{destinations: [\"pypi.org:443\", \"files.pythonhosted.org:80\"]}", "allow", "");
    DECIDES("{}", "allow", "");
    DECIDES("{destinations: [\"pypi.org\"]}", "deny", "a");
    DECIDES("{destinations: [\"pypi.org:443\", \"x.example\"]}", "deny", "a");
    DECIDES("{destinations: [\"*\"]}", "deny", "a");
    assert_string_equal(decision.reason, "closed");
    assert_non_null(strstr(decision.allowed, "networks within pypi.org:443"));
}

static void
limits_match_above_and_within(void **unused)
{
    (void)unused;
    load(LAYER("{id: big, match: {limits_above: {memory: 1G, timeout: 1h}}, verdict: deny}"));
    DECIDES("{limits: {memory: 1G}}", "allow", "");
    DECIDES("{limits: {memory: 1025M}}", "deny", "a/big");
    DECIDES("{limits: {timeout: 2h}}", "deny", "a/big");
    load(
        "layers: [{name: a, otherwise: deny, rules: [{id: small, match: {limits_within: {memory: 1G, "
        "output: 1M}}, verdict: allow}]}]");
    DECIDES("{limits: {memory: 1G, output: 1M}}", "allow", "");
    DECIDES("{limits: {memory: 2G, output: 1M}}", "deny", "a");
    DECIDES("{limits: {memory: 1G}}", "deny", "a"); // no limit of output
}

static void
times_are_in_utc_and_may_pass_midnight(void **unused)
{
    (void)unused;
    load(LAYER(
        "{id: r, match: {times: {days: [mon, fri], from: \"22:00\", until: \"06:00\"}}, verdict: deny}"));
    DECIDES("{time: \"2026-11-23T21:59:59Z\"}", "allow", ""); // a Monday
    DECIDES("{time: \"2026-11-23T22:00:00Z\"}", "deny", "a/r");
    DECIDES("{time: \"2026-11-24T05:59:59Z\"}", "deny", "a/r");
    DECIDES("{time: \"2026-11-24T06:00:00Z\"}", "allow", "");
    DECIDES("{time: \"2026-11-23T05:00:00Z\"}", "allow", ""); // Sunday's night
    DECIDES("{time: \"2026-11-28T03:00:00Z\"}", "deny", "a/r");
    load(LAYER("{id: r, match: {times: {days: [sat]}}, verdict: deny}"));
    DECIDES("{time: \"2026-11-28T00:00:00Z\"}", "deny", "a/r");
    DECIDES("{time: \"2026-11-29T00:00:00Z\"}", "allow", "");
}

static void
a_rule_is_about_calls_that_are_simulated_or_about_the_others(void **unused)
{
    (void)unused;
    load(LAYER("{id: jwt, match: {credentials: [jwt], mode: execute}, verdict: deny},"
               "{id: try, match: {commands: [deploy], mode: simulate}, verdict: allow},"
               "{id: ask, match: {commands: [deploy]}, verdict: ask, ask: {approvers: [a]}}"));
    DECIDES("{credential: jwt}", "deny", "a/jwt");
    DECIDES("{credential: jwt, mode: execute, command: [deploy]}", "deny", "a/jwt");
    DECIDES("{credential: jwt, mode: simulate}", "allow", "");
    DECIDES("{credential: token}", "allow", "");
    DECIDES("{command: [deploy]}", "ask", "a/ask");
    DECIDES("{command: [deploy], mode: simulate}", "allow", "");
}

static void
every_part_of_a_match_must_match(void **unused)
{
    (void)unused;
    load(LAYER(
        "{id: r, match: {tenants: [\"team-*\"], methods: [\"CodeService/*\"], templates: [py*], "
        "languages: [bash], labels: [\"env=prod*\"], credentials: [token, key]}, verdict: deny}"));
    DECIDES("{tenant: team-a, method: CodeService/RunCode, template: python, language: bash, "
            "labels: [x=y, env=production], credential: key}",
            "deny", "a/r");
    DECIDES("{tenant: team, method: CodeService/RunCode, template: python, language: bash, "
            "labels: [env=prod], credential: key}",
            "allow", "");
    DECIDES("{tenant: team-a, method: ProcessService/Run, template: python, language: bash, "
            "labels: [env=prod], credential: key}",
            "allow", "");
    DECIDES("{tenant: team-a, method: CodeService/RunCode, template: node, language: bash, "
            "labels: [env=prod], credential: key}",
            "allow", "");
    DECIDES("{tenant: team-a, method: CodeService/RunCode, template: python, "
            "labels: [env=prod], credential: key}",
            "allow", "");
    DECIDES("{tenant: team-a, method: CodeService/RunCode, template: python, language: bash, "
            "labels: [env=test], credential: key}",
            "allow", "");
    DECIDES("{tenant: team-a, method: CodeService/RunCode, template: python, language: bash, "
            "labels: [env=prod]}",
            "allow", "");
}

// ---- layers

static void
the_first_rule_that_matches_decides_inside_of_a_layer(void **unused)
{
    (void)unused;
    load(
        "layers: [{name: a, otherwise: deny, rules: [{id: one, match: {commands: [\"git push ...\"]}, "
        "verdict: deny}, {id: two, match: {commands: [\"git ...\"]}, verdict: allow}, {id: three, match: "
        "{commands: [\"git log\"]}, verdict: deny}]}]");
    DECIDES("{command: [git, push]}", "deny", "a/one");
    DECIDES("{command: [git, log]}", "allow", "");
    DECIDES("{command: [ls]}", "deny", "a");
}

static void
layers_only_narrow(void **unused)
{
    (void)unused;
    static const char *const verdicts[] = {"allow", "limit", "ask", "deny"};
    static const char *const bodies[] = {"verdict: allow",
                                         "verdict: limit, limit: {limits: {memory: 1G}}",
                                         "verdict: ask, ask: {approvers: [root]}", "verdict: deny"};
    for (unsigned i = 0; i < 4; i++)
        for (unsigned k = 0; k < 4; k++)
            for (unsigned l = 0; l < 4; l++) {
                char text[1024];
                unsigned most = i > k ? i : k;
                most = most > l ? most : l;
                (void)snprintf(
                    text, sizeof text,
                    "layers: [{name: t, templates: [\"*\"], rules: [{id: r, %s}]}, {name: h, "
                    "rules: [{id: r, %s}]}, {name: u, tenants: [\"uid:*\"], rules: [{id: r, %s}]}]",
                    bodies[i], bodies[k], bodies[l]);
                load(text);
                assert_string_equal(decide("{}"), verdicts[most]);
                // Of those with the strictest verdict the first of host, tenant, template.
                assert_string_equal(decision.rule, most == 0   ? ""
                                                   : k == most ? "h/r"
                                                   : l == most ? "u/r"
                                                               : "t/r");
            }
}

static void
a_layer_applies_to_its_tenants_and_templates_alone(void **unused)
{
    (void)unused;
    load(
        "layers: [{name: a, tenants: [team-a], otherwise: deny}, {name: b, templates: [prod], otherwise: deny}]");
    DECIDES("{tenant: team-a}", "deny", "a");
    DECIDES("{tenant: team-ab}", "allow", "");
    DECIDES("{tenant: team-b, template: prod}", "deny", "b");
    DECIDES("{tenant: team-b, template: production}", "allow", "");
}

static void
each_command_of_a_batch_is_decided(void **unused)
{
    static const char *const git[] = {"git", "log"}, *const ls[] = {"ls"}, *const rm[] = {"rm"};
    const struct deed_command commands[] = {{2, 0, git, NULL}, {1, 0, ls, NULL}, {1, 0, rm, NULL}};
    struct deed d = {.method = "ProcessService/AddToBatch", .runs = true, .commands = commands};
    const struct policy_call c = {.deed = &d, .tenant = "x", .credential = "peer", .language = ""};
    (void)unused;
    load(
        "layers: [{name: a, otherwise: deny, rules: [{id: g, match: {commands: [\"git ...\"]}, verdict: "
        "allow}, {id: l, match: {commands: [ls]}, verdict: allow}]}]");
    d.commands_n = 2;
    policy_decide(policy, &c, NULL, NULL, &decision);
    assert_int_equal(decision.verdict, POLICY_ALLOW);
    d.commands_n = 3;
    policy_decide(policy, &c, NULL, NULL, &decision);
    assert_int_equal(decision.verdict, POLICY_DENY);
    assert_string_equal(decision.rule, "a");
}

static void
what_is_not_known_is_never_allowed_by_a_rule_about_it(void **unused)
{
    struct deed d = {.method = "ProcessService/Run", .runs = true, .unknown = true};
    const struct policy_call c = {.deed = &d, .tenant = "x", .credential = "peer", .language = ""};
    (void)unused;
    static const char *const rows[][2] = {
        {"match: {destinations: [\"*\"]}, verdict: allow", "otherwise: deny"},
        {"match: {limits_within: {memory: 1T}}, verdict: allow", "otherwise: deny"},
        {"match: {destinations: [x.example]}, verdict: deny", "otherwise: allow"},
        {"match: {limits_above: {memory: 1T}}, verdict: deny", "otherwise: allow"},
        {"verdict: limit, limit: {limits: {memory: 1T}}", "otherwise: allow"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        (void)snprintf(text, sizeof text, "layers: [{name: a, %s, rules: [{id: r, %s}]}]",
                       rows[i][1], rows[i][0]);
        load(text);
        policy_decide(policy, &c, NULL, NULL, &decision);
        assert_int_equal(decision.verdict, POLICY_DENY);
    }
}

// ---- limits, rates, history, people

static void
a_limit_lowers_what_was_not_asked_for_and_refuses_what_was(void **unused)
{
    struct limits l = {{0}};
    struct deed d = {.method = "ProcessService/Run", .runs = true, .makes = true, .limits = &l};
    struct policy_call c = {.deed = &d, .tenant = "x", .credential = "peer", .language = ""};
    (void)unused;
    load(
        "layers: [{name: a, rules: [{id: r, reason: small ones, verdict: limit, limit: {limits: {memory: "
        "256M, output: 1M}}}]}, {name: b, rules: [{id: s, verdict: limit, limit: {limits: {memory: 512M}}}]}]");
    l.v[LIMIT_MEMORY_BYTES] = UINT64_C(512) << 20;
    policy_decide(policy, &c, NULL, NULL, &decision);
    assert_int_equal(decision.verdict, POLICY_DENY);
    assert_string_equal(decision.rule, "a/r");
    assert_string_equal(decision.field, "limits.memory_bytes");
    assert_string_equal(decision.allowed, "memory up to 256M");
    c.can_fill = UINT32_MAX;
    policy_decide(policy, &c, NULL, NULL, &decision);
    assert_int_equal(decision.verdict, POLICY_LIMIT);
    assert_int_equal(decision.fill, 1U << LIMIT_MEMORY_BYTES | 1U << LIMIT_OUTPUT_BYTES);
    assert_int_equal(decision.most.v[LIMIT_MEMORY_BYTES], UINT64_C(256) << 20);
}

static void
a_rate_says_when_the_next_call_may_come(void **unused)
{
    struct deed d = {.method = "ProcessService/Run", .runs = true};
    struct policy_counts *counts = policy_counts_new();
    struct policy_call c = {.deed = &d,
                            .tenant = "x",
                            .credential = "peer",
                            .language = "",
                            .now_ns = UINT64_C(5000000000),
                            .counts = counts};
    struct err e;
    (void)unused;
    load(LAYER("{id: r, verdict: limit, limit: {rate: {calls: 2, period: 10s}}}"));
    for (int i = 0; i < 2; i++) {
        policy_decide(policy, &c, NULL, NULL, &decision);
        assert_int_equal(decision.verdict, POLICY_LIMIT);
        policy_count(counts, &decision, c.now_ns);
    }
    policy_decide(policy, &c, NULL, NULL, &decision);
    assert_int_equal(decision.verdict, POLICY_DENY);
    assert_int_equal(decision.retry_ms, 5001);
    assert_true(policy_refuse(&decision, "ProcessService/Run", &e) < 0);
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(e.reason, "POLICY_RATE");
    assert_string_equal(e.rule, "a/r");
    assert_int_equal(e.retry_ms, 5001);
    c.tenant = "y"; // has its own
    policy_decide(policy, &c, NULL, NULL, &decision);
    assert_int_equal(decision.verdict, POLICY_LIMIT);
    c.tenant = "x";
    c.now_ns += UINT64_C(5000000000);
    policy_decide(policy, &c, NULL, NULL, &decision);
    assert_int_equal(decision.verdict, POLICY_LIMIT);
    // A reload keeps the counts.
    load(LAYER("{id: r, verdict: limit, limit: {rate: {calls: 2, period: 10s}}}"));
    policy_count(counts, &decision, c.now_ns);
    policy_decide(policy, &c, NULL, NULL, &decision);
    assert_int_equal(decision.verdict, POLICY_DENY);
    policy_counts_free(counts);
}

static void
a_history_matches_after_so_many_calls(void **unused)
{
    (void)unused;
    load(LAYER(
        "{id: r, match: {methods: [ProcessService/Run], history: {calls_over: 3, period: 1h}}, "
        "verdict: ask, ask: {approvers: [root], need: 2, timeout: 5m}}"));
    DECIDES("{calls_before: 2}", "allow", "");
    DECIDES("{calls_before: 3}", "ask", "a/r");
    assert_int_equal(decision.asks_n, 1);
    assert_int_equal(decision.ask[0].timeout_ms, 300000);
    assert_int_equal(decision.ask[0].ask->need, 2);
}

static void
a_call_that_is_too_large_to_compare_is_refused(void **unused)
{
    char *text = malloc(1 << 20);
    const char *args[] = {"sh", "-c", text};
    const struct deed_command command = {3, 0, args, NULL};
    struct deed d = {
        .method = "ProcessService/Run", .runs = true, .commands = &command, .commands_n = 1};
    const struct policy_call c = {.deed = &d, .tenant = "x", .credential = "peer", .language = ""};
    (void)unused;
    memset(text, 'a', (1 << 20) - 1);
    text[(1 << 20) - 1] = '\0';
    char *yaml = malloc(100000);
    size_t n = (size_t)snprintf(yaml, 100000, "layers: [{name: a, rules: [");
    for (int i = 0; i < 100; i++)
        n += (size_t)snprintf(yaml + n, 100000 - n,
                              "{id: r%d, match: {lines: [\"*a*a*a*a*b%d*\"]}, verdict: deny},", i,
                              i);
    (void)snprintf(yaml + n, 100000 - n, "]}]");
    load(yaml);
    const int64_t before = now_ns(CLOCK_MONOTONIC);
    policy_decide(policy, &c, NULL, NULL, &decision);
    assert_int_equal(decision.verdict, POLICY_DENY);
    assert_non_null(strstr(decision.reason, "too large"));
    assert_true(now_ns(CLOCK_MONOTONIC) - before < INT64_C(5000000000));
    free(yaml);
    free(text);
}

// ---- what a file may not say

static void
a_wrong_file_is_refused_with_line_and_column(void **unused)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"layers:\n  - rule: a\n", "p.yaml:2:11: rule: there is no such key; did you mean rules?"},
        {"layers:\n  - name: a\n    name: b\n", "a duplicate key"},
        {"layers:\n  - &x {name: a}\n  - *x\n", "anchors are not allowed"},
        {"layers: 3", "layers: must be a list"},
        {"layers:\n- name: A\n", "p.yaml:2:3: name"},
        {"layers:\n- name: a\n- name: a\n", "p.yaml:3:9: name: a is a layer of p.yaml already"},
        {"layers: [{name: a, otherwise: ask}]", "must be allow or deny"},
        {"layers: [{name: a, otherwise: maybe}]", "otherwise: must be allow, deny, ask or limit"},
        {LAYER("{id: r}"), "verdict"},
        {LAYER("{id: r, verdict: deny}, {id: r, verdict: deny}"), "r is the id of an earlier rule"},
        {LAYER("{id: r, verdict: ask}"), "needs ask.approvers"},
        {LAYER("{id: r, verdict: deny, match: {mode: both}}"), "mode: does not match"},
        {LAYER("{id: r, verdict: limit}"), "needs limit.limits or limit.rate"},
        {LAYER("{id: r, verdict: deny, limit: {rate: {calls: 1, period: 1s}}}"),
         "belongs to the verdict limit"},
        {LAYER("{id: r, verdict: deny, match: {methods: [ProcessService/Rum]}}"),
         "no method has this name"},
        {LAYER("{id: r, verdict: deny, match: {languages: [bash, node]}}"),
         "node: the name is javascript, which fits all names of it"},
        {LAYER("{id: r, verdict: deny, match: {languages: [cobol]}}"),
         "cobol: not python, bash or javascript"},
        {LAYER("{id: r, verdict: deny, match: {commands: [\"  \"]}}"), "it has no word"},
        {LAYER("{id: r, verdict: deny, match: {destinations: [x.example, \"1.2.3.4/33\"]}}"), "1:"},
        {LAYER("{id: r, verdict: deny, match: {limits_above: {memory: lots}}}"),
         "memory: must be a size"},
        {LAYER("{id: r, verdict: deny, match: {limits_above: {memory: 2T}}}"),
         "memory: must be from 4M to 1T"},
        {LAYER("{id: r, verdict: deny, match: {times: {from: \"08:00\"}}}"), "from and until"},
        {LAYER("{id: r, verdict: deny, match: {times: {from: \"24:00\", until: \"08:00\"}}}"),
         "times: from: does not match"},
        {LAYER("{id: r, verdict: deny, match: {times: {days: [monday]}}}"), "days"},
        {LAYER("{id: r, verdict: deny, match: {history: {calls_over: 0, period: 1h}}}"),
         "calls_over"},
        {LAYER("{id: r, verdict: deny, match: {history: {calls_over: 1, period: 32d}}}"),
         "at most 31d"},
        {LAYER("{id: r, verdict: limit, limit: {rate: {calls: 1, period: 1d, burst: 100}}}"),
         "more than 31 days"},
        {LAYER("{id: r, verdict: deny, tests: [{call: {command: [x]}, expect: allow}]}"),
         "rule a/r: test 1 fails: it expects allow, but the decision is deny by a/r"},
        {LAYER("{id: r, verdict: deny, tests: [{call: {method: X/Y}, expect: deny}]}"),
         "X/Y: no such method"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err e = {.text = ""};
        if (read_text(rows[i].text, &e) == 0)
            fail_msg("accepted: %s", rows[i].text);
        if (strstr(e.text, rows[i].why) == NULL)
            fail_msg("%s\n  not: %s", e.text, rows[i].why);
        assert_int_equal(e.code, strstr(rows[i].why, "no such method") != NULL
                                     ? ERR_NOT_FOUND
                                     : ERR_INVALID_ARGUMENT);
    }
}

static void
more_rules_than_the_bound_are_refused(void **unused)
{
    enum { N = POLICY_RULES_MAX + 1, ROOM = N * 48 };
    char *text = malloc(ROOM);
    struct err e;
    (void)unused;
    size_t n = (size_t)snprintf(text, ROOM, "layers: [{name: a, rules: [");
    for (int i = 0; i < N; i++)
        n += (size_t)snprintf(text + n, ROOM - n, "{id: r%d, verdict: deny},", i);
    (void)snprintf(text + n, ROOM - n, "]}]");
    assert_true(read_text(text, &e) < 0);
    assert_non_null(strstr(e.text, "4096"));
    free(text);
}

static void
patterns_are_linear(void **unused)
{
    static const struct {
        const char *pattern, *text;
        bool matches;
    } rows[] = {
        {"", "", true},           {"", "a", false},          {"*", "", true},
        {"*", "abc", true},       {"a*", "abc", true},       {"a*", "ba", false},
        {"*c", "abc", true},      {"*c", "abcd", false},     {"a*c", "ac", true},
        {"a*c", "abbc", true},    {"ab*ba", "aba", false},   {"ab*ba", "abba", true},
        {"*a*b*", "xaybz", true}, {"*a*b*", "xbyaz", false}, {"**", "x", true},
        {"a**b", "ab", true},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(glob_match(rows[i].pattern, rows[i].text, strlen(rows[i].text)),
                         rows[i].matches);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_policy_without_layers_allows_everything),
        cmocka_unit_test(commands_match_word_by_word),
        cmocka_unit_test(lines_match_the_words_as_one_text),
        cmocka_unit_test(paths_are_cleaned_before_they_are_compared),
        cmocka_unit_test(destinations_meet_for_deny_and_are_within_for_allow),
        cmocka_unit_test(limits_match_above_and_within),
        cmocka_unit_test(times_are_in_utc_and_may_pass_midnight),
        cmocka_unit_test(a_rule_is_about_calls_that_are_simulated_or_about_the_others),
        cmocka_unit_test(every_part_of_a_match_must_match),
        cmocka_unit_test(the_first_rule_that_matches_decides_inside_of_a_layer),
        cmocka_unit_test(layers_only_narrow),
        cmocka_unit_test(a_layer_applies_to_its_tenants_and_templates_alone),
        cmocka_unit_test(each_command_of_a_batch_is_decided),
        cmocka_unit_test(what_is_not_known_is_never_allowed_by_a_rule_about_it),
        cmocka_unit_test(a_limit_lowers_what_was_not_asked_for_and_refuses_what_was),
        cmocka_unit_test(a_rate_says_when_the_next_call_may_come),
        cmocka_unit_test(a_history_matches_after_so_many_calls),
        cmocka_unit_test(a_call_that_is_too_large_to_compare_is_refused),
        cmocka_unit_test(a_wrong_file_is_refused_with_line_and_column),
        cmocka_unit_test(more_rules_than_the_bound_are_refused),
        cmocka_unit_test(patterns_are_linear),
    };
    return cmocka_run_group_tests(tests, policies_set_up, policies_tear_down);
}
