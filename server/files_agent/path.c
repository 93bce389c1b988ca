// SPDX-License-Identifier: Apache-2.0
// See path.h.
#include "path.h"

#include <errno.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/auto.h"
#include "op.h"

enum { AGAIN_MAX = 64 };

static int root = -1;
static char start[FILES_PATH_MAX];

int
path_init(const char *root_at, const char *workdir, struct err *e)
{
    root = open(root_at, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (root < 0)
        return err_sys(e, errno, "open the root %s", root_at);
    (void)snprintf(start, sizeof start, "%s", workdir);
    return 0;
}

int
path_read(const ProtobufCBinaryData *from, struct path *out, struct err *e)
{
    bool absolute = from->len > 0 && from->data[0] == '/';
    const char *const folder = strcmp(start, "/") == 0 ? "" : start;
    size_t before = absolute ? 0 : strlen(folder) + 1;
    if (from->len == 0 || memchr(from->data, 0, from->len) != NULL)
        return err_field(e, "path", "must not be empty or contain NUL");
    if (before + from->len >= sizeof out->text)
        return file_err(e, ENAMETOOLONG, "find", "the path");
    if (!absolute)
        (void)snprintf(out->text, sizeof out->text, "%s/", folder);
    memcpy(out->text + before, from->data, from->len);
    out->text[before + from->len] = '\0';
    return 0;
}

// openat2(2) says EAGAIN when a folder on the way was renamed meanwhile, which a job can do all the time.
static int
open_in(const char *path, int flags)
{
    const struct open_how how = {.flags = (__u64)(unsigned)(flags | O_CLOEXEC),
                                 .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    for (int i = 0; i < AGAIN_MAX; i++) {
        long fd = syscall(SYS_openat2, root, path, &how, sizeof how);
        if (fd >= 0 || errno != EAGAIN)
            return fd >= 0 ? (int)fd : -errno;
    }
    return -EBUSY;
}

int
path_open(const char *path, int flags, struct err *e)
{
    int fd = open_in(path, flags);
    return fd < 0 ? file_err(e, -fd, "open", path) : fd;
}

int
path_make_folders(const char *path, struct err *e)
{
    char part[FILES_PATH_MAX];
    struct location p;
    (void)snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash != NULL)
            *slash = '\0';
        int fd = open_in(part, O_PATH | O_DIRECTORY);
        if (fd == -ENOENT) {
            int r = path_locate(part, false, &p, e);
            if (r < 0)
                return r;
            if (mkdirat(p.folder, p.name, 0755) < 0 && errno != EEXIST)
                r = file_err(e, errno, "make folder", part);
            path_leave(&p);
            if (r < 0)
                return r;
        } else if (fd < 0) {
            return file_err(e, -fd, "enter", part);
        } else {
            (void)close(fd);
        }
        if (slash == NULL)
            return 0;
        *slash = '/';
    }
}

// Cuts the last name off: "/a/b//" becomes "/a" and "b".
static const char *
cut_name(char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    char *slash = strrchr(path, '/');
    if (n <= 1)
        return ".";
    *slash = '\0';
    return slash + 1;
}

int
path_locate(const char *path, bool parents, struct location *out, struct err *e)
{
    (void)snprintf(out->text, sizeof out->text, "%s", path);
    out->name = cut_name(out->text);
    const char *folder = out->text[0] != '\0' ? out->text : "/";
    if (strcmp(out->name, "..") == 0 || (strcmp(out->name, ".") == 0 && strcmp(folder, "/") != 0))
        return err_field(e, "path", "must not end with '.' or '..'");
    int fd = open_in(folder, O_PATH | O_DIRECTORY);
    if (fd == -ENOENT && parents) {
        int r = path_make_folders(folder, e);
        if (r < 0)
            return r;
        fd = open_in(folder, O_PATH | O_DIRECTORY);
    }
    if (fd < 0)
        return file_err(e, -fd, "enter", folder);
    out->folder = fd;
    return 0;
}

int
path_read_and_locate(const ProtobufCBinaryData *from, bool parents, struct path *path,
                     struct location *out, struct err *e)
{
    int r = path_read(from, path, e);
    return r < 0 ? r : path_locate(path->text, parents, out, e);
}

