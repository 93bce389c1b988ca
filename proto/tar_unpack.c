// SPDX-License-Identifier: Apache-2.0
// See tar.h: tar_unpack(), and the headers of archives that it accepts.
#include "tar.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/plural.h"
#include "proto/zero.h"

enum { PIECE = 60 * 1024, PAX_MAX = 64 * 1024, AGAIN_MAX = 64 };

struct unpacking {
    int folder;
    bool links_inside;
    const struct tar_bounds *bounds;
    const struct tar_source *source;
    struct tar_counts *counts;
    uint64_t offset;              // of the archive, for errors
    char long_name[TAR_NAME_MAX]; // for the next entry; "": none
    char long_link[TAR_NAME_MAX];
    bool has_size;
    uint64_t size; // of pax, for the next entry
    uint8_t piece[PIECE];
    char pax[PAX_MAX + 1];
};

static int
refuse(struct err *e, const char *name, const char *why)
{
    int r = err_set(e, ERR_INVALID_ARGUMENT, "unpack %.200s: %s", name, why);
    err_detail(e, "ARCHIVE_REFUSED", "archive", NULL);
    return r;
}

// ---- headers

// Octal with blanks around it, or base 256. False: neither, or negative.
static bool
read_number(const uint8_t *field, size_t n, uint64_t *out)
{
    uint64_t value = 0;
    size_t i = 0;
    if ((field[0] & 0x80) != 0) {
        if (field[0] != 0x80)
            return false;
        for (i = 1; i < n; i++) {
            if (value >> 55 != 0)
                return false;
            value = value << 8 | field[i];
        }
        *out = value;
        return true;
    }
    while (i < n && field[i] == ' ')
        i++;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++)
        value = value << 3 | (uint64_t)(field[i] - '0');
    for (; i < n; i++)
        if (field[i] != ' ' && field[i] != '\0')
            return false;
    *out = value;
    return true;
}

static bool
checksum_holds(const uint8_t *b)
{
    uint64_t stored = 0;
    uint64_t sum = 0;
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += i >= 148 && i < 156 ? ' ' : b[i];
    return read_number(b + 148, 8, &stored) && stored == sum;
}

static void
copy_text(char *out, const uint8_t *field, size_t n)
{
    size_t length = strnlen((const char *)field, n);
    memcpy(out, field, length);
    out[length] = '\0';
}

static bool
kind_of(uint8_t type, enum tar_kind *out)
{
    static const struct {
        char type;
        enum tar_kind kind;
    } kinds[] = {{'0', TAR_FILE}, {'\0', TAR_FILE},     {'7', TAR_FILE},      {'5', TAR_FOLDER},
                 {'2', TAR_LINK}, {'1', TAR_HARD_LINK}, {'L', TAR_LONG_NAME}, {'K', TAR_LONG_LINK},
                 {'x', TAR_PAX},  {'g', TAR_PAX_GLOBAL}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].type == (char)type) {
            *out = kinds[i].kind;
            return true;
        }
    return false;
}

int
tar_header_read(const uint8_t b[TAR_BLOCK], struct tar_header *out, struct err *e)
{
    uint64_t mode = 0;
    uint64_t mtime = 0;
    *out = (struct tar_header){.kind = TAR_END};
    if (is_all_zero(b, TAR_BLOCK))
        return 0;
    if (!checksum_holds(b))
        return refuse(e, "an archive",
                      "a header has a wrong checksum: it is no tar archive, or damaged");
    bool posix = memcmp(b + 257, "ustar\0", 6) == 0;
    size_t at = 0;
    if (posix && b[345] != '\0') { // a prefix
        copy_text(out->name, b + 345, 155);
        at = strlen(out->name);
        out->name[at++] = '/';
    }
    copy_text(out->name + at, b, 100);
    copy_text(out->link, b + 157, 100);
    if (!kind_of(b[156], &out->kind))
        return refuse(
            e, out->name,
            "only files, folders and links are unpacked, no devices, FIFOs or sparse files");
    if (!read_number(b + 124, 12, &out->size) || !read_number(b + 100, 8, &mode))
        return refuse(e, out->name, "a header is damaged");
    (void)read_number(b + 136, 12, &mtime);
    out->mode = (uint32_t)(mode & 0777);
    out->mtime = (int64_t)(mtime & INT64_MAX);
    bool has_data = out->kind == TAR_FILE || out->kind >= TAR_LONG_NAME;
    if (!has_data)
        out->size = 0;
    return 0;
}

