// SPDX-License-Identifier: Apache-2.0
// See disk.h.
#include "disk.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk_private.h"
#include "io.h"
#include "proto/auto.h"
#include "proto/plural.h"
#include "tree_helper.h"
#include "tree_mount.h"

struct disks *
disks_new(void)
{
    struct disks *d = calloc(1, sizeof *d);
    if (d != NULL)
        d->space_fd = d->nobody_fd = -1;
    return d;
}

void
disks_free(struct disks *d)
{
    if (d != NULL) {
        io_close(&d->space_fd);
        io_close(&d->nobody_fd);
    }
    free(d);
}

// ---- the space

struct space {
    int proc_fd;
    int fd;
};

void
disk_mount_point(uint32_t number, char out[DISK_MOUNT_POINT])
{
    (void)snprintf(out, DISK_MOUNT_POINT, "%u", number);
}

static int
make_mount_points(int fd, struct err *e)
{
    char name[DISK_MOUNT_POINT];
    for (uint32_t i = 0; i < SPAWN_DISKS_MAX; i++) {
        disk_mount_point(i, name);
        if (mkdirat(fd, name, 0500) < 0)
            return err_sys(e, errno, "create %s", name);
    }
    return 0;
}

// "/" is the stage and "." the base below it (tree_internal.h); both are copies after unshare(2).
static int
make_space(void *cookie, struct err *e)
{
    struct space *w = cookie;
    const struct mount_option options[] = {
        {"size", "64k"}, {"nr_inodes", "1100"}, {"mode", "0500"}, {"source", "stockade"}};
    if (unshare(CLONE_NEWNS) < 0)
        return err_sys(e, errno, "create a mount namespace");
    int auto_close mount_points =
        mount_new("tmpfs", options, 4, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, e);
    int rc = mount_points < 0 ? mount_points : make_mount_points(mount_points, e);
    if (rc == 0 && umount2("/", MNT_DETACH) < 0)
        rc = err_sys(e, errno, "detach the stage");
    if (rc == 0)
        rc = mount_attach(mount_points, AT_FDCWD, ".", e);
    if (rc < 0)
        return rc;
    w->fd = openat(w->proc_fd, "self/ns/mnt", O_RDONLY | O_CLOEXEC);
    return w->fd < 0 ? err_sys(e, errno, "open the mount namespace") : 0;
}

void
disk_settle(int helper_fd)
{
    if (helper_fd < 0)
        return;
    (void)waitid(P_PIDFD, (id_t)helper_fd, &(siginfo_t){.si_pid = 0}, WEXITED);
    (void)close(helper_fd);
}

int
disks_space(struct disks *d, int proc_fd, struct err *e)
{
    struct space w = {proc_fd, -1};
    int helper_fd = -1;
    if (d->space_fd >= 0)
        return d->space_fd;
    int rc = tree_helper_run(make_space, &w, &helper_fd, e);
    disk_settle(helper_fd);
    if (rc < 0) {
        io_close(&w.fd);
        return err_wrap(e, "make the namespace of disks");
    }
    d->space_fd = io_keep_fd(w.fd);
    return d->space_fd;
}

// ---- the table

static const struct disk *
find(const struct disks *d, uint32_t kind, const uint8_t id[16])
{
    for (uint32_t i = 0; i < SPAWN_DISKS_MAX; i++) {
        const struct disk *it = &d->disk[i];
        if (it->state != DISK_FREE && !it->host && it->kind == kind &&
            memcmp(it->id, id, sizeof it->id) == 0)
            return it;
    }
    return NULL;
}

bool
disk_is_open(const struct disks *d, uint32_t kind, const uint8_t id[16])
{
    return find(d, kind, id) != NULL;
}

struct disk *
disk_free(struct disks *d, struct err *e)
{
    for (uint32_t i = 0; i < SPAWN_DISKS_MAX; i++)
        if (d->disk[i].state == DISK_FREE)
            return &d->disk[i];
    (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "%d disks are open already", SPAWN_DISKS_MAX);
    err_detail(e, "DISKS_OPEN", NULL, "remove sandboxes that have volumes");
    return NULL;
}

