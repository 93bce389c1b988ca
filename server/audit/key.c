// SPDX-License-Identifier: Apache-2.0
// The key that signs checkpoints, and its change. The key before signs the checkpoint that names the next one, so the first public
// key is enough to check all of them.
//
//   audit.key.next, on the disk --> checkpoint with next_key, on the disk --> audit.key.next becomes audit.key
//
// After a kill in between, the log says which key is the right one: the next start ends the change, or forgets it.
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "private.h"

enum { KEY_TEXT = 256 };

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
read_key(int fd, const char *path, uint8_t secret[AUDIT_SECRET], uint8_t public_key[AUDIT_KEY],
         struct err *e)
{
    char text[KEY_TEXT] = "";
    uint8_t seed[AUDIT_KEY];
    struct stat st;
    int r = audit_file_check(fd, path, e);
    if (r == 0 && fstat(fd, &st) == 0 && (st.st_mode & 077) != 0 && fchmod(fd, 0600) < 0)
        r = err_sys(e, errno, "protect %s", path);
    if (r < 0)
        return r;
    const ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n > 0 && audit_key_read(text, seed)) {
        (void)crypto_sign_seed_keypair(public_key, secret, seed);
    } else {
        r = err_set(e, ERR_FAILED_PRECONDITION, "%s is not the seed of a key: 64 hex digits", path);
        err_detail(e, "AUDIT_KEY", path,
                   "restore it, or move it away: the next start makes a new one");
    }
    sodium_memzero(text, sizeof text);
    sodium_memzero(seed, sizeof seed);
    return r;
}

// ---- public halves, oldest first, in audit.pub

static void
read_public(struct audit *a)
{
    char text[AUDIT_KEYS_TEXT] = "";
    int auto_close fd = open(a->public_path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    a->keys_n = n > 0 ? audit_keys_read(text, a->keys) : 0;
}

// Beside its place, and renamed: readers find the whole of it.
static int
write_public(const struct audit *a, struct err *e)
{
    char text[AUDIT_KEYS_TEXT], beside[AUDIT_KEY_PATH];
    (void)audit_keys_write(a->keys, a->keys_n, text);
    (void)snprintf(beside, sizeof beside, "%.*s.new", AUDIT_KEY_PATH - 5, a->public_path);
    (void)unlink(beside);
    int r = write_file(beside, 0644, text, e);
    if (r == 0 && rename(beside, a->public_path) < 0)
        r = err_sys(e, errno, "write %s", a->public_path);
    return r;
}

// Makes the public key the last one of the list.
static int
publish(struct audit *a, struct err *e)
{
    const uint32_t n = a->keys_n;
    if (n > 0 && memcmp(a->keys[n - 1], a->public_key, AUDIT_KEY) == 0)
        return 0;
    uv_mutex_lock(&a->writer.lock);
    if (n == AUDIT_KEYS_MAX) {
        memmove(a->keys[0], a->keys[1], sizeof a->keys - sizeof a->keys[0]);
        a->keys_n--;
    }
    memcpy(a->keys[a->keys_n++], a->public_key, AUDIT_KEY);
    uv_mutex_unlock(&a->writer.lock);
    return write_public(a, e);
}

// ---- opening and changing

static void
path_of_next(const struct audit *a, char out[AUDIT_KEY_PATH])
{
    (void)snprintf(out, AUDIT_KEY_PATH, "%.*s.next", AUDIT_KEY_PATH - 6, a->key_path);
}

int
audit_key_open(struct audit *a, struct err *e)
{
    const char *path = a->key_path;
    int r = 0;
    int auto_close fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        r = make_key(path, e);
        fd = r == 0 ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    }
    if (r == 0)
        r = fd >= 0 ? read_key(fd, path, a->secret, a->public_key, e)
                    : err_sys(e, errno, "open %s", path);
    return r;
}

// Names in the folder of the key are on the disk afterwards.
static int
sync_folder(const struct audit *a, struct err *e)
{
    char folder[AUDIT_KEY_PATH];
    (void)snprintf(folder, sizeof folder, "%s", a->key_path);
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        slash[slash == folder ? 1 : 0] = '\0';
    int auto_close fd = open(slash != NULL ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && fsync(fd) == 0 ? 0 : err_sys(e, errno, "write %s to the disk", folder);
}

// The log names the next key, so it is the key now.
static int
end_change(struct audit *a, const char *next, struct err *e)
{
    if (rename(next, a->key_path) < 0)
        return err_sys(e, errno, "rename %s", next);
    return audit_key_open(a, e);
}

int
audit_key_recover(struct audit *a, struct err *e)
{
    char next[AUDIT_KEY_PATH];
    uint8_t secret[AUDIT_SECRET], public_key[AUDIT_KEY];
    struct err none;
    path_of_next(a, next);
    int auto_close fd = open(next, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const bool named = fd >= 0 && read_key(fd, next, secret, public_key, &none) == 0 &&
                       memcmp(public_key, a->found.key_id, AUDIT_KEY_ID) == 0;
    sodium_memzero(secret, sizeof secret);
    int r = named ? end_change(a, next, e) : 0;
    if (fd >= 0 && !named)
        (void)unlink(next);
    read_public(a);
    audit_chain_open(a);
    r = r == 0 ? audit_chain_add(a, e) : r;
    return r == 0 ? publish(a, e) : r;
}

int
audit_key_prepare(const struct audit *a, struct audit_pair *next, struct err *e)
{
    char path[AUDIT_KEY_PATH];
    path_of_next(a, path);
    (void)unlink(path);
    int r = make_key(path, e);
    int auto_close fd = r == 0 ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (r == 0)
        r = fd >= 0 ? read_key(fd, path, next->secret, next->public_key, e)
                    : err_sys(e, errno, "open %s", path);
    if (r == 0) // before the log names it: a key that is named and lost would end the chain
        r = sync_folder(a, e);
    if (r < 0) {
        (void)unlink(path);
        err_detail(e, "AUDIT_KEY", a->key_path,
                   "the broker's account must be able to write beside this file");
    }
    return r;
}

void
audit_key_forget(const struct audit *a)
{
    char path[AUDIT_KEY_PATH];
    path_of_next(a, path);
    (void)unlink(path);
}

int
audit_key_finish(struct audit *a, struct err *e)
{
    char next[AUDIT_KEY_PATH];
    path_of_next(a, next);
    int r = audit_chain_add(a, e);
    if (r < 0)
        return r;
    if (rename(next, a->key_path) < 0)
        return err_sys(e, errno, "rename %s", next);
    return publish(a, e);
}

size_t
audit_public_keys(struct audit *a, uint8_t out[AUDIT_KEYS_MAX][AUDIT_KEY])
{
    uv_mutex_lock(&a->writer.lock);
    const size_t n = a->keys_n;
    memcpy(out, a->keys, n * AUDIT_KEY);
    uv_mutex_unlock(&a->writer.lock);
    return n;
}
