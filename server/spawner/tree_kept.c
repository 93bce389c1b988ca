// SPDX-License-Identifier: Apache-2.0
// See tree_swap.h: layers on their way to the state directory, and from there or from another sandbox.
//
// A layer in the state directory belongs to no sandbox: its files have ids of a range of their own (keeper/keep.h), which a
// mount maps to those of the sandbox, as it does for a fork's. The helper opens it in the host's mounts, which the sandbox's
// namespace does not have, and attaches it beside the other layers. The name of the folder comes from a digest, not from a job. A layer
// of another sandbox is opened on that one's disk instead, and mapped in the same way.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/keeper/keep.h"
#include "io.h"
#include "tree_helper.h"
#include "tree_internal.h"
#include "tree_mount.h"
#include "tree_swap_private.h"

static const unsigned READ_ONLY = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

// ---- to the state directory

struct opening {
    const struct tree_of *of;
    char source[TREE_MOUNT_POINT];
    int fd;
};

static int
open_helper(void *cookie, struct err *e)
{
    struct opening *o = cookie;
    int rc = tree_enter_source(o->of, e);
    if (rc < 0)
        return rc;
    o->fd = mount_clone(AT_FDCWD, o->source, READ_ONLY, e);
    return o->fd < 0 ? o->fd : 0;
}

int
tree_open_layer(const struct tree_of *p, uint32_t layer, uint32_t *uid, int *helper_fd,
                struct err *e)
{
    char mount_point[TREE_MOUNT_POINT];
    struct opening o = {.of = p, .fd = -1};
    *helper_fd = -1;
    if (p->layers == NULL || !tree_layers_have(p->layers, layer))
        return err_set(e, ERR_NOT_FOUND, "the sandbox has no layer %u", layer);
    const struct tree_sealed *l = &p->layers->sealed[layer];
    tree_layers_mount_point(layer, mount_point);
    (void)snprintf(o.source, sizeof o.source, "%s%.2s", l->mapped ? "r" : "", mount_point);
    int rc = tree_helper_run(open_helper, &o, helper_fd, e);
    if (rc < 0) {
        io_close(&o.fd);
        return rc;
    }
    *uid = l->uid;
    return o.fd;
}

// ---- from there

struct adoption {
    const struct tree_adopt *plan;
    char source[TREE_MOUNT_POINT]; // on the disk of another sandbox
    char mount_point[TREE_MOUNT_POINT], raw[TREE_MOUNT_POINT];
    int raw_fd, mapped_fd;
};

// Where the layer can be named.
static int
enter_source(const struct tree_adopt *p, struct err *e)
{
    if (p->path != NULL)
        return setns(p->mount_home_fd, CLONE_NEWNS) < 0
                   ? err_sys(e, errno, "enter the mount namespace of the host")
                   : 0;
    return tree_enter_source(&p->from, e);
}

// EINVAL: the file system does not support it (mount_setattr(2)).
static int
cannot_map(struct err *e)
{
    if (e->sys == EINVAL) {
        (void)err_set(e, ERR_FAILED_PRECONDITION, "its file system cannot map ids on this kernel");
        err_detail(e, "LAYER_IDS_UNSUPPORTED", "state_dir",
                   "ext4, xfs and btrfs can; tmpfs can from Linux 6.3 on");
    }
    return err_wrap(e, "give the layer the ids of the sandbox");
}

static int
open_both(struct adoption *a, struct err *e)
{
    const char *name = a->plan->path != NULL ? a->plan->path : a->source;
    int rc = enter_source(a->plan, e);
    if (rc < 0)
        return rc;
    a->raw_fd = mount_clone(AT_FDCWD, name, READ_ONLY, e);
    if (a->raw_fd < 0) {
        if (e->sys == ENOENT)
            (void)err_set(e, ERR_NOT_FOUND, "the layer does not exist any more");
        return err_errno(e);
    }
    a->mapped_fd = mount_clone(AT_FDCWD, name, READ_ONLY, e);
    rc = a->mapped_fd < 0 ? a->mapped_fd : mount_idmap(a->mapped_fd, a->plan->userns_fd, e);
    return rc < 0 ? cannot_map(e) : 0;
}

