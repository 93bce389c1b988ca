// SPDX-License-Identifier: Apache-2.0
// Watch: changes of the files in a folder, by inotify(7).
//
//   kernel's queue -> read -> handle() -> batch -> one message; at most one each PAUSE_MS, so a storm of changes costs
//   few messages, and those that write the same file again are joined
//
// The queue of the kernel is the only one: while the broker does not read, events wait there, and when it overflows
// all folders are watched again and the caller gets a mark. A new folder is examined after its watch began, so nothing in it is missed.
// No descriptor of a watched folder stays open, because the kernel would not report its removal.
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/now.h"
#include "methods.h"
#include "names.h"
#include "path.h"
#include "watch_tree.h"

enum {
    EVENTS_MAX = 512,       // of a message
    POOL_BYTES = 40 * 1024, // their paths
    PATH_BYTES = 8192,      // of one
    LEVELS_MAX = 128,
    PAUSE_MS = 10,
    PARTNER_MS = 20, // the two events of a renaming come one after the other
    QUIET_MS = 10 * 1000,
};

// Half of a renaming.
struct half {
    bool there;
    uint32_t cookie;
    struct watched *folder;
    char name[NAME_MAX + 1];
    bool is_folder;
};

struct watching {
    struct op *op;
    char path[FILES_PATH_MAX]; // of the root
    char only[NAME_MAX + 1];   // one file of it; "": all
    bool recursive, over, failed_early;
    bool strayed; // a watched folder is at a location that is not known
    struct watch_tree tree;
    struct half moved;
    uint64_t unwatched, unwatched_sent;
    bool overflow;
    int64_t sent_ns;
    size_t n, used;
    Stockade__V1__FileEvent event[EVENTS_MAX];
    Stockade__V1__FileEvent *events[EVENTS_MAX];
    char pool[POOL_BYTES];
};

// ---- messages

static int
flush(struct watching *w, struct err *e)
{
    Stockade__V1__FileServiceWatchResponse m = STOCKADE__V1__FILE_SERVICE_WATCH_RESPONSE__INIT;
    if (w->n == 0 && !w->overflow && w->unwatched == w->unwatched_sent)
        return 0;
    m.n_events = w->n;
    m.events = w->events;
    m.overflow = w->overflow;
    m.unwatched = w->unwatched;
    w->n = w->used = 0;
    w->overflow = false;
    w->unwatched_sent = w->unwatched;
    w->sent_ns = now_ns(CLOCK_MONOTONIC);
    return op_message(w->op, &m.base, e);
}

// Adds the path of a name to the pool. False: it is too long, and is reported as lost.
static bool
put_path(struct watching *w, const struct watched *folder, const char *name,
         ProtobufCBinaryData *out)
{
    char *at = w->pool + w->used;
    if (!watch_tree_path(folder, name, at, PATH_BYTES)) {
        w->overflow = true;
        return false;
    }
    if (at[0] == '\0')
        memcpy(at, ".", 2);
    *out = (ProtobufCBinaryData){strlen(at), (uint8_t *)at};
    w->used += out->len;
    return true;
}

static bool
is_the_last_one(const struct watching *w, const Stockade__V1__FileEvent *event)
{
    const Stockade__V1__FileEvent *last = w->n > 0 ? &w->event[w->n - 1] : NULL;
    return last != NULL && event->before.len == 0 && last->change == event->change &&
           last->change != STOCKADE__V1__FILE_CHANGE__FILE_CHANGE_CREATE &&
           last->path.len == event->path.len &&
           memcmp(last->path.data, event->path.data, event->path.len) == 0;
}

static bool
is_wanted(const struct watching *w, const struct watched *folder, const char *name)
{
    return w->only[0] == '\0' || (folder == w->tree.root && strcmp(name, w->only) == 0);
}

