// SPDX-License-Identifier: Apache-2.0
// See host.h.
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "proto/auto.h"
#include "server/spawner/tree_mount.h"

enum { DEPTH_MAX = 128, OTHERS = 011, WRITERS = 022 };

struct walk {
    int fd; // of the last folder
    unsigned n;
    struct stat st[DEPTH_MAX]; // of all, "/" first
};

static int
refuse(struct err *e, const char *why)
{
    return err_set(e, ERR_FAILED_PRECONDITION, "%s", why);
}

static int
step(struct walk *w, const char *name, struct err *e)
{
    int next = openat(w->fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0 && (errno == ENOTDIR || errno == ELOOP))
        return err_set(e, ERR_FAILED_PRECONDITION, "%s is a link or no folder", name);
    if (next < 0)
        return err_sys(e, errno, "open %s", name);
    (void)close(w->fd);
    w->fd = next;
    if (w->n == DEPTH_MAX)
        return refuse(e, "too many folders lie in each other");
    return fstat(next, &w->st[w->n++]) < 0 ? err_sys(e, errno, "look at %s", name) : 0;
}

static int
walk(struct walk *w, const char *path, struct err *e)
{
    char name[NAME_MAX + 1];
    w->fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (w->fd < 0 || fstat(w->fd, &w->st[w->n++]) < 0)
        return err_sys(e, errno, "open /");
    for (const char *at = path; *(at += strspn(at, "/")) != '\0';) {
        const size_t n = strcspn(at, "/");
        if (n > NAME_MAX)
            return err_sys(e, ENAMETOOLONG, "open %s", path);
        (void)snprintf(name, sizeof name, "%.*s", (int)n, at);
        at += n;
        int rc = step(w, name, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static bool
is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

// Whether other accounts can give the name another meaning.
static bool
is_exchangeable(const struct walk *w)
{
    const struct stat *own = &w->st[w->n - 1];
    for (unsigned i = 0; i + 1 < w->n; i++) {
        const struct stat *it = &w->st[i];
        const bool group =
            (it->st_mode & S_IWGRP) != 0 && it->st_gid != 0 && it->st_gid != own->st_gid;
        if (it->st_uid != 0 && it->st_uid != own->st_uid)
            return true;
        if ((group || (it->st_mode & S_IWOTH) != 0) && (it->st_mode & S_ISVTX) == 0)
            return true;
    }
    return false;
}

// Whether only root and its owner can reach it: one of the folders above is closed.
static bool
is_closed(const struct walk *w)
{
    bool closed = false;
    for (unsigned i = 0; i + 1 < w->n; i++)
        closed = closed || (w->st[i].st_mode & OTHERS) == 0;
    return closed;
}

static int
check_writable(const struct walk *w, struct err *e)
{
    const struct stat *own = &w->st[w->n - 1];
    struct statvfs fs;
    if (own->st_uid == 0 || own->st_gid == 0)
        return refuse(
            e, "jobs would write as root: give the folder to an account and group of its own");
    if (fstatvfs(w->fd, &fs) < 0)
        return err_sys(e, errno, "look at its file system");
    if (!is_closed(w) && (fs.f_flag & ST_NOSUID) == 0)
        return refuse(
            e, "other accounts could execute set-id files that jobs leave there: close a folder "
               "above it to group and others (chmod 0700), or mount its file system with nosuid");
    return 0;
}

// Whether the folder is the state directory, lies in it, or holds it.
static int
check_state(const struct walk *w, const char *state_dir, struct err *e)
{
    struct stat st;
    int auto_close fd = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool meets = false;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(e, errno, "open %s", state_dir);
    for (unsigned i = 0; i < w->n; i++)
        meets = meets || is_same(&w->st[i], &st);
    for (unsigned i = 0; i < DEPTH_MAX && !meets && !is_same(&st, &w->st[0]); i++) {
        meets = is_same(&w->st[w->n - 1], &st);
        int up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (up < 0 || fstat(up, &st) < 0)
            return err_sys(e, errno, "look above %s", state_dir);
        (void)close(fd);
        fd = up;
    }
    return meets ? refuse(e, "it holds the state directory, or lies in it") : 0;
}

static int
open_checked(struct walk *w, const char *path, bool writable, const char *state_dir, struct err *e)
{
    int rc = walk(w, path, e);
    if (rc == 0 && is_exchangeable(w))
        rc = refuse(e, "accounts other than root and its owner could replace a folder above it");
    if (rc == 0)
        rc = check_state(w, state_dir, e);
    if (rc == 0 && writable)
        rc = check_writable(w, e);
    if (rc < 0)
        return rc;
    const unsigned attributes =
        MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (writable ? 0U : (unsigned)MOUNT_ATTR_RDONLY);
    int auto_close fd = mount_clone(w->fd, "", attributes, e);
    if (fd < 0)
        return fd;
    struct mount_attr private = {.propagation = MS_PRIVATE};
    if (mount_setattr(fd, "", AT_EMPTY_PATH, &private, sizeof private) < 0)
        return err_sys(e, errno, "make a mount private");
    return take_fd(&fd);
}

int
host_open(const char *path, bool writable, const char *state_dir, struct err *e)
{
    struct walk w = {.fd = -1};
    int fd = open_checked(&w, path, writable, state_dir, e);
    if (w.fd >= 0)
        (void)close(w.fd);
    return fd < 0 ? err_wrap(e, "mount %s", path) : fd;
}
