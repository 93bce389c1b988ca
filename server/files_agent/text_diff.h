// SPDX-License-Identifier: Apache-2.0
// The difference of two texts by lines: Myers' algorithm in linear space ("An O(ND) Difference Algorithm and Its Variations",
// 1986), and a unified diff of it. Texts that differ much are not compared to the end: a part whose shortest script would have
// more than TEXT_DIFF_COST_MAX steps counts as replaced. So the time is bounded, and the result is right, if not the shortest.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

enum { TEXT_LINES_MAX = 200 * 1000, TEXT_DIFF_COST_MAX = 2000, TEXT_DIFF_CONTEXT = 3 };

struct text_line {
    const char *at; // borrowed
    size_t n;       // with its '\n', if it has one
    uint32_t hash;
    bool differs; // text_diff: it is in no line of the other text
};

struct text {
    struct text_line *line; // owned
    size_t n;
};

// Cuts a text into lines. RESOURCE_EXHAUSTED (TEXT_TOO_LARGE): it has more than TEXT_LINES_MAX.
int text_lines(const char *bytes, size_t n, struct text *out, struct err *e);
void text_free(struct text *t);

// Marks the lines that differ.
int text_diff(struct text *from, struct text *to, struct err *e);

// Writes the hunks, with what `put` does. Stops at its first failure.
int text_hunks(const struct text *from, const struct text *to,
               int (*put)(void *cookie, const char *bytes, size_t n, struct err *e), void *cookie,
               struct err *e);
