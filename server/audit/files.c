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
#include <sys/file.h>
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
static int
check_ours(int fd, const char *path, struct err *e)
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
    int r = check_ours(fd, name, e);
    if (r < 0)
        return r;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        r = err_set(e, ERR_FAILED_PRECONDITION, "another process writes to %s/%s", a->folder, name);
        err_detail(e, "AUDIT_IN_USE", NULL, "end that process");
        return r;
    }
    // what an earlier run left in memory is not in `unsynced`
    if (a->settings.sync != AUDIT_SYNC_NONE && (make ? fsync(a->dir) : a->system->sync(fd)) < 0)
        return err_sys(e, errno, "write %s/%s to the disk", a->folder, name);
    if (a->file.fd >= 0)
        (void)close(a->file.fd);
    const uint64_t bytes = (uint64_t)st.st_size;
    a->file = (struct audit_file){take_fd(&fd), number, bytes, .synced = bytes};
    return 0;
}

// ---- the key

static int
write_file(const char *path, mode_t mode, const char *text, struct err *e)
{
    const size_t n = strlen(text);
    int auto_close fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0 || fchmod(fd, mode) < 0 || write(fd, text, n) != (ssize_t)n || fsync(fd) < 0)
        return err_sys(e, errno != 0 ? errno : EIO, "write %s", path);
    return 0;
}

// A seed as 64 hex digits.
static int
make_key(const char *path, struct err *e)
{
    uint8_t seed[crypto_sign_SEEDBYTES];
    char text[2 * sizeof seed + 2];
    randombytes_buf(seed, sizeof seed);
    (void)sodium_bin2hex(text, sizeof text, seed, sizeof seed);
    text[sizeof text - 2] = '\n';
    text[sizeof text - 1] = '\0';
    int r = write_file(path, 0600, text, e);
    sodium_memzero(seed, sizeof seed);
    sodium_memzero(text, sizeof text);
    return r;
}

static int
read_key(int fd, const char *path, struct audit *a, struct err *e)
{
    char text[KEY_TEXT] = "";
    uint8_t seed[AUDIT_KEY];
    struct stat st;
    int r = check_ours(fd, path, e);
    if (r == 0 && fstat(fd, &st) == 0 && (st.st_mode & 077) != 0 && fchmod(fd, 0600) < 0)
        r = err_sys(e, errno, "protect %s", path);
    if (r < 0)
        return r;
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n > 0 && audit_key_read(text, seed)) {
        (void)crypto_sign_seed_keypair(a->public_key, a->secret, seed);
    } else {
        r = err_set(e, ERR_FAILED_PRECONDITION, "%s is not the seed of a key: 64 hex digits", path);
        err_detail(e, "AUDIT_KEY", path,
                   "restore it, or move it away: the next start makes a new one");
    }
    sodium_memzero(text, sizeof text);
    sodium_memzero(seed, sizeof seed);
    return r;
}

// The public half, for readers of the log. It is written again when the key is another one.
static int
write_public(const char *path, const struct audit *a, struct err *e)
{
    char text[sizeof AUDIT_KEY_PREFIX + (size_t)2 * AUDIT_KEY + 2], old[KEY_TEXT] = "";
    char hex[2 * AUDIT_KEY + 1];
    uint8_t there[AUDIT_KEY];
    int auto_close fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && read(fd, old, sizeof old - 1) > 0 && audit_key_read(old, there) &&
        memcmp(there, a->public_key, AUDIT_KEY) == 0)
        return 0;
    (void)sodium_bin2hex(hex, sizeof hex, a->public_key, AUDIT_KEY);
    (void)snprintf(text, sizeof text, "%s%s\n", AUDIT_KEY_PREFIX, hex);
    (void)unlink(path);
    return write_file(path, 0644, text, e);
}

int
audit_key_open(const char *path, const char *public_path, struct audit *a, struct err *e)
{
    int r = 0;
    int auto_close fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        r = make_key(path, e);
        fd = r == 0 ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    }
    if (r == 0)
        r = fd >= 0 ? read_key(fd, path, a, e) : err_sys(e, errno, "open %s", path);
    return r == 0 ? write_public(public_path, a, e) : r;
}
