// SPDX-License-Identifier: Apache-2.0
// server/access/policy: all layers together, the policies of templates and of requests, differences, tests of rules, and writing.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/now.h"
#include "proto/yaml_write.h"
#include "server/access/policy.h"
#include "tests/harness/policies.h"

enum { TEXT = 512 };

// ---- a configuration, differences, and writing

static void
a_template_of_a_configuration_has_a_layer_of_its_own(void **unused)
{
    struct err e = {.text = ""};
    struct policy_view was, is;
    (void)unused;
    assert_int_equal(read_configuration(
                         "templates:\n- name: t\n  policy: {rules: [{id: r, commands: 1}]}\n", &e),
                     -EINVAL);
    assert_non_null(strstr(e.text, "c.yaml:3:"));
    assert_int_equal(
        read_configuration(
            "{pool: 1, templates: [{name: t, policy: {otherwise: deny, rules: [{id: r, match: "
            "{commands: [ls]}, verdict: allow}]}}, {name: u}]}",
            &e),
        0);
    DECIDES("{command: [ls], template: t}", "allow", "");
    DECIDES("{command: [rm], template: t}", "deny", "template.t");
    DECIDES("{command: [rm], template: u}", "allow", "");
    policy_view(policy, &was);
    assert_int_equal(
        read_configuration(
            "{pool: 2, templates: [{name: t, policy: {otherwise: deny, rules: [{id: r, match: "
            "{commands: [ls]}, verdict: allow}]}}]}",
            &e),
        0);
    policy_view(policy, &is);
    assert_memory_equal(was.digest, is.digest, POLICY_DIGEST); // the rest does not count
}

static void
collect_difference(void *cookie, const struct policy_difference *d)
{
    char *all = cookie;
    const size_t n = strlen(all);
    (void)snprintf(all + n, TEXT - n, "%d:%s/%s@%u ", (int)d->change, d->layer, d->rule, d->line);
}

static void
differences_are_named(void **unused)
{
    char all[TEXT] = "";
    struct err e;
    (void)unused;
    load(
        "layers:\n- name: a\n  rules:\n  - {id: x, verdict: deny}\n  - {id: y, verdict: allow}\n- {name: gone}\n- {name: t, reason: s}\n");
    struct policy *before = policy;
    policy = NULL;
    load(
        "layers:\n- name: new\n- name: a\n  rules:\n  - {id: n, verdict: deny}\n  - {id: y, verdict: allow}\n  - {id: x, verdict: deny}\n- {name: t, reason: u}\n");
    assert_int_equal(policy_diff(before, policy, collect_difference, all, &e), 0);
    assert_string_equal(all, "1:new/@2 1:a/n@5 4:a/y@6 4:a/x@7 3:t/@8 2:gone/@6 ");
    all[0] = '\0';
    assert_int_equal(policy_diff(policy, policy, collect_difference, all, &e), 0);
    assert_string_equal(all, "");
    assert_int_equal(policy_diff(NULL, before, collect_difference, all, &e), 0);
    assert_string_equal(all, "1:a/@2 1:gone/@6 1:t/@7 ");
    policy_free(before);
}

