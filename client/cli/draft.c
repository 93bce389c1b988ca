// SPDX-License-Identifier: Apache-2.0
// See draft.h. A file without a name is given one by linkat(2), which replaces nothing; so one that replaces a file is linked beside it,
// and renamed.
#include "draft.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"

enum { LINK_TEXT = 32, MODE = 0600 };

static const char *
link_of(int fd, char out[LINK_TEXT])
{
    (void)snprintf(out, LINK_TEXT, "/proc/self/fd/%d", fd);
    return out;
}

// In the folder of the target. -1: the file system has none, or it could not be given a name.
static int
open_nameless(const char *target)
{
    char text[LINK_TEXT];
    char folder[PATH_MAX] = ".";
    const char *slash = strrchr(target, '/');
    const size_t n = slash != NULL ? (size_t)(slash - target) + 1 : 0;
    if (n >= sizeof folder)
        return -1;
    if (n > 0)
        (void)snprintf(folder, sizeof folder, "%.*s", (int)n, target);
    int auto_close fd = open(folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, MODE);
    return fd >= 0 && access(link_of(fd, text), F_OK) == 0 ? take_fd(&fd) : -1;
}

int
draft_begin(struct draft *d, const char *target)
{
    char *auto_free beside = NULL;
    if (asprintf(&beside, "%s.stockade-%d", target, (int)getpid()) < 0) {
        beside = NULL; // it is undefined
        return -ENOMEM;
    }
    (void)unlink(beside); // of a process that had this number
    int fd = open_nameless(target);
    const bool has_name = fd < 0;
    if (has_name)
        fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, MODE);
    if (fd < 0)
        return -errno;
    *d = (struct draft){fd, target, take_ptr(beside), has_name};
    return 0;
}

static int
give_name(struct draft *d, const char *path)
{
    char text[LINK_TEXT];
    return linkat(AT_FDCWD, link_of(d->fd, text), AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}

// At its target if nothing is there, else beside it.
static int
settle(struct draft *d)
{
    if (d->has_name || give_name(d, d->target) == 0)
        return 0;
    if (errno != EEXIST || give_name(d, d->beside) < 0)
        return -errno;
    d->has_name = true;
    return 0;
}

int
draft_keep(struct draft *d, bool durable)
{
    if (durable && fsync(d->fd) < 0 && errno != EINVAL)
        return -errno;
    int r = settle(d);
    if (close(take_fd(&d->fd)) < 0 && r == 0)
        r = -errno;
    if (r < 0 || !d->has_name)
        return r;
    if (rename(d->beside, d->target) < 0)
        return -errno;
    d->has_name = false;
    return 0;
}

void
draft_end(struct draft *d)
{
    if (d->fd >= 0)
        (void)close(d->fd);
    if (d->has_name)
        (void)unlink(d->beside);
    free(d->beside);
    *d = (struct draft){.fd = -1};
}
