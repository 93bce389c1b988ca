// SPDX-License-Identifier: Apache-2.0
// See work.h: copy_layer(). The sources are layers that a job has written, which nobody can change any more, or a frozen one;
// they are read as overlayfs would read them: of a name, the highest entry counts, and folders of several layers are joined, down to
// one that is opaque or to an entry of another kind.
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
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/zero.h"
#include "work.h"

enum { PIECE = 1 << 20 };

static const int FOLDER = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
static const char OPAQUE[] = "trusted.overlay.opaque";

struct copy {
    const struct copy_bounds *bounds;
    int links;      // the folder for hard links
    uint64_t bytes; // so far
    char piece[PIECE];
};

// A folder, as the layers have it that count for it.
struct level {
    bool opaque; // what lies below the last of them must not be seen
    unsigned n;
    struct part {
        unsigned layer;
        int fd; // owned
        struct names names;
        size_t at; // the next name
    } part[];      // the highest first
};

static int
failed(const struct copy *c, const char *what, struct err *e)
{
    return work_disk_full(c->bounds->full_subject, c->bounds->full_hint, what, e);
}

static uint32_t
id_of(const struct copy *c, uint32_t id)
{
    return c->bounds->from_uid == c->bounds->to_uid
               ? id
               : work_shift_id(id, c->bounds->from_uid, c->bounds->to_uid);
}

static int
count(struct copy *c, uint64_t bytes, struct err *e)
{
    c->bytes += bytes;
    return c->bytes <= c->bounds->bytes_max ? 0 : work_too_large(c->bounds->bytes_max, e);
}

// ---- what all kinds have

static int
copy_xattr(struct copy *c, int from, int to, struct xattrs *x, const char *name, struct err *e)
{
    long n = xattrs_get(from, x, name, e);
    if (n < 0)
        return (int)n;
    int rc = c->bounds->from_uid == c->bounds->to_uid
                 ? 0
                 : xattrs_shift_acl(name, x->value, (size_t)n, c->bounds->from_uid,
                                    c->bounds->to_uid, e);
    if (rc == 0)
        rc = count(c, (uint64_t)n, e);
    if (rc == 0 && fsetxattr(to, name, x->value, (size_t)n, 0) < 0)
        rc = failed(c, "write an extended attribute", e);
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
    times_of(st, times);
    if (fchown(to, id_of(c, st->st_uid), id_of(c, st->st_gid)) < 0 ||
        fchmod(to, st->st_mode & 07777) < 0 || futimens(to, times) < 0)
        return failed(c, "set the owner, mode and time of a file", e);
    return 0;
}

