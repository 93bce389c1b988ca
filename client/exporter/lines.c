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

enum {
    NAME_BYTES = LINES_PATH_MAX + 16,
    POSITION_BYTES = 38
}; // 16 digits, a blank, 20 digits, a line break

// A regular file of ours, 0600.
static int
open_file(const char *path, int flags, struct err *e)
{
    struct stat st;
    int auto_close fd =
        open(path, flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
    if (fd < 0)
        return err_sys(e, errno, "open %s", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: not a regular file", path);
    if (fchmod(fd, 0600) < 0)
        return err_sys(e, errno, "change the mode of %s", path);
    return take_fd(&fd);
}

static void
read_position(struct lines *l)
{
    char text[POSITION_BYTES + 1] = "";
    uint64_t sequence = 0;
    char instance[LINES_INSTANCE] = "";
    if (pread(l->position_fd, text, POSITION_BYTES, 0) != POSITION_BYTES ||
        // NOLINTNEXTLINE(cert-err34-c): %16 and %20 bound it
        sscanf(text, "%16[0-9a-f] %20" SCNu64, instance, &sequence) != 2)
        return;
    memcpy(l->instance, instance, sizeof l->instance);
    l->sequence = sequence;
}

int
lines_open(struct lines *l, struct err *e)
{
    char name[NAME_BYTES];
    struct stat st;
    l->fd = l->position_fd = -1;
    int fd = open_file(l->path, O_WRONLY | O_APPEND, e);
    if (fd < 0)
        return fd;
    l->fd = fd;
    (void)snprintf(name, sizeof name, "%s.position", l->path);
    fd = open_file(name, O_RDWR, e);
    if (fd < 0) {
        lines_close(l);
        return fd;
    }
    l->position_fd = fd;
    l->size = fstat(l->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    read_position(l);
    return 0;
}

void
lines_close(struct lines *l)
{
    int *const all[] = {&l->fd, &l->position_fd};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int auto_close fd = take_fd(all[i]);
        (void)fd;
    }
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
    int fd = open_file(l->path, O_WRONLY | O_APPEND, &e);
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

void
lines_note(struct lines *l, const char *instance, uint64_t sequence)
{
    char text[POSITION_BYTES + 1];
    if (strlen(instance) != LINES_INSTANCE - 1)
        return;
    (void)snprintf(text, sizeof text, "%s %020" PRIu64 "\n", instance, sequence);
    if (pwrite(l->position_fd, text, POSITION_BYTES, 0) != POSITION_BYTES)
        l->failed++; // the next one overwrites it
}