// `from` NULL: it is no renaming.
static int
put(struct watching *w, Stockade__V1__FileChange change, const struct watched *folder,
    const char *name, bool is_folder, const struct half *from, struct err *e)
{
    Stockade__V1__FileEvent event = STOCKADE__V1__FILE_EVENT__INIT;
    bool full = w->n == EVENTS_MAX || sizeof w->pool - w->used < 2 * (size_t)PATH_BYTES;
    int r = full ? flush(w, e) : 0;
    if (r < 0)
        return r;
    event.change = change;
    event.folder = is_folder;
    if ((from != NULL && !put_path(w, from->folder, from->name, &event.before)) ||
        !put_path(w, folder, name, &event.path) || is_the_last_one(w, &event))
        return 0;
    w->event[w->n] = event;
    w->events[w->n] = &w->event[w->n];
    w->n++;
    return 0;
}

// ---- folders

static int watch_folder(struct watching *w, int fd, struct watched *parent, const char *name,
                        bool report, unsigned level, struct err *e);

// A limit, or a folder that this user may not read: refused while the watch begins, counted later.
static int
not_watched(struct watching *w, int sys, struct err *e)
{
    if (sys == -ENOENT || sys == -ENOTDIR || sys == -ELOOP)
        return 0; // it has gone
    w->unwatched++;
    if (sys != -ENOSPC || !w->failed_early)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                    "watch %.300s: it has too many folders, or too many levels", w->path);
    err_detail(e, "WATCHES", "path", "watch a smaller folder, or not recursively");
    return r;
}

static int
enter(struct watching *w, int folder, struct watched *parent, const char *name, bool report,
      unsigned level, struct err *e)
{
    int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? not_watched(w, -errno, e) : watch_folder(w, fd, parent, name, report, level, e);
}