void
path_leave(struct location *p)
{
    (void)close(p->folder);
    p->folder = -1;
}

int
path_pair(const ProtobufCBinaryData *path, const ProtobufCBinaryData *to, bool parents,
          struct path_pair *out, struct err *e)
{
    int r = path_read(path, &out->path, e);
    if (r == 0)
        r = path_read(to, &out->to, e);
    if (r == 0)
        r = path_locate(out->path.text, false, &out->a, e);
    if (r != 0)
        return r;
    r = path_locate(out->to.text, parents, &out->b, e);
    if (r != 0)
        path_leave(&out->a);
    return r;
}

void
path_pair_leave(struct path_pair *p)
{
    path_leave(&p->a);
    path_leave(&p->b);
}

int
path_rename(int from, const char *name, int to, const char *new_name, bool keep)
{
    long r = syscall(SYS_renameat2, from, name, to, new_name, keep ? RENAME_NOREPLACE : 0);
    return r < 0 ? -errno : 0;
}

// O_NONBLOCK: a FIFO does not wait for its other end, nor a device for its carrier.
int
path_open_regular(int folder, const char *name, struct stat *st, struct err *e)
{
    int auto_close fd =
        openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return file_err(e, errno, "open", name);
    if (fstat(fd, st) < 0)
        return file_err(e, errno, "read", name);
    if (!S_ISREG(st->st_mode))
        return file_not_regular(e, st->st_mode, "read", name);
    return take_fd(&fd);
}

// FNV-1a: it only has to differ when a file changes.
static uint64_t
mix(uint64_t hash, uint64_t value)
{
    for (int i = 0; i < 64; i += 8)
        hash = (hash ^ (value >> i & 0xff)) * UINT64_C(0x100000001b3);
    return hash;
}

void
describe_version(const struct stat *st, char out[20])
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    const uint64_t values[] = {st->st_dev,
                               st->st_ino,
                               (uint64_t)st->st_size,
                               (uint64_t)st->st_mtim.tv_sec,
                               (uint64_t)st->st_mtim.tv_nsec,
                               (uint64_t)st->st_ctim.tv_sec,
                               (uint64_t)st->st_ctim.tv_nsec};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        h = mix(h, values[i]);
    (void)snprintf(out, 20, "%016llx", (unsigned long long)h);
}

static Stockade__V1__FileType
type_of(mode_t mode)
{
    if (S_ISREG(mode))
        return STOCKADE__V1__FILE_TYPE__FILE_TYPE_FILE;
    if (S_ISDIR(mode))
        return STOCKADE__V1__FILE_TYPE__FILE_TYPE_FOLDER;
    return S_ISLNK(mode) ? STOCKADE__V1__FILE_TYPE__FILE_TYPE_LINK
                         : STOCKADE__V1__FILE_TYPE__FILE_TYPE_OTHER;
}

void
describe(const struct stat *st, const void *path, size_t path_n, struct described *out)
{
    stockade__v1__file__init(&out->m);
    google__protobuf__timestamp__init(&out->time);
    out->m.path = (ProtobufCBinaryData){path_n, (uint8_t *)(uintptr_t)path};
    out->m.type = type_of(st->st_mode);
    out->m.size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
    out->m.mode = st->st_mode & 07777;
    out->time.seconds = st->st_mtim.tv_sec;
    out->time.nanos = (int32_t)st->st_mtim.tv_nsec;
    out->m.modify_time = &out->time;
    describe_version(st, out->version);
    out->m.version = out->version;
}

int
describe_at(int folder, const char *name, const char *path, struct described *out, struct err *e)
{
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return file_err(e, errno, "describe", path);
    describe(&st, path, strlen(path), out);
    if (!S_ISLNK(st.st_mode))
        return 0;
    ssize_t n = readlinkat(folder, name, out->target, sizeof out->target - 1);
    if (n > 0)
        out->m.target = (ProtobufCBinaryData){(size_t)n, (uint8_t *)out->target};
    return 0;
}