int
disk_take(struct disks *d, uint32_t kind, const uint8_t id[16], uint32_t *number, struct err *e)
{
    if (disk_is_open(d, kind, id))
        return err_set(e, ERR_ALREADY_EXISTS, "the disk is open");
    struct disk *it = disk_free(d, e);
    if (it == NULL)
        return err_errno(e);
    *it = (struct disk){.state = DISK_OPENING, .kind = kind};
    memcpy(it->id, id, sizeof it->id);
    *number = (uint32_t)(it - d->disk);
    return 0;
}

void
disk_taken(struct disks *d, uint32_t number, bool mounted)
{
    assert(d->disk[number].state == DISK_OPENING);
    d->disk[number].state = mounted ? DISK_READY : DISK_FREE;
}

static struct disk *
get(struct disks *d, uint32_t number, bool host, struct err *e)
{
    if (number < SPAWN_DISKS_MAX && d->disk[number].state == DISK_READY &&
        d->disk[number].host == host)
        return &d->disk[number];
    (void)err_set(e, ERR_NOT_FOUND, "disk %u is not open", number);
    return NULL;
}

struct closing {
    int space_fd;
    uint32_t number;
};

// The disk is the helper's working directory when it ends: nobody waits while the kernel writes what is left.
static int
unmount(void *cookie, struct err *e)
{
    const struct closing *c = cookie;
    char mount_point[DISK_MOUNT_POINT];
    disk_mount_point(c->number, mount_point);
    if (setns(c->space_fd, CLONE_NEWNS) < 0)
        return err_sys(e, errno, "enter the namespace of disks");
    if (chdir(mount_point) < 0 || umount2(".", MNT_DETACH) < 0)
        return err_sys(e, errno, "unmount disk %u", c->number);
    return 0;
}

int
disk_unmount(const struct disks *d, uint32_t number, int *helper_fd, struct err *e)
{
    struct closing c = {d->space_fd, number};
    return tree_helper_run(unmount, &c, helper_fd, e);
}

int
disk_close(struct disks *d, uint32_t number, int *helper_fd, struct err *e)
{
    struct disk *it = get(d, number, false, e);
    *helper_fd = -1;
    if (it == NULL)
        return err_errno(e);
    if (it->users > 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "%u %s disk %u", it->users,
                       plural(it->users, "sandbox has", "sandboxes have"), number);
    int rc = disk_unmount(d, number, helper_fd, e);
    if (rc == 0)
        it->state = DISK_FREE;
    return rc;
}

void
disk_leave(struct disks *d, struct disk_mounts *mounts)
{
    for (uint32_t i = 0; mounts != NULL && i < mounts->n; i++) {
        struct disk *it = &d->disk[mounts->mount[i].disk];
        assert(it->state == DISK_READY && it->users > 0);
        it->users--;
        io_close(&mounts->mount[i].userns_fd);
    }
}

// ---- in a sandbox

int
disk_clone(int space_fd, const struct disk_mount *m, int userns_fd, struct err *e)
{
    char mount_point[DISK_MOUNT_POINT];
    const unsigned attributes =
        MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (m->read_only ? MOUNT_ATTR_RDONLY : 0U);
    disk_mount_point(m->disk, mount_point);
    if (setns(space_fd, CLONE_NEWNS) < 0)
        return err_sys(e, errno, "enter the namespace of disks");
    int auto_close fd = mount_clone(AT_FDCWD, mount_point, attributes, e);
    if (fd < 0)
        return fd;
    int rc = mount_idmap(fd, m->userns_fd >= 0 ? m->userns_fd : userns_fd, e);
    return rc < 0 ? rc : take_fd(&fd);
}

static int
open_below(int dir, const char *name)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve =
                               RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, dir, name, &how, sizeof how);
}

