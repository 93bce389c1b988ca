// SPDX-License-Identifier: Apache-2.0
// See lines.h.
#include "lines.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "position.h"

enum { NAME_BYTES = LINES_PATH_MAX + 16 };

int
lines_open(struct lines *l, struct err *e)
{
    struct stat st;
    l->fd = -1;
    int fd = position_open_file(l->path, O_WRONLY | O_APPEND, e);
    if (fd < 0)
        return fd;
    l->fd = fd;
    l->size = fstat(l->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    return 0;
}

void
lines_close(struct lines *l)
{
    int auto_close fd = take_fd(&l->fd);
    (void)fd;
}

// PATH.1 becomes PATH.2 and so on; PATH becomes PATH.1, and a new file begins.
static int
rotate(struct lines *l)
{
    char from[NAME_BYTES], to[NAME_BYTES];
    struct err e;
    for (uint32_t i = l->keep; i > 0; i--) {
        (void)snprintf(to, sizeof to, "%s.%" PRIu32, l->path, i);
        (void)snprintf(from, sizeof from, i > 1 ? "%s.%" PRIu32 : "%s", l->path, i - 1);
        if (rename(from, to) < 0 && errno != ENOENT)
            return -errno;
    }
    if (l->keep == 0 && unlink(l->path) < 0 && errno != ENOENT)
        return -errno;
    int fd = position_open_file(l->path, O_WRONLY | O_APPEND, &e);
    if (fd < 0)
        return fd;
    (void)close(l->fd);
    l->fd = fd;
    l->size = 0;
    return 0;
}

// Removes half a line. One that could not be removed is removed before the next line.
static int
remove_torn(struct lines *l)
{
    l->torn = l->torn && ftruncate(l->fd, (off_t)l->size) < 0;
    return l->torn ? -errno : 0;
}

int
lines_write(struct lines *l, const char *line)
{
    const size_t n = strlen(line);
    int r = remove_torn(l);
    if (r == 0 && l->size > 0 && l->size + n > l->size_max)
        r = rotate(l);
    ssize_t put = r == 0 ? write(l->fd, line, n) : -1;
    if (put == (ssize_t)n) {
        l->size += n;
        l->written++;
        return 0;
    }
    r = r < 0 ? r : put < 0 ? -errno : -ENOSPC;
    l->torn = l->torn || put > 0;
    (void)remove_torn(l);
    l->failed++;
    return r;
}
