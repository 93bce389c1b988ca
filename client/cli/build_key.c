// SPDX-License-Identifier: Apache-2.0
// See build_key.h.
#include "build_key.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"

#define PREFIX "build-"

enum { PIECE = 64 * 1024, LEVELS_MAX = 128, FOLDER = O_RDONLY | O_DIRECTORY | O_CLOEXEC };

void
build_key_begin(struct build_key *k, const atomic_int *stop)
{
    k->stop = stop;
    (void)crypto_generichash_init(&k->h, NULL, 0, BUILD_KEY_BYTES);
    build_key_text(k, "stockade build 2");
}

void
build_key_bytes(struct build_key *k, const void *bytes, size_t n)
{
    const uint64_t length = n;
    (void)crypto_generichash_update(&k->h, (const unsigned char *)&length, sizeof length);
    (void)crypto_generichash_update(&k->h, bytes, n);
}

void
build_key_text(struct build_key *k, const char *text)
{
    build_key_bytes(k, text, strlen(text));
}

void
build_key_end(struct build_key *k, char name[BUILD_NAME])
{
    unsigned char digest[BUILD_KEY_BYTES];
    int at = snprintf(name, BUILD_NAME, PREFIX);
    (void)crypto_generichash_final(&k->h, digest, sizeof digest);
    (void)sodium_bin2hex(name + at, BUILD_NAME - (size_t)at, digest, sizeof digest);
}

bool
build_key_is_name(const char *name)
{
    const size_t n = sizeof PREFIX - 1;
    return strncmp(name, PREFIX, n) == 0 && strlen(name) == n + 2 * (size_t)BUILD_KEY_BYTES &&
           strspn(name + n, "0123456789abcdef") == 2 * (size_t)BUILD_KEY_BYTES;
}

// ---- files

static int
check_stop(const struct build_key *k, struct err *e)
{
    return atomic_load(k->stop) == 0 ? 0 : err_set(e, ERR_CANCELLED, "interrupted");
}

// For files whose contents nobody knows in full: a key that no other has.
static void
add_nonce(struct build_key *k)
{
    unsigned char nonce[BUILD_KEY_BYTES];
    randombytes_buf(nonce, sizeof nonce);
    build_key_bytes(k, nonce, sizeof nonce);
}

// Some files of /proc have a size of 0, and a file can grow as fast as it is read: the reading ends one piece beyond the size.
static int
add_contents(struct build_key *k, int fd, const struct stat *st, struct err *e)
{
    char *auto_free piece = malloc(PIECE);
    uint64_t left = (uint64_t)st->st_size + PIECE;
    if (piece == NULL)
        return err_sys(e, ENOMEM, "read a file");
    for (;;) {
        const ssize_t n = read(fd, piece, PIECE);
        const int r = n < 0 ? err_sys(e, errno, "read a file") : check_stop(k, e);
        if (r < 0 || n == 0)
            return r;
        if ((uint64_t)n > left) {
            add_nonce(k);
            return 0;
        }
        build_key_bytes(k, piece, (size_t)n);
        left -= (uint64_t)n;
    }
}

static int add_one(struct build_key *k, int folder, const char *name, unsigned level,
                   struct err *e);

static int
add_folder(struct build_key *k, int fd, unsigned level, struct err *e)
{
    struct dirent **all = NULL;
    if (level == LEVELS_MAX)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "folders are more than %d levels deep",
                       LEVELS_MAX);
    int n = scandirat(fd, ".", &all, NULL, alphasort);
    int rc = n < 0 ? err_sys(e, errno, "list a folder") : 0;
    for (int i = 0; i < n; i++) {
        const char *name = all[i]->d_name;
        if (rc == 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
            rc = add_one(k, fd, name, level + 1, e);
        free(all[i]);
    }
    free(all);
    return rc;
}

static int
add_link(struct build_key *k, int folder, const char *name, struct err *e)
{
    char target[PATH_MAX + 1];
    ssize_t n = readlinkat(folder, name, target, PATH_MAX);
    if (n < 0)
        return err_sys(e, errno, "read the link %s", name);
    build_key_bytes(k, target, (size_t)n);
    return 0;
}

// Kind, mode, name, size: what follows is of that length.
static void
add_head(struct build_key *k, const char *name, const struct stat *st)
{
    char head[64];
    (void)snprintf(head, sizeof head, "%o %" PRIu64, (unsigned)st->st_mode,
                   S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0);
    build_key_text(k, head);
    build_key_text(k, name);
}

static int
add_one(struct build_key *k, int folder, const char *name, unsigned level, struct err *e)
{
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "look at %s", name);
    const bool file = S_ISREG(st.st_mode);
    if (!file && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode))
        return 0;
    add_head(k, name, &st);
    if (S_ISLNK(st.st_mode))
        return add_link(k, folder, name, e);
    int auto_close fd =
        openat(folder, name, (file ? O_RDONLY | O_NONBLOCK | O_CLOEXEC : FOLDER) | O_NOFOLLOW);
    if (fd < 0)
        return err_sys(e, errno, "open %s", name);
    int rc = file ? add_contents(k, fd, &st, e) : add_folder(k, fd, level, e);
    build_key_text(k, ""); // its end
    return rc;
}

int
build_key_tree(struct build_key *k, const char *path, struct err *e)
{
    struct stat st;
    int auto_close fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "open %s", path);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return err_set(e, ERR_INVALID_ARGUMENT, "%s is neither a file nor a folder", path);
    add_head(k, "", &st);
    return S_ISDIR(st.st_mode) ? add_folder(k, fd, 0, e) : add_contents(k, fd, &st, e);
}

void
build_key_of_base(const struct stockade_sandbox_template *t, char name[BUILD_NAME])
{
    struct build_key k;
    build_key_begin(&k, NULL);
    build_key_text(&k, t->base);
    build_key_text(&k, t->digest);
    build_key_text(&k, t->workdir);
    for (size_t i = 0; i < t->env_n; i++) {
        build_key_text(&k, t->env[i].name);
        build_key_text(&k, t->env[i].value);
    }
    build_key_end(&k, name);
}
