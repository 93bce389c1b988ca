// SPDX-License-Identifier: Apache-2.0
// See accept.h.
#include "accept.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

enum { WEIGHT_ONE = 1000 };

// One range of the header, such as "text/plain; version=0.0.4; q=0.5".
struct range {
    const char *text;
    size_t n;
};

static struct range
trimmed(const char *text, size_t n)
{
    while (n > 0 && (text[0] == ' ' || text[0] == '\t')) {
        text++;
        n--;
    }
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        n--;
    return (struct range){text, n};
}

// The next part of *from up to the separator. False: none is left.
static bool
next_part(struct range *from, char separator, struct range *out)
{
    if (from->text == NULL)
        return false;
    const char *end = memchr(from->text, separator, from->n);
    size_t n = end != NULL ? (size_t)(end - from->text) : from->n;
    *out = trimmed(from->text, n);
    *from = end != NULL ? (struct range){end + 1, from->n - n - 1} : (struct range){NULL, 0};
    return true;
}

static bool
is(struct range r, const char *text)
{
    return r.n == strlen(text) && strncasecmp(r.text, text, r.n) == 0;
}

static bool
begins(struct range *r, const char *text)
{
    size_t n = strlen(text);
    if (r->n < n || strncasecmp(r->text, text, n) != 0)
        return false;
    *r = (struct range){r->text + n, r->n - n};
    return true;
}

// "0.5" in thousandths; -1: no weight.
static int
weight(struct range r)
{
    int value = 0, digits = 0;
    if (r.n == 0 || (r.text[0] != '0' && r.text[0] != '1') || (r.n > 1 && r.text[1] != '.'))
        return -1;
    value = (r.text[0] - '0') * WEIGHT_ONE;
    for (size_t i = 2, of = WEIGHT_ONE / 10; i < r.n; i++, of /= 10) {
        if (r.text[i] < '0' || r.text[i] > '9' || ++digits > 3)
            return -1;
        value += (r.text[i] - '0') * (int)of;
    }
    return value <= WEIGHT_ONE ? value : -1;
}

// The weight of a range, if it stands for the type; otherwise, or if it is malformed or of another version, -1.
static int
weight_of(struct range range, const char *type, const char *version)
{
    struct range part;
    int value = WEIGHT_ONE;
    if (!next_part(&range, ';', &part) || !is(part, type))
        return -1;
    while (value >= 0 && next_part(&range, ';', &part)) {
        if (begins(&part, "q="))
            value = weight(part);
        else if (begins(&part, "version=") && !is(part, version))
            value = -1;
    }
    return value;
}

enum exposition
accept_form(const char *header)
{
    struct range all = {header, strlen(header)}, range;
    int open = 0, plain = 0;
    while (next_part(&all, ',', &range)) {
        int of_open = weight_of(range, "application/openmetrics-text", "1.0.0");
        int of_plain = weight_of(range, "text/plain", "0.0.4");
        open = of_open > open ? of_open : open;
        plain = of_plain > plain ? of_plain : plain;
    }
    return open > 0 && open >= plain ? EXPOSITION_OPENMETRICS : EXPOSITION_TEXT;
}
