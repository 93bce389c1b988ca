// SPDX-License-Identifier: Apache-2.0
// See text_diff.h.
#include "text_diff.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- lines

static uint32_t
hash_of(const char *at, size_t n)
{
    uint32_t h = 0x811c9dc5;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)at[i]) * 0x01000193;
    return h;
}

static size_t
count(const char *bytes, size_t n)
{
    size_t lines = n > 0 && bytes[n - 1] != '\n';
    const char *end = bytes + n;
    for (const char *at = bytes; at < end && (at = memchr(at, '\n', (size_t)(end - at))) != NULL;
         at++)
        lines++;
    return lines;
}

int
text_lines(const char *bytes, size_t n, struct text *out, struct err *e)
{
    size_t lines = count(bytes, n);
    if (lines > TEXT_LINES_MAX) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "a text of more than %d lines", TEXT_LINES_MAX);
        err_detail(e, "TEXT_TOO_LARGE", "path",
                   "read the file in both states, and compare it there");
        return r;
    }
    *out = (struct text){.line = calloc(lines + 1, sizeof *out->line), .n = lines};
    if (out->line == NULL)
        return err_sys(e, ENOMEM, "compare texts");
    const char *end = bytes + n;
    for (size_t i = 0; i < lines; i++) {
        const char *stop = memchr(bytes, '\n', (size_t)(end - bytes));
        size_t length = stop != NULL ? (size_t)(stop - bytes) + 1 : (size_t)(end - bytes);
        out->line[i] = (struct text_line){.at = bytes, .n = length, .hash = hash_of(bytes, length)};
        bytes += length;
    }
    return 0;
}

void
text_free(struct text *t)
{
    free(t->line);
    *t = (struct text){0};
}

static bool
same(const struct text_line *a, const struct text_line *b)
{
    return a->hash == b->hash && a->n == b->n && memcmp(a->at, b->at, a->n) == 0;
}

// ---- the shortest script

// A part of both texts.
struct box {
    long a, a_end, b, b_end;
};

// The furthest points on each diagonal, from the front and from the back; index 0 is diagonal -TEXT_DIFF_COST_MAX - 1.
struct reach {
    struct text_line *a, *b;
    long *front, *back;
};

enum { DIAGONALS = 2 * TEXT_DIFF_COST_MAX + 3, MIDDLE = TEXT_DIFF_COST_MAX + 1 };

static bool
is_inside(const struct box *x, long i, long j)
{
    return i <= x->a_end - x->a && j >= 0 && j <= x->b_end - x->b;
}

// Whether the way from the other end came as far as i on its diagonal c.
static bool
meets(const struct box *x, const long *other, long c, long i)
{
    long met = other[MIDDLE + c];
    return is_inside(x, met, met - c) && i + met >= x->a_end - x->a;
}

// One more step on all diagonals from the front. True: it met the way from the back, at *at.
static bool
step_front(struct reach *r, const struct box *x, long d, struct box *at)
{
    const long width = x->a_end - x->a, height = x->b_end - x->b, delta = width - height;
    for (long k = -d; k <= d; k += 2) {
        long *v = r->front + MIDDLE;
        long i = k == -d || (k != d && v[k - 1] < v[k + 1]) ? v[k + 1] : v[k - 1] + 1;
        long j = i - k;
        if (!is_inside(x, i, j)) {
            v[k] = i; // it leads nowhere
            continue;
        }
        while (i < width && j < height && same(&r->a[x->a + i], &r->b[x->b + j]))
            i++, j++;
        v[k] = i;
        long c = delta - k; // the same diagonal, seen from the back
        if ((delta & 1) != 0 && c >= -(d - 1) && c <= d - 1 && meets(x, r->back, c, i)) {
            *at = (struct box){.a = x->a + i, .b = x->b + j};
            return true;
        }
    }
    return false;
}

static bool
step_back(struct reach *r, const struct box *x, long d, struct box *at)
{
    const long width = x->a_end - x->a, height = x->b_end - x->b, delta = width - height;
    for (long k = -d; k <= d; k += 2) {
        long *v = r->back + MIDDLE;
        long i = k == -d || (k != d && v[k - 1] < v[k + 1]) ? v[k + 1] : v[k - 1] + 1;
        long j = i - k;
        if (!is_inside(x, i, j)) {
            v[k] = i;
            continue;
        }
        while (i < width && j < height && same(&r->a[x->a_end - 1 - i], &r->b[x->b_end - 1 - j]))
            i++, j++;
        v[k] = i;
        long c = delta - k;
        if ((delta & 1) == 0 && c >= -d && c <= d && meets(x, r->front, c, i)) {
            *at = (struct box){.a = x->a_end - i, .b = x->b_end - j};
            return true;
        }
    }
    return false;
}

// A point on a shortest way through the box. False: it is too long.
static bool
find_middle(struct reach *r, const struct box *x, struct box *at)
{
    r->front[MIDDLE + 1] = r->back[MIDDLE + 1] = 0;
    for (long d = 0; d <= TEXT_DIFF_COST_MAX; d++)
        if (step_front(r, x, d, at) || step_back(r, x, d, at))
            return true;
    return false;
}

