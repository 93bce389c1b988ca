// SPDX-License-Identifier: Apache-2.0
// Tables and texts for a terminal. Data of other tenants or of the broker cannot move the cursor: control characters
// are replaced by '?'.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

// Copies text without control characters (C0, DEL, C1), truncated to n - 1 bytes but never within a character. Returns
// out.
char *text_clean(const char *text, char *out, size_t n);

// The same on one line: line breaks and tabs become blanks. Returns out.
char *text_flat(const char *lines, char *out, size_t n);

// The begin of a character whose rest is still to come.
struct text_stream {
    char begun[4];
    size_t n;
};

// Writes the next bytes of a program to a terminal, which it cannot control: of the control characters only line breaks, carriage
// returns and tabs are written; others become '?'.
void text_put(struct text_stream *t, FILE *to, const void *bytes, size_t n);

// Width of the text on a terminal: its characters, two for wide ones.
size_t text_width(const char *text);

enum { TABLE_COLUMNS_MAX = 10 };

struct table;

// Creates a table with a head; cells are copied and cleaned. Free it with table_free(). NULL: out of memory.
struct table *table_new(const char *const *head, size_t columns);
void table_free(struct table *t);

// Adds a row of `columns` cells; false: out of memory.
bool table_row(struct table *t, const char *const *cells);

// Aligns the cells of this column to the right.
void table_align_right(struct table *t, size_t column);

// Prints the table, with two blanks between columns and no blanks after the last.
void table_print(const struct table *t, FILE *to);

// Prints a text in lines of at most `width` columns, starting at column `from`; the cursor is at `at`. Ends the line.
void text_wrap(FILE *to, const char *text, int at, int from, int width);
