// SPDX-License-Identifier: Apache-2.0
// The comparison of one event with 200 detection rules, from the message that telemetry publishes.
//
//   rules ROUNDS
//
// Rows: 200 rules about whole texts, of which the index leaves none or one; 200 about beginnings of paths; 200 with two patterns
// each; and 200 that all match and count, of one field, of two, and by the value of a field. All are about the kind of the event. No broker.
#include "bench.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/detect.h"
#include "proto/validate.h"

enum { RULES = 200, ROOM = RULES * 256, EACH = 64 };

// Writes the part with the number in place of each '#'.
static void
number(const char *part, int i, char *out, size_t n)
{
    size_t at = 0;
    for (const char *p = part; *p != '\0' && at + 16 < n; p++) {
        if (*p == '#')
            at += (size_t)snprintf(out + at, n - at, "%d", i);
        else
            out[at++] = *p;
    }
    out[at] = '\0';
}

static struct detect *
make(const char *part, const char *more)
{
    static char text[ROOM];
    static const uint8_t seed[16] = {1};
    struct detect_file file = {.name = "bench.yaml", .text = text};
    struct detect *d = NULL;
    struct err e;
    size_t n = (size_t)snprintf(text, ROOM, "rules:\n");
    for (int i = 0; i < RULES; i++) {
        char own[160];
        number(part, i, own, sizeof own);
        n += (size_t)snprintf(text + n, ROOM - n,
                              "- {id: r%d, severity: info, message: m, match: {kinds: [exec], all: "
                              "[{%s}]}, aggregate: {threshold: 1000000000%s}}\n",
                              i, own, more);
    }
    file.n = n;
    if (detect_read(&file, 1, &detect_bounds_host, seed, &d, &e) < 0)
        bench_die("%s", e.text);
    return d;
}

static void
on_found(void *cookie, const struct detect_finding *f)
{
    (void)cookie;
    (void)f;
}

static void
compare_more(const char *part, const char *more, const char *path, const char *row, size_t rounds)
{
    struct samples s = {.row = row};
    struct detect *d = make(part, more);
    struct detect_event ev;
    Stockade__V1__Event m = STOCKADE__V1__EVENT__INIT;
    Stockade__V1__Execution x = STOCKADE__V1__EXECUTION__INIT;
    m.kind = STOCKADE__V1__EVENT_KIND__EVENT_KIND_EXEC;
    m.detail_case = STOCKADE__V1__EVENT__DETAIL_EXECUTION;
    m.execution = &x;
    m.sandbox_id = "0123456789abcdef0123456789abcdef";
    m.process_id = "fedcba9876543210fedcba9876543210";
    m.tenant = "uid:1000";
    m.template_ = "default";
    m.comm = "python3";
    x.path = path;
    x.arguments = "python3 -m pip install --no-cache-dir --upgrade pip setuptools wheel";
    x.cwd = "/home/agent/project";
    for (size_t i = 0; i < rounds; i++) {
        const double from = bench_now();
        for (uint64_t k = 0; k < EACH; k++) {
            detect_fill(&m, 1000000000 + (i * EACH + k) * 1000, &ev);
            detect_event(d, &ev, on_found, NULL);
        }
        samples_add(&s, (bench_now() - from) / EACH);
    }
    samples_print(&s, "rules", "");
    detect_free(d);
}

static void
compare(const char *part, const char *path, const char *row, size_t rounds)
{
    compare_more(part, "", path, row, rounds);
}

int
main(int argc, char **argv)
{
    const size_t rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 2000;
    struct err e;
    if (sodium_init() < 0 || validate_init(&e) < 0)
        bench_die("start: %s", e.text);
    compare("executable: {exact: [/usr/bin/tool#, /opt/tool#]}", "/usr/bin/python3",
            "200 rules, whole texts, none matches", rounds);
    compare("executable: {exact: [/usr/bin/tool#, /opt/tool#]}", "/usr/bin/tool7",
            "200 rules, whole texts, one matches", rounds);
    compare("executable: {prefix: [/usr/local/tool#, /opt/tool#]}", "/usr/bin/python3",
            "200 rules, beginnings, none matches", rounds);
    compare("arguments: {glob: [\"*curl*tool#*\", \"*wget*tool#*\"]}", "/usr/bin/python3",
            "200 rules, 2 patterns each, none matches", rounds);
    compare("executable: {prefix: [/usr/bin/p, /opt/#]}", "/usr/bin/python3",
            "200 rules, all match and count", rounds);
    compare("executable: {prefix: [/usr/bin/p, /opt/#]}, cwd: {prefix: [/home/a, /srv/#]}",
            "/usr/bin/python3", "200 rules of two fields, all match and count", rounds);
    compare_more("executable: {prefix: [/usr/bin/p, /opt/#]}", ", by: executable",
                 "/usr/bin/python3", "200 rules, all match and count by a field", rounds);
    return 0;
}