static int
attach(int fd, const char *name, struct err *e)
{
    if (mkdirat(AT_FDCWD, name, 0555) < 0)
        return err_sys(e, errno, "create %s", name);
    int rc = mount_attach(fd, AT_FDCWD, name, e);
    if (rc < 0)
        (void)unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
    return rc;
}

static int
adopt_helper(void *cookie, struct err *e)
{
    struct adoption *a = cookie;
    int rc = open_both(a, e);
    if (rc == 0)
        rc = tree_helper_enter(a->plan->of.pid_fd, e);
    if (rc == 0 && fchdir(a->plan->of.disk_fd) < 0)
        rc = err_sys(e, errno, "enter the disk");
    if (rc == 0)
        rc = attach(a->raw_fd, a->raw, e);
    if (rc < 0)
        return rc;
    rc = attach(a->mapped_fd, a->mount_point, e);
    if (rc < 0) {
        (void)umount2(a->raw, MNT_DETACH);
        (void)unlinkat(AT_FDCWD, a->raw, AT_REMOVEDIR);
    }
    return rc;
}

// What the new layer will be; of another sandbox's one, also where it lies there.
static int
plan_adoption(const struct tree *t, struct adoption *made, struct tree_sealed *out, struct err *e)
{
    const struct tree_adopt *a = made->plan;
    struct tree_layers *l = a->of.layers;
    char mount_point[TREE_MOUNT_POINT];
    *out =
        (struct tree_sealed){.there = true, .mapped = true, .below = a->below, .uid = KEEP_ID_BASE};
    if (a->below != 0 && !tree_layers_have(l, a->below))
        return err_set(e, ERR_NOT_FOUND, "the sandbox has no layer %u", a->below);
    if (a->path != NULL)
        return 0;
    if (!tree_parts_are_alike(&t->roots[a->root], &t->roots[a->from_root]))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "the other sandbox shows other folders of the host");
    const struct tree_sealed *from = &a->from.layers->sealed[a->layer];
    tree_layers_mount_point(a->layer, mount_point);
    (void)snprintf(made->source, sizeof made->source, "%s%.2s", from->mapped ? "r" : "",
                   mount_point);
    out->uid = from->uid;
    out->bytes = from->bytes;
    out->inodes = from->inodes;
    uint64_t bytes;
    uint32_t inodes;
    tree_layers_room(l, a->disk_bytes, a->inodes, &bytes, &inodes);
    if (out->bytes < bytes && out->inodes < inodes)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "the sandbox's disk has no room for the files");
    err_detail(e, "DISK_FULL", "disk_bytes", "remove files, or raise the limit");
    return r;
}

int
tree_adopt_layer(const struct tree *t, const struct tree_adopt *a, uint32_t *layer, int *helper_fd,
                 struct err *e)
{
    struct adoption made = {.plan = a, .raw_fd = -1, .mapped_fd = -1};
    struct tree_layers *l = a->of.layers;
    struct tree_sealed sealed;
    *helper_fd = -1;
    int rc = plan_adoption(t, &made, &sealed, e);
    if (rc == 0)
        rc = tree_layers_may_add(l, a->below, e);
    if (rc < 0)
        return rc;
    const uint32_t number = tree_layers_take(l, 0);
    if (number == 0)
        return err_sys(e, ENOMEM, "find a number for a layer");
    tree_layers_mount_point(number, made.mount_point);
    (void)snprintf(made.raw, sizeof made.raw, "r%.2s", made.mount_point);
    // room for the mount points, which no job can use up
    rc = l->upper != 0 ? 0
                       : tree_resize(t, a->of.disk_fd, a->disk_bytes,
                                     a->inodes + tree_layers_mount_points(l), e);
    if (rc == 0)
        rc = tree_helper_run(adopt_helper, &made, helper_fd, e);
    io_close(&made.raw_fd);
    io_close(&made.mapped_fd);
    if (rc < 0)
        return rc;
    l->sealed[number] = sealed;
    *layer = number;
    return 0;
}
