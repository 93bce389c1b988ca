// SPDX-License-Identifier: Apache-2.0
// See work.h: digest_layer(), seal_layer(). BLAKE2b-256 (RFC 7693) of one stream, which is the same for the same tree on every file system:
//
//   "stockade layer 1\n", then the root folder as an entry without a name
//   entry    kind, mode, uid and gid from KEEP_ID_BASE on, time, length of its name, name, extended attributes in the order
//            of their names; then
//     file     size, then number and bytes of each block of 4 KiB that is not all zero, then the end; of a file with several
//              names the later ones have the number of the first one instead
//     folder   its entries in the order of their names, then the end
//     link     its target
//
// All numbers are 64 bits, little-endian. The time of change and inode numbers are not part of it.
//
// A sealed layer is this very stream, encrypted (proto/sealed.h): of each part its number from 1 on and its stream, then 0. Entries are
// counted over all parts, and the first of several names has its own number, so that who reads it (unseal.c) knows that others follow.
// Its digest is of all that, with a key of the tenant.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <search.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/zero.h"
#include "work.h"

enum { PIECE = 1 << 20, END = 0xffff };

_Static_assert((int)SPAWN_DIGEST_BYTES == (int)crypto_generichash_BYTES, "BLAKE2b-256");

struct seen {
    ino_t inode;
    uint64_t entry; // number of its first name
};

struct state {
    crypto_generichash_state hash;
    struct digest *out;
    void *links;  // tsearch(3) of struct seen
    uint32_t uid; // of the tree
    // ---- sealing; otherwise NULL
    const struct seal *seal;
    struct sealed_writer *to;
    struct err failed; // code 0: not so far
    char piece[PIECE];
};

static void
add(struct state *s, const void *bytes, size_t n)
{
    (void)crypto_generichash_update(&s->hash, bytes, n);
    s->out->stream += n;
    if (s->to != NULL && s->failed.code == ERR_OK)
        (void)sealed_add(s->to, bytes, n, &s->failed);
}

// Between two pieces of work: whether it goes on, and what is sealed is not too much.
static int
goes_on(const struct state *s, struct err *e)
{
    int rc = work_goes_on(e);
    if (rc == 0 && s->failed.code != ERR_OK) {
        *e = s->failed;
        rc = err_errno(e);
    }
    return rc == 0 && s->seal != NULL && s->out->bytes > s->seal->bytes_max
               ? work_too_large(s->seal->bytes_max, e)
               : rc;
}

static void
add_number(struct state *s, uint64_t n)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(n >> 8 * i);
    add(s, bytes, sizeof bytes);
}

static void
add_text(struct state *s, const char *text, size_t n)
{
    add_number(s, n);
    add(s, text, n);
}

static void
add_head(struct state *s, const char *name, const struct stat *st)
{
    s->out->entries++;
    s->out->bytes += KEEP_ENTRY_BYTES;
    add_number(s, st->st_mode);
    add_number(s, work_shift_id(st->st_uid, s->uid, 0));
    add_number(s, work_shift_id(st->st_gid, s->uid, 0));
    add_number(s, (uint64_t)st->st_mtim.tv_sec);
    add_number(s, (uint64_t)st->st_mtim.tv_nsec);
    add_text(s, name, strlen(name));
}

static int
add_xattrs(struct state *s, int fd, struct err *e)
{
    struct xattrs auto_xattrs x = {0};
    int rc = xattrs_list(fd, &x, e);
    for (size_t at = 0; at < x.bytes && rc == 0; at += strlen(x.names + at) + 1) {
        const char *name = x.names + at;
        if (!xattrs_is_kept(name))
            continue;
        long n = xattrs_get(fd, &x, name, e);
        if (n < 0)
            return (int)n;
        if (s->uid != KEEP_ID_BASE)
            rc = xattrs_shift_acl(name, x.value, (size_t)n, s->uid, KEEP_ID_BASE, e);
        s->out->bytes += (uint64_t)n;
        add_text(s, name, strlen(name));
        add_text(s, x.value, (size_t)n);
    }
    add_number(s, END);
    return rc;
}

// ---- files

