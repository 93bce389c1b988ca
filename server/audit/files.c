// SPDX-License-Identifier: Apache-2.0
// The files of the log: audit-00000001.log and so on, and the key that signs.
#include "private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"

#define NAME_FORMAT "audit-%08" PRIu32 ".log"

enum { NAMES_STEP = 64, KEY_TEXT = 256 };

void
audit_name(uint32_t number, char out[AUDIT_NAME])
{
    (void)snprintf(out, AUDIT_NAME, NAME_FORMAT, number);
}

uint32_t
audit_name_read(const char *name)
{
    static const char prefix[] = "audit-";
    char again[AUDIT_NAME];
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return 0;
    const unsigned long number = strtoul(name + sizeof prefix - 1, NULL, 10);
    if (number == 0 || number > UINT32_MAX)
        return 0;
    audit_name((uint32_t)number, again);
    return strcmp(name, again) == 0 ? (uint32_t)number : 0;
}

static int
compare(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

int
audit_list(int dir_fd, const char *folder, uint32_t **out, struct err *e)
{
    int n = 0;
    uint32_t *auto_free all = NULL;
    int auto_close fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL)
        return err_sys(e, errno, "list %s", folder);
    (void)take_fd(&fd);
    for (const struct dirent *d = readdir(dir); d != NULL; d = readdir(dir)) {
        const uint32_t number = audit_name_read(d->d_name);
        if (number == 0)
            continue;
        uint32_t *more =
            n % NAMES_STEP == 0 ? realloc(all, ((size_t)n + NAMES_STEP) * sizeof *all) : all;
        if (more == NULL) {
            (void)closedir(dir);
            return err_sys(e, ENOMEM, "list %s", folder);
        }
        all = more;
        all[n++] = number;
    }
    (void)closedir(dir);
    if (n > 0)
        qsort(all, (size_t)n, sizeof *all, compare);
    *out = take_ptr(all);
    return n;
}

// Only the broker's account may write a file of the log.
int
audit_file_check(int fd, const char *path, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(e, errno, "examine %s", path);
    if (S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1 &&
        (st.st_mode & (S_IWGRP | S_IWOTH)) == 0)
        return 0;
    int r =
        err_set(e, ERR_FAILED_PRECONDITION,
                "%s must be a file of the broker's own account that nobody else can write", path);
    err_detail(e, "AUDIT_FILE", path, "move it away, or chown and chmod it");
    return r;
}

int
audit_file_open(struct audit *a, uint32_t number, bool make, struct err *e)
{
    char name[AUDIT_NAME];
    audit_name(number, name);
    const int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | (make ? O_CREAT | O_EXCL : 0);
    int auto_close fd = openat(a->dir, name, flags, 0600);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "open %s/%s", a->folder, name);
    const int r = audit_file_check(fd, name, e);
    if (r < 0)
        return r;
    // what an earlier run left in memory is not in `unsynced`
    if (a->settings.sync != AUDIT_SYNC_NONE && (make ? fsync(a->dir) : a->system->sync(fd)) < 0)
        return err_sys(e, errno, "write %s/%s to the disk", a->folder, name);
    if (a->file.fd >= 0)
        (void)close(a->file.fd);
    const uint64_t bytes = (uint64_t)st.st_size;
    a->file = (struct audit_file){take_fd(&fd), number, bytes, .synced = bytes};
    return 0;
}
