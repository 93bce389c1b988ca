// SPDX-License-Identifier: Apache-2.0
// See tar.h: tar_pack().
#include "tar.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"

enum { PIECE = 60 * 1024, NAME_FIELD = 100 };

struct packing {
    const struct tar_sink *sink;
    const struct tar_bounds *bounds;
    struct tar_counts *counts;
    char path[TAR_NAME_MAX];
    uint8_t piece[PIECE];
};

// The fields of a header that GNU tar writes (tar.h of the GNU C library; "Basic Tar Format" in GNU tar's manual).
struct block {
    char name[NAME_FIELD], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type,
        link[NAME_FIELD];
    char magic[8], user[32], group[32], major[8], minor[8], prefix[155], rest[12];
};
_Static_assert(sizeof(struct block) == TAR_BLOCK, "a header is one block");

// Octal digits and NUL, or from 2^(3 * (n - 1)) on the number in base 256.
static void
put_number(char *field, size_t n, uint64_t value)
{
    if (value >> (3 * (n - 1)) == 0) {
        (void)snprintf(field, n, "%0*llo", (int)n - 1, (unsigned long long)value);
        return;
    }
    memset(field, 0, n);
    for (size_t i = 0; i < sizeof value && i < n - 1; i++)
        field[n - 1 - i] = (char)(value >> (8 * i) & 0xff);
    field[0] = (char)0x80;
}

static void
put_checksum(struct block *b)
{
    unsigned sum = 0;
    memset(b->checksum, ' ', sizeof b->checksum);
    for (size_t i = 0; i < sizeof *b; i++)
        sum += ((const uint8_t *)b)[i];
    (void)snprintf(b->checksum, 7, "%06o", sum);
}

static int
put(struct packing *p, const void *bytes, size_t n, struct err *e)
{
    return n == 0 ? 0 : p->sink->write(p->sink->cookie, bytes, n, e);
}

static int
pad(struct packing *p, uint64_t size, struct err *e)
{
    static const uint8_t zeros[TAR_BLOCK];
    size_t over = (size_t)(size % TAR_BLOCK);
    return over == 0 ? 0 : put(p, zeros, TAR_BLOCK - over, e);
}

static void
fill(struct block *b, char type, uint64_t size, mode_t mode, int64_t mtime)
{
    memset(b, 0, sizeof *b);
    put_number(b->mode, sizeof b->mode, mode & 07777);
    put_number(b->uid, sizeof b->uid, 0);
    put_number(b->gid, sizeof b->gid, 0);
    put_number(b->size, sizeof b->size, size);
    put_number(b->mtime, sizeof b->mtime, mtime > 0 ? (uint64_t)mtime : 0);
    b->type = type;
    memcpy(b->magic, "ustar  ", sizeof b->magic);
}

// A name that does not fit into its field goes first, as a file of its own.
static int
put_long(struct packing *p, char type, const char *text, struct err *e)
{
    struct block b;
    size_t n = strlen(text) + 1;
    fill(&b, type, n, 0644, 0);
    (void)snprintf(b.name, sizeof b.name, "././@LongLink");
    put_checksum(&b);
    int r = put(p, &b, sizeof b, e);
    if (r == 0)
        r = put(p, text, n, e);
    return r < 0 ? r : pad(p, n, e);
}

static void
copy_field(char *field, const char *text)
{
    size_t n = strlen(text);
    memcpy(field, text, n < NAME_FIELD ? n : NAME_FIELD);
}

static int
put_header(struct packing *p, char type, const struct stat *st, uint64_t size, const char *link,
           struct err *e)
{
    struct block b;
    int r = 0;
    if (strlen(p->path) > NAME_FIELD)
        r = put_long(p, 'L', p->path, e);
    if (r == 0 && strlen(link) > NAME_FIELD)
        r = put_long(p, 'K', link, e);
    if (r < 0)
        return r;
    fill(&b, type, size, st->st_mode & 0777, st->st_mtim.tv_sec);
    copy_field(b.name, p->path);
    copy_field(b.link, link);
    put_checksum(&b);
    return put(p, &b, sizeof b, e);
}

void
tar_header_write(uint8_t block[TAR_BLOCK], const char *name, uint64_t size)
{
    struct block b;
    _Static_assert(sizeof b == TAR_BLOCK, "one block");
    fill(&b, '0', size, 0600, 0);
    copy_field(b.name, name);
    put_checksum(&b);
    memcpy(block, &b, sizeof b);
}

static int
count(struct packing *p, uint64_t bytes, struct err *e)
{
    p->counts->entries++;
    p->counts->bytes += bytes;
    if ((p->bounds->entries == 0 || p->counts->entries <= p->bounds->entries) &&
        (p->bounds->bytes == 0 || p->counts->bytes <= p->bounds->bytes))
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "the archive has more than %llu files or %llu bytes",
                    (unsigned long long)p->bounds->entries, (unsigned long long)p->bounds->bytes);
    err_detail(e, "ARCHIVE_TOO_LARGE", "archive", "raise the bound, or take a part of the tree");
    return r;
}

