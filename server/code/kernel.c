// SPDX-License-Identifier: Apache-2.0
// See kernel.h.
#include "kernel.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/utf8.h"

enum { WORDS_MAX = 6, DIGITS_MAX = 18 };

struct word {
    const char *at;
    size_t n;
};

struct kind_row {
    const char *name;
    unsigned words; // of its line
};

static const struct kind_row kinds[KERNEL_KINDS_N] = {
    [KERNEL_READY] = {"ready", 4},   [KERNEL_STDOUT] = {"stdout", 3},
    [KERNEL_STDERR] = {"stderr", 3}, [KERNEL_RESULT] = {"result", 5},
    [KERNEL_ERROR] = {"error", 3},   [KERNEL_FAILED] = {"failed", 3},
    [KERNEL_DONE] = {"done", 5},
};

static const char *const statuses[] = {
    [CODE_OK] = "ok", [CODE_ERROR] = "error", [CODE_INTERRUPTED] = "interrupted"};

static bool
is(struct word w, const char *text)
{
    return strlen(text) == w.n && memcmp(w.at, text, w.n) == 0;
}

static int
wrong(struct err *e, const char *what)
{
    return err_set(e, ERR_INTERNAL, "the interpreter broke the protocol: %s", what);
}

// Splits a line at single spaces. Returns the number of words; 0: too many, or an empty one.
static unsigned
split(const char *line, size_t n, struct word out[WORDS_MAX])
{
    unsigned words = 0;
    size_t from = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && line[i] != ' ')
            continue;
        if (i == from || words == WORDS_MAX)
            return 0;
        out[words++] = (struct word){line + from, i - from};
        from = i + 1;
    }
    return words;
}

static bool
number(struct word w, uint64_t most, uint64_t *out)
{
    uint64_t v = 0;
    if (w.n > DIGITS_MAX)
        return false;
    for (size_t i = 0; i < w.n; i++) {
        if (w.at[i] < '0' || w.at[i] > '9')
            return false;
        v = v * 10 + (uint64_t)(w.at[i] - '0');
    }
    *out = v;
    return v <= most;
}

static bool
read_mime(struct word w, struct kernel_frame *f)
{
    if (w.n > KERNEL_MIME_MAX || memchr(w.at, '/', w.n) == NULL)
        return false;
    for (size_t i = 0; i < w.n; i++)
        if (w.at[i] < '!' || w.at[i] > '~')
            return false;
    memcpy(f->mime, w.at, w.n);
    f->mime[w.n] = '\0';
    return true;
}

static bool
read_flags(struct word w, struct kernel_frame *f)
{
    f->main = w.at[0] == 'm';
    if (!f->main && w.at[0] != 'd')
        return false;
    for (size_t i = 1; i < w.n; i++) {
        bool *flag = w.at[i] == '+' ? &f->more : w.at[i] == '.' ? &f->last : NULL;
        if (flag == NULL || *flag)
            return false;
        *flag = true;
    }
    return !(f->more && f->last);
}

static bool
read_status(struct word w, struct kernel_frame *f)
{
    for (unsigned i = CODE_OK; i <= CODE_INTERRUPTED; i++)
        if (is(w, statuses[i]))
            f->status = (enum code_status)i;
    return f->status != CODE_NONE;
}

// What comes after the three words that all lines have.
static bool
read_rest(const struct word *w, struct kernel_frame *f)
{
    uint64_t v = 0;
    switch (f->kind) {
    case KERNEL_READY:
        return number(w[3], KERNEL_VERSION, &v) && v == KERNEL_VERSION && f->n == 0;
    case KERNEL_RESULT:
        return read_flags(w[3], f) && read_mime(w[4], f);
    case KERNEL_DONE:
        if (!number(w[3], UINT32_MAX, &v) || f->n != 0)
            return false;
        f->count = (uint32_t)v;
        return read_status(w[4], f);
    case KERNEL_STDOUT:
    case KERNEL_STDERR:
        return f->n > 0;
    case KERNEL_ERROR:
    case KERNEL_FAILED:
        return true;
    case KERNEL_KINDS_N:
        break;
    }
    return false;
}

static int
read_head(const char *line, size_t n, struct kernel_frame *f, struct err *e)
{
    struct word w[WORDS_MAX];
    uint64_t size = 0;
    unsigned words = split(line, n, w), k = 0;
    while (words > 0 && k < KERNEL_KINDS_N && !is(w[0], kinds[k].name))
        k++;
    if (words == 0 || k == KERNEL_KINDS_N || words != kinds[k].words)
        return wrong(e, "a line that is not one of a frame");
    f->kind = (enum kernel_kind)k;
    if (!number(w[1], UINT64_MAX, &f->run) || !number(w[2], KERNEL_PAYLOAD_MAX, &size))
        return wrong(e, "a number is wrong or too large");
    f->n = (size_t)size;
    return read_rest(w, f) ? 0 : wrong(e, "a frame with wrong words");
}

int
kernel_frame_read(const uint8_t *bytes, size_t n, struct kernel_frame *out, struct err *e)
{
    struct kernel_frame f = {0};
    size_t look = n < KERNEL_HEAD_MAX ? n : KERNEL_HEAD_MAX;
    const uint8_t *end = look > 0 ? memchr(bytes, '\n', look) : NULL;
    if (end == NULL)
        return look == KERNEL_HEAD_MAX ? wrong(e, "a line without end") : 0;
    size_t head = (size_t)(end - bytes);
    int r = read_head((const char *)bytes, head, &f, e);
    if (r < 0)
        return r;
    if (n - head - 1 < f.n)
        return 0;
    f.payload = end + 1;
    *out = f;
    return (int)(head + 1 + f.n);
}

// Copies text up to a NUL or the end, and returns what follows the NUL.
static const uint8_t *
take_text(const uint8_t *from, const uint8_t *end, size_t most, char **out)
{
    char *to = *out;
    const char *limit = to + most;
    while (from < end && *from != '\0') {
        uint32_t code;
        size_t n = utf8_decode(from, (size_t)(end - from), &code);
        size_t wants = n != 0 ? n : strlen(UTF8_REPLACEMENT);
        if (to + wants <= limit) {
            memcpy(to, n != 0 ? (const char *)from : UTF8_REPLACEMENT, wants);
            to += wants;
        } else {
            limit = to; // what follows is cut
        }
        from += n != 0 ? n : 1;
    }
    *to++ = '\0';
    *out = to;
    return from < end ? from + 1 : from;
}

void
kernel_error_read(const uint8_t *payload, size_t n, char *out, struct kernel_error *e)
{
    const uint8_t *end = payload + n;
    e->name = out;
    payload = take_text(payload, end, KERNEL_ERROR_NAME_MAX, &out);
    e->value = out;
    payload = take_text(payload, end, KERNEL_ERROR_VALUE_MAX, &out);
    e->traceback = out;
    (void)take_text(payload, end, KERNEL_PAYLOAD_MAX, &out);
}

size_t
kernel_head(char out[KERNEL_HEAD_MAX], const char *kind, uint64_t run, size_t n)
{
    return (size_t)snprintf(out, KERNEL_HEAD_MAX, "%s %" PRIu64 " %zu\n", kind, run, n);
}
