// SPDX-License-Identifier: Apache-2.0
// The figures of a bill as rows, and the bill as people read it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "stockade.h"

struct command; // whose options help against a limit

struct bill_row {
    const char *name; // as limits.proto has it
    size_t offset;    // in struct stockade_bill
};

// Every figure, ended by {0}.
extern const struct bill_row bill_rows[];

static inline const struct stockade_figure *
bill_figure(const struct stockade_bill *b, const struct bill_row *row)
{
    return (const struct stockade_figure *)(const void *)((const char *)b + row->offset);
}

// The bill, aligned, one subject per line. That of run had its sandbox for itself.
void bill_print(const struct command *c, const struct stockade_result *r, FILE *to);

// One sentence on how the job ended, where its exit code alone does not say it; or "". Returns out.
char *bill_sentence(const struct command *c, const struct stockade_result *r, char *out, size_t n);

// "it reached the limit disk of 1.0 MiB (--disk raises it)": limits that made something in the job fail without ending it;
// "" when there is none. Returns out.
char *bill_limits_met(const struct command *c, const struct stockade_result *r, char *out,
                      size_t n);

// "timeout" for wall_ms: the name of the option, or its own where there is none. Returns out.
char *bill_limit_name(const char *limit, char *out, size_t n);

// "256.0 MiB" for memory_bytes, "5.00 s" for wall_ms, "64" for pids. Returns out.
char *bill_show_limit(const char *name, uint64_t value, char *out, size_t n);