static int
examine(struct watching *w, int fd, struct watched *at, bool report, unsigned level, struct err *e)
{
    struct names all = {0};
    int wd = at->wd;
    int r = names_read(fd, &all, e);
    for (size_t i = 0; r == 0 && i < all.n; i++) {
        struct stat st;
        if (fstatat(fd, all.name[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue; // it has gone
        bool is_folder = S_ISDIR(st.st_mode);
        if (report)
            r = put(w, STOCKADE__V1__FILE_CHANGE__FILE_CHANGE_CREATE, at, all.name[i], is_folder,
                    NULL, e);
        if (r == 0 && is_folder && w->recursive)
            r = enter(w, fd, at, all.name[i], report, level + 1, e);
        if (r == 0)
            r = op_busy(w->op, e);
        if (watch_tree_by_wd(&w->tree, wd) != at)
            break; // it was moved to another folder while its folders were entered
    }
    names_free(&all);
    return r;
}

// Takes fd.
static int
watch_folder(struct watching *w, int fd, struct watched *parent, const char *name, bool report,
             unsigned level, struct err *e)
{
    int auto_close owned = fd;
    struct watched *at = NULL;
    int added = level <= LEVELS_MAX ? 0 : -ENOSPC;
    if (added == 0 && fchdir(owned) < 0)
        added = -errno;
    if (added == 0)
        added = watch_tree_add(&w->tree, parent, name, &at);
    if (chdir("/") < 0) // a folder in use would not be reported as removed
        added = -errno;
    if (added < 0)
        return not_watched(w, added, e);
    bool look = at != NULL && added > 0 && (w->recursive || report) && w->only[0] == '\0';
    return look ? examine(w, owned, at, report, level, e) : 0;
}

static int
open_root(const struct watching *w, struct err *e)
{
    return path_open(w->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, e);
}

static int
begin(struct watching *w, struct err *e)
{
    int fd = open_root(w, e);
    if (fd < 0)
        return fd;
    int sys = watch_tree_begin(&w->tree);
    if (sys < 0) {
        (void)close(fd);
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "watch %.300s: too many watches", w->path);
        err_detail(e, "WATCHES", "path", "end other watches of the sandbox");
        return r;
    }
    w->unwatched = 0;
    int r = watch_folder(w, fd, NULL, NULL, false, 1, e);
    if (r == 0 && w->tree.root == NULL)
        r = file_err(e, ENOENT, "watch", w->path);
    return r;
}

// A folder that appeared: its path is found from the root, since nothing else of it is open.
static int
watch_new(struct watching *w, struct watched *parent, const char *name, bool report, struct err *e)
{
    char below[PATH_BYTES];
    char path[FILES_PATH_MAX];
    struct err ignored;
    unsigned level = 1;
    if (!w->recursive)
        return 0;
    for (const struct watched *up = parent; up != NULL; up = up->parent)
        level++;
    bool fits = watch_tree_path(parent, name, below, sizeof below);
    int n = snprintf(path, sizeof path, "%s/%s", w->path, below);
    if (!fits || n < 0 || n >= (int)sizeof path)
        return not_watched(w, -ENAMETOOLONG, e);
    int fd = path_open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK, &ignored);
    if (fd < 0)
        return not_watched(w, -ignored.sys, e);
    return watch_folder(w, fd, parent, name, report, level, e);
}

// ---- events

// The half of a renaming whose partner did not come: it went out of the folder.
static int
went_out(struct watching *w, struct err *e)
{
    struct half *m = &w->moved;
    if (!m->there)
        return 0;
    m->there = false;
    int r = put(w, STOCKADE__V1__FILE_CHANGE__FILE_CHANGE_REMOVE, m->folder, m->name, m->is_folder,
                NULL, e);
    struct watched *folder = watch_tree_child(&w->tree, m->folder, m->name);
    if (folder != NULL)
        watch_tree_drop(&w->tree, folder);
    return r;
}

// A folder from outside, or one whose other half came too late, and which is not watched any more because of that. If it has moved on,
// later events do not lead to it when folders above it move, too: then all are watched again.
static int
came_from_somewhere(struct watching *w, struct watched *folder, const char *name, struct err *e)
{
    const int wd = folder->wd;
    const uint64_t unwatched = w->unwatched;
    int r = watch_new(w, folder, name, true, e);
    const struct watched *now = watch_tree_by_wd(&w->tree, wd);
    w->strayed = w->strayed || (w->unwatched == unwatched &&
                                (now == NULL || watch_tree_child(&w->tree, now, name) == NULL));
    return r;
}

static int
came_in(struct watching *w, struct watched *folder, const struct inotify_event *event,
        struct err *e)
{
    bool is_folder = (event->mask & IN_ISDIR) != 0;
    struct half *m = &w->moved;
    if (!m->there || m->cookie != event->cookie) {
        int r = put(w, STOCKADE__V1__FILE_CHANGE__FILE_CHANGE_CREATE, folder, event->name,
                    is_folder, NULL, e);
        return r == 0 && is_folder && w->recursive ? came_from_somewhere(w, folder, event->name, e)
                                                   : r;
    }
    m->there = false;
    int r =
        put(w, STOCKADE__V1__FILE_CHANGE__FILE_CHANGE_RENAME, folder, event->name, is_folder, m, e);
    struct watched *moved = is_folder ? watch_tree_child(&w->tree, m->folder, m->name) : NULL;
    if (r < 0 || !is_folder)
        return r;
    if (moved == NULL) // it was moved on before it could be entered: all in it is new to the caller
        return watch_new(w, folder, event->name, true, e);
    (void)watch_tree_move(&w->tree, moved, folder, event->name);
    return 0;
}

static void
went(struct watching *w, struct watched *folder, const struct inotify_event *event)
{
    w->moved = (struct half){.there = true,
                             .cookie = event->cookie,
                             .folder = folder,
                             .is_folder = (event->mask & IN_ISDIR) != 0};
    (void)snprintf(w->moved.name, sizeof w->moved.name, "%s", event->name);
}

static const struct {
    uint32_t mask;
    Stockade__V1__FileChange change;
} plain[] = {
    {IN_CREATE, STOCKADE__V1__FILE_CHANGE__FILE_CHANGE_CREATE},
    {IN_MODIFY, STOCKADE__V1__FILE_CHANGE__FILE_CHANGE_WRITE},
    {IN_DELETE, STOCKADE__V1__FILE_CHANGE__FILE_CHANGE_REMOVE},
    {IN_ATTRIB, STOCKADE__V1__FILE_CHANGE__FILE_CHANGE_CHMOD},
};

static int
changed(struct watching *w, struct watched *folder, const struct inotify_event *event,
        struct err *e)
{
    bool is_folder = (event->mask & IN_ISDIR) != 0;
    int r = 0;
    if (!is_wanted(w, folder, event->name))
        return 0;
    for (size_t i = 0; i < sizeof plain / sizeof plain[0] && r == 0; i++)
        if ((event->mask & plain[i].mask) != 0)
            r = put(w, plain[i].change, folder, event->name, is_folder, NULL, e);
    if (r == 0 && is_folder && (event->mask & IN_CREATE) != 0)
        r = watch_new(w, folder, event->name, true, e);
    return r;
}

// The folder of an event changed itself; its parent reports what else there is.
static int
changed_itself(struct watching *w, struct watched *folder, uint32_t mask, struct err *e)
{
    bool root = folder == w->tree.root;
    if ((mask & IN_IGNORED) != 0 && !root) {
        watch_tree_drop(&w->tree, folder);
        return 0;
    }
    if (!root || w->over)
        return 0;
    if ((mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED)) != 0) {
        w->over = true;
        return put(w, STOCKADE__V1__FILE_CHANGE__FILE_CHANGE_REMOVE, folder, "", true, NULL, e);
    }
    return (mask & IN_ATTRIB) != 0 && w->only[0] == '\0'
               ? put(w, STOCKADE__V1__FILE_CHANGE__FILE_CHANGE_CHMOD, folder, "", true, NULL, e)
               : 0;
}