static void
what_is_written_reads_back_the_same(void **unused)
{
    static const char text[] =
        "layers: [{name: a, about: \"say \\\"x\\\": # 1\", rules: [{id: r, match: {commands: [\"git push ...\", \"*a, b*\", \"@c\", \"- d\", \"e:\"], "
        "paths: [/a/b, \"*/.x\"], limits_above: {memory: 1G}, times: {days: [mon], from: \"08:00\", until: \"18:00\"}, "
        "history: {calls_over: 3, period: 1h, of: credential}}, verdict: ask, ask: {approvers: [team], need: 2}, "
        "tests: [{call: {command: [x]}, expect: limit}]}, {id: s, verdict: limit, limit: {rate: {calls: 1, period: 1s}}}]}]";
    char line[4096], block[4096];
    struct policy_layer_view v;
    (void)unused;
    load(text);
    (void)policy_layer_at(policy, 0, &v);
    for (enum yaml_style style = YAML_LINE; style <= YAML_BLOCK; style++) {
        Stockade__V1__PolicyLayer *one = (Stockade__V1__PolicyLayer *)(uintptr_t)v.m;
        Stockade__V1__PolicyDocument document = STOCKADE__V1__POLICY_DOCUMENT__INIT;
        uint8_t was[2048], is[2048];
        document.layers = &one;
        document.n_layers = 1;
        const size_t n = yaml_write(&document.base, style, line, sizeof line);
        assert_int_equal(n, strlen(line));
        assert_int_equal(yaml_write(&document.base, style, block, 10), n);
        assert_int_equal(strlen(block), 9);
        const size_t was_n = protobuf_c_message_pack(&v.m->base, was);
        struct policy *before = policy;
        policy = NULL;
        load(line);
        (void)policy_layer_at(policy, 0, &v);
        assert_int_equal(protobuf_c_message_pack(&v.m->base, is), was_n);
        assert_memory_equal(was, is, was_n);
        policy_free(before);
    }
}

static void
count_failed(void *cookie, const struct policy_tested *t)
{
    *(int *)cookie += t->passed ? 100 : 1;
}

// Characters that YAML takes for line ends, for the beginning of a file, or for none, as a job may have in its arguments.
static void
texts_are_written_so_that_they_read_back(void **unused)
{
    static const char *const texts[] = {"a\xe2\x80\xa8 b",  "a\xe2\x80\xa9", "a\xc2\x85",
                                        "a \xc2\x9f c",     "\xef\xbb\xbf",  "a\xef\xbf\xbe",
                                        "a\xf0\x9f\x98\x80"};
    (void)unused;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char text[TEXT];
        struct policy_layer_view v;
        Stockade__V1__PolicyLayer l = STOCKADE__V1__POLICY_LAYER__INIT, *one = &l;
        Stockade__V1__PolicyDocument d = STOCKADE__V1__POLICY_DOCUMENT__INIT;
        l.name = "a";
        l.reason = texts[i];
        d.layers = &one;
        d.n_layers = 1;
        assert_true(yaml_write(&d.base, YAML_LINE, text, sizeof text) < sizeof text);
        load(text);
        (void)policy_layer_at(policy, 0, &v);
        assert_string_equal(v.m->reason, texts[i]);
    }
}

static void
tests_of_rules_can_all_be_run(void **unused)
{
    int seen = 0;
    struct err e = {.text = ""};
    Stockade__V1__PolicyFile file = STOCKADE__V1__POLICY_FILE__INIT, *list[] = {&file};
    Stockade__V1__PolicyFiles files = STOCKADE__V1__POLICY_FILES__INIT;
    struct policy *p = NULL;
    (void)unused;
    file.name = "p.yaml";
    file.text = LAYER(
        "{id: r, match: {commands: [x]}, verdict: deny, tests: [{call: {command: [x]}, expect: allow}, "
        "{call: {command: [x]}, expect: deny}, {call: {command: [y]}, expect: deny}]}");
    files.files = list;
    files.n_files = 1;
    assert_int_equal(policy_read(&files, &p, &e), -EINVAL);
    assert_non_null(strstr(e.text, "p.yaml:1:28: rule a/r: test 1 fails"));
    assert_int_equal(policy_read_untested(&files, &p, &e), 0);
    assert_int_equal(policy_run_tests(p, count_failed, &seen, &e), 0);
    assert_int_equal(seen, 102);
    policy_free(p);
}

// ---- all layers

static const char *const verdict_texts[] = {
    [POLICY_ALLOW] = "verdict: allow",
    [POLICY_LIMIT] = "verdict: limit, limit: {limits: {pids: 4096}}",
    [POLICY_ASK] = "verdict: ask, ask: {approvers: [team]}",
    [POLICY_DENY] = "verdict: deny, reason: no",
};