// One component of the path, with its folder's owner if it is new.
static int
step_into(int dir, const char *name, uid_t owner, struct err *e)
{
    int fd = open_below(dir, name);
    if (fd >= 0 || errno != ENOENT)
        return fd >= 0 ? fd : err_sys(e, errno, "open %s", name);
    if (mkdirat(dir, name, 0755) < 0)
        return err_sys(e, errno, "create %s", name);
    fd = open_below(dir, name);
    if (fd >= 0 && fchownat(fd, "", owner, owner, AT_EMPTY_PATH) == 0)
        return fd;
    int sys = errno;
    io_close(&fd);
    return err_sys(e, sys, "create %s", name);
}

int
disk_attach(int fd, int root, const char *at, uint32_t uid, struct err *e)
{
    char name[SPAWN_AT_MAX];
    char part[SPAWN_AT_MAX];
    int auto_close dir = fcntl(root, F_DUPFD_CLOEXEC, 3);
    if (dir < 0)
        return err_sys(e, errno, "copy a descriptor");
    for (size_t i = 1; at[i - 1] != '\0';) {
        const size_t n = strcspn(at + i, "/");
        (void)snprintf(part, sizeof part, "%.*s", (int)n, at + i);
        (void)snprintf(name, sizeof name, "%.*s", (int)(i + n), at);
        i += n + 1;
        const uid_t owner = uid + (spawn_is_job_folder(name) ? SANDBOX_UID_JOB : 0);
        int next = step_into(dir, part, owner, e);
        if (next < 0) {
            if (e->sys == ENOTDIR || e->sys == ELOOP) {
                (void)err_set(e, ERR_FAILED_PRECONDITION, "%s is no folder", name);
                err_detail(e, "NO_MOUNT_POINT", at, "choose a path without links and files");
            }
            return err_errno(e);
        }
        (void)close(dir);
        dir = next;
    }
    if (move_mount(fd, "", dir, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return err_sys(e, errno, "attach a disk to %s", at);
    return 0;
}

struct mounting {
    int space_fd;
    const struct disk_target *to;
    const struct disk_mount *mount;
};

static int
mount_one(void *cookie, struct err *e)
{
    const struct mounting *w = cookie;
    struct stat st;
    int auto_close fd = disk_clone(w->space_fd, w->mount, w->to->userns_fd, e);
    if (fd < 0)
        return fd;
    if (w->mount->host && fstat(fd, &st) == 0 && st.st_nlink == 0)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "the folder was removed on the host: reload the broker (SIGHUP) when it is there again");
    int rc = tree_helper_enter(w->to->pid_fd, e);
    if (rc < 0)
        return rc;
    int auto_close root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return root < 0 ? err_sys(e, errno, "open the root")
                    : disk_attach(fd, root, w->mount->at, w->to->uid, e);
}

// A disk inside another would be hidden, or move with it.
static int
check_mount_point(const struct disk_target *to, const struct disk_mount *m,
                  const struct disk_mounts *mounts, struct err *e)
{
    if (mounts->n == SPAWN_MOUNTS_OF_SANDBOX)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "a sandbox has at most %d",
                       SPAWN_MOUNTS_OF_SANDBOX);
    if (!tree_root_has_mount_point(to->tree, to->root, m->at))
        return err_field(e, "path",
                         "must be absolute, without '.' and '..', and neither below nor above one "
                         "of the sandbox's own folders; /home/agent and /var/tmp, and folders "
                         "in them, are possible");
    for (uint32_t i = 0; i < mounts->n; i++)
        if (tree_paths_meet(mounts->mount[i].at, m->at))
            return err_field(e, "path", "another one is mounted at %s", mounts->mount[i].at);
    return 0;
}

int
disk_mount(struct disks *d, const struct disk_target *to, const struct disk_mount *m,
           struct disk_mounts *mounts, int *helper_fd, struct err *e)
{
    struct mounting w = {d->space_fd, to, m};
    struct disk *it = get(d, m->disk, m->host, e);
    *helper_fd = -1;
    if (it == NULL)
        return err_errno(e);
    int rc = check_mount_point(to, m, mounts, e);
    if (rc == 0)
        rc = tree_helper_run(mount_one, &w, helper_fd, e);
    if (rc < 0)
        return rc;
    it->users++;
    mounts->mount[mounts->n++] = *m;
    return 0;
}