// ---- names

// Whether the path is made of names alone, without ".."; "." and "//" are harmless.
static int
check_name(const char *path, struct err *e)
{
    unsigned levels = 0;
    if (path[0] == '/')
        return refuse(e, path, "the name is absolute");
    for (const char *at = path; *at != '\0';) {
        size_t n = strcspn(at, "/");
        if (n == 2 && at[0] == '.' && at[1] == '.')
            return refuse(e, path, "the name has '..'");
        if (n > 255)
            return refuse(e, path, "a name is longer than 255 bytes");
        levels += n > 0 && !(n == 1 && at[0] == '.');
        at += n + (at[n] == '/');
    }
    return levels > TAR_LEVELS_MAX ? refuse(e, path, "it has too many levels") : 0;
}

// The next name of a path, without "." and empty ones. NULL: there is none; otherwise *n is its length.
static const char *
next_name(const char **at, size_t *n)
{
    while (**at != '\0') {
        const char *name = *at;
        *n = strcspn(name, "/");
        *at = name + *n + (name[*n] == '/');
        if (*n > 0 && !(*n == 1 && name[0] == '.'))
            return name;
    }
    return NULL;
}

// The folders of the path are no links, so as many ".." as there are folders stay inside. After another name ".." may leave
// from anywhere, since that name can be a link: "b/.." with b -> "..".
bool
tar_link_stays(const char *path, const char *target)
{
    const char *name = NULL;
    size_t n = 0;
    int level = -1; // the last name is no folder
    bool named = false;
    if (target[0] == '/')
        return false;
    while (next_name(&path, &n) != NULL)
        level++;
    while ((name = next_name(&target, &n)) != NULL) {
        bool up = n == 2 && name[0] == '.' && name[1] == '.';
        if (up && (named || --level < 0))
            return false;
        named = named || !up;
    }
    return true;
}

