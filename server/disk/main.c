// SPDX-License-Identifier: Apache-2.0
// stockade-disk: makes, mounts or removes one disk, as root, and exits (order.h). The spawner starts it in the host's mount
// namespace, with its own clean environment.
//
//   order -> folder of disks -> the backend that this disk has, or that a new one gets -> the operation -> answer
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend.h"
#include "names.h"
#include "proto/auto.h"
#include "proto/fdpass.h"
#include "server/spawner/tree_mount.h"

// The one that new disks get; NULL: none works here. *why: why it is not the better one, or "".
static const struct backend *
choose(int folder, struct err *why, struct err *e)
{
    *why = (struct err){.code = ERR_OK};
    if (backend_project.probe(folder, why) == 0)
        return &backend_project;
    if (backend_image.probe(folder, e) == 0)
        return &backend_image;
    (void)err_wrap(e, "%.160s; and no image", why->text);
    return NULL;
}

// What it was made as, whatever new ones get. NULL: there is none of the name, or it cannot be examined.
static const struct backend *
find(int folder, const char *name, struct err *e)
{
    struct stat st;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return S_ISDIR(st.st_mode) ? &backend_project : &backend_image;
    if (errno == ENOENT)
        (void)err_set(e, ERR_NOT_FOUND, "there is no disk %s", name);
    else
        (void)err_sys(e, errno, "look at disk %s", name);
    return NULL;
}

static int
do_probe(int folder, const char *name, const struct disk_order *o, struct disk_answer *a)
{
    (void)name;
    (void)o;
    struct err why;
    const struct backend *b = choose(folder, &why, &a->err);
    if (b == NULL)
        return err_errno(&a->err);
    a->backend = b->number;
    a->err = why;
    a->scratch = backend_image.probe(folder, &a->scratch_err) == 0;
    return 0;
}

static int
do_make(int folder, const char *name, const struct disk_order *o, struct disk_answer *a)
{
    struct err why;
    const struct backend *b = choose(folder, &why, &a->err);
    if (b == NULL)
        return err_errno(&a->err);
    a->backend = b->number;
    return b->make(folder, name, o, &a->err);
}

static int mounted_fd = -1; // OPEN, SCRATCH: O_PATH, goes with the answer

// Mounts it where the spawner's helpers find it.
static int
do_open(int folder, const char *name, const struct disk_order *o, struct disk_answer *a)
{
    char mount_point[16];
    const struct backend *b = find(folder, name, &a->err);
    if (b == NULL)
        return err_errno(&a->err);
    a->backend = b->number;
    int auto_close fd = b->open(folder, name, &a->err);
    if (fd < 0)
        return fd;
    if (setns(DISK_SPACE_FD, CLONE_NEWNS) < 0)
        return err_sys(&a->err, errno, "enter the namespace of disks");
    (void)snprintf(mount_point, sizeof mount_point, "%u", o->mount_point);
    int r = mount_attach(fd, AT_FDCWD, mount_point, &a->err);
    if (r == 0)
        mounted_fd = take_fd(&fd);
    return r;
}

static int
do_remove(int folder, const char *name, const struct disk_order *o, struct disk_answer *a)
{
    (void)o;
    (void)alarm(0); // a folder may have millions of files
    const struct backend *b = find(folder, name, &a->err);
    if (b == NULL)
        return a->err.code == ERR_NOT_FOUND ? 0 : err_errno(&a->err);
    return b->remove(folder, name, &a->err);
}

static int
do_scratch(int folder, const char *name, const struct disk_order *o, struct disk_answer *a)
{
    (void)name;
    a->backend = DISK_IMAGE;
    int r = o->trim != 0 ? image_trim(DISK_TRIM_FD, &a->err) : 0;
    if (r < 0)
        return r;
    mounted_fd = image_scratch(folder, o, &a->err);
    return mounted_fd < 0 ? mounted_fd : 0;
}

static int (*const operations[DISK_OPS_N])(int, const char *, const struct disk_order *,
                                           struct disk_answer *) = {
    [DISK_PROBE] = do_probe,   [DISK_MAKE] = do_make,       [DISK_OPEN] = do_open,
    [DISK_REMOVE] = do_remove, [DISK_SCRATCH] = do_scratch,
};

static int
carry_out(const struct disk_order *o, struct disk_answer *a)
{
    char name[DISK_NAME_MAX];
    if (o->op >= DISK_OPS_N || o->kind >= SPAWN_DISK_KINDS_N)
        return err_set(&a->err, ERR_INTERNAL, "order %u of kind %u", o->op, o->kind);
    int auto_close folder = names_folder(o->state_dir, &a->err);
    if (folder < 0)
        return folder;
    names_of(o, name);
    return operations[o->op](folder, name, o, a);
}

// The spawner may have ended before this process requested the signal for that.
static bool
spawner_has_ended(void)
{
    struct pollfd p = {.fd = DISK_SOCKET_FD, .events = 0};
    return poll(&p, 1, 0) != 0;
}

int
main(void)
{
    static struct disk_order o;
    static struct disk_answer a;
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)alarm(DISK_SECONDS);
    (void)umask(077);
    if (recv(DISK_SOCKET_FD, &o, sizeof o, 0) != (ssize_t)sizeof o ||
        memchr(o.state_dir, '\0', sizeof o.state_dir) == NULL || spawner_has_ended())
        return 64;
    a.ok = carry_out(&o, &a) == 0;
    const struct fdpass m = {&a, sizeof a, &mounted_fd, mounted_fd >= 0 ? 1 : 0};
    bool sent = fdpass_send(DISK_SOCKET_FD, &m, 0) == 0;
    // Not exit(3): LeakSanitizer needs /proc, which the namespace of disks does not have.
    _exit(sent ? 0 : 70);
}