static void
add_piece(struct state *s, size_t n, off_t at)
{
    for (size_t i = 0; i < n; i += KEEP_BLOCK) {
        size_t length = n - i < KEEP_BLOCK ? n - i : KEEP_BLOCK;
        if (is_all_zero(s->piece + i, length))
            continue;
        s->out->bytes += length;
        add_number(s, ((uint64_t)at + i) / KEEP_BLOCK);
        add(s, s->piece + i, length);
    }
}

static int
add_contents(struct state *s, int fd, off_t size, struct err *e)
{
    int rc = 0;
    add_number(s, (uint64_t)size);
    for (off_t at = 0; rc == 0 && at < size;) {
        off_t data = lseek(fd, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break;
        if (data >= 0)
            at = data - data % KEEP_BLOCK;
        rc = goes_on(s, e);
        ssize_t n = rc < 0 ? 0 : pread(fd, s->piece, PIECE, at);
        if (n < 0)
            return err_sys(e, errno, "read a file");
        if (n == 0)
            break;
        add_piece(s, (size_t)n, at);
        at += n;
    }
    add_number(s, UINT64_MAX);
    return rc;
}

static int
by_inode(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    return x->inode < y->inode ? -1 : x->inode > y->inode;
}

// The number of the first name of a file with several; 0: this is the first.
static int
first_name(struct state *s, const struct stat *st, uint64_t *first, struct err *e)
{
    struct seen *mine = malloc(sizeof *mine);
    if (mine == NULL)
        return err_sys(e, ENOMEM, "read a hard link");
    *mine = (struct seen){st->st_ino, s->out->entries};
    struct seen **found = tsearch(mine, &s->links, by_inode);
    *first = found == NULL || *found == mine ? 0 : (*found)->entry;
    if (found == NULL || *found != mine)
        free(mine);
    return found == NULL ? err_sys(e, ENOMEM, "read a hard link") : 0;
}

static int
add_file(struct state *s, int folder, const char *name, const struct stat *st, struct err *e)
{
    uint64_t first = 0;
    int rc = st->st_nlink > 1 ? first_name(s, st, &first, e) : 0;
    const bool later = first != 0;
    if (s->to != NULL && st->st_nlink > 1 && !later)
        first = s->out->entries;
    add_number(s, first);
    if (rc < 0 || later)
        return rc;
    int auto_close fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open a file");
    rc = add_xattrs(s, fd, e);
    return rc == 0 ? add_contents(s, fd, st->st_size, e) : rc;
}

// ---- other kinds

static int
add_link(struct state *s, int folder, const char *name, struct err *e)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(folder, name, target, sizeof target);
    if (n < 0)
        return err_sys(e, errno, "read a symbolic link");
    add_text(s, target, (size_t)n);
    return 0;
}

static int add_inside(struct state *s, int folder, unsigned depth, struct err *e);

// What a job has written: it may be anything.
static int
check_kept(const struct stat *st, unsigned depth, struct err *e)
{
    if (S_ISDIR(st->st_mode) && depth == KEEP_DEPTH_MAX)
        return work_too_deep(e);
    const bool device = S_ISBLK(st->st_mode) || (S_ISCHR(st->st_mode) && st->st_rdev != 0);
    return device ? work_is_device(e) : 0;
}

static int
add_one(struct state *s, int folder, const char *name, unsigned depth, struct err *e)
{
    struct stat st;
    int rc = goes_on(s, e);
    if (rc < 0)
        return rc;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "look at a file");
    rc = s->seal != NULL ? check_kept(&st, depth, e) : 0;
    if (rc < 0)
        return rc;
    add_head(s, name, &st);
    if (S_ISREG(st.st_mode))
        return add_file(s, folder, name, &st, e);
    if (S_ISLNK(st.st_mode))
        return add_link(s, folder, name, e);
    if (!S_ISDIR(st.st_mode)) {
        add_number(s, st.st_rdev);
        return 0;
    }
    if (depth == KEEP_DEPTH_MAX)
        return err_set(e, ERR_DATA_LOSS, "folders are more than %d levels deep", KEEP_DEPTH_MAX);
    int auto_close fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "open a folder") : add_inside(s, fd, depth + 1, e);
}

static int
add_inside(struct state *s, int folder, unsigned depth, struct err *e)
{
    struct names auto_names all = {0};
    int rc = add_xattrs(s, folder, e);
    if (rc == 0)
        rc = names_read(folder, &all, e);
    for (size_t i = 0; i < all.n && rc == 0; i++)
        rc = add_one(s, folder, all.name[i], depth, e);
    add_number(s, END);
    return rc;
}

