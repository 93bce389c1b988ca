// SPDX-License-Identifier: Apache-2.0
// See sink.h.
#include "sink.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

void
sink_free(struct sink *k)
{
    free(k->streams[0].bytes);
    free(k->streams[1].bytes);
}

static bool
make_room(struct capture *c, size_t n)
{
    if (c->n + n <= c->max)
        return true;
    size_t max = c->max == 0 ? (size_t)64 * 1024 : c->max;
    while (max < c->n + n)
        max *= 2;
    char *grown = realloc(c->bytes, max);
    if (grown == NULL)
        return false;
    c->bytes = grown;
    c->max = max;
    return true;
}

static void
keep(struct capture *c, const void *bytes, size_t n)
{
    size_t room = SINK_CAPTURE_BYTES_MAX - c->n;
    size_t fits = n < room ? n : room;
    if (fits > 0 && make_room(c, fits)) {
        memcpy(c->bytes + c->n, bytes, fits);
        c->n += fits;
        n -= fits;
    }
    c->cut += n;
}

// Writes all bytes, whatever mode the descriptor has (another program may have made a terminal non-blocking).
static bool
write_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, p, n);
        if (done > 0) {
            p += done;
            n -= (size_t)done;
        } else if (done < 0 && errno == EAGAIN) {
            struct pollfd wait = {.fd = fd, .events = POLLOUT};
            (void)poll(&wait, 1, -1);
        } else if (done < 0 && errno != EINTR) {
            return false;
        }
    }
    return true;
}

bool
sink_is_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) > 0;
}

void
sink_lost(struct sink *k, int why)
{
    k->why = why;
    k->broken = true;
}

int
sink_output(struct sink *k, int stream, const void *bytes, size_t n)
{
    int fd = stream == STOCKADE_STDERR ? STDERR_FILENO : STDOUT_FILENO;
    if (k->capturing) {
        keep(&k->streams[fd == STDERR_FILENO], bytes, n);
    } else if (!write_all(fd, bytes, n)) {
        sink_lost(k, errno);
    }
    return k->broken ? 1 : 0;
}

int
sink_gap(struct sink *k, uint64_t n, bool limit)
{
    k->gap_bytes += n;
    k->limit |= limit;
    return 0;
}

int
sink_broken(const struct sink *k, const struct command *c, int otherwise)
{
    if (k->why == EPIPE)
        return EXIT_PIPE;
    if (k->why != 0)
        (void)fprintf(stderr, "stockade %s: cannot write the output: %s\n", c->name,
                      strerror(k->why));
    return otherwise;
}
