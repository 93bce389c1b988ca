// SPDX-License-Identifier: Apache-2.0
// See tree_swap.h: tree_drop_layer(). No file is removed one by one: the kernel frees the whole file system.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io.h"
#include "tree_helper.h"
#include "tree_swap.h"

struct drop {
    const struct tree_of *of;
    uint32_t layer;
};

// 1: it is no mount, but the folder of the first layer that the sandbox sealed, and stays.
static int
drop_one(const char *name, struct err *e)
{
    struct statx st;
    if (statx(AT_FDCWD, name, AT_SYMLINK_NOFOLLOW, STATX_TYPE, &st) < 0)
        return err_sys(e, errno, "look at layer %s", name);
    if ((st.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0) // Linux 5.8
        return 1;
    if (umount2(name, MNT_DETACH) < 0)
        return err_sys(e, errno, "unmount layer %s", name);
    return unlinkat(AT_FDCWD, name, AT_REMOVEDIR) < 0
               ? err_sys(e, errno, "remove the mount point of layer %s", name)
               : 0;
}

static int
helper(void *cookie, struct err *e)
{
    const struct drop *d = cookie;
    char name[TREE_MOUNT_POINT], raw[TREE_MOUNT_POINT];
    tree_layers_mount_point(d->layer, name);
    (void)snprintf(raw, sizeof raw, "r%.2s", name);
    int rc = tree_helper_enter(d->of->pid_fd, e);
    if (rc < 0)
        return rc;
    if (fchdir(d->of->disk_fd) < 0)
        return err_sys(e, errno, "enter the disk");
    rc = drop_one(name, e);
    return rc == 0 && d->of->layers->sealed[d->layer].mapped ? drop_one(raw, e) : rc;
}

int
tree_drop_layer(const struct tree_of *p, uint32_t layer, int *helper_fd, struct err *e)
{
    struct drop d = {p, layer};
    *helper_fd = -1;
    if (!tree_layers_have(p->layers, layer))
        return err_set(e, ERR_NOT_FOUND, "the sandbox has no layer %u", layer);
    if (tree_layers_need(p->layers, layer))
        return err_set(e, ERR_FAILED_PRECONDITION, "another layer lies on layer %u", layer);
    int rc = tree_helper_run(helper, &d, helper_fd, e);
    if (rc == 0)
        p->layers->sealed[layer] = (struct tree_sealed){0};
    if (rc == 0 && p->layers->copy == layer) {
        p->layers->copy = 0;
        io_close(&p->layers->copy_fd);
    }
    return rc < 0 ? rc : 0;
}
