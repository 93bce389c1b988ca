// SPDX-License-Identifier: Apache-2.0
// proto/detect_index: rules of two fields, of which the index finds both.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/detect.h"
#include "proto/validate.h"

static struct detect *rules;

static void
load(const char *text, size_t n)
{
    static const uint8_t seed[16] = {1, 2, 3};
    const struct detect_file file = {"r.yaml", text, n};
    struct err e = {.text = ""};
    if (validate_init(&e) < 0 || detect_read(&file, 1, &detect_bounds_host, seed, &rules, &e) < 0)
        fail_msg("%s", e.text);
}

static void
on_found(void *cookie, const struct detect_finding *f)
{
    (void)cookie;
    (void)f;
}

// Rules of two parts, of which the index finds both: beside each one the same rule as it is compared.
static void
many_rules_of_two_fields_find_what_a_comparison_finds(void **state)
{
    static const char *const parts[] = {
        "executable: {exact: [a, ab]}, cwd: {prefix: [b]}",
        "executable: {prefix: [a]}, cwd: {prefix: [b, ba]}",
        "executable: {prefix: [a]}, cwd: {suffix: [a]}",
        "executable: {suffix: [b], exact: [ba]}, cwd: {exact: [aa, bb]}",
        "executable: {prefix: [a, ab]}, cwd: {exact: [a], prefix: [a], suffix: [a]}",
        "executable: {prefix: [a]}, cwd: {glob: [\"*baba*\"]}", // compared
    };
    enum { PARTS = sizeof parts / sizeof parts[0], TIMES = 4 };
    static char file[16384];
    size_t n = (size_t)snprintf(file, sizeof file, "rules:\n");
    (void)state;
    for (size_t i = 0; i < 2 * PARTS * TIMES; i++)
        n += (size_t)snprintf(file + n, sizeof file - n,
                              "- {id: r%zu, severity: info, message: m, match: {kinds: [exec], %s: "
                              "[{%s}]}, aggregate: {threshold: 1000000}}\n",
                              i, i % 2 == 0 ? "all" : "any", parts[i / 2 % PARTS]);
    load(file, n);
    detect_enable(rules, 2, false);
    for (uint32_t i = 0; i < 4096; i++) {
        char texts[2][8] = {"", ""};
        for (uint32_t k = 0; k < 12; k++)
            texts[k / 6][k % 6] = (char)(k % 6 < 1 + (i >> 10) ? 'a' + (i >> k & 1) : 0);
        struct detect_event ev = {.kind = STOCKADE__V1__EVENT_KIND__EVENT_KIND_EXEC,
                                  .job = "j",
                                  .sandbox = "s",
                                  .now_ns = i + 1};
        detect_set_text(&ev, DETECT_EXECUTABLE, texts[0]);
        if (i % 5 != 0)
            detect_set_text(&ev, DETECT_CWD, texts[1]);
        detect_event(rules, &ev, on_found, NULL);
    }
    struct detect_view indexed, plain;
    for (uint32_t i = 0; i < 2 * PARTS * TIMES; i += 2) {
        assert_true(detect_view(rules, i, &indexed) && detect_view(rules, i + 1, &plain));
        assert_true(i == 2 ? indexed.matched == 0 : indexed.matched == plain.matched);
        assert_true(plain.matched > 0 || i / 2 % PARTS == 5);
    }
    detect_free(rules);
}

// Calls that only a rule asks for, and rules of two fields that name no call: too few to look for them together, and enough.
static void
rules_of_two_fields_do_not_see_calls_that_another_rule_asks_for(void **state)
{
    static const uint32_t counts[] = {2, 20};
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        char file[8192];
        struct detect_view v;
        size_t n = (size_t)snprintf(file, sizeof file, "rules:\n");
        for (uint32_t i = 0; i < counts[k]; i++)
            n += (size_t)snprintf(file + n, sizeof file - n,
                                  "- {id: r%u, severity: info, message: m, match: {kinds: "
                                  "[dangerous_call], all: [{comm: {prefix: [p]}, sandbox_name: "
                                  "{prefix: [s]}}]}, aggregate: {threshold: 1000000}}\n",
                                  i);
        load(file, n);
        struct detect_event ev = {.kind = STOCKADE__V1__EVENT_KIND__EVENT_KIND_DANGEROUS_CALL,
                                  .job = "j",
                                  .sandbox = "s",
                                  .now_ns = 1,
                                  .ruled = true};
        detect_set_text(&ev, DETECT_COMM, "python3");
        detect_set_text(&ev, DETECT_SANDBOX_NAME, "shop");
        detect_event(rules, &ev, on_found, NULL);
        assert_true(detect_view(rules, counts[k] - 1, &v) && v.matched == 0);
        ev.ruled = false;
        detect_event(rules, &ev, on_found, NULL);
        assert_true(detect_view(rules, counts[k] - 1, &v) && v.matched == 1);
        detect_free(rules);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_of_two_fields_do_not_see_calls_that_another_rule_asks_for),
        cmocka_unit_test(many_rules_of_two_fields_find_what_a_comparison_finds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