static int
open_below(const struct unpacking *u, const char *path, int flags)
{
    const struct open_how how = {.flags = (__u64)(unsigned)(flags | O_CLOEXEC),
                                 .resolve =
                                     RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    for (int i = 0; i < AGAIN_MAX; i++) {
        long fd = syscall(SYS_openat2, u->folder, path, &how, sizeof how);
        if (fd >= 0 || errno != EAGAIN)
            return fd >= 0 ? (int)fd : -errno;
    }
    return -EBUSY;
}

// Opens the folder of a path, and makes what is missing of it. *name: the last name.
static int
enter(const struct unpacking *u, char *path, const char **name, struct err *e)
{
    size_t n = strlen(path);
    while (n > 0 && path[n - 1] == '/')
        path[--n] = '\0';
    char *slash = strrchr(path, '/');
    *name = slash != NULL ? slash + 1 : path;
    if (slash == NULL)
        return fcntl(u->folder, F_DUPFD_CLOEXEC, 0);
    *slash = '\0';
    int fd = open_below(u, path, O_PATH | O_DIRECTORY);
    for (char *at = path; fd == -ENOENT; at++) { // make one after the other
        if (*at != '/' && *at != '\0')
            continue;
        char kept = *at;
        *at = '\0';
        const char *last = NULL;
        char part[TAR_NAME_MAX];
        (void)snprintf(part, sizeof part, "%s", path);
        int above = part[0] != '\0' && strcmp(part, ".") != 0 ? enter(u, part, &last, e) : -1;
        if (above >= 0) {
            (void)mkdirat(above, last, 0755);
            (void)close(above);
        }
        *at = kept;
        if (kept == '\0') {
            fd = open_below(u, path, O_PATH | O_DIRECTORY);
            break;
        }
    }
    if (fd == -ELOOP || fd == -ENOTDIR || fd == -EXDEV)
        return refuse(e, path, "a link or a file is on the way to it");
    return fd < 0 ? err_sys(e, -fd, "unpack %.200s", path) : fd;
}

// ---- entries

static int
read_all(struct unpacking *u, void *bytes, size_t n, struct err *e)
{
    size_t got = 0;
    while (got < n) {
        ssize_t r = u->source->read(u->source->cookie, (uint8_t *)bytes + got, n - got, e);
        if (r < 0)
            return (int)r;
        if (r == 0) {
            int rc = err_set(e, ERR_DATA_LOSS, "the archive ends early, after %llu %s",
                             (unsigned long long)u->offset + got,
                             plural(u->offset + got, "byte", "bytes"));
            err_detail(e, "ARCHIVE_CUT", "archive", NULL);
            return rc;
        }
        got += (size_t)r;
    }
    u->offset += n;
    return 0;
}

static int
skip_padding(struct unpacking *u, uint64_t size, struct err *e)
{
    size_t over = (size_t)(size % TAR_BLOCK);
    return over == 0 ? 0 : read_all(u, u->piece, TAR_BLOCK - over, e);
}

static int
count(struct unpacking *u, uint64_t bytes, struct err *e)
{
    u->counts->entries++;
    u->counts->bytes += bytes;
    bool fits = (u->bounds->entries == 0 || u->counts->entries <= u->bounds->entries) &&
                (u->bounds->bytes == 0 || u->counts->bytes <= u->bounds->bytes) &&
                u->counts->bytes >= bytes;
    if (fits)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "the archive has more than %llu files or %llu bytes",
                    (unsigned long long)u->bounds->entries, (unsigned long long)u->bounds->bytes);
    err_detail(e, "ARCHIVE_TOO_LARGE", "archive", "raise the bound, or send it in parts");
    return r;
}

static int
unpack_data(struct unpacking *u, int fd, const struct tar_header *h, struct err *e)
{
    uint64_t left = h->size;
    while (left > 0) {
        size_t n = left < PIECE ? (size_t)left : PIECE;
        int r = read_all(u, u->piece, n, e);
        if (r < 0)
            return r;
        for (size_t at = 0; at < n;) {
            ssize_t w = write(fd, u->piece + at, n - at);
            if (w < 0 && errno != EINTR)
                return err_sys(e, errno, "unpack %.200s", h->name);
            at += w > 0 ? (size_t)w : 0;
        }
        left -= n;
    }
    return skip_padding(u, h->size, e);
}

static int
unpack_file(struct unpacking *u, int folder, const char *name, const struct tar_header *h,
            struct err *e)
{
    (void)unlinkat(folder, name, 0);
    int auto_close fd =
        openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, errno, "unpack %.200s", h->name);
    int r = unpack_data(u, fd, h, e);
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = (time_t)h->mtime}};
    if (r == 0 && (fchmod(fd, h->mode) < 0 || (h->mtime > 0 && futimens(fd, times) < 0)))
        r = err_sys(e, errno, "unpack %.200s", h->name);
    return r;
}

static int
unpack_folder(int folder, const char *name, const struct tar_header *h, struct err *e)
{
    struct stat st;
    if (mkdirat(folder, name, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "unpack %.200s", h->name);
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
        return refuse(e, h->name, "there is a file in the place of the folder");
    // its files may follow, so the owner may always write
    int auto_close fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fchmod(fd, h->mode | 0700) < 0)
        return err_sys(e, errno, "unpack %.200s", h->name);
    return 0;
}