static void
note_kind(void *cookie, const struct policy_step *step)
{
    char *all = cookie;
    const size_t n = strlen(all);
    (void)snprintf(all + n, TEXT - n, "%s ", step->kind);
}

// Every combination of what host, tenant, template and request say: the strictest counts, and the first layer that says it is named.
// The fifth, the token, is asked before (tests/unit/token.c, tests/flow/policy_service.py).
static void
of_all_layers_the_strictest_counts(void **unused)
{
    enum { LAYERS = 4, VERDICTS = 4 };
    static const char *const names[LAYERS] = {"h/r", "u/r", "t/r", "request/r"};
    (void)unused;
    for (int all = 0; all < VERDICTS * VERDICTS * VERDICTS * VERDICTS; all++) {
        enum policy_verdict says[LAYERS], most = POLICY_ALLOW;
        char text[1024], request[256], kinds[TEXT] = "";
        struct policy *narrow = NULL;
        struct err e = {.text = ""};
        const char *first = "";
        for (int i = 0, rest = all; i < LAYERS; i++, rest /= VERDICTS)
            says[i] = (enum policy_verdict)(rest % VERDICTS);
        (void)snprintf(text, sizeof text,
                       "layers: [{name: t, templates: [default], rules: [{id: r, %s}]}, "
                       "{name: h, rules: [{id: r, %s}]}, "
                       "{name: u, tenants: [\"uid:*\"], rules: [{id: r, %s}]}]",
                       verdict_texts[says[2]], verdict_texts[says[0]], verdict_texts[says[1]]);
        (void)snprintf(request, sizeof request, "{rules: [{id: r, %s}]}", verdict_texts[says[3]]);
        load(text);
        assert_int_equal(policy_read_request(request, &narrow, &e), 0);
        const Stockade__V1__PolicyCall call = STOCKADE__V1__POLICY_CALL__INIT;
        const struct policy_words by = {.tenant = "uid:1000",
                                        .now_ms = now_wall_ms(),
                                        .step = note_kind,
                                        .cookie = kinds,
                                        .request = narrow};
        assert_int_equal(policy_decide_words(policy, &call, &by, &decision, &e), 0);
        for (int i = 0; i < LAYERS; i++)
            if (says[i] > most) {
                most = says[i];
                first = names[i];
            }
        assert_int_equal(decision.verdict, most);
        assert_string_equal(decision.rule, first);
        assert_string_equal(kinds, "host tenant template request ");
        // Without any layer of the host the request still narrows, and it widens nothing.
        assert_int_equal(policy_decide_words(NULL, &call, &by, &decision, &e), 0);
        assert_int_equal(decision.verdict, says[3]);
        policy_free(narrow);
    }
}

static void
the_policy_of_a_request_counts_nothing(void **unused)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"", "it is empty"},
        {"[]", "policy:1:1: must be a mapping"},
        {"{layers: []}", "layers: there is no such key"},
        {"{rules: [{id: r}]}", "verdict"},
        {"{rules: [{id: r, verdict: deny}, {id: r, verdict: deny}]}", "id of an earlier rule"},
        {"{rules: [{id: r, verdict: limit, limit: {rate: {calls: 1, period: 1s}}}]}", "no rate"},
        {"{rules: [{id: r, verdict: deny, match: {history: {calls_over: 1, period: 1h}}}]}",
         "no history"},
        {"{otherwise: ask}", "must be allow or deny"},
        {"{rules: [{id: r, verdict: deny, tests: [{expect: allow}]}]}", "test 1 fails"},
    };
    char many[2048] = "{rules: [";
    struct policy *none = NULL;
    struct err why = {.text = ""};
    (void)unused;
    for (int i = 0; i <= POLICY_REQUEST_RULES_MAX; i++) {
        const size_t n = strlen(many);
        (void)snprintf(many + n, sizeof many - n, "{id: r%d, verdict: deny},", i);
    }
    const size_t n = strlen(many);
    (void)snprintf(many + n, sizeof many - n, "]}");
    assert_int_equal(policy_read_request(many, &none, &why), -EINVAL);
    assert_non_null(strstr(why.text, "at most 32 rules"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct policy *p = NULL;
        struct err e = {.text = ""};
        if (policy_read_request(rows[i].text, &p, &e) == 0)
            fail_msg("it was accepted: %s", rows[i].text);
        if (strstr(e.text, rows[i].why) == NULL)
            fail_msg("%s: %s", rows[i].text, e.text);
        assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
    }
}