// Watches all folders again, so that no later change is missed.
static int
overflowed(struct watching *w, struct err *e)
{
    w->moved.there = w->strayed = false;
    int r = begin(w, e);
    w->overflow = true;
    if (r == 0 || e->sys != ENOENT)
        return r;
    w->over = true;
    w->n = w->used = 0;
    return put(w, STOCKADE__V1__FILE_CHANGE__FILE_CHANGE_REMOVE, NULL, "", true, NULL, e);
}

static int
handle(struct watching *w, const struct inotify_event *event, struct err *e)
{
    int r = 0;
    if ((event->mask & IN_MOVED_TO) == 0 || !w->moved.there || w->moved.cookie != event->cookie)
        r = went_out(w, e);
    struct watched *folder = r == 0 ? watch_tree_by_wd(&w->tree, event->wd) : NULL;
    if (folder == NULL)
        return r;
    if (event->len == 0)
        return changed_itself(w, folder, event->mask, e);
    if (w->only[0] == '\0' && (event->mask & IN_MOVED_FROM) != 0)
        went(w, folder, event);
    else if (w->only[0] == '\0' && (event->mask & IN_MOVED_TO) != 0)
        r = came_in(w, folder, event, e);
    else if ((event->mask & (IN_MOVED_FROM | IN_MOVED_TO)) == 0)
        r = changed(w, folder, event, e);
    else if (is_wanted(w, folder,
                       event->name)) // one file: another one comes to its place, or it goes
        r = put(w,
                (event->mask & IN_MOVED_TO) != 0 ? STOCKADE__V1__FILE_CHANGE__FILE_CHANGE_CREATE
                                                 : STOCKADE__V1__FILE_CHANGE__FILE_CHANGE_REMOVE,
                folder, event->name, false, NULL, e);
    return r;
}

// Returns 0, also if there is nothing to read.
static int
read_events(struct watching *w, struct err *e)
{
    static union {
        struct inotify_event align;
        char bytes[64 * 1024];
    } in;
    ssize_t n = read(w->tree.inotify, in.bytes, sizeof in.bytes);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : err_sys(e, errno, "watch %.300s", w->path);
    int r = 0;
    for (ssize_t at = 0; at < n && r == 0 && !w->over;) {
        const struct inotify_event *event = (const struct inotify_event *)(void *)(in.bytes + at);
        if ((event->mask & IN_Q_OVERFLOW) != 0)
            return overflowed(w, e); // the rest is of watches that have ended
        r = handle(w, event, e);
        if (r == 0 && w->strayed && !w->over)
            return overflowed(w, e);
        at += (ssize_t)(sizeof *event + event->len);
    }
    return r;
}