static int
unpack_link(struct unpacking *u, int folder, const char *name, const struct tar_header *h,
            struct err *e)
{
    if (u->links_inside && !tar_link_stays(h->name, h->link)) {
        int r = refuse(e, h->name, "the symbolic link leads out of the folder");
        err_detail(e, "LINK_LEADS_OUT", NULL, NULL);
        return r;
    }
    (void)unlinkat(folder, name, 0);
    return symlinkat(h->link, folder, name) < 0 ? err_sys(e, errno, "unpack %.200s", h->name) : 0;
}

static int
unpack_hard_link(struct unpacking *u, int folder, const char *name, const struct tar_header *h,
                 struct err *e)
{
    char path[TAR_NAME_MAX];
    const char *last = NULL;
    struct stat st;
    int r = check_name(h->link, e);
    if (r < 0)
        return r;
    (void)snprintf(path, sizeof path, "%s", h->link);
    int auto_close from = enter(u, path, &last, e);
    if (from < 0)
        return err_errno(e);
    if (fstatat(from, last, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return refuse(e, h->name, "a hard link to what is no file of the archive");
    (void)unlinkat(folder, name, 0);
    return linkat(from, last, folder, name, 0) < 0 ? err_sys(e, errno, "unpack %.200s", h->name)
                                                   : 0;
}

static int
unpack_entry(struct unpacking *u, struct tar_header *h, struct err *e)
{
    char path[TAR_NAME_MAX];
    const char *name = NULL;
    int r = check_name(h->name, e);
    if (r == 0)
        r = count(u, h->size, e);
    if (r < 0)
        return r;
    (void)snprintf(path, sizeof path, "%s", h->name);
    int auto_close folder = enter(u, path, &name, e);
    if (folder < 0)
        return err_errno(e);
    if (name[0] == '\0' || strcmp(name, ".") == 0) // the folder itself
        return h->kind == TAR_FOLDER ? 0 : refuse(e, h->name, "a file without a name");
    switch (h->kind) {
    case TAR_FILE:
        return unpack_file(u, folder, name, h, e);
    case TAR_FOLDER:
        return unpack_folder(folder, name, h, e);
    case TAR_LINK:
        return unpack_link(u, folder, name, h, e);
    case TAR_HARD_LINK:
        return unpack_hard_link(u, folder, name, h, e);
    case TAR_LONG_NAME:
    case TAR_LONG_LINK:
    case TAR_PAX:
    case TAR_PAX_GLOBAL:
    case TAR_END:
        break;
    }
    return refuse(e, h->name, "an entry of another kind");
}

// ---- headers that describe the next one

static int
read_text(struct unpacking *u, uint64_t size, char *out, size_t room, const char *what,
          struct err *e)
{
    if (size >= room)
        return refuse(e, what, "a name is too long");
    int r = read_all(u, out, (size_t)size, e);
    out[size] = '\0';
    return r < 0 ? r : skip_padding(u, size, e);
}

// One record of pax: "LENGTH KEY=VALUE\n".
static int
take_record(struct unpacking *u, const char *key, size_t key_n, const char *value, size_t value_n,
            struct err *e)
{
    char *to = NULL;
    if (key_n == 4 && memcmp(key, "path", 4) == 0)
        to = u->long_name;
    else if (key_n == 8 && memcmp(key, "linkpath", 8) == 0)
        to = u->long_link;
    else if (key_n > 11 && memcmp(key, "GNU.sparse.", 11) == 0)
        return refuse(e, "an archive", "sparse files are not unpacked");
    if (to != NULL) {
        if (value_n >= TAR_NAME_MAX || memchr(value, 0, value_n) != NULL)
            return refuse(e, "an archive", "a name is too long or contains NUL");
        memcpy(to, value, value_n);
        to[value_n] = '\0';
        return 0;
    }
    if (key_n != 4 || memcmp(key, "size", 4) != 0)
        return 0;
    uint64_t size = 0;
    for (size_t i = 0; i < value_n; i++) {
        if (value[i] < '0' || value[i] > '9' || size > (UINT64_MAX >> 8))
            return refuse(e, "an archive", "a size is no number");
        size = size * 10 + (uint64_t)(value[i] - '0');
    }
    u->has_size = true;
    u->size = size;
    return 0;
}

static int
read_pax(struct unpacking *u, uint64_t size, bool global, struct err *e)
{
    int r = read_text(u, size, u->pax, sizeof u->pax, "pax headers", e);
    for (size_t at = 0; r == 0 && !global && at < size;) {
        size_t n = 0;
        size_t i = at;
        while (i < size && u->pax[i] >= '0' && u->pax[i] <= '9' && n <= PAX_MAX)
            n = n * 10 + (size_t)(u->pax[i++] - '0');
        const char *end = u->pax + at + n - 1;
        if (i >= size || u->pax[i] != ' ' || n <= i - at + 1 || n > size - at || *end != '\n')
            return refuse(e, "an archive", "its pax headers are damaged");
        const char *key = u->pax + i + 1;
        const char *equals = memchr(key, '=', (size_t)(end - key));
        if (equals == NULL)
            return refuse(e, "an archive", "its pax headers are damaged");
        r = take_record(u, key, (size_t)(equals - key), equals + 1, (size_t)(end - equals - 1), e);
        at += n;
    }
    return r;
}

// The header of the next entry, with what came before it. 1: there is one; 0: the end.
static int
next(struct unpacking *u, struct tar_header *h, struct err *e)
{
    uint8_t block[TAR_BLOCK];
    for (;;) {
        int r = read_all(u, block, sizeof block, e);
        if (r == 0)
            r = tar_header_read(block, h, e);
        if (r < 0 || h->kind == TAR_END)
            return r;
        if (h->kind == TAR_LONG_NAME)
            r = read_text(u, h->size, u->long_name, sizeof u->long_name, "an archive", e);
        else if (h->kind == TAR_LONG_LINK)
            r = read_text(u, h->size, u->long_link, sizeof u->long_link, "an archive", e);
        else if (h->kind == TAR_PAX || h->kind == TAR_PAX_GLOBAL)
            r = read_pax(u, h->size, h->kind == TAR_PAX_GLOBAL, e);
        else
            return 1;
        if (r < 0)
            return r;
        if (++u->counts->entries > u->bounds->entries && u->bounds->entries > 0)
            return count(u, 0, e);
        u->counts->entries--;
    }
}

static void
take_long(struct unpacking *u, struct tar_header *h)
{
    if (u->long_name[0] != '\0')
        memcpy(h->name, u->long_name, sizeof h->name);
    if (u->long_link[0] != '\0')
        memcpy(h->link, u->long_link, sizeof h->link);
    if (u->has_size && h->kind == TAR_FILE)
        h->size = u->size;
    u->long_name[0] = u->long_link[0] = '\0';
    u->has_size = false;
}

// What follows the end is read, so that its writer is not cut off.
static int
drain(struct unpacking *u, struct err *e)
{
    ssize_t n = 0;
    while ((n = u->source->read(u->source->cookie, u->piece, sizeof u->piece, e)) > 0)
        continue;
    return (int)n;
}

static int
unpack_all(struct unpacking *u, struct tar_header *h, struct err *e)
{
    int r = 0;
    while ((r = next(u, h, e)) > 0) {
        take_long(u, h);
        r = unpack_entry(u, h, e);
        if (r < 0)
            break;
    }
    return r < 0 ? r : drain(u, e);
}

int
tar_unpack(int folder, bool links_inside, const struct tar_bounds *bounds,
           const struct tar_source *source, struct tar_counts *counts, struct err *e)
{
    struct unpacking *u = calloc(1, sizeof *u);
    struct tar_header *h = calloc(1, sizeof *h);
    *counts = (struct tar_counts){0};
    int r = u == NULL || h == NULL ? err_sys(e, ENOMEM, "unpack files") : 0;
    if (r == 0) {
        u->folder = folder;
        u->links_inside = links_inside;
        u->bounds = bounds;
        u->source = source;
        u->counts = counts;
        r = unpack_all(u, h, e);
    }
    free(u);
    free(h);
    return r;
}
