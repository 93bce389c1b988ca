// SPDX-License-Identifier: Apache-2.0
// The figures of a bill as rows, and the bill as text.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "client/stockade.h"

struct command; // the command with the options for limits

struct bill_row {
    const char *name; // name in limits.proto
    size_t offset;    // offset in struct stockade_bill
};

// Every figure, terminated by {0}.
extern const struct bill_row bill_rows[];

static inline const struct stockade_figure *
bill_figure(const struct stockade_bill *b, const struct bill_row *row)
{
    return (const struct stockade_figure *)(const void *)((const char *)b + row->offset);
}

// Prints the bill, aligned, one subject per line. A job of run had its sandbox for itself.
// sandbox: of exec, as it was typed; otherwise NULL.
void bill_print(const struct command *c, const char *sandbox, const struct stockade_result *r,
                FILE *to);

// One sentence on how the job ended, if its exit code alone does not show it; or "". Returns out.
char *bill_sentence(const struct command *c, const struct stockade_result *r, char *out, size_t n);

// "it reached the limit disk of 1.0 MiB (--disk raises it)": limits that made part of the job fail without ending it;
// or "". Returns out.
char *bill_limits_met(const struct command *c, const struct stockade_result *r, char *out,
                      size_t n);

// The name of a limit's option, such as "timeout" for wall_ms, or its own name if it has none. Returns out.
char *bill_limit_name(const char *limit, char *out, size_t n);

// The value of a limit as text: "256.0 MiB" for memory_bytes, "5.00 s" for wall_ms, "64" for pids. Returns out.
char *bill_show_limit(const char *name, uint64_t value, char *out, size_t n);
