// SPDX-License-Identifier: Apache-2.0
// See tree_swap.h, FRESH: the folders of jobs in a fresh upper layer, and whether a job has left anything there.
//
// Jobs write in four folders, of which they own one. A file that they leave takes an inode, and its creation, removal or
// renaming changes the times of its folder; so the numbers of blocks and inodes in use, and the attributes of the four folders,
// are compared. No file below the folders is opened. Before Linux 6.13 two changes within one tick of the kernel's clock can
// leave equal times, but modes, flags and numbers are compared as well, so such a change is undone or visible.
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "proto/auto.h"
#include "tree_fresh.h"
#include "tree_internal.h"
#include "tree_swap_private.h"

static const char *const folders[TREE_FOLDERS_OF_JOBS] = {"u/home/agent", "u/tmp", "u/var/tmp",
                                                          "shm"};

int
tree_fresh_folders(const struct tree *t, const struct tree_swap *s, const char *mount_point,
                   struct err *e)
{
    char name[TREE_MOUNT_POINT + 8];
    (void)snprintf(name, sizeof name, "%s/shm", mount_point);
    if (mkdirat(AT_FDCWD, name, 01777) < 0 ||
        fchownat(AT_FDCWD, name, s->uid, s->uid, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "create %s", name);
    (void)snprintf(name, sizeof name, "%s/u", mount_point);
    return tree_upper_folders(t, s->root, s->uid, AT_FDCWD, name, e);
}

// Of the folder that jobs own: nobody else sets them (chattr(1)).
static int
look_at_flags(int dir, const char *name, uint64_t *flags)
{
    int value = 0;
    int auto_close fd =
        openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC);
    if (fd < 0 ||
        (ioctl(fd, FS_IOC_GETFLAGS, &value) < 0 && errno != ENOTTY && errno != EOPNOTSUPP))
        return -errno;
    *flags = (unsigned)value;
    return 0;
}

static int
count(int fd, struct tree_in_use *n)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0)
        return -errno;
    n->blocks = fs.f_blocks - fs.f_bfree;
    n->inodes = fs.f_files - fs.f_ffree;
    return 0;
}

static int
look(const struct tree_of *p, struct tree_untouched *u)
{
    const int upper_fd = p->layers->upper_fd;
    *u = (struct tree_untouched){0};
    int r = count(upper_fd, &u->upper);
    if (r == 0)
        r = count(p->disk_fd, &u->disk);
    if (r < 0)
        return r;
    for (int i = 0; i < TREE_FOLDERS_OF_JOBS; i++) {
        struct tree_folder_seen *f = &u->folder[i];
        struct stat st;
        if (fstatat(upper_fd, folders[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
        *f = (struct tree_folder_seen){
            .mode = st.st_mode,
            .uid = st.st_uid,
            .gid = st.st_gid,
            .links = st.st_nlink,
            .bytes = (uint64_t)st.st_size,
            .time = {{st.st_atim.tv_sec, st.st_atim.tv_nsec},
                     {st.st_mtim.tv_sec, st.st_mtim.tv_nsec},
                     {st.st_ctim.tv_sec, st.st_ctim.tv_nsec}},
        };
    }
    return look_at_flags(upper_fd, folders[0], &u->folder[0].flags);
}

bool
tree_fresh_is_untouched(const struct tree_of *p)
{
    struct tree_untouched now;
    const struct tree_untouched *before = &p->layers->untouched;
    return before->upper.inodes != 0 && look(p, &now) == 0 && memcmp(&now, before, sizeof now) == 0;
}

int
tree_fresh_remember(const struct tree_of *p, struct err *e)
{
    struct tree_untouched *u = &p->layers->untouched;
    const struct tree_in_use disk = u->disk;
    int r = look(p, u);
    if (r < 0)
        (void)err_sys(e, -r, "look at the fresh folders");
    else if (disk.inodes != 0 && memcmp(&disk, &u->disk, sizeof disk) != 0)
        r = err_set(e, ERR_FAILED_PRECONDITION, "a job has written in a folder of the host");
    if (r < 0)
        u->upper.inodes = 0;
    return r;
}