static struct state work; // 1 MiB

static int
add_part(struct state *s, int folder, struct err *e)
{
    static const char begin[] = "stockade layer 1\n";
    struct stat st;
    s->links = NULL;
    add(s, begin, sizeof begin - 1);
    if (fstat(folder, &st) < 0)
        return err_sys(e, errno, "look at the layer");
    add_head(s, "", &st);
    int rc = add_inside(s, folder, 0, e);
    tdestroy(s->links, free);
    return rc;
}

static int
digest_part(int folder, struct digest *out, struct err *e)
{
    struct state *s = &work;
    *out = (struct digest){0};
    s->out = out;
    s->uid = KEEP_ID_BASE;
    s->seal = NULL;
    s->to = NULL;
    s->failed.code = ERR_OK;
    (void)crypto_generichash_init(&s->hash, NULL, 0, SPAWN_DIGEST_BYTES);
    int rc = add_part(s, folder, e);
    (void)crypto_generichash_final(&s->hash, out->digest, SPAWN_DIGEST_BYTES);
    return rc;
}

// A layer of one part has the digest of that; one of several has a digest of theirs.
int
digest_layer(int layer_fd, struct digest *out, struct err *e)
{
    static const char begin[] = "stockade parts 1\n";
    crypto_generichash_state all;
    struct digest first = {0}, sum = {0};
    unsigned n = 0;
    (void)crypto_generichash_init(&all, NULL, 0, SPAWN_DIGEST_BYTES);
    (void)crypto_generichash_update(&all, (const unsigned char *)begin, sizeof begin - 1);
    for (const char *const *part = work_parts; *part != NULL; part++) {
        struct digest one;
        int auto_close fd = work_open_part(layer_fd, *part, e);
        int rc = fd == -ENOENT ? 0 : fd < 0 ? fd : digest_part(fd, &one, e);
        if (rc < 0)
            return rc;
        if (fd < 0)
            continue;
        (void)crypto_generichash_update(&all, (const unsigned char *)*part, 1);
        (void)crypto_generichash_update(&all, one.digest, sizeof one.digest);
        first = n++ == 0 ? one : first;
        sum.bytes += one.bytes;
        sum.entries += one.entries;
    }
    if (n == 0)
        return err_set(e, ERR_NOT_FOUND, "the layer has no files");
    (void)crypto_generichash_final(&all, sum.digest, sizeof sum.digest);
    *out = n == 1 ? first : sum;
    return 0;
}

// ---- sealed

static int
seal_parts(struct state *s, int layer_fd, struct err *e)
{
    int rc = 0;
    for (unsigned i = 0; work_parts[i] != NULL && rc == 0; i++) {
        if (!work_is_part(i))
            continue;
        int auto_close fd = work_open_part(layer_fd, work_parts[i], e);
        if (fd == -ENOENT)
            continue;
        if (fd < 0)
            return fd;
        add_number(s, i + 1);
        rc = add_part(s, fd, e);
    }
    add_number(s, 0);
    return rc == 0 ? goes_on(s, e) : rc;
}

int
seal_layer(int layer_fd, const struct seal *seal, struct sealed_writer *to, struct digest *out,
           struct err *e)
{
    struct state *s = &work;
    const struct sealed_what what = {.kind = SEALED_LAYER};
    *out = (struct digest){0};
    s->out = out;
    s->uid = seal->uid;
    s->seal = seal;
    s->to = to;
    s->failed.code = ERR_OK;
    (void)crypto_generichash_init(&s->hash, seal->key->names, SEALED_KEY, SPAWN_DIGEST_BYTES);
    int rc = sealed_begin(to, seal->key, &what, e);
    if (rc == 0)
        rc = seal_parts(s, layer_fd, e);
    if (rc == 0)
        rc = sealed_end(to, e);
    (void)crypto_generichash_final(&s->hash, out->digest, SPAWN_DIGEST_BYTES);
    if (rc == 0 && out->entries == 0)
        rc = err_set(e, ERR_NOT_FOUND, "the layer has no files");
    sodium_memzero(&s->hash, sizeof s->hash);
    sodium_memzero(s->piece, sizeof s->piece);
    return rc;
}
