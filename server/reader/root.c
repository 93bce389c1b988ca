// SPDX-License-Identifier: Apache-2.0
// See root.h. Each root has a skeleton folder of its own, NAME.RANDOM, with a shared lock (flock(2)) as long as the
// spawner has the root: the spawner gets the descriptor that holds the lock. So a process that gets the exclusive
// lock knows that the folder is unused, even after a crash of all users.
#include "root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/state_folder.h"
#include "server/spawner/tree_mount.h"
#include "skeleton.h"

enum { NAME_BYTES = 64 + 12 };

// False: the folder cannot be opened, or its lock is held.
static bool
is_unused(int folder, const char *name)
{
    int auto_close fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

// A folder that cannot be removed stays, which is harmless.
static void
remove_unused(int folder)
{
    struct err ignored;
    DIR *d = fdopendir(fcntl(folder, F_DUPFD_CLOEXEC, 3));
    if (d == NULL)
        return;
    rewinddir(d);
    for (const struct dirent *it = readdir(d); it != NULL; it = readdir(d))
        if (strcmp(it->d_name, ".") != 0 && strcmp(it->d_name, "..") != 0 &&
            is_unused(folder, it->d_name))
            (void)skeleton_remove(folder, it->d_name, &ignored);
    (void)closedir(d);
}

// Where ext4 looks for a free inode, it tries those first that were deleted in the last minutes, such as the hundreds of the
// skeletons just removed: that takes seconds. With this attribute (chattr(1), T) each skeleton begins in another part of the
// disk. Other file systems refuse it, and need none.
static void
spread_out(int folder)
{
    int flags = 0;
    if (ioctl(folder, FS_IOC_GETFLAGS, &flags) < 0 || (flags & FS_TOPDIR_FL) != 0)
        return;
    flags |= FS_TOPDIR_FL;
    (void)ioctl(folder, FS_IOC_SETFLAGS, &flags);
}

int
root_folder(const char *state_dir, struct err *e)
{
    int auto_close state = state_folder_open(state_dir, e);
    if (state < 0)
        return state;
    if (mkdirat(state, "templates", 0755) < 0 && errno != EEXIST)
        return err_sys(e, errno, "create %s/templates", state_dir);
    int fd = openat(state, "templates", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "open %s/templates", state_dir);
    spread_out(fd);
    remove_unused(fd);
    return fd;
}

// Locks the folder before another reader could check it: only one reader at a time works here.
static int
make_skeleton(int folder, const struct skeleton_template *t, struct skeleton_top *top,
              struct err *e)
{
    char name[NAME_BYTES];
    uint32_t random = 0;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return err_sys(e, errno, "find a name");
    (void)snprintf(name, sizeof name, "%s.%08" PRIx32, t->name, random);
    int auto_close fd = skeleton_make(folder, name, t, top, e);
    if (fd < 0)
        return fd;
    if (flock(fd, LOCK_SH | LOCK_NB) < 0)
        return err_sys(e, errno, "lock %s", name);
    return take_fd(&fd);
}

static int
add_layer(struct spawn_root *r, int fds[SPAWN_ROOT_FDS_MAX], int dir, const char *host,
          const char *at, struct err *e)
{
    if (r->layers_n == SPAWN_ROOT_LAYERS_MAX)
        return err_field(e, "paths", "more than %d folders", SPAWN_ROOT_LAYERS_MAX);
    int fd = mount_clone(dir, host, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY, e);
    if (fd < 0)
        return fd;
    (void)snprintf(r->at[r->layers_n], SPAWN_PATH_MAX, "%s", at);
    fds[r->layers_n++] = fd;
    return 0;
}

static int
add_layers(int skeleton, const struct skeleton_template *t, const struct skeleton_top *top,
           struct spawn_root *r, int fds[SPAWN_ROOT_FDS_MAX], struct err *e)
{
    int rc = add_layer(r, fds, skeleton, "", "", e);
    if (rc == 0)
        rc = add_layer(r, fds, AT_FDCWD, "/usr", "/usr", e);
    for (int i = 0; rc == 0 && i < top->n; i++) {
        char host[16];
        (void)snprintf(host, sizeof host, "/%s", top->name[i]);
        rc = add_layer(r, fds, AT_FDCWD, host, host, e);
    }
    for (int i = 0; rc == 0 && i < SKELETON_PATHS_MAX && t->paths[i][0] != '\0'; i++)
        rc = add_layer(r, fds, AT_FDCWD, t->paths[i], t->paths[i], e);
    return rc;
}

int
root_make(int folder, const struct skeleton_template *t, struct spawn_root *out,
          int fds[SPAWN_ROOT_FDS_MAX], struct err *e)
{
    struct skeleton_top top;
    struct spawn_root r = {0};
    mode_t umask_before = umask(0);
    int auto_close skeleton = make_skeleton(folder, t, &top, e);
    (void)umask(umask_before);
    if (skeleton < 0)
        return skeleton;
    (void)snprintf(r.hostname, sizeof r.hostname, "%s", t->hostname);
    r.user_root = t->user_root;
    r.writable = t->writable;
    r.on_disk = t->on_disk;
    int rc = add_layers(skeleton, t, &top, &r, fds, e);
    if (rc == 0) {
        fds[r.layers_n] = take_fd(&skeleton);
        *out = r;
        return 0;
    }
    for (uint32_t i = 0; i < r.layers_n; i++)
        (void)close(fds[i]);
    return rc;
}