// A file that becomes shorter meanwhile is filled up, because its size has been sent.
static int
pack_file(struct packing *p, int folder, const char *name, struct err *e)
{
    struct stat st;
    int auto_close fd =
        openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "pack %.300s", p->path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_FAILED_PRECONDITION, "pack %.300s: it is no regular file any more",
                       p->path);
    uint64_t left = (uint64_t)st.st_size;
    int r = count(p, left, e);
    if (r == 0)
        r = put_header(p, '0', &st, left, "", e);
    while (r == 0 && left > 0) {
        size_t want = left < PIECE ? (size_t)left : PIECE;
        ssize_t n = read(fd, p->piece, want);
        if (n < 0)
            return err_sys(e, errno, "pack %.300s", p->path);
        if (n == 0) {
            memset(p->piece, 0, want);
            n = (ssize_t)want;
        }
        r = put(p, p->piece, (size_t)n, e);
        left -= (uint64_t)n;
    }
    return r < 0 ? r : pad(p, (uint64_t)st.st_size, e);
}

static int
pack_link(struct packing *p, int folder, const char *name, const struct stat *st, struct err *e)
{
    char target[TAR_NAME_MAX];
    ssize_t n = readlinkat(folder, name, target, sizeof target - 1);
    if (n < 0)
        return err_sys(e, errno, "pack %.300s", p->path);
    target[n] = '\0';
    int r = count(p, 0, e);
    return r < 0 ? r : put_header(p, '2', st, 0, target, e);
}

static int pack_one(struct packing *p, int folder, const char *name, unsigned level, struct err *e);

static int
compare(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int
is_entry(const struct dirent *d)
{
    return strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
}

// The entries of an open folder, sorted. Returns their number, or a negative errno.
static int
entries_of(int fd, struct dirent ***out, struct err *e)
{
    size_t size = 0;
    size_t n = 0;
    struct dirent **all = NULL;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *d = own < 0 ? NULL : fdopendir(own);
    int r = d == NULL ? err_sys(e, errno, "list a folder") : 0;
    for (struct dirent *it = NULL; r == 0 && (it = readdir(d)) != NULL;) {
        if (!is_entry(it))
            continue;
        if (n == size) {
            size = size * 2 + 64;
            struct dirent **more = realloc(all, size * sizeof(struct dirent *));
            r = more == NULL ? err_sys(e, ENOMEM, "list a folder") : 0;
            all = more != NULL ? more : all;
        }
        size_t bytes = offsetof(struct dirent, d_name) + strlen(it->d_name) + 1;
        if (r == 0 && (all[n] = malloc(bytes)) == NULL)
            r = err_sys(e, ENOMEM, "list a folder");
        if (r == 0)
            memcpy(all[n++], it, bytes);
    }
    if (d != NULL)
        (void)closedir(d);
    if (r == 0 && n > 0)
        qsort(all, n, sizeof(struct dirent *),
              (int (*)(const void *, const void *))(void *)compare);
    *out = all;
    if (r == 0)
        return (int)n;
    for (size_t i = 0; i < n; i++)
        free(all[i]);
    free(all);
    *out = NULL;
    return r;
}

static int
pack_folder(struct packing *p, int fd, unsigned level, struct err *e)
{
    struct dirent **all = NULL;
    size_t before = strlen(p->path);
    int n = entries_of(fd, &all, e);
    int r = n < 0 ? n : 0;
    for (int i = 0; i < n; i++) {
        int w = snprintf(p->path + before, sizeof p->path - before, "%s%s", before > 0 ? "/" : "",
                         all[i]->d_name);
        if (r == 0 && w >= (int)(sizeof p->path - before))
            r = err_set(e, ERR_RESOURCE_EXHAUSTED, "a path is longer than %d bytes",
                        TAR_NAME_MAX - 1);
        if (r == 0)
            r = pack_one(p, fd, all[i]->d_name, level + 1, e);
        p->path[before] = '\0';
        free(all[i]);
    }
    free(all);
    return r;
}

static int
pack_one(struct packing *p, int folder, const char *name, unsigned level, struct err *e)
{
    struct stat st;
    if (level > TAR_LEVELS_MAX)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "pack %.100s...: more than %d levels", p->path,
                       TAR_LEVELS_MAX);
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return level > 1 && errno == ENOENT ? 0 : err_sys(e, errno, "pack %.300s", name);
    if (S_ISREG(st.st_mode))
        return pack_file(p, folder, name, e);
    if (S_ISLNK(st.st_mode))
        return pack_link(p, folder, name, &st, e);
    if (!S_ISDIR(st.st_mode)) {
        p->counts->skipped++;
        return 0;
    }
    int auto_close fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "pack %.300s", p->path);
    size_t n = strlen(p->path);
    int r = 0;
    if (n > 0 && n + 1 < sizeof p->path) { // "" is the folder itself, which is not packed
        (void)snprintf(p->path + n, sizeof p->path - n, "/");
        r = count(p, 0, e);
        if (r == 0)
            r = put_header(p, '5', &st, 0, "", e);
        p->path[n] = '\0';
    }
    return r < 0 ? r : pack_folder(p, fd, level, e);
}

int
tar_pack(int folder, const char *name, const char *as, const struct tar_bounds *bounds,
         const struct tar_sink *sink, struct tar_counts *counts, struct err *e)
{
    static const uint8_t end[2 * TAR_BLOCK];
    struct packing *auto_free p = calloc(1, sizeof *p);
    if (p == NULL)
        return err_sys(e, ENOMEM, "pack files");
    *counts = (struct tar_counts){0};
    p->sink = sink;
    p->bounds = bounds;
    p->counts = counts;
    (void)snprintf(p->path, sizeof p->path, "%s", strcmp(as, ".") == 0 ? "" : as);
    int r = pack_one(p, folder, name, 1, e);
    return r < 0 ? r : put(p, end, sizeof end, e);
}