static void
layers_of_templates_count_to_the_bound(void **unused)
{
    static char layers[64 * POLICY_LAYERS_MAX];
    Stockade__V1__PolicyFile file[2] = {STOCKADE__V1__POLICY_FILE__INIT,
                                        STOCKADE__V1__POLICY_FILE__INIT};
    Stockade__V1__PolicyFile *list[] = {&file[0], &file[1]};
    Stockade__V1__PolicyFiles files = STOCKADE__V1__POLICY_FILES__INIT;
    struct policy *p = NULL;
    struct err e = {.text = ""};
    size_t n = (size_t)snprintf(layers, sizeof layers, "layers:\n");
    (void)unused;
    for (int i = 0; i < POLICY_LAYERS_MAX; i++)
        n += (size_t)snprintf(layers + n, sizeof layers - n, "- {name: l%d}\n", i);
    file[0].name = "p.yaml";
    file[0].text = layers;
    file[1].name = "c.yaml";
    file[1].text = "templates: [{name: t, policy: {rules: []}}]";
    file[1].configuration = true;
    files.files = list;
    files.n_files = 2;
    assert_int_equal(policy_read(&files, &p, &e), -EINVAL);
    assert_non_null(strstr(e.text, "more than 1024 layers"));
}

static void
a_refusal_says_what_else_may_be_done(void **unused)
{
    (void)unused;
    load(LAYER(
        "{id: t, match: {commands: [a], times: {from: \"00:00\", until: \"23:59\"}}, verdict: deny}, "
        "{id: h, match: {commands: [b], history: {calls_over: 2, period: 1h}}, verdict: deny}, "
        "{id: r, match: {commands: [c]}, verdict: limit, limit: {rate: {calls: 1, period: 1h}}}"));
    DECIDES("{command: [a], time: \"2026-11-23T08:30:00Z\"}", "deny", "a/t");
    assert_string_equal(decision.allowed,
                        "commands other than a; or the same at other times (UTC)");
    DECIDES("{command: [b], calls_before: 2}", "deny", "a/h");
    assert_string_equal(decision.allowed, "commands other than b; or at most 2 calls in 1h");
    DECIDES("{command: [c], calls_before: 1}", "deny", "a/r");
    assert_string_equal(decision.reason, "too many calls; the next may come in 1h");
    assert_string_equal(decision.allowed, "1 call in 1h, 1 at once");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_template_of_a_configuration_has_a_layer_of_its_own),
        cmocka_unit_test(differences_are_named),
        cmocka_unit_test(what_is_written_reads_back_the_same),
        cmocka_unit_test(texts_are_written_so_that_they_read_back),
        cmocka_unit_test(tests_of_rules_can_all_be_run),
        cmocka_unit_test(of_all_layers_the_strictest_counts),
        cmocka_unit_test(the_policy_of_a_request_counts_nothing),
        cmocka_unit_test(a_refusal_says_what_else_may_be_done),
        cmocka_unit_test(layers_of_templates_count_to_the_bound),
    };
    return cmocka_run_group_tests(tests, policies_set_up, policies_tear_down);
}