static int
finish_named(const struct copy *c, int folder, const char *name, const struct stat *st,
             struct err *e)
{
    struct timespec times[2];
    times_of(st, times);
    if (fchownat(folder, name, id_of(c, st->st_uid), id_of(c, st->st_gid), AT_SYMLINK_NOFOLLOW) <
            0 ||
        (!S_ISLNK(st->st_mode) && fchmodat(folder, name, st->st_mode & 07777, 0) < 0) ||
        utimensat(folder, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return failed(c, "set the owner, mode and time of a file", e);
    return 0;
}

// ---- files

static int
write_all(const struct copy *c, int to, const char *bytes, size_t n, off_t at, struct err *e)
{
    while (n > 0) {
        ssize_t w = pwrite(to, bytes, n, at);
        if (w <= 0) {
            errno = w == 0 ? ENOSPC : errno;
            return failed(c, "write a file", e);
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
        while (end < n && !is_all_zero(c->piece + end, n - end < KEEP_BLOCK ? n - end : KEEP_BLOCK))
            end += KEEP_BLOCK;
        end = end < n ? end : n;
        if (end == from) {
            from += KEEP_BLOCK;
            continue;
        }
        rc = count(c, end - from, e);
        if (rc == 0)
            rc = write_all(c, to, c->piece + from, end - from, at + (off_t)from, e);
        from = end;
    }
    return rc;
}

static int
copy_contents(struct copy *c, int from, int to, off_t size, struct err *e)
{
    int rc = ftruncate(to, size) < 0 ? failed(c, "set the size of a file", e) : 0;
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
        return failed(c, "create a file", e);
    int rc = copy_contents(c, from, to, st.st_size, e);
    if (rc == 0)
        rc = copy_xattrs(c, from, to, e);
    return rc == 0 ? finish_open(c, to, &st, e) : rc;
}

// Of a file with several names in one layer: the first of them makes it.
static int
copy_linked(struct copy *c, const struct part *of, int to, const char *name, const struct stat *st,
            struct err *e)
{
    char inode[48];
    const int from = of->fd;
    (void)snprintf(inode, sizeof inode, "%u-%" PRIx64, of->layer, (uint64_t)st->st_ino);
    if (linkat(c->links, inode, to, name, 0) == 0)
        return 0;
    if (errno != ENOENT)
        return failed(c, "make a hard link", e);
    int rc = copy_file(c, from, name, c->links, inode, e);
    if (rc == 0 && linkat(c->links, inode, to, name, 0) < 0)
        rc = failed(c, "make a hard link", e);
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
        return failed(c, "create a symbolic link", e);
    return finish_named(c, to, name, st, e);
}

static int
copy_special(struct copy *c, int to, const char *name, const struct stat *st, struct err *e)
{
    const bool whiteout = S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
    if (!whiteout && !S_ISFIFO(st->st_mode) && !S_ISSOCK(st->st_mode))
        return work_is_device(e);
    if (mknodat(to, name, st->st_mode & S_IFMT, makedev(0, 0)) < 0)
        return failed(c, "create a special file", e);
    return finish_named(c, to, name, st, e);
}

// ---- folders

static void
level_free(struct level *l)
{
    for (unsigned i = 0; l != NULL && i < l->n; i++) {
        (void)close(l->part[i].fd);
        names_free(&l->part[i].names);
    }
    free(l);
}

static struct level *
level_new(unsigned room, struct err *e)
{
    struct level *l = calloc(1, sizeof *l + room * sizeof l->part[0]);
    if (l == NULL)
        (void)err_sys(e, ENOMEM, "read a folder");
    return l;
}

// Takes the descriptor.
static void
level_add(struct level *l, unsigned layer, int fd)
{
    l->part[l->n++] = (struct part){.layer = layer, .fd = fd};
}

static bool
is_opaque(int folder)
{
    char value[4];
    return fgetxattr(folder, OPAQUE, value, sizeof value) == 1 && value[0] == 'y';
}

// Reads the names, down to a folder that hides those below it.
static int
level_read(struct level *l, struct err *e)
{
    int rc = 0;
    for (unsigned i = 0; i < l->n && rc == 0; i++) {
        rc = names_read(l->part[i].fd, &l->part[i].names, e);
        if (rc < 0 || !is_opaque(l->part[i].fd))
            continue;
        l->opaque = true;
        while (l->n > i + 1)
            (void)close(l->part[--l->n].fd);
    }
    return rc;
}

static const char *
name_at(const struct part *p)
{
    return p->at < p->names.n ? p->names.name[p->at] : NULL;
}

// The next name in the order of their bytes; NULL: there is none.
static const char *
level_name(const struct level *l)
{
    const char *least = NULL;
    for (unsigned i = 0; i < l->n; i++) {
        const char *name = name_at(&l->part[i]);
        if (name != NULL && (least == NULL || strcmp(name, least) < 0))
            least = name;
    }
    return least;
}

static bool
has_name(const struct part *p, const char *name)
{
    const char *mine = name_at(p);
    return mine != NULL && strcmp(mine, name) == 0;
}

static void
level_pass(struct level *l, const char *name)
{
    for (unsigned i = 0; i < l->n; i++)
        if (has_name(&l->part[i], name))
            l->part[i].at++;
}

// The folder of this name in part `first` and those below it.
static int
level_enter(const struct level *l, unsigned first, const char *name, struct level *inner,
            struct err *e)
{
    for (unsigned i = first; i < l->n; i++) {
        if (!has_name(&l->part[i], name))
            continue;
        int fd = openat(l->part[i].fd, name, FOLDER | O_CLOEXEC);
        if (fd < 0 && (errno == ENOTDIR || errno == ELOOP)) {
            inner->opaque = true;
            return 0;
        }
        if (fd < 0)
            return err_sys(e, errno, "open a folder");
        level_add(inner, l->part[i].layer, fd);
    }
    return 0;
}

static int copy_inside(struct copy *c, struct level *l, int to, unsigned depth, struct err *e);

static int
copy_folder(struct copy *c, const struct level *l, unsigned first, int to, const char *name,
            unsigned depth, struct err *e)
{
    if (depth == KEEP_DEPTH_MAX)
        return work_too_deep(e);
    if (mkdirat(to, name, 0700) < 0)
        return failed(c, "create a folder", e);
    int auto_close target = openat(to, name, FOLDER | O_CLOEXEC);
    if (target < 0)
        return err_sys(e, errno, "open a folder");
    struct level *inner = level_new(l->n - first, e);
    int rc = inner == NULL ? err_errno(e) : level_enter(l, first, name, inner, e);
    if (rc == 0)
        rc = copy_inside(c, inner, target, depth + 1, e);
    level_free(inner);
    return rc;
}

static int
copy_one(struct copy *c, const struct level *l, int to, const char *name, unsigned depth,
         struct err *e)
{
    struct stat st;
    unsigned first = 0;
    while (!has_name(&l->part[first], name))
        first++;
    const struct part *of = &l->part[first];
    int rc = work_goes_on(e);
    if (rc == 0)
        rc = count(c, KEEP_ENTRY_BYTES, e);
    if (rc < 0)
        return rc;
    if (fstatat(of->fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "look at a file of the layer");
    if (S_ISDIR(st.st_mode))
        return copy_folder(c, l, first, to, name, depth, e);
    if (S_ISREG(st.st_mode))
        return st.st_nlink > 1 ? copy_linked(c, of, to, name, &st, e)
                               : copy_file(c, of->fd, name, to, name, e);
    return S_ISLNK(st.st_mode) ? copy_symlink(c, of->fd, to, name, &st, e)
                               : copy_special(c, to, name, &st, e);
}

// The folder itself last: entries that are made in it change its time.
static int
copy_inside(struct copy *c, struct level *l, int to, unsigned depth, struct err *e)
{
    struct stat st;
    int rc = level_read(l, e);
    for (const char *name = NULL; rc == 0 && (name = level_name(l)) != NULL;) {
        rc = copy_one(c, l, to, name, depth, e);
        level_pass(l, name);
    }
    if (rc == 0)
        rc = copy_xattrs(c, l->part[0].fd, to, e);
    if (rc == 0 && l->opaque && fsetxattr(to, OPAQUE, "y", 1, 0) < 0)
        rc = failed(c, "mark a folder as opaque", e);
    if (rc == 0 && fstat(l->part[0].fd, &st) < 0)
        rc = err_sys(e, errno, "look at a folder");
    return rc == 0 ? finish_open(c, to, &st, e) : rc;
}

// ---- a layer

static int
make_folder(const struct copy *c, int layer_fd, const char *name, struct err *e)
{
    if (mkdirat(layer_fd, name, 0700) < 0)
        return failed(c, "create a folder", e);
    int fd = openat(layer_fd, name, FOLDER | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "open a folder") : fd;
}

// The names of part `number` in a layer, in an upper file system, and on a sandbox's disk before its first layer
// (spawner/tree_parts.c).
static void
part_of_source(const struct copy_source *s, unsigned number, char out[8])
{
    if (s->kind == KEEP_SOURCE_DISK)
        (void)snprintf(out, 8, "u%u", number);
    else if (s->kind == KEEP_SOURCE_UPPER)
        (void)snprintf(out, 8, "%c", number == 0 ? 'u' : (char)('A' + number));
    else
        (void)snprintf(out, 8, "%s", work_parts[number]);
}

static int
copy_part(struct copy *c, const struct copy_sources *from, int layer_fd, unsigned number,
          struct err *e)
{
    char name[8];
    int rc = 0;
    struct level *l = level_new(from->n, e);
    for (unsigned i = 0; l != NULL && i < from->n && rc == 0; i++) {
        part_of_source(&from->of[i], number, name);
        int fd = work_open_part(from->of[i].fd, name, e);
        if (fd >= 0)
            level_add(l, i, fd);
        else if (fd != -ENOENT)
            rc = fd;
    }
    if (l == NULL || rc < 0 || l->n == 0) {
        level_free(l);
        return l == NULL ? err_errno(e) : rc;
    }
    int auto_close target = make_folder(c, layer_fd, work_parts[number], e);
    rc = target < 0 ? target : copy_inside(c, l, target, 0, e);
    level_free(l);
    return rc;
}

// Before a sandbox has its first layer, /dev/shm is a folder beside the others, and becomes one of the layer
// (spawner/tree_swap.c).
static int
copy_shm(struct copy *c, const struct copy_source *disk, int layer_fd, struct err *e)
{
    struct stat st;
    if (fstat(disk->dev_fd, &st) < 0)
        return err_sys(e, errno, "look at /dev");
    int shm = work_open_part(disk->fd, "shm", e);
    if (shm < 0)
        return shm == -ENOENT ? err_set(e, ERR_INTERNAL, "the disk has no shm") : shm;
    struct level *l = level_new(1, e);
    if (l == NULL) {
        (void)close(shm);
        return err_errno(e);
    }
    level_add(l, 0, shm);
    int auto_close part = work_open_part(layer_fd, work_parts[0], e);
    int auto_close dev = part < 0 ? -1 : make_folder(c, part, "dev", e);
    int auto_close target = dev < 0 ? -1 : make_folder(c, dev, "shm", e);
    int rc = target < 0 ? err_errno(e) : copy_inside(c, l, target, 0, e);
    level_free(l);
    return rc == 0 ? finish_open(c, dev, &st, e) : rc;
}

int
copy_layer(const struct copy_sources *from, int layer_fd, const struct copy_bounds *b,
           struct err *e)
{
    static struct copy c; // 1 MiB
    int rc = 0;
    c.bounds = b;
    c.bytes = 0;
    int auto_close links = make_folder(&c, layer_fd, "links", e);
    if (links < 0)
        return links;
    c.links = links;
    for (unsigned part = 0; work_parts[part] != NULL && rc == 0; part++)
        if (work_is_part(part))
            rc = copy_part(&c, from, layer_fd, part, e);
    if (rc == 0 && from->of[0].kind == KEEP_SOURCE_DISK)
        rc = copy_shm(&c, &from->of[0], layer_fd, e);
    return rc == 0 ? remove_tree(layer_fd, "links", e) : rc;
}