// Waits for events, but not sooner than PAUSE_MS after the last message. 1: there are some; 0: there are none.
static int
wait_for_events(struct watching *w, struct err *e)
{
    int64_t pause = w->sent_ns + PAUSE_MS * INT64_C(1000000) - now_ns(CLOCK_MONOTONIC);
    struct pollfd p[] = {{.fd = w->op->fd, .events = POLLIN},
                         {.fd = w->tree.inotify, .events = POLLIN}};
    int ms = w->moved.there ? PARTNER_MS : QUIET_MS;
    if (pause > 0 && poll(p, 1, (int)(pause / 1000000) + 1) > 0)
        return err_set(e, ERR_CANCELLED, "the broker has closed the operation");
    if (poll(p, 2, ms) < 0 && errno != EINTR)
        return err_sys(e, errno, "watch %.300s", w->path);
    if (p[0].revents != 0)
        return err_set(e, ERR_CANCELLED, "the broker has closed the operation");
    return p[1].revents != 0;
}

static int
report(struct watching *w, struct err *e)
{
    Stockade__V1__FileServiceWatchResponse first = STOCKADE__V1__FILE_SERVICE_WATCH_RESPONSE__INIT;
    first.folders = w->tree.n;
    first.unwatched = w->unwatched_sent = w->unwatched;
    int r = op_message(w->op, &first.base, e);
    while (r == 0 && !w->over) {
        int some = wait_for_events(w, e);
        if (some < 0)
            return some;
        r = some > 0 ? read_events(w, e) : went_out(w, e);
        if (r == 0 && !w->moved.there)
            r = flush(w, e);
        if (r == 0 && some == 0)
            r = op_busy(w->op, e);
    }
    return r == 0 ? flush(w, e) : r;
}

// Of a file its folder is watched, since another file may take its place.
static int
find(struct watching *w, const ProtobufCBinaryData *from, struct err *e)
{
    struct path p;
    struct stat st;
    int r = path_read(from, &p, e);
    int auto_close fd = r < 0 ? -1 : path_open(p.text, O_PATH, e);
    if (r < 0 || fd < 0)
        return err_errno(e);
    (void)snprintf(w->path, sizeof w->path, "%s", p.text);
    if (fstat(fd, &st) < 0)
        return file_err(e, errno, "watch", p.text);
    if (S_ISDIR(st.st_mode))
        return 0;
    size_t n = strlen(w->path);
    while (n > 1 && w->path[n - 1] == '/')
        w->path[--n] = '\0';
    char *slash = strrchr(w->path, '/');
    if (slash == NULL || strlen(slash + 1) > NAME_MAX)
        return file_err(e, ENAMETOOLONG, "watch", p.text);
    (void)snprintf(w->only, sizeof w->only, "%s", slash + 1);
    *(slash == w->path ? slash + 1 : slash) = '\0';
    return 0;
}

int
files_watch(struct op *op, const ProtobufCMessage *request, struct err *e)
{
    const Stockade__V1__FileServiceWatchRequest *m =
        (const Stockade__V1__FileServiceWatchRequest *)request;
    struct watching *auto_free w = calloc(1, sizeof *w);
    if (w == NULL)
        return err_sys(e, ENOMEM, "watch files");
    w->op = op;
    w->tree.inotify = -1;
    w->failed_early = true;
    int r = find(w, &m->path, e);
    w->recursive = m->recursive && w->only[0] == '\0';
    if (r == 0)
        r = begin(w, e);
    w->failed_early = false;
    if (r == 0)
        r = report(w, e);
    watch_tree_end(&w->tree);
    return r;
}
