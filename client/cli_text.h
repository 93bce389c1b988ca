// SPDX-License-Identifier: Apache-2.0
// Tables and texts for a terminal. What other tenants named, or a broker sent, cannot move the cursor: control
// characters are shown as '?'.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

// Copies text without control characters (C0, DEL, C1); cut at n - 1 bytes, never within a character. Returns out.
char *text_clean(const char *text, char *out, size_t n);

// The same text on one line: line breaks and tabs are blanks. Cut like that. Returns out.
char *text_flat(const char *lines, char *out, size_t n);

// Columns that the text takes on a terminal: its characters, two for the wide ones.
size_t text_width(const char *text);

enum { TABLE_COLUMNS_MAX = 10 };

struct table;

// An empty table with a head; cells are copied and cleaned. Owned: table_free(). NULL without memory.
struct table *table_new(const char *const *head, size_t columns);
void table_free(struct table *t);

// One row of `columns` cells; false without memory.
bool table_row(struct table *t, const char *const *cells);

// The cells of this column end below each other.
void table_align_right(struct table *t, size_t column);

// Prints it, two blanks between the columns. The last one is not padded behind.
void table_print(const struct table *t, FILE *to);

// Prints a text in lines of at most `width` columns that begin at column `from`; the cursor is at `at`. Ends the line.
void text_wrap(FILE *to, const char *text, int at, int from, int width);
