// SPDX-License-Identifier: Apache-2.0
// Remove and Copy: whole trees. Each folder is entered by its name from the descriptor of the one above, never through a
// link, so a tree that changes meanwhile leads nowhere else.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"
#include "methods.h"
#include "names.h"
#include "path.h"

enum {
    REMOVE_LEVELS_MAX = 100, // open folders at a time; what lies deeper is moved up first
    COPY_LEVELS_MAX = 200,
    PIECE = 1 << 20,
};

// ---- Remove

struct removal {
    struct op *op;
    const char *path; // for errors
    int top;          // the folder that is removed
    uint64_t removed;
    uint32_t moved; // folders that were moved up
};

// overlayfs moves no folder that a snapshot holds.
static int
cannot_move_up(const struct removal *r, struct err *e)
{
    int rc = err_set(e, ERR_FAILED_PRECONDITION,
                     "remove below %.300s: more than %d levels of folders that a snapshot holds",
                     r->path, REMOVE_LEVELS_MAX);
    err_detail(e, "TOO_DEEP", NULL, "run rm -r in the sandbox, or restore a snapshot without them");
    return rc;
}

static int remove_inside(struct removal *r, int folder, unsigned level, struct err *e);

static int
remove_folder(struct removal *r, int above, const char *name, unsigned level, struct err *e)
{
    char up[48];
    if (level >= REMOVE_LEVELS_MAX) { // it is removed from there, later
        (void)snprintf(up, sizeof up, ".stockade-remove-%u", r->moved++);
        if (renameat(above, name, r->top, up) == 0)
            return 0;
        return errno == EXDEV ? cannot_move_up(r, e) : file_err(e, errno, "remove below", r->path);
    }
    int auto_close fd =
        openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == EACCES && fchmodat(above, name, 0700, 0) == 0)
        fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : file_err(e, errno, "remove", name);
    int rc = remove_inside(r, fd, level + 1, e);
    if (rc < 0)
        return rc;
    if (unlinkat(above, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return file_err(e, errno, "remove", name);
    r->removed++;
    return 0;
}

static int
remove_one(struct removal *r, int folder, const char *name, unsigned level, struct err *e)
{
    int rc = op_busy(r->op, e);
    if (rc < 0)
        return rc;
    if (unlinkat(folder, name, 0) == 0) {
        r->removed++;
        return 0;
    }
    if (errno == EISDIR)
        return remove_folder(r, folder, name, level, e);
    return errno == ENOENT ? 0 : file_err(e, errno, "remove", name);
}

// Until it is empty: deep folders come up into the first one while it is read.
static int
remove_inside(struct removal *r, int folder, unsigned level, struct err *e)
{
    for (;;) {
        struct names all = {0};
        int rc = names_read(folder, &all, e);
        size_t n = all.n;
        for (size_t i = 0; rc == 0 && i < all.n; i++)
            rc = remove_one(r, folder, all.name[i], level, e);
        names_free(&all);
        if (rc < 0 || n == 0)
            return rc;
    }
}

static int
remove_it(struct removal *r, const struct location *at, bool recursive, struct err *e)
{
    if (unlinkat(at->folder, at->name, 0) == 0) {
        r->removed = 1;
        return 0;
    }
    if (errno != EISDIR)
        return file_err(e, errno, "remove", r->path);
    if (recursive) {
        int auto_close top =
            openat(at->folder, at->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (top < 0 && errno == EACCES && fchmodat(at->folder, at->name, 0700, 0) == 0)
            top = openat(at->folder, at->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (top < 0)
            return file_err(e, errno, "remove", r->path);
        r->top = top;
        int rc = remove_inside(r, top, 1, e);
        if (rc < 0)
            return rc;
    }
    if (unlinkat(at->folder, at->name, AT_REMOVEDIR) < 0)
        return file_err(e, errno, "remove", r->path);
    r->removed++;
    return 0;
}

int
files_remove(struct op *op, const ProtobufCMessage *request, struct err *e)
{
    const Stockade__V1__FileServiceRemoveRequest *m =
        (const Stockade__V1__FileServiceRemoveRequest *)request;
    Stockade__V1__FileServiceRemoveResponse answer =
        STOCKADE__V1__FILE_SERVICE_REMOVE_RESPONSE__INIT;
    struct path p;
    struct location at = {.folder = -1};
    int r = path_read_and_locate(&m->path, false, &p, &at, e);
    if (r != 0)
        return r;
    struct removal removal = {.op = op, .path = p.text, .top = -1};
    r = remove_it(&removal, &at, m->recursive, e);
    path_leave(&at);
    answer.removed = removal.removed;
    return r < 0 ? r : op_message(op, &answer.base, e);
}

// ---- Copy

struct copying {
    struct op *op;
    uint64_t copied, skipped;
    dev_t made_dev; // the copy itself, which may lie in what is copied
    ino_t made_ino;
};

static int copy_one(struct copying *c, int from, const char *name, int to, const char *new_name,
                    unsigned level, struct err *e);

static int
copy_bytes(struct copying *c, int in, int out, const char *name, struct err *e)
{
    for (;;) {
        ssize_t n = copy_file_range(in, NULL, out, NULL, PIECE, 0);
        if (n == 0)
            return 0;
        if (n < 0)
            return file_err(e, errno, "copy", name);
        int r = op_busy(c->op, e);
        if (r < 0)
            return r;
    }
}

static int
copy_file(struct copying *c, int from, const char *name, int to, const char *new_name,
          struct err *e)
{
    struct stat st;
    int auto_close in = path_open_regular(from, name, &st, e);
    if (in < 0)
        return in;
    int auto_close out =
        openat(to, new_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return file_err(e, errno, "copy to", new_name);
    int r = st.st_size > 0 ? copy_bytes(c, in, out, name, e) : 0;
    if (r == 0 && fchmod(out, st.st_mode & 0777) < 0)
        r = file_err(e, errno, "copy to", new_name);
    return r;
}

static int
copy_link(int from, const char *name, int to, const char *new_name, struct err *e)
{
    char target[FILES_PATH_MAX];
    ssize_t n = readlinkat(from, name, target, sizeof target - 1);
    if (n < 0)
        return file_err(e, errno, "copy", name);
    target[n] = '\0';
    return symlinkat(target, to, new_name) < 0 ? file_err(e, errno, "copy to", new_name) : 0;
}

static int
copy_inside(struct copying *c, int in, int out, unsigned level, struct err *e)
{
    struct names all = {0};
    int r = names_read(in, &all, e);
    for (size_t i = 0; r == 0 && i < all.n; i++)
        r = copy_one(c, in, all.name[i], out, all.name[i], level + 1, e);
    names_free(&all);
    return r;
}

static int
copy_folder(struct copying *c, int from, const char *name, int to, const char *new_name,
            unsigned level, struct err *e)
{
    struct stat st;
    if (level > COPY_LEVELS_MAX)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "copy %.200s: more than %d levels", name,
                       COPY_LEVELS_MAX);
    int auto_close in = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (in < 0 || fstat(in, &st) < 0)
        return file_err(e, errno, "copy", name);
    if (mkdirat(to, new_name, 0700) < 0)
        return file_err(e, errno, "copy to", new_name);
    int auto_close out = openat(to, new_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat made;
    if (out < 0 || fstat(out, &made) < 0)
        return file_err(e, errno, "copy to", new_name);
    if (level == 1) {
        c->made_dev = made.st_dev;
        c->made_ino = made.st_ino;
    }
    int r = copy_inside(c, in, out, level, e);
    if (r == 0 && fchmod(out, st.st_mode & 0777) < 0)
        r = file_err(e, errno, "copy to", new_name);
    return r;
}

static int
copy_one(struct copying *c, int from, const char *name, int to, const char *new_name,
         unsigned level, struct err *e)
{
    struct stat st;
    int r = op_busy(c->op, e);
    if (r < 0)
        return r;
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return level > 1 && errno == ENOENT ? 0 : file_err(e, errno, "copy", name);
    if (level > 1 && st.st_dev == c->made_dev && st.st_ino == c->made_ino)
        return 0;
    if (S_ISDIR(st.st_mode))
        r = copy_folder(c, from, name, to, new_name, level, e);
    else if (S_ISLNK(st.st_mode))
        r = copy_link(from, name, to, new_name, e);
    else if (S_ISREG(st.st_mode) || level == 1)
        r = copy_file(c, from, name, to, new_name, e);
    else
        c->skipped++;
    if (r == 0 && (level == 1 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode)))
        c->copied++;
    return r;
}

int
files_copy(struct op *op, const ProtobufCMessage *request, struct err *e)
{
    const Stockade__V1__FileServiceCopyRequest *m =
        (const Stockade__V1__FileServiceCopyRequest *)request;
    Stockade__V1__FileServiceCopyResponse answer = STOCKADE__V1__FILE_SERVICE_COPY_RESPONSE__INIT;
    struct copying c = {.op = op};
    struct described file;
    struct path_pair p;
    int r = path_pair(&m->path, &m->to, m->parents, &p, e);
    if (r != 0)
        return r;
    r = copy_one(&c, p.a.folder, p.a.name, p.b.folder, p.b.name, 1, e);
    if (r == 0)
        r = describe_at(p.b.folder, p.b.name, p.to.text, &file, e);
    path_pair_leave(&p);
    answer.file = &file.m;
    answer.copied = c.copied;
    answer.skipped = c.skipped;
    return r < 0 ? r : op_message(op, &answer.base, e);
}
