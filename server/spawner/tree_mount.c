// SPDX-License-Identifier: Apache-2.0
// See tree_mount.h.
#include "tree_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/auto.h"

enum { OPTIONS_BYTES = 240 };

// The kernel's message about a refused option ("e overlay: ..."); "" if there is none.
static void
kernel_words(int fs, char *out, size_t n)
{
    ssize_t got = read(fs, out, n - 1);
    out[got > 0 ? got : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

int
mount_new(const char *type, const struct mount_option *options, int n, unsigned attributes,
          struct err *e)
{
    int auto_close fs = fsopen(type, FSOPEN_CLOEXEC);
    if (fs < 0)
        return err_sys(e, errno, "open file system %s", type);
    char words[160];
    for (int i = 0; i < n; i++) {
        const struct mount_option *o = &options[i];
        unsigned command = o->value == NULL ? FSCONFIG_SET_FLAG : FSCONFIG_SET_STRING;
        if (fsconfig(fs, command, o->key, o->value, 0) < 0) {
            int sys = errno;
            kernel_words(fs, words, sizeof words);
            return err_sys(e, sys, "%s option %s=%s (%s)", type, o->key,
                           o->value == NULL ? "" : o->value, words);
        }
    }
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0) {
        int sys = errno;
        kernel_words(fs, words, sizeof words);
        return err_sys(e, sys, "create %s (%s)", type, words);
    }
    int fd = fsmount(fs, FSMOUNT_CLOEXEC, attributes);
    return fd < 0 ? err_sys(e, errno, "mount %s", type) : fd;
}

_Static_assert(MOUNT_ATTR_RDONLY == MS_RDONLY && MOUNT_ATTR_NOSUID == MS_NOSUID &&
                   MOUNT_ATTR_NODEV == MS_NODEV && MOUNT_ATTR_NOEXEC == MS_NOEXEC,
               "attributes are flags of mount(2), too");

// Has the message of the kernel about a refused option, which mount(2) does not return, from mount_new().
static int
explain(const char *type, const struct mount_option *options, int n, unsigned attributes, int sys,
        struct err *e)
{
    int auto_close fd = mount_new(type, options, n, attributes, e);
    return fd < 0 ? fd : err_sys(e, sys, "mount %s", type);
}

int
mount_new_at(const char *type, const struct mount_option *options, int n, unsigned attributes,
             const char *path, struct err *e)
{
    char text[OPTIONS_BYTES] = "";
    const char *source = type;
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        const struct mount_option *o = &options[i];
        if (strcmp(o->key, "source") == 0) {
            source = o->value;
            continue;
        }
        int added = snprintf(text + used, sizeof text - used, "%s%s=%s", used > 0 ? "," : "",
                             o->key, o->value);
        used += (size_t)added;
        if (used >= sizeof text || strchr(o->value, ',') != NULL)
            return err_sys(e, EINVAL, "mount %s: option %s", type, o->key);
    }
    if (mount(source, path, type, attributes, text) < 0)
        return explain(type, options, n, attributes, errno, e);
    int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "open the mount at %s", path) : fd;
}

int
mount_change(int fd, unsigned set, unsigned clear, struct err *e)
{
    struct mount_attr attr = {.attr_set = set, .attr_clr = clear};
    if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        return err_sys(e, errno, "change attributes of a mount");
    return 0;
}

int
mount_clone(int dir, const char *path, unsigned attributes, struct err *e)
{
    int auto_close fd = open_tree(dir, path,
                                  OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW |
                                      (*path == '\0' ? (unsigned)AT_EMPTY_PATH : 0));
    if (fd < 0)
        return err_sys(e, errno, "clone the mount at %s", *path == '\0' ? "a descriptor" : path);
    if (attributes != 0) {
        int rc = mount_change(fd, attributes, 0, e);
        if (rc < 0)
            return err_wrap(e, "%s", path);
    }
    return take_fd(&fd);
}

int
mount_idmap(int fd, int userns_fd, struct err *e)
{
    return mount_idmap_and(fd, userns_fd, 0, e);
}

int
mount_idmap_and(int fd, int userns_fd, unsigned attributes, struct err *e)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP | attributes,
                              .userns_fd = (unsigned)userns_fd};
    if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        return err_sys(e, errno, "map the ids of a mount");
    return 0;
}

int
mount_attach(int fd, int dir, const char *path, struct err *e)
{
    // A single name, also one in the process's root, is safe: move_mount does not follow a link in the last component.
    const bool in_root = dir == AT_FDCWD && path[0] == '/';
    if (strchr(path + in_root, '/') == NULL) {
        if (move_mount(fd, "", dir, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
            return err_sys(e, errno, "attach a mount to %s", path);
        return 0;
    }
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    if (dir != AT_FDCWD)
        how.resolve |= RESOLVE_BENEATH;
    int auto_close to = (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
    if (to < 0)
        return err_sys(e, errno, "open the mount point %s", path);
    if (move_mount(fd, "", to, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return err_sys(e, errno, "attach a mount to %s", path);
    return 0;
}

int
mount_become_root(int fd, struct err *e)
{
    if (fchdir(fd) < 0)
        return err_sys(e, errno, "enter the new root");
    // The old root is now on top of the new one, where "." is still the new one: pivot_root(2), NOTES.
    if (syscall(SYS_pivot_root, ".", ".") < 0)
        return err_sys(e, errno, "pivot_root");
    if (umount2(".", MNT_DETACH) < 0)
        return err_sys(e, errno, "detach the old root");
    return chdir("/") < 0 ? err_sys(e, errno, "enter /") : 0;
}
