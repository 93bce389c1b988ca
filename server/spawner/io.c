// SPDX-License-Identifier: Apache-2.0
// See io.h.
#include "io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/now.h"
#include "proto/auto.h"

int
io_write_at(int dir_fd, const char *path, const char *text, struct err *e)
{
    int auto_close fd = openat(dir_fd, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_sys(e, errno, "open %s", path);
    size_t n = strlen(text);
    ssize_t written = write(fd, text, n);
    if (written < 0)
        return err_sys(e, errno, "write \"%s\" to %s", text, path);
    if ((size_t)written != n)
        return err_sys(e, EIO, "write \"%s\" to %s: cut short", text, path);
    return 0;
}

int
io_write_u64_at(int dir_fd, const char *path, uint64_t n, struct err *e)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, n);
    return io_write_at(dir_fd, path, text, e);
}

long
io_read_at(int dir_fd, const char *path, char *text, size_t n)
{
    int auto_close fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t got = read(fd, text, n - 1);
    if (got < 0)
        return -errno;
    text[got] = '\0';
    return got;
}

uint64_t
io_now_ns(void)
{
    return (uint64_t)now_ns(CLOCK_MONOTONIC);
}

int
io_keep_fd(int fd)
{
    int kept = fcntl(fd, F_DUPFD_CLOEXEC, FD_KEEP_MIN);
    if (kept < 0)
        return fd;
    (void)close(fd);
    return kept;
}

void
io_close(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}
