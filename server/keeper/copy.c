// SPDX-License-Identifier: Apache-2.0
// See work.h: copy_layer(). The source is a layer that a job has written, which nobody can change any more:
//
//   files        blocks that are all zero become holes, so a sparse file of a terabyte costs nothing
//   hard links   made in a folder beside the target first, under their inode, then linked from there
//   whiteouts    character devices 0:0, which overlayfs makes; every other device is refused
//   opaque marks and other extended attributes: names.c
//   sockets, FIFOs, symbolic links, set-id bits, names of any bytes: as they are
//
// The target's mount is where no program of the host looks, and a sandbox sees it through a mount that is nosuid and nodev.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "proto/auto.h"
#include "work.h"

enum { PIECE = 1 << 20 };

static const int FOLDER = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;

struct copy {
    const struct copy_bounds *bounds;
    int links;      // the folder for hard links
    uint64_t bytes; // so far
    char piece[PIECE];
};

static int
failed(struct err *e, const char *what)
{
    int r = err_sys(e, errno, "%s", what);
    if (e->sys == ENOSPC || e->sys == EDQUOT) {
        e->code = ERR_RESOURCE_EXHAUSTED;
        err_detail(e, "DISK_FULL", "state_dir",
                   "free some space on the disk of the state directory, or delete kept snapshots");
    }
    return r;
}

static int
count(struct copy *c, uint64_t bytes, struct err *e)
{
    c->bytes += bytes;
    if (c->bytes <= c->bounds->bytes_max)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                    "the files take more than %" PRIu64 " bytes, all that is left for the caller",
                    c->bounds->bytes_max);
    err_detail(e, "KEPT_BYTES", "quotas.kept_bytes_per_caller",
               "delete kept snapshots and sleeping sandboxes, or remove files");
    return r;
}

// ---- what all kinds have

static int
copy_xattr(struct copy *c, int from, int to, struct xattrs *x, const char *name, struct err *e)
{
    long n = xattrs_get(from, x, name, e);
    if (n < 0)
        return (int)n;
    int rc = xattrs_shift_acl(name, x->value, (size_t)n, c->bounds->uid, KEEP_ID_BASE, e);
    if (rc == 0)
        rc = count(c, (uint64_t)n, e);
    if (rc == 0 && fsetxattr(to, name, x->value, (size_t)n, 0) < 0)
        rc = failed(e, "write an extended attribute");
    return rc;
}

static int
copy_xattrs(struct copy *c, int from, int to, struct err *e)
{
    struct xattrs auto_xattrs x = {0};
    int rc = xattrs_list(from, &x, e);
    for (size_t at = 0; at < x.bytes && rc == 0; at += strlen(x.names + at) + 1)
        if (xattrs_is_kept(x.names + at))
            rc = copy_xattr(c, from, to, &x, x.names + at, e);
    return rc;
}

static void
times_of(const struct stat *st, struct timespec out[2])
{
    out[0] = out[1] = st->st_mtim;
}

// The mode after the owner, because a change of owner clears set-id bits.
static int
finish_open(const struct copy *c, int to, const struct stat *st, struct err *e)
{
    struct timespec times[2];
    const uint32_t uid = c->bounds->uid;
    times_of(st, times);
    if (fchown(to, work_shift_id(st->st_uid, uid, KEEP_ID_BASE),
               work_shift_id(st->st_gid, uid, KEEP_ID_BASE)) < 0 ||
        fchmod(to, st->st_mode & 07777) < 0 || futimens(to, times) < 0)
        return failed(e, "set the owner, mode and time of a file");
    return 0;
}

