// SPDX-License-Identifier: Apache-2.0
// See text.h.
#include "text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/utf8.h"

enum { CELL_MAX = 512 };

// Length of the character at p and its code point; 1 and U+FFFD for an invalid one.
static size_t
decode(const char *p, uint32_t *code)
{
    size_t n = utf8_decode(p, UTF8_MAX, code);
    if (n > 0)
        return n;
    *code = 0xfffd;
    return 1;
}

// Characters that control a terminal, or reverse the line.
static bool
is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x202a && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069) || code == 0x200e || code == 0x200f || code == 0xfffd;
}

char *
text_clean(const char *text, char *out, size_t n)
{
    size_t at = 0;
    while (*text != '\0') {
        uint32_t code = 0;
        size_t length = decode(text, &code);
        bool bad = is_control(code);
        size_t need = bad ? 1 : length;
        if (at + need + 1 > n)
            break;
        memcpy(out + at, bad ? "?" : text, need);
        at += need;
        text += length;
    }
    out[at] = '\0';
    return out;
}

char *
text_flat(const char *lines, char *out, size_t n)
{
    size_t at = 0;
    for (; lines[at] != '\0' && at + 1 < n; at++) {
        out[at] = lines[at];
        if (strchr("\n\r\t", lines[at]) != NULL)
            out[at] = ' ';
    }
    out[utf8_cut(lines, at)] = '\0';
    return out;
}

// How many bytes the character at p has, whose first byte says so; those that are there may be fewer.
static size_t
length_of(unsigned char first)
{
    return first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

static void
put_character(FILE *to, const char *p, size_t n)
{
    uint32_t code = 0;
    const bool good = utf8_decode(p, n, &code) == n;
    const bool moves_on = n == 1 && (*p == '\n' || *p == '\r' || *p == '\t');
    if (moves_on || (good && !is_control(code)))
        (void)fwrite(p, 1, n, to);
    else
        (void)fputc('?', to);
}

void
text_put(struct text_stream *t, FILE *to, const void *bytes, size_t n)
{
    const char *p = bytes;
    for (const char *end = p + n; p < end; p++) {
        const bool goes_on = ((unsigned char)*p & 0xc0) == 0x80;
        if (t->n > 0 && !goes_on) { // the character is cut off
            (void)fputc('?', to);
            t->n = 0;
        }
        t->begun[t->n++] = *p;
        if (t->n == length_of((unsigned char)t->begun[0])) {
            put_character(to, t->begun, t->n);
            t->n = 0;
        }
    }
}

size_t
text_width(const char *text)
{
    size_t width = 0;
    while (*text != '\0') {
        uint32_t code = 0;
        text += decode(text, &code);
        bool wide = (code >= 0x1100 && code <= 0x115f) || (code >= 0x2e80 && code <= 0xa4cf) ||
                    (code >= 0xac00 && code <= 0xd7a3) || (code >= 0xf900 && code <= 0xfaff) ||
                    (code >= 0xfe30 && code <= 0xfe6f) || (code >= 0xff00 && code <= 0xff60) ||
                    (code >= 0x1f300 && code <= 0x1faff) || (code >= 0x20000 && code <= 0x3fffd);
        bool joins = (code >= 0x0300 && code <= 0x036f) || code == 0x200d || code == 0xfe0f;
        width += joins ? 0 : wide ? 2 : 1;
    }
    return width;
}

struct table {
    size_t columns, rows, rows_max;
    char **cells; // rows * columns
    size_t width[TABLE_COLUMNS_MAX];
    bool right[TABLE_COLUMNS_MAX];
};

struct table *
table_new(const char *const *head, size_t columns)
{
    struct table *t = calloc(1, sizeof *t);
    if (t == NULL || columns > TABLE_COLUMNS_MAX) {
        free(t);
        return NULL;
    }
    t->columns = columns;
    if (!table_row(t, head)) {
        table_free(t);
        return NULL;
    }
    return t;
}

void
table_free(struct table *t)
{
    if (t == NULL)
        return;
    for (size_t i = 0; i < t->rows * t->columns; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t);
}

static bool
make_room(struct table *t)
{
    if (t->rows < t->rows_max)
        return true;
    size_t rows = t->rows_max == 0 ? 16 : t->rows_max * 2;
    char **grown = reallocarray(t->cells, rows * t->columns, sizeof *grown);
    if (grown == NULL)
        return false;
    t->cells = grown;
    t->rows_max = rows;
    return true;
}

bool
table_row(struct table *t, const char *const *cells)
{
    if (!make_room(t))
        return false;
    char **row = t->cells + t->rows * t->columns;
    for (size_t i = 0; i < t->columns; i++) {
        char clean[CELL_MAX];
        row[i] = strdup(text_clean(cells[i], clean, sizeof clean));
        if (row[i] == NULL) {
            while (i > 0)
                free(row[--i]);
            return false;
        }
        size_t width = text_width(row[i]);
        if (width > t->width[i])
            t->width[i] = width;
    }
    t->rows++;
    return true;
}

void
table_align_right(struct table *t, size_t column)
{
    if (column < t->columns)
        t->right[column] = true;
}

void
table_print(const struct table *t, FILE *to)
{
    for (size_t r = 0; r < t->rows; r++) {
        for (size_t c = 0; c < t->columns; c++) {
            const char *cell = t->cells[r * t->columns + c];
            int pad = (int)(t->width[c] - text_width(cell));
            bool last = c + 1 == t->columns;
            (void)fprintf(to, "%*s%s", t->right[c] ? pad : 0, "", cell);
            if (!last)
                (void)fprintf(to, "%*s", (t->right[c] ? 0 : pad) + 2, "");
        }
        (void)fputc('\n', to);
    }
}

void
text_wrap(FILE *to, const char *text, int at, int from, int width)
{
    while (*text != '\0') {
        if (*text == '\n') {
            (void)fputc('\n', to);
            text++;
            at = 0;
            continue;
        }
        int n = (int)strcspn(text, " \n");
        if (at < from) {
            (void)fprintf(to, "%*s", from - at, "");
            at = from;
        }
        (void)fprintf(to, "%.*s", n, text);
        at += n;
        text += n;
        if (*text != ' ')
            continue;
        text++;
        if (at + 1 + (int)strcspn(text, " \n") <= width) {
            (void)fputc(' ', to);
            at++;
        } else {
            (void)fputc('\n', to);
            at = 0;
        }
    }
    (void)fputc('\n', to);
}
