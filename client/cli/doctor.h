// SPDX-License-Identifier: Apache-2.0
// The checks of `stockade doctor`: one row each, in the order of the output.
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct options;

// NOTE: good to know, but nothing that can be fixed on this host.
enum verdict { VERDICT_OK, VERDICT_NOTE, VERDICT_WARN, VERDICT_BAD, VERDICT_UNKNOWN, VERDICTS };

// What a check found, and how to fix it.
struct finding {
    enum verdict verdict;
    char found[512];
    char fix[512]; // what to do; "": nothing
};

struct check {
    const char *name;
    void (*look)(struct finding *f);
};

// All checks, terminated by {0} (probe.c, probe_host.c).
extern const struct check checks_kernel[];
extern const struct check checks_host[];

// Fills a finding.
void finding_set(struct finding *f, enum verdict v, const char *fix, const char *found, ...)
    __attribute__((format(printf, 4, 5)));

// Reads the first line of a file, without its end; false: it cannot be read.
bool probe_read_line(const char *path, char *out, size_t n);