static int
finish_named(const struct copy *c, int folder, const char *name, const struct stat *st,
             struct err *e)
{
    struct timespec times[2];
    const uint32_t uid = c->bounds->uid;
    times_of(st, times);
    if (fchownat(folder, name, work_shift_id(st->st_uid, uid, KEEP_ID_BASE),
                 work_shift_id(st->st_gid, uid, KEEP_ID_BASE), AT_SYMLINK_NOFOLLOW) < 0 ||
        (!S_ISLNK(st->st_mode) && fchmodat(folder, name, st->st_mode & 07777, 0) < 0) ||
        utimensat(folder, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return failed(e, "set the owner, mode and time of a file");
    return 0;
}

// ---- files

static bool
is_zero(const char *block, size_t n)
{
    return block[0] == 0 && memcmp(block, block + 1, n - 1) == 0;
}

static int
write_all(int to, const char *bytes, size_t n, off_t at, struct err *e)
{
    while (n > 0) {
        ssize_t w = pwrite(to, bytes, n, at);
        if (w <= 0) {
            errno = w == 0 ? ENOSPC : errno;
            return failed(e, "write a file");
        }
        bytes += w;
        at += w;
        n -= (size_t)w;
    }
    return 0;
}

// Writes runs of blocks that are not all zero. `at` is a multiple of a block's size.
static int
copy_piece(struct copy *c, int to, size_t n, off_t at, struct err *e)
{
    int rc = 0;
    for (size_t from = 0; from < n && rc == 0;) {
        size_t end = from;
        while (end < n && !is_zero(c->piece + end, n - end < KEEP_BLOCK ? n - end : KEEP_BLOCK))
            end += KEEP_BLOCK;
        end = end < n ? end : n;
        if (end == from) {
            from += KEEP_BLOCK;
            continue;
        }
        rc = count(c, end - from, e);
        if (rc == 0)
            rc = write_all(to, c->piece + from, end - from, at + (off_t)from, e);
        from = end;
    }
    return rc;
}

static int
copy_contents(struct copy *c, int from, int to, off_t size, struct err *e)
{
    int rc = ftruncate(to, size) < 0 ? failed(e, "set the size of a file") : 0;
    for (off_t at = 0; rc == 0 && at < size;) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break; // a hole to the end
        if (data >= 0)
            at = data - data % KEEP_BLOCK;
        rc = work_goes_on(e);
        ssize_t n = rc < 0 ? 0 : pread(from, c->piece, PIECE, at);
        if (n < 0)
            return err_sys(e, errno, "read a file");
        if (n == 0)
            break;
        rc = copy_piece(c, to, (size_t)n, at, e);
        at += n;
    }
    return rc;
}

static int
copy_file(struct copy *c, int from_folder, const char *name, int to_folder, const char *to_name,
          struct err *e)
{
    struct stat st;
    int auto_close from =
        openat(from_folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (from < 0 || fstat(from, &st) < 0)
        return err_sys(e, errno, "open a file of the layer");
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_ABORTED, "the layer has changed while it was copied");
    int auto_close to =
        openat(to_folder, to_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return failed(e, "create a file");
    int rc = copy_contents(c, from, to, st.st_size, e);
    if (rc == 0)
        rc = copy_xattrs(c, from, to, e);
    return rc == 0 ? finish_open(c, to, &st, e) : rc;
}

// Of a file with several names: the first of them makes it.
static int
copy_linked(struct copy *c, int from, int to, const char *name, const struct stat *st,
            struct err *e)
{
    char inode[32];
    (void)snprintf(inode, sizeof inode, "%" PRIx64, (uint64_t)st->st_ino);
    if (linkat(c->links, inode, to, name, 0) == 0)
        return 0;
    if (errno != ENOENT)
        return failed(e, "make a hard link");
    int rc = copy_file(c, from, name, c->links, inode, e);
    if (rc == 0 && linkat(c->links, inode, to, name, 0) < 0)
        rc = failed(e, "make a hard link");
    return rc;
}

// ---- other kinds

static int
copy_symlink(struct copy *c, int from, int to, const char *name, const struct stat *st,
             struct err *e)
{
    char target[PATH_MAX + 1];
    ssize_t n = readlinkat(from, name, target, PATH_MAX);
    if (n < 0)
        return err_sys(e, errno, "read a symbolic link");
    target[n] = '\0';
    if (symlinkat(target, to, name) < 0)
        return failed(e, "create a symbolic link");
    return finish_named(c, to, name, st, e);
}

static int
copy_special(struct copy *c, int to, const char *name, const struct stat *st, struct err *e)
{
    const bool whiteout = S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
    if (!whiteout && !S_ISFIFO(st->st_mode) && !S_ISSOCK(st->st_mode)) {
        int r =
            err_set(e, ERR_FAILED_PRECONDITION, "the files contain a device, which is not kept");
        err_detail(e, "LAYER_DEVICE", NULL, "remove it in the sandbox");
        return r;
    }
    if (mknodat(to, name, st->st_mode & S_IFMT, makedev(0, 0)) < 0)
        return failed(e, "create a special file");
    return finish_named(c, to, name, st, e);
}

static int copy_inside(struct copy *c, int from, int to, unsigned depth, struct err *e);

static int
copy_folder(struct copy *c, int from, int to, const char *name, unsigned depth, struct err *e)
{
    if (depth == KEEP_DEPTH_MAX) {
        int r = err_set(e, ERR_FAILED_PRECONDITION, "folders are more than %d levels deep",
                        KEEP_DEPTH_MAX);
        err_detail(e, "LAYER_DEEP", NULL, "remove them in the sandbox");
        return r;
    }
    if (mkdirat(to, name, 0700) < 0)
        return failed(e, "create a folder");
    int auto_close source = openat(from, name, FOLDER | O_CLOEXEC);
    int auto_close target = openat(to, name, FOLDER | O_CLOEXEC);
    if (source < 0 || target < 0)
        return err_sys(e, errno, "open a folder");
    return copy_inside(c, source, target, depth + 1, e);
}

static int
copy_one(struct copy *c, int from, int to, const char *name, unsigned depth, struct err *e)
{
    struct stat st;
    int rc = work_goes_on(e);
    if (rc == 0)
        rc = count(c, KEEP_ENTRY_BYTES, e);
    if (rc < 0)
        return rc;
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "look at a file of the layer");
    if (S_ISDIR(st.st_mode))
        return copy_folder(c, from, to, name, depth, e);
    if (S_ISREG(st.st_mode))
        return st.st_nlink > 1 ? copy_linked(c, from, to, name, &st, e)
                               : copy_file(c, from, name, to, name, e);
    return S_ISLNK(st.st_mode) ? copy_symlink(c, from, to, name, &st, e)
                               : copy_special(c, to, name, &st, e);
}

// The folder itself last: entries that are made in it change its time.
static int
copy_inside(struct copy *c, int from, int to, unsigned depth, struct err *e)
{
    struct stat st;
    struct names auto_names all = {0};
    int rc = names_read(from, &all, e);
    for (size_t i = 0; i < all.n && rc == 0; i++)
        rc = copy_one(c, from, to, all.name[i], depth, e);
    if (rc == 0)
        rc = copy_xattrs(c, from, to, e);
    if (rc == 0 && fstat(from, &st) < 0)
        rc = err_sys(e, errno, "look at a folder");
    return rc == 0 ? finish_open(c, to, &st, e) : rc;
}

static int
make_folder(int place, const char *name, struct err *e)
{
    if (mkdirat(place, name, 0700) < 0)
        return failed(e, "create a folder");
    int fd = openat(place, name, FOLDER | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "open a folder") : fd;
}

static int
copy_part(struct copy *c, int source, int place, const char *part, struct err *e)
{
    int auto_close from = work_open_part(source, part, e);
    if (from == -ENOENT)
        return 0;
    if (from < 0)
        return from;
    int auto_close target = make_folder(place, part, e);
    return target < 0 ? target : copy_inside(c, from, target, 0, e);
}

int
copy_layer(int source, int place, const struct copy_bounds *b, struct err *e)
{
    static struct copy c; // 1 MiB
    int rc = 0;
    c.bounds = b;
    c.bytes = 0;
    int auto_close links = make_folder(place, "links", e);
    if (links < 0)
        return links;
    c.links = links;
    for (const char *const *part = work_parts; *part != NULL && rc == 0; part++)
        rc = copy_part(&c, source, place, *part, e);
    return rc == 0 ? remove_tree(place, "links", e) : rc;
}
