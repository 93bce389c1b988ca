// SPDX-License-Identifier: Apache-2.0
// See audit_files.h.
#include "audit_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/audit_scan.h"
#include "proto/auto.h"

// audit-NUMBER.log with eight digits or more: names in the order of their numbers are longer or greater.
static int
is_log(const struct dirent *d)
{
    static const char prefix[] = "audit-", end[] = ".log";
    const size_t n = strlen(d->d_name),
                 digits = strspn(d->d_name + sizeof prefix - 1, "0123456789");
    return n > sizeof prefix + sizeof end - 2 &&
           strncmp(d->d_name, prefix, sizeof prefix - 1) == 0 && digits >= 8 &&
           strcmp(d->d_name + sizeof prefix - 1 + digits, end) == 0;
}

static int
compare(const struct dirent **a, const struct dirent **b)
{
    const size_t x = strlen((*a)->d_name), y = strlen((*b)->d_name);
    return x != y ? (x > y) - (x < y) : strcmp((*a)->d_name, (*b)->d_name);
}

static int
one(int at, const char *path, audit_file_fn *file, void *cookie, struct err *e)
{
    int auto_close fd = openat(at, path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 ? file(cookie, fd, path, e) : err_sys(e, errno, "open %s", path);
}

static int
folder(int dir, const char *path, audit_file_fn *file, void *cookie, struct err *e)
{
    struct dirent **names = NULL;
    const int n = scandirat(dir, ".", &names, is_log, compare);
    int r = n < 0 ? err_sys(e, errno, "list %s", path) : 0;
    if (n == 0)
        r = err_set(e, ERR_NOT_FOUND, "%s has no file of an audit log (audit-NUMBER.log)", path);
    for (int i = 0; i < n; i++) {
        if (r == 0)
            r = one(dir, names[i]->d_name, file, cookie, e);
        free(names[i]);
    }
    free(names);
    return r;
}

int
audit_files_each(const char *const *paths, int n, audit_file_fn *file, void *cookie, struct err *e)
{
    int r = 0;
    for (int i = 0; i < n && r == 0; i++) {
        int auto_close dir = open(paths[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = dir >= 0 ? folder(dir, paths[i], file, cookie, e)
                     : one(AT_FDCWD, paths[i], file, cookie, e);
    }
    return r;
}

struct frames {
    audit_frame_fn *frame;
    void *cookie;
};

static int
each_frame(void *cookie, int fd, const char *name, struct err *e)
{
    const struct frames *all = cookie;
    struct audit_scan scan;
    struct audit_frame f;
    int r = audit_scan_open(&scan, fd, 0, e);
    while (r == 0 && (r = audit_scan_next(&scan, &f, e)) > 0)
        r = all->frame(all->cookie, &f, e);
    audit_scan_close(&scan);
    return r < 0 ? err_wrap(e, "%s", name) : r;
}

int
audit_frames_each(const char *const *paths, int n, audit_frame_fn *frame, void *cookie,
                  struct err *e)
{
    struct frames all = {frame, cookie};
    return audit_files_each(paths, n, each_frame, &all, e);
}
