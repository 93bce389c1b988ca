// SPDX-License-Identifier: Apache-2.0
// What `stockade doctor` looks at: one row per check, in the order in which they are shown.
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
    char mend[512]; // "" where nothing is to be done
};

struct check {
    const char *name;
    void (*look)(struct finding *f);
};

// All of them, ended by {0} (cli_probe.c, cli_probe_host.c).
extern const struct check checks_kernel[];
extern const struct check checks_host[];

// Fills a finding.
void finding_set(struct finding *f, enum verdict v, const char *mend, const char *found, ...)
    __attribute__((format(printf, 4, 5)));

// The first line of a file, without its end; false when it cannot be read.
bool probe_read_line(const char *path, char *out, size_t n);
