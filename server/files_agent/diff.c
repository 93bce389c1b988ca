// SPDX-License-Identifier: Apache-2.0
// Diff: a page of a sorted walk through two states of the files. The states are overlays, so the kernel has read whiteouts and
// opaque marks. The walk compares a name that both states have only if one of the layers that they do not share has it; so its
// time depends on what was written in between, not on the number of all files.
//
// A page token is the path of the last change of the page before. The walk goes on inside of it, then behind it in the folder
// above, and so on. Folders are opened by their paths, and closed before those below are opened: a deep tree needs no more
// descriptors than a flat one.
#include "diff.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/auto.h"
#include "names.h"

enum {
    PAGE_BYTES = FILES_DATA_MAX - 20 * 1024, // before its last change and its token
    PAGE_CHANGES = 100,
    PIECE = 64 * 1024,
    OVERHEAD = 256, // of a change as a message, without its path and targets
};

// One folder in all states; -1: it is not there.
struct folder {
    int fd[STATE_FDS];
};

// A file in the two states.
struct pair {
    const char *name;
    bool there[2];
    struct stat st[2];
};

static const int FOLDER = O_RDONLY | O_DIRECTORY | O_NONBLOCK;

static void
folder_close(struct folder *f)
{
    for (int i = 0; i < STATE_FDS; i++) {
        if (f->fd[i] >= 0)
            (void)close(f->fd[i]);
        f->fd[i] = -1;
    }
}

static int
folder_open(const struct diff *d, struct folder *f, struct err *e)
{
    int r = 0;
    for (int i = 0; i < STATE_FDS; i++) {
        f->fd[i] = states_open(&d->states, (enum spawn_state_fd)i, d->path, FOLDER);
        if (f->fd[i] == -EMFILE || f->fd[i] == -ENFILE || f->fd[i] == -ENOMEM)
            r = file_err(e, -f->fd[i], "open", d->path);
        if (f->fd[i] < 0)
            f->fd[i] = -1;
    }
    if (r < 0)
        folder_close(f);
    return r;
}

// ---- one file

