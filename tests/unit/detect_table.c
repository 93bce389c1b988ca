// SPDX-License-Identifier: Apache-2.0
// proto/detect_table: counts against a model that keeps each event.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/detect.h"
#include "proto/validate.h"

enum { EVENTS = 4000, RULES = 4, TENTHS = 10, THRESHOLD = 25 };
#define TENTH_NS UINT64_C(100000000)

// A rule is found with nothing left to compare, compared with each event, counted by a field, or found with an exception left.
#define RULE(id, parts)                                                                            \
    "- {id: " id ", severity: info, message: m, match: {kinds: [exec], " parts                     \
    "aggregate: {threshold: 25, window: 1s"
static const char text[] =
    "rules:\n" RULE("only", "all: [{executable: {prefix: [/usr/]}}]}, ") "}}\n" RULE("any", "any: [{executable: {prefix: [/usr/]}}]}, ") "}}\n" RULE(
        "by",
        "all: [{executable: {exact: [/usr/bin/a, /usr/bin/b]}}]}, ") ", by: executable}}\n" RULE("excepted",
                                                                                                 "all: [{executable: {suffix: [a, b]}}]}, exceptions: [{reason: r, match: {executable: "
                                                                                                 "{exact: [/usr/bin/b]}}}], ") "}}\n";

struct model {
    int n;
    uint64_t tenth[EVENTS], now_ns;
    uint32_t name[EVENTS], random;
};

// Mostly some milliseconds later, sometimes a part of the window, or several windows.
static void
next(struct model *m)
{
    m->random = m->random * 1664525 + 1013904223;
    m->now_ns += (m->random >> 4) % 40000000;
    if (m->n % 100 == 99)
        m->now_ns += (m->random >> 8) % 1000 * 1000000;
    if (m->n % 997 == 996)
        m->now_ns += 5000000000;
    m->name[m->n] = m->random >> 30 & 1;
    m->tenth[m->n++] = m->now_ns / TENTH_NS;
}

// How many events are in the tenth of the last one and in the nine before it. same: only those of its name.
static uint64_t
score_of(const struct model *m, bool same)
{
    const int last = m->n - 1;
    uint64_t n = 0;
    for (int i = last; i >= 0 && m->tenth[i] + TENTHS > m->tenth[last]; i--)
        n += !same || m->name[i] == m->name[last];
    return n >= THRESHOLD ? n : 0;
}

static void
on_score(void *cookie, const struct detect_finding *f)
{
    ((uint64_t *)cookie)[f->index] = f->score;
}

static void
a_count_is_that_of_ten_tenths_of_its_window_however_the_rule_is_found(void **state)
{
    static const uint8_t seed[16] = {1, 2, 3};
    static struct model m = {.now_ns = 1, .random = 7};
    const struct detect_file file = {"r.yaml", text, strlen(text)};
    struct detect_event ev = {.kind = STOCKADE__V1__EVENT_KIND__EVENT_KIND_EXEC,
                              .has = 1U << DETECT_EXECUTABLE,
                              .job = "j",
                              .sandbox = "s"};
    struct detect *rules = NULL;
    struct err e = {.text = ""};
    (void)state;
    if (validate_init(&e) < 0 || detect_read(&file, 1, &detect_bounds_host, seed, &rules, &e) < 0)
        fail_msg("%s", e.text);
    while (m.n < EVENTS) {
        uint64_t got[RULES] = {0};
        next(&m);
        const bool first = m.name[m.n - 1] == 0;
        ev.now_ns = m.now_ns;
        ev.text[DETECT_EXECUTABLE] = first ? "/usr/bin/a" : "/usr/bin/b";
        detect_event(rules, &ev, on_score, got);
        assert_int_equal(got[0], score_of(&m, false));
        assert_int_equal(got[1], score_of(&m, false));
        assert_int_equal(got[2], score_of(&m, true));
        assert_int_equal(got[3], first ? score_of(&m, true) : 0);
    }
    for (uint32_t i = 0; i < RULES; i++) {
        struct detect_view v;
        assert_true(detect_view(rules, i, &v));
        assert_int_equal(v.looked_at, EVENTS);
        assert_int_equal(v.matched + v.excepted, EVENTS);
        assert_true(v.findings > 1 && v.findings < EVENTS / 2);
    }
    detect_free(rules);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_count_is_that_of_ten_tenths_of_its_window_however_the_rule_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