static void
mark(struct text_line *line, long from, long to)
{
    for (long i = from; i < to; i++)
        line[i].differs = true;
}

// The depth is logarithmic: each half has half of the steps.
static void
compare(struct reach *r, struct box x)
{
    struct box at;
    while (x.a < x.a_end && x.b < x.b_end && same(&r->a[x.a], &r->b[x.b]))
        x.a++, x.b++;
    while (x.a < x.a_end && x.b < x.b_end && same(&r->a[x.a_end - 1], &r->b[x.b_end - 1]))
        x.a_end--, x.b_end--;
    bool found = x.a < x.a_end && x.b < x.b_end && find_middle(r, &x, &at);
    bool divides = found && ((at.a > x.a || at.b > x.b) && (at.a < x.a_end || at.b < x.b_end));
    if (!divides) {
        mark(r->a, x.a, x.a_end);
        mark(r->b, x.b, x.b_end);
        return;
    }
    compare(r, (struct box){x.a, at.a, x.b, at.b});
    compare(r, (struct box){at.a, x.a_end, at.b, x.b_end});
}

int
text_diff(struct text *from, struct text *to, struct err *e)
{
    struct reach r = {.a = from->line, .b = to->line};
    r.front = calloc(2 * (size_t)DIAGONALS, sizeof *r.front);
    if (r.front == NULL)
        return err_sys(e, ENOMEM, "compare texts");
    r.back = r.front + DIAGONALS;
    compare(&r, (struct box){0, (long)from->n, 0, (long)to->n});
    free(r.front);
    return 0;
}

// ---- hunks

struct hunks {
    const struct text *from, *to;
    int (*put)(void *cookie, const char *bytes, size_t n, struct err *e);
    void *cookie;
};

static int
put_line(const struct hunks *h, char sign, const struct text_line *l, struct err *e)
{
    static const char none[] = "\n\\ No newline at end of file\n";
    int r = h->put(h->cookie, &sign, 1, e);
    if (r == 0)
        r = h->put(h->cookie, l->at, l->n, e);
    return r == 0 && l->at[l->n - 1] != '\n' ? h->put(h->cookie, none, sizeof none - 1, e) : r;
}

// "@@ -FIRST,COUNT +FIRST,COUNT @@"; an empty side names the line before it.
static int
put_head(const struct hunks *h, const struct box *x, struct err *e)
{
    char text[96];
    long a = x->a_end - x->a, b = x->b_end - x->b;
    int n = snprintf(text, sizeof text, "@@ -%ld,%ld +%ld,%ld @@\n", x->a + (a > 0), a,
                     x->b + (b > 0), b);
    return h->put(h->cookie, text, (size_t)n, e);
}

static int
put_hunk(const struct hunks *h, struct box x, struct err *e)
{
    const struct text_line *a = h->from->line, *b = h->to->line;
    int r = put_head(h, &x, e);
    while (r == 0 && (x.a < x.a_end || x.b < x.b_end)) {
        if (x.a < x.a_end && a[x.a].differs) {
            r = put_line(h, '-', &a[x.a++], e);
        } else if (x.b < x.b_end && b[x.b].differs) {
            r = put_line(h, '+', &b[x.b++], e);
        } else {
            r = put_line(h, ' ', &a[x.a++], e);
            x.b++;
        }
    }
    return r;
}

// The next place where they differ, from x->a and x->b on, with its end. False: there is none.
static bool
next_change(const struct hunks *h, long a, long b, struct box *x)
{
    const long n = (long)h->from->n, m = (long)h->to->n;
    while (a < n && b < m && !h->from->line[a].differs && !h->to->line[b].differs)
        a++, b++;
    *x = (struct box){a, a, b, b};
    while (x->a_end < n && h->from->line[x->a_end].differs)
        x->a_end++;
    while (x->b_end < m && h->to->line[x->b_end].differs)
        x->b_end++;
    return x->a < x->a_end || x->b < x->b_end;
}

int
text_hunks(const struct text *from, const struct text *to,
           int (*put)(void *cookie, const char *bytes, size_t n, struct err *e), void *cookie,
           struct err *e)
{
    const struct hunks h = {from, to, put, cookie};
    struct box x, more;
    int r = 0;
    bool any = next_change(&h, 0, 0, &x);
    while (any && r == 0) {
        bool follows = false;
        while ((follows = next_change(&h, x.a_end, x.b_end, &more)) &&
               more.a - x.a_end <= 2L * TEXT_DIFF_CONTEXT) {
            x.a_end = more.a_end;
            x.b_end = more.b_end;
        }
        long before = x.a < TEXT_DIFF_CONTEXT ? x.a : TEXT_DIFF_CONTEXT;
        long after = (long)from->n - x.a_end;
        after = after < TEXT_DIFF_CONTEXT ? after : TEXT_DIFF_CONTEXT;
        r = put_hunk(&h, (struct box){x.a - before, x.a_end + after, x.b - before, x.b_end + after},
                     e);
        x = more;
        any = follows;
    }
    return r;
}
