// SPDX-License-Identifier: Apache-2.0
// DISK_PROJECT: a folder with a project id of its own, whose quota is the disk's limit (ext4, xfs; quotactl_fd(2)). Everything
// below it has that id, because folders inherit it, and only a process with rights in the first user namespace can change it.
//
// The files of a disk are hostile: set-id programs, devices, names of any bytes, any depth. They are reached through mounts
// without set-id and devices, and their folder here through root's alone. They are removed by single names, without following
// a link, and at a constant depth: folders found below are first moved up.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/mount.h>
#include <unistd.h>

#include "backend.h"
#include "proto/auto.h"
#include "server/spawner/tree_mount.h"

enum { PROJECT_TRIES = 64, QUOTA_BLOCK = 1024, FOLDER_BYTES = 4096, PROJECT_QUOTA = 2 };

// As in <linux/quota.h>; <sys/quota.h> cannot be included beside it.
struct quota_limits {
    uint64_t hard_blocks, soft_blocks, space, hard_inodes, soft_inodes, inodes, block_time,
        inode_time;
    uint32_t valid;
};
_Static_assert(sizeof(struct quota_limits) == sizeof(struct if_dqblk), "struct if_dqblk");

static int
quota(int fd, unsigned command, uint32_t project, void *arg)
{
    return (int)syscall(SYS_quotactl_fd, fd, QCMD(command, PROJECT_QUOTA), project, arg);
}

static int
probe(int folder, struct err *e)
{
    struct fs_quota_stat state = {.qs_version = FS_QSTAT_VERSION};
    struct fsxattr attributes;
    if (quota(folder, Q_XGETQSTAT, 0, &state) < 0)
        return err_sys(e, errno, "no project quotas on the state directory's file system");
    if ((state.qs_flags & FS_QUOTA_PDQ_ENFD) == 0)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "the state directory's file system does not enforce project quotas: mount it "
            "with prjquota");
    return ioctl(folder, FS_IOC_FSGETXATTR, &attributes) < 0
               ? err_sys(e, errno, "read the project of a folder")
               : 0;
}

// A number that nobody has used: without limits and files. Others of the host count theirs from 1, so it is large.
static int
find_project(int folder, uint32_t *out, struct err *e)
{
    for (int i = 0; i < PROJECT_TRIES; i++) {
        uint32_t project = 0;
        struct quota_limits now = {0};
        if (getrandom(&project, sizeof project, 0) != (ssize_t)sizeof project)
            return err_sys(e, errno, "find a project id");
        project = UINT32_C(0x40000000) | (project & UINT32_C(0x3fffffff));
        if (quota(folder, Q_GETQUOTA, project, &now) < 0 && errno != ENOENT && errno != ESRCH)
            return err_sys(e, errno, "read the quota of a project");
        if (now.hard_blocks == 0 && now.hard_inodes == 0 && now.space == 0 && now.inodes == 0) {
            *out = project;
            return 0;
        }
    }
    return err_set(e, ERR_RESOURCE_EXHAUSTED, "no project id is free");
}

static int
set_limits(int fd, uint32_t project, uint64_t bytes, uint64_t inodes, struct err *e)
{
    struct quota_limits limits = {
        .hard_blocks = (bytes + QUOTA_BLOCK - 1) / QUOTA_BLOCK,
        .hard_inodes = inodes,
        .valid = QIF_LIMITS,
    };
    return quota(fd, Q_SETQUOTA, project, &limits) < 0 ? err_sys(e, errno, "set the quota") : 0;
}

// The folder itself is one of its inodes, and of ext4 a block.
static int
fill(int fd, const struct disk_order *o, uint32_t project, struct err *e)
{
    struct fsxattr attributes;
    const uid_t owner = o->kind == SPAWN_DISK_VOLUME ? SANDBOX_UID_JOB : 0;
    if (ioctl(fd, FS_IOC_FSGETXATTR, &attributes) < 0)
        return err_sys(e, errno, "read the project of the folder");
    attributes.fsx_projid = project;
    attributes.fsx_xflags |= FS_XFLAG_PROJINHERIT;
    if (ioctl(fd, FS_IOC_FSSETXATTR, &attributes) < 0)
        return err_sys(e, errno, "set the project of the folder");
    int r = set_limits(fd, project, o->bytes + FOLDER_BYTES, o->inodes + UINT64_C(1), e);
    if (r < 0)
        return r;
    if (fchown(fd, owner, owner) < 0 || fchmod(fd, 0755) < 0 || fsync(fd) < 0)
        return err_sys(e, errno, "set the owner of the folder");
    return 0;
}

