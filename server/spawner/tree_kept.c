// SPDX-License-Identifier: Apache-2.0
// See tree_swap.h: layers on their way to the state directory and from there.
//
// A layer in the state directory belongs to no sandbox: its files have ids of a range of their own (keeper/keep.h), which a
// mount maps to those of the sandbox, as it does for a fork's. The helper opens it in the host's mounts, which the sandbox's
// namespace does not have, and places it beside the other layers. The name of the folder comes from a digest, not from a job.
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
#include "tree_swap.h"

static const unsigned READ_ONLY = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

// ---- to the state directory

struct opening {
    const struct tree_place *of;
    char source[TREE_PLACE];
    int fd;
};

static int
open_helper(void *cookie, struct err *e)
{
    struct opening *o = cookie;
    if (setns(o->of->pid_fd, CLONE_NEWNS) < 0 || fchdir(o->of->disk_fd) < 0)
        return err_sys(e, errno, "enter the mount namespace");
    o->fd = mount_clone(AT_FDCWD, o->source, READ_ONLY, e);
    return o->fd < 0 ? o->fd : 0;
}

int
tree_open_layer(const struct tree_place *p, uint32_t layer, uint32_t *uid, int *helper_fd,
                struct err *e)
{
    char place[TREE_PLACE];
    struct opening o = {.of = p, .fd = -1};
    *helper_fd = -1;
    if (p->layers == NULL || !tree_layers_have(p->layers, layer))
        return err_set(e, ERR_NOT_FOUND, "the sandbox has no layer %u", layer);
    const struct tree_sealed *l = &p->layers->sealed[layer];
    tree_layers_place(layer, place);
    (void)snprintf(o.source, sizeof o.source, "%s%.2s", l->mapped ? "r" : "", place);
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
    char place[TREE_PLACE], raw[TREE_PLACE];
    int raw_fd, mapped_fd;
};

static int
open_both(struct adoption *a, struct err *e)
{
    if (setns(a->plan->mount_home_fd, CLONE_NEWNS) < 0)
        return err_sys(e, errno, "enter the mount namespace of the host");
    a->raw_fd = mount_clone(AT_FDCWD, a->plan->path, READ_ONLY, e);
    if (a->raw_fd < 0) {
        if (e->sys == ENOENT)
            (void)err_set(e, ERR_NOT_FOUND, "the layer is not in the state directory");
        return err_errno(e);
    }
    a->mapped_fd = mount_clone(AT_FDCWD, a->plan->path, READ_ONLY, e);
    int rc =
        a->mapped_fd < 0 ? a->mapped_fd : mount_idmap(a->mapped_fd, a->plan->kept_userns_fd, e);
    return rc < 0 ? err_wrap(e, "the file system of the state directory cannot map ids") : 0;
}

static int
place(int fd, const char *name, struct err *e)
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
    if (rc == 0 && (setns(a->plan->of.pid_fd, CLONE_NEWNS) < 0 || fchdir(a->plan->of.disk_fd) < 0))
        rc = err_sys(e, errno, "enter the mount namespace");
    if (rc == 0)
        rc = place(a->raw_fd, a->raw, e);
    if (rc < 0)
        return rc;
    rc = place(a->mapped_fd, a->place, e);
    if (rc < 0) {
        (void)umount2(a->raw, MNT_DETACH);
        (void)unlinkat(AT_FDCWD, a->raw, AT_REMOVEDIR);
    }
    return rc;
}

static int
too_many(struct err *e)
{
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "the sandbox has %d layers already, its maximum",
                    TREE_LAYERS_OF_SANDBOX);
    err_detail(e, "LAYERS", "layers", "delete snapshots, or restore an early one");
    return r;
}

int
tree_adopt_layer(const struct tree *t, const struct tree_adopt *a, uint32_t *layer, int *helper_fd,
                 struct err *e)
{
    struct adoption made = {.plan = a, .raw_fd = -1, .mapped_fd = -1};
    struct tree_layers *l = a->of.layers;
    *helper_fd = -1;
    if (a->below != 0 && !tree_layers_have(l, a->below))
        return err_set(e, ERR_NOT_FOUND, "the sandbox has no layer %u", a->below);
    const uint32_t number = tree_layers_take(l, 0);
    if (number == 0 || tree_layers_count(l) >= TREE_LAYERS_OF_SANDBOX)
        return too_many(e);
    tree_layers_place(number, made.place);
    (void)snprintf(made.raw, sizeof made.raw, "r%.2s", made.place);
    // room for the places, which no job can use up
    int rc = l->upper != 0
                 ? 0
                 : tree_resize(t, a->of.disk_fd, a->disk_bytes, a->inodes + 4 * TREE_NUMBERS, e);
    if (rc == 0)
        rc = tree_helper_run(adopt_helper, &made, helper_fd, e);
    io_close(&made.raw_fd);
    io_close(&made.mapped_fd);
    if (rc < 0)
        return rc;
    l->sealed[number] =
        (struct tree_sealed){.there = true, .mapped = true, .below = a->below, .uid = KEEP_ID_BASE};
    *layer = number;
    return 0;
}