// Whether a name may differ: one of the layers that the states do not share has it.
static bool
may_differ(const struct folder *f, const char *name)
{
    struct stat st;
    for (int i = STATE_FD_FROM_ONLY; i < STATE_FDS; i++)
        if (f->fd[i] >= 0 &&
            (fstatat(f->fd[i], name, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno == EACCES))
            return true;
    return false;
}

static int
open_both(const struct folder *f, const char *name, int fds[2])
{
    for (int i = 0; i < 2; i++)
        fds[i] = openat(f->fd[i], name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fds[0] < 0 || fds[1] < 0 ? -EACCES : 0;
}

// A job may put something else in its place meanwhile.
static bool
is_regular(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

// 1: they differ.
static int
compare_bytes(struct diff *d, const int fds[2], struct err *e)
{
    static char piece[2][PIECE];
    for (off_t at = 0;; at += PIECE) {
        ssize_t n = pread(fds[0], piece[0], PIECE, at);
        ssize_t m = pread(fds[1], piece[1], PIECE, at);
        if (n < 0 || m < 0)
            return file_err(e, errno, "read", d->path);
        if (n != m || memcmp(piece[0], piece[1], (size_t)n) != 0)
            return 1;
        if (n < PIECE)
            return 0;
        int r = op_busy(d->op, e);
        if (r < 0)
            return r;
    }
}

static int
contents_differ(struct diff *d, const struct folder *f, const struct pair *p, bool *unreadable,
                struct err *e)
{
    const struct stat *a = &p->st[0], *b = &p->st[1];
    int fds[2];
    if (a->st_size != b->st_size)
        return 1;
    *unreadable = open_both(f, p->name, fds) < 0;
    int r = 1;
    if (*unreadable)
        r = a->st_mtim.tv_sec != b->st_mtim.tv_sec || a->st_mtim.tv_nsec != b->st_mtim.tv_nsec;
    else if (is_regular(fds[0]) && is_regular(fds[1]))
        r = compare_bytes(d, fds, e);
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
    return r;
}

static bool
links_differ(const struct folder *f, const char *name)
{
    char target[2][FILES_PATH_MAX];
    ssize_t n = readlinkat(f->fd[0], name, target[0], sizeof target[0]);
    ssize_t m = readlinkat(f->fd[1], name, target[1], sizeof target[1]);
    return n < 0 || n != m || memcmp(target[0], target[1], (size_t)n) != 0;
}

static bool
metadata_differs(const struct stat *a, const struct stat *b)
{
    return a->st_mode != b->st_mode || a->st_uid != b->st_uid || a->st_gid != b->st_gid ||
           ((S_ISCHR(a->st_mode) || S_ISBLK(a->st_mode)) && a->st_rdev != b->st_rdev);
}

// No name in it may fit.
static bool
is_too_long(const struct diff *d)
{
    return strlen(d->path) + 1 + NAME_MAX >= sizeof d->path;
}

// What the jobs' user may not enter, or what is too deep for a path.
static bool
is_closed(const struct diff *d, const struct pair *p)
{
    bool closed = is_too_long(d);
    for (int i = 0; i < 2 && !closed; i++) {
        if (!p->there[i] || !S_ISDIR(p->st[i].st_mode))
            continue;
        int fd = states_open(&d->states, (enum spawn_state_fd)i, d->path, FOLDER);
        closed = fd == -EACCES;
        if (fd >= 0)
            (void)close(fd);
    }
    return closed;
}

// 1: the change is to be listed. *c has what differs.
static int
compare_pair(struct diff *d, const struct folder *f, const struct pair *p, struct change *c,
             struct err *e)
{
    bool unreadable = false;
    int contents = 0;
    const mode_t type = p->st[1].st_mode & S_IFMT;
    bool both = p->there[0] && p->there[1];
    c->m.kind = both          ? STOCKADE__V1__CHANGE_KIND__CHANGE_KIND_CHANGED
                : p->there[1] ? STOCKADE__V1__CHANGE_KIND__CHANGE_KIND_ADDED
                              : STOCKADE__V1__CHANGE_KIND__CHANGE_KIND_REMOVED;
    bool folder =
        (p->there[0] && S_ISDIR(p->st[0].st_mode)) || (p->there[1] && S_ISDIR(p->st[1].st_mode));
    bool alike = both && (p->st[0].st_mode & S_IFMT) == type;
    if (alike && S_ISREG(type))
        contents = contents_differ(d, f, p, &unreadable, e);
    if (contents < 0)
        return contents;
    c->m.contents = contents;
    c->m.unreadable = unreadable || (folder && is_closed(d, p));
    return !alike || contents || c->m.unreadable || metadata_differs(&p->st[0], &p->st[1]) ||
           (S_ISLNK(type) && links_differ(f, p->name));
}

static void
describe_one(const struct folder *f, const struct pair *p, int which, struct described *out,
             Stockade__V1__File **to)
{
    if (!p->there[which])
        return;
    describe(&p->st[which], "", 0, out);
    out->m.modify_time = &out->time;
    if (S_ISLNK(p->st[which].st_mode)) {
        ssize_t n = readlinkat(f->fd[which], p->name, out->target, sizeof out->target - 1);
        out->m.target = (ProtobufCBinaryData){n > 0 ? (size_t)n : 0, (uint8_t *)out->target};
    }
    *to = &out->m;
}

static int
list_change(struct diff *d, const struct folder *f, const struct pair *p, struct err *e)
{
    size_t n = strlen(d->path);
    struct change *c = malloc(sizeof *c + n);
    if (c == NULL)
        return err_sys(e, ENOMEM, "compare files");
    stockade__v1__change__init(&c->m);
    int r = compare_pair(d, f, p, c, e);
    if (r > 0)
        d->full = d->n == d->max || d->bytes > PAGE_BYTES;
    if (r <= 0 || d->full) {
        free(c);
        return r < 0 ? r : 0;
    }
    memcpy(c + 1, d->path, n);
    c->m.path = (ProtobufCBinaryData){n, (uint8_t *)(c + 1)};
    describe_one(f, p, 0, &c->before, &c->m.before);
    describe_one(f, p, 1, &c->after, &c->m.after);
    d->bytes += n + c->before.m.target.len + c->after.m.target.len + OVERHEAD;
    d->change[d->n++] = c;
    return 0;
}

// ---- the walk

static int walk(struct diff *d, const char *behind, struct err *e);

static bool
look(const struct folder *f, struct pair *p)
{
    for (int i = 0; i < 2; i++)
        p->there[i] =
            f->fd[i] >= 0 && fstatat(f->fd[i], p->name, &p->st[i], AT_SYMLINK_NOFOLLOW) == 0;
    return p->there[0] || p->there[1];
}

// 1: it is a folder that is to be entered.
static int
visit(struct diff *d, const struct folder *f, const char *name, struct err *e)
{
    struct pair p = {.name = name};
    if (!look(f, &p) || (p.there[0] && p.there[1] && !may_differ(f, name)))
        return 0;
    int r = list_change(d, f, &p, e);
    if (r < 0 || d->full)
        return r;
    return !is_too_long(d) &&
           ((p.there[0] && S_ISDIR(p.st[0].st_mode)) || (p.there[1] && S_ISDIR(p.st[1].st_mode)));
}

// The names of both states, sorted, each once.
static int
read_names(const struct folder *f, struct names both[2], struct err *e)
{
    for (int i = 0; i < 2; i++) {
        int r = f->fd[i] >= 0 ? names_read(f->fd[i], &both[i], e) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static const char *
next_name(const struct names both[2], size_t at[2])
{
    const char *a = at[0] < both[0].n ? both[0].name[at[0]] : NULL;
    const char *b = at[1] < both[1].n ? both[1].name[at[1]] : NULL;
    int order = a == NULL ? 1 : b == NULL ? -1 : strcmp(a, b);
    at[0] += a != NULL && order <= 0;
    at[1] += b != NULL && order >= 0;
    return order <= 0 ? a : b;
}

static bool
is_open(const struct folder *f)
{
    return f->fd[STATE_FD_FROM] >= 0 || f->fd[STATE_FD_TO] >= 0;
}

// A name of the folder at d->path, and what lies below. The folder may be closed afterwards.
static int
walk_name(struct diff *d, struct folder *f, const char *name, struct err *e)
{
    size_t before = strlen(d->path);
    int r = is_open(f) ? 0 : folder_open(d, f, e);
    (void)snprintf(d->path + before, sizeof d->path - before, "%s%s",
                   d->path[before - 1] == '/' ? "" : "/", name);
    if (r == 0)
        r = visit(d, f, name, e);
    if (r > 0) {
        folder_close(f);
        r = walk(d, NULL, e);
    }
    d->path[before] = '\0';
    return r == 0 ? op_busy(d->op, e) : r;
}

// The folder at d->path. behind: only names after this one, NULL: all.
static int
walk(struct diff *d, const char *behind, struct err *e)
{
    struct folder f;
    struct names both[2] = {{0}, {0}};
    size_t at[2] = {0, 0};
    int r = folder_open(d, &f, e);
    if (r == 0)
        r = read_names(&f, both, e);
    for (const char *name = NULL; r == 0 && !d->full && (name = next_name(both, at)) != NULL;)
        if (behind == NULL || strcmp(name, behind) > 0)
            r = walk_name(d, &f, name, e);
    names_free(&both[0]);
    names_free(&both[1]);
    folder_close(&f);
    return r;
}

// Nothing but one name of the folder at d->path.
static int
walk_only(struct diff *d, const char *name, struct err *e)
{
    struct folder f;
    int r = folder_open(d, &f, e);
    if (r == 0)
        r = walk_name(d, &f, name, e);
    folder_close(&f);
    return r;
}

// Cuts the last name off d->path.
static const char *
go_up(struct diff *d, char name[NAME_MAX + 1])
{
    char *slash = strrchr(d->path, '/');
    (void)snprintf(name, NAME_MAX + 1, "%s", slash + 1);
    slash[slash == d->path] = '\0';
    return name;
}

// What comes behind a path, up to the folder where the walk began.
static int
go_on(struct diff *d, const char *top, const char *after, struct err *e)
{
    char name[NAME_MAX + 1];
    (void)snprintf(d->path, sizeof d->path, "%s", after);
    int r = walk(d, NULL, e);
    while (r == 0 && !d->full && strlen(d->path) > strlen(top)) {
        const char *behind = go_up(d, name);
        r = walk(d, behind, e);
    }
    return r;
}

// An absolute path without '.', '..' and '//', and without '/' at its end; "/" for "".
static int
read_path(const ProtobufCBinaryData *from, const char *field, char out[FILES_PATH_MAX],
          struct err *e)
{
    size_t n = from->len;
    while (n > 0 && from->data[n - 1] == '/')
        n--;
    if (n >= FILES_PATH_MAX || (n > 0 && (from->data[0] != '/' || memchr(from->data, 0, n))))
        return err_field(e, field, "must be absolute, shorter than 4096 bytes, and without NUL");
    (void)snprintf(out, FILES_PATH_MAX, "%.*s", (int)n, n > 0 ? (const char *)from->data : "");
    for (const char *at = out; at != NULL && n > 0; at = strchr(at + 1, '/')) {
        size_t name = strcspn(at + 1, "/");
        if (name == 0 || name > NAME_MAX || (at[1] == '.' && name == 1) ||
            (at[1] == '.' && at[2] == '.' && name == 2))
            return err_field(e, field, "must not contain '.', '..', '//' or a long name");
    }
    if (n == 0)
        (void)snprintf(out, FILES_PATH_MAX, "/");
    return 0;
}

int
diff_walk(struct diff *d, const ProtobufCBinaryData *path, const ProtobufCBinaryData *after,
          struct err *e)
{
    static char top[FILES_PATH_MAX], from[FILES_PATH_MAX];
    char name[NAME_MAX + 1];
    int r = read_path(path, "path", top, e);
    if (r == 0)
        r = read_path(after, "page_token", from, e);
    if (r < 0)
        return r;
    size_t n = top[1] == '\0' ? 0 : strlen(top);
    if (after->len > 0 && (strncmp(from, top, n) != 0 || (from[n] != '/' && from[n] != '\0')))
        return err_field(e, "page_token", "is of another path");
    if (after->len > 0)
        return go_on(d, top, from, e);
    (void)snprintf(d->path, sizeof d->path, "%s", top);
    return n == 0 ? walk(d, NULL, e) : walk_only(d, go_up(d, name), e);
}

void
diff_free(struct diff *d)
{
    for (size_t i = 0; i < d->n; i++)
        free(d->change[i]);
    d->n = 0;
    states_close(&d->states);
}

static int
send_page(struct diff *d, struct err *e)
{
    Stockade__V1__SnapshotServiceDiffResponse answer =
        STOCKADE__V1__SNAPSHOT_SERVICE_DIFF_RESPONSE__INIT;
    Stockade__V1__Change *changes[DIFF_PAGE_MAX];
    for (size_t i = 0; i < d->n; i++)
        changes[i] = &d->change[i]->m;
    answer.n_changes = d->n;
    answer.changes = changes;
    if (d->full && d->n > 0)
        answer.next_page_token = changes[d->n - 1]->path;
    return op_message(d->op, &answer.base, e);
}

int
files_diff(struct op *op, const ProtobufCMessage *request, struct err *e)
{
    const Stockade__V1__SnapshotServiceDiffRequest *m =
        (const Stockade__V1__SnapshotServiceDiffRequest *)request;
    static struct diff d; // of this process, which does nothing else
    int r = states_receive(op, &d.states, e);
    if (r < 0)
        return r;
    d.op = op;
    d.max = m->page_size == 0 ? PAGE_CHANGES : m->page_size;
    d.max = d.max < DIFF_PAGE_MAX ? d.max : DIFF_PAGE_MAX;
    r = diff_walk(&d, &m->path, &m->page_token, e);
    if (r == 0)
        r = send_page(&d, e);
    diff_free(&d);
    return r;
}