// Its bytes are not reserved, but what could never be written is refused.
static int
check_room(int folder, uint64_t bytes, struct err *e)
{
    struct statvfs fs;
    if (fstatvfs(folder, &fs) < 0)
        return err_sys(e, errno, "look at the file system");
    if (bytes / fs.f_frsize < fs.f_bavail)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                    "the state directory's file system has no room for %llu bytes",
                    (unsigned long long)bytes);
    err_detail(e, "HOST_DISK_FULL", "state_dir", "remove volumes, or make more room there");
    return r;
}

static int
make(int folder, const char *name, const struct disk_order *o, struct err *e)
{
    uint32_t project = 0;
    struct err ignored;
    int r = check_room(folder, o->bytes, e);
    if (r == 0)
        r = find_project(folder, &project, e);
    if (r < 0)
        return r;
    if (mkdirat(folder, name, 0700) < 0)
        return errno == EEXIST ? err_set(e, ERR_ALREADY_EXISTS, "disk %s exists", name)
                               : err_sys(e, errno, "create disk %s", name);
    int auto_close fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    r = fd < 0 ? err_sys(e, errno, "open disk %s", name) : fill(fd, o, project, e);
    if (r == 0 && fsync(folder) < 0)
        r = err_sys(e, errno, "keep disk %s", name);
    if (r < 0) {
        (void)unlinkat(folder, name, AT_REMOVEDIR);
        (void)set_limits(folder, project, 0, 0, &ignored);
    }
    return r;
}

static int
open_disk(int folder, const char *name, struct err *e)
{
    return mount_clone(folder, name, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, e);
}

// ---- removal

// Removes what is in a folder; what is in folders there moves to the top first, under numbers that no entry has.
static int
empty_into(int top, int fd, uint64_t *number, bool *more, struct err *e)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (d == NULL) {
        if (copy >= 0)
            (void)close(copy);
        return err_sys(e, errno, "read a folder");
    }
    rewinddir(d);
    int r = 0;
    for (const struct dirent *it = readdir(d); it != NULL && r == 0; it = readdir(d)) {
        char up[48];
        if (strcmp(it->d_name, ".") == 0 || strcmp(it->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, it->d_name, 0) == 0 || unlinkat(fd, it->d_name, AT_REMOVEDIR) == 0)
            continue;
        *more = true;
        (void)snprintf(up, sizeof up, ".removed-%016llx", (unsigned long long)++*number);
        if (fd != top && renameat2(fd, it->d_name, top, up, RENAME_NOREPLACE) < 0 &&
            errno != EEXIST) // then in the next round
            r = err_sys(e, errno, "move a folder");
    }
    (void)closedir(d);
    return r;
}

// One round: each folder at the top is emptied, and its folders come to the top.
static int
flatten(int top, uint64_t *number, bool *more, struct err *e)
{
    int copy = fcntl(top, F_DUPFD_CLOEXEC, 3);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    if (d == NULL) {
        if (copy >= 0)
            (void)close(copy);
        return err_sys(e, errno, "read the disk's folder");
    }
    rewinddir(d);
    int r = 0;
    for (const struct dirent *it = readdir(d); it != NULL && r == 0; it = readdir(d)) {
        if (strcmp(it->d_name, ".") == 0 || strcmp(it->d_name, "..") == 0)
            continue;
        int auto_close fd =
            openat(top, it->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0)
            r = empty_into(top, fd, number, more, e);
    }
    (void)closedir(d);
    return r;
}

static int
remove_disk(int folder, const char *name, struct err *e)
{
    struct fsxattr attributes = {0};
    struct err ignored;
    uint64_t number = 0;
    int r = 0;
    int auto_close fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open disk %s", name);
    (void)ioctl(fd, FS_IOC_FSGETXATTR, &attributes);
    // moved names need no room in the quota
    (void)set_limits(fd, attributes.fsx_projid, 0, 0, &ignored);
    for (bool more = true; more && r == 0;) {
        more = false;
        r = empty_into(fd, fd, &number, &more, e);
        if (r == 0 && more)
            r = flatten(fd, &number, &more, e);
    }
    if (r == 0 && unlinkat(folder, name, AT_REMOVEDIR) < 0)
        r = err_sys(e, errno, "remove disk %s", name);
    return r;
}

const struct backend backend_project = {DISK_PROJECT, probe, make, open_disk, remove_disk};
