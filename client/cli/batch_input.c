// SPDX-License-Identifier: Apache-2.0
// See batch_input.h.
#include "batch_input.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { QUEUE_BYTES_MAX = 1024 * 1024, READ_BYTES = 64 * 1024 };

void
batch_fail(struct batch *b, const struct stockade_error *e)
{
    if (b->code == EXIT_OK)
        b->code = cli_fail(b->c, "", e);
}

static void
wrong_line(struct batch *b, const char *why)
{
    char text[BATCH_WHY_MAX + 64];
    (void)snprintf(text, sizeof text, "line %llu: %s", (unsigned long long)b->line_number, why);
    if (b->code == EXIT_OK)
        b->code = cli_usage(b->c, text, "'stockade batch --help' shows the form of a line");
}

static void
take_line(struct batch *b, const char *line, size_t n)
{
    char why[BATCH_WHY_MAX];
    b->line_number++;
    if (strspn(line, " \t\r") >= n)
        return; // empty
    struct queued *q = &b->queue[b->queue_n];
    q->bytes = n;
    q->arena = arena_new(BATCH_JOB_ARENA_MAX);
    if (q->arena == NULL || !batch_line_read(line, n, q->arena, &q->job, why)) {
        wrong_line(b, q->arena != NULL ? why : "out of memory");
        arena_free(q->arena);
        return;
    }
    b->queue_n++;
    b->queue_bytes += n;
}

static bool
has_room(const struct batch *b)
{
    return b->queue_n < BATCH_QUEUE_MAX && b->queue_bytes < QUEUE_BYTES_MAX;
}

void
batch_split(struct batch *b)
{
    size_t at = 0;
    while (b->code == EXIT_OK && has_room(b)) {
        const char *end = memchr(b->line + at, '\n', b->line_n - at);
        size_t n = end != NULL ? (size_t)(end - b->line) - at : b->line_n - at;
        if (end == NULL && (!b->eof || n == 0))
            break;
        b->line[at + n] = '\0';
        take_line(b, b->line + at, n);
        at += n + (end != NULL ? 1 : 0);
    }
    memmove(b->line, b->line + at, b->line_n - at);
    b->line_n -= at;
}

void
batch_read_more(struct batch *b)
{
    if (b->line_n + READ_BYTES > BATCH_LINE_MAX) {
        b->line_number++;
        wrong_line(b, "it is longer than 2 MiB");
        return;
    }
    ssize_t n = read(b->in, b->line + b->line_n, READ_BYTES);
    if (n < 0 && errno != EINTR && errno != EAGAIN) {
        struct stockade_error e = {.code = STOCKADE_INVALID_ARGUMENT};
        (void)snprintf(e.text, sizeof e.text, "cannot read the jobs: %s", strerror(errno));
        batch_fail(b, &e);
    }
    b->eof |= n == 0;
    b->line_n += n > 0 ? (size_t)n : 0;
}

bool
batch_wants_input(const struct batch *b)
{
    return !b->eof && has_room(b) && memchr(b->line, '\n', b->line_n) == NULL;
}

void
batch_drop_first(struct batch *b)
{
    arena_free(b->queue[0].arena);
    b->queue_bytes -= b->queue[0].bytes;
    memmove(b->queue, b->queue + 1, --b->queue_n * sizeof b->queue[0]);
    b->front++;
}

void
batch_drop_accepted(struct batch *b)
{
    while (b->queue_n > 0 && b->front < b->state.accepted)
        batch_drop_first(b);
}

void
batch_check_file(struct batch *b)
{
    struct stat st;
    if (fstat(b->in, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    const off_t from = lseek(b->in, 0, SEEK_CUR);
    while (b->code == EXIT_OK && !(b->eof && b->line_n == 0)) {
        if (batch_wants_input(b))
            batch_read_more(b);
        batch_split(b);
        while (b->queue_n > 0)
            batch_drop_first(b);
    }
    b->eof = false;
    b->line_number = b->front = 0;
    if (lseek(b->in, from, SEEK_SET) < 0 && b->code == EXIT_OK)
        wrong_line(b, strerror(errno));
}
