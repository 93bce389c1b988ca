// SPDX-License-Identifier: Apache-2.0
// See tree_copy.h.
#include "tree_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "proto/auto.h"
#include "io.h"
#include "tree_helper.h"
#include "tree_internal.h"
#include "tree_mount.h"
#include "tree_swap_private.h"

static const unsigned READ_ONLY = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

// What the new file system has besides the files: its root, the parts, and the folder for hard links; and for a little growth.
enum { OWN_INODES = 64, OWN_BYTES = 256 * 1024 };

struct copying {
    const struct tree_copy *plan;
    struct tree_copying *out;
    uint32_t layer[KEEP_SOURCES_MAX]; // from 0: none
    // of the layer of another sandbox, on that one's disk; "": it is none
    char mount_point[TREE_MOUNT_POINT];
};

int
tree_fit_upper(const struct tree *t, const struct tree_of *p, uint64_t disk_bytes, uint32_t inodes,
               struct err *e)
{
    uint64_t bytes;
    uint32_t count;
    if (p->layers == NULL)
        return tree_resize(t, p->disk_fd, disk_bytes, inodes, e);
    tree_layers_room(p->layers, disk_bytes, inodes, &bytes, &count);
    return p->layers->upper != 0
               ? tree_resize(t, p->layers->upper_fd, bytes, count, e)
               : tree_resize(t, p->disk_fd, bytes, count + tree_layers_mount_points(p->layers), e);
}

// ---- the helper

static int
mount_target(const struct copying *c, struct err *e)
{
    char size[24], count[16];
    (void)snprintf(size, sizeof size, "%" PRIu64, c->plan->bytes);
    (void)snprintf(count, sizeof count, "%u", c->plan->inodes);
    const struct mount_option options[] = {
        {"size", size}, {"nr_inodes", count}, {"mode", "0755"}, {"source", "stockade"}};
    if (!c->plan->on_disk)
        return mount_new("tmpfs", options, 4, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, e);
    int fd = fcntl(c->plan->scratch_fd, F_DUPFD_CLOEXEC, 3);
    return fd < 0 ? err_sys(e, errno, "copy a descriptor") : fd;
}

static int
open_layers(struct copying *c, struct err *e)
{
    for (uint32_t i = 0; i < c->out->n; i++) {
        char mount_point[TREE_MOUNT_POINT];
        tree_layers_mount_point(c->layer[i], mount_point);
        c->out->source[i].fd = mount_clone(AT_FDCWD, mount_point, READ_ONLY, e);
        if (c->out->source[i].fd < 0)
            return c->out->source[i].fd;
    }
    return 0;
}

// What no job writes to while it is frozen.
static int
open_upper(struct copying *c, int root, struct err *e)
{
    char mount_point[TREE_MOUNT_POINT] = ".";
    struct tree_copy_source *s = &c->out->source[0];
    const uint32_t upper = c->plan->of.layers->upper;
    if (upper != 0)
        tree_layers_mount_point(upper, mount_point);
    s->fd = mount_clone(AT_FDCWD, mount_point, READ_ONLY, e);
    if (s->fd < 0 || upper != 0)
        return s->fd < 0 ? s->fd : 0;
    s->dev_fd = openat(root, "dev", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return s->dev_fd < 0 ? err_sys(e, errno, "open /dev") : 0;
}

// As that sandbox has it: without a mapping of ids.
static int
open_other(struct copying *c, struct err *e)
{
    const struct tree_of *p = &c->plan->other;
    int rc = tree_enter_source(p, e);
    if (rc < 0)
        return rc;
    c->out->source[0].fd = mount_clone(AT_FDCWD, c->mount_point, READ_ONLY, e);
    return c->out->source[0].fd < 0 ? c->out->source[0].fd : 0;
}

// The name comes from a digest, not from a job.
static int
open_sealed(struct copying *c, struct err *e)
{
    if (setns(c->plan->mount_home_fd, CLONE_NEWNS) < 0)
        return err_sys(e, errno, "enter the mount namespace of the host");
    c->out->source[0].fd = open(c->plan->sealed, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (c->out->source[0].fd >= 0)
        return 0;
    return errno == ENOENT ? err_set(e, ERR_NOT_FOUND, "the layer does not exist any more")
                           : err_sys(e, errno, "open a sealed layer");
}

static int
attach_target(struct copying *c, struct err *e)
{
    char name[TREE_MOUNT_POINT];
    tree_layers_mount_point(c->out->layer, name);
    if (mkdirat(AT_FDCWD, name, 0555) < 0)
        return err_sys(e, errno, "create %s", name);
    int rc = mount_attach(c->out->target_fd, AT_FDCWD, name, e);
    if (rc < 0)
        (void)unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
    return rc;
}

static int
helper(void *cookie, struct err *e)
{
    struct copying *c = cookie;
    const bool other = c->mount_point[0] != '\0' || c->plan->sealed != NULL;
    int rc = c->plan->sealed != NULL ? open_sealed(c, e) : other ? open_other(c, e) : 0;
    if (rc == 0)
        rc = tree_helper_enter(c->plan->of.pid_fd, e);
    if (rc < 0)
        return rc;
    int auto_close root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || fchdir(c->plan->of.disk_fd) < 0)
        return err_sys(e, errno, "open the root and the disk");
    c->out->target_fd = mount_target(c, e);
    if (c->out->target_fd < 0)
        return c->out->target_fd;
    if (!other)
        rc = c->plan->from == 0 ? open_upper(c, root, e) : open_layers(c, e);
    return rc < 0 ? rc : attach_target(c, e);
}

// ---- the spawner's half

static int
no_room(struct err *e)
{
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "the sandbox's disk has no room for a second copy");
    err_detail(e, "DISK_FULL", "disk_bytes", "remove files, or raise the limit");
    return r;
}

struct in_use {
    uint64_t bytes, inodes;
};

static int
look_at(int fd, const struct tree_in_use *base, struct in_use *u, struct err *e)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0)
        return err_sys(e, errno, "look at a layer");
    const uint64_t blocks = fs.f_blocks - fs.f_bfree;
    const uint64_t inodes = fs.f_files - fs.f_ffree;
    u->bytes = (blocks > base->blocks ? blocks - base->blocks : 0) * (uint64_t)fs.f_bsize;
    u->inodes = inodes > base->inodes ? inodes - base->inodes : 0;
    return 0;
}

// The copy is at most as large as the upper layer; `bytes` is the caller's maximum.
static int
plan_upper(struct tree_copy *c, const struct in_use *upper, struct err *e)
{
    if (upper->bytes > c->bytes) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                        "%" PRIu64 " bytes were written, and at most %" PRIu64 " may be copied",
                        upper->bytes, c->bytes);
        err_detail(e, "COPY_BYTES", "copy_bytes_max",
                   "raise it, or make the snapshot while no job runs, which copies nothing");
        return r;
    }
    c->below = c->of.layers->top;
    c->bytes = upper->bytes + OWN_BYTES;
    c->inodes = (uint32_t)upper->inodes + OWN_INODES;
    return 0;
}

// From the highest down to the one that the copy lies on.
static int
plan_layers(const struct tree_copy *c, struct copying *made, struct err *e)
{
    const struct tree_layers *l = c->of.layers;
    struct tree_copying *out = made->out;
    uint32_t at = c->from;
    out->n = 0;
    while (tree_layers_have(l, at) && at != c->below && out->n < KEEP_SOURCES_MAX) {
        made->layer[out->n++] = at;
        at = l->sealed[at].below;
    }
    return out->n == 0 || at != c->below
               ? err_set(e, ERR_NOT_FOUND, "layer %u does not lie on layer %u", c->from, c->below)
               : 0;
}

// One layer of another sandbox. Of one that it has written, what it takes is known.
static int
plan_other(const struct tree *t, struct tree_copy *c, struct copying *made, struct err *e)
{
    char mount_point[TREE_MOUNT_POINT];
    if (!tree_layers_have(c->other.layers, c->from))
        return err_set(e, ERR_NOT_FOUND, "the other sandbox has no layer %u", c->from);
    if (c->below != 0 && !tree_layers_have(c->of.layers, c->below))
        return err_set(e, ERR_NOT_FOUND, "the sandbox has no layer %u", c->below);
    if (!tree_parts_are_alike(&t->roots[c->root], &t->roots[c->other_root]))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "the other sandbox shows other folders of the host");
    const struct tree_sealed *from = &c->other.layers->sealed[c->from];
    tree_layers_mount_point(c->from, mount_point);
    (void)snprintf(made->mount_point, sizeof made->mount_point, "%s%.2s", from->mapped ? "r" : "",
                   mount_point);
    made->out->uid = from->uid;
    if (from->bytes > 0 && from->bytes + OWN_BYTES < c->bytes)
        c->bytes = from->bytes + OWN_BYTES;
    if (from->inodes > 0 && from->inodes + OWN_INODES < c->inodes)
        c->inodes = (uint32_t)from->inodes + OWN_INODES;
    return 0;
}

// What it takes is known roughly, so it gets what there is, and may fill that.
static int
plan_sealed(struct tree_copy *c, const struct in_use *upper, struct err *e)
{
    uint64_t bytes;
    uint32_t inodes;
    if (c->below != 0 && !tree_layers_have(c->of.layers, c->below))
        return err_set(e, ERR_NOT_FOUND, "the sandbox has no layer %u", c->below);
    tree_layers_room(c->of.layers, c->disk_bytes, c->disk_inodes, &bytes, &inodes);
    c->bytes += OWN_BYTES;
    c->inodes += OWN_INODES;
    if (bytes > upper->bytes && c->bytes > bytes - upper->bytes)
        c->bytes = bytes - upper->bytes;
    if (inodes > upper->inodes && c->inodes > inodes - upper->inodes)
        c->inodes = inodes - (uint32_t)upper->inodes;
    return 0;
}

static int
plan_sources(const struct tree *t, struct tree_copy *c, const struct in_use *upper,
             struct copying *made, struct err *e)
{
    if (c->sealed != NULL)
        return plan_sealed(c, upper, e);
    if (c->other.layers != NULL)
        return plan_other(t, c, made, e);
    return c->from == 0 ? plan_upper(c, upper, e) : plan_layers(c, made, e);
}

static int
plan(const struct tree *t, struct tree_copy *c, struct copying *made, struct err *e)
{
    struct tree_layers *l = c->of.layers;
    struct in_use upper = {0, 0};
    uint64_t bytes;
    uint32_t inodes;
    const bool upper_is_copied = c->from == 0 && c->sealed == NULL;
    int rc = tree_layers_may_add(l, upper_is_copied ? l->top : c->below, e);
    if (rc == 0 && (made->out->layer = tree_layers_take(l, 0)) == 0)
        rc = err_sys(e, ENOMEM, "find a number for a layer");
    if (rc == 0)
        rc = look_at(l->upper != 0 ? l->upper_fd : c->of.disk_fd, &l->base, &upper, e);
    if (rc == 0 && l->upper == 0)
        upper.bytes -= upper.bytes < t->view_bytes ? upper.bytes : t->view_bytes;
    if (rc == 0)
        rc = plan_sources(t, c, &upper, made, e);
    if (rc < 0)
        return rc;
    tree_layers_room(l, c->disk_bytes, c->disk_inodes, &bytes, &inodes);
    return upper.bytes + c->bytes > bytes || upper.inodes + c->inodes > inodes ? no_room(e) : 0;
}

int
tree_copy(const struct tree *t, const struct tree_copy *c, struct tree_copying *out, int *helper_fd,
          struct err *e)
{
    struct err ignored;
    struct tree_copy planned = *c;
    struct copying made = {.plan = &planned, .out = out};
    struct tree_layers *l = c->of.layers;
    *helper_fd = -1;
    *out = (struct tree_copying){.target_fd = -1, .uid = c->uid, .n = 1};
    for (size_t i = 0; i < KEEP_SOURCES_MAX; i++)
        out->source[i] = (struct tree_copy_source){KEEP_SOURCE_LAYER, -1, -1};
    int rc = plan(t, &planned, &made, e);
    if (rc == 0 && c->on_disk && c->scratch_fd < 0) {
        *c->scratch_bytes = planned.bytes;
        *c->scratch_inodes = planned.inodes;
        rc = 1;
    }
    if (rc != 0)
        return rc;
    if (c->sealed != NULL)
        out->source[0].kind = KEEP_SOURCE_SEALED;
    else if (c->from == 0)
        out->source[0].kind = l->upper != 0 ? KEEP_SOURCE_UPPER : KEEP_SOURCE_DISK;
    l->sealed[out->layer] = (struct tree_sealed){.there = true,
                                                 .below = planned.below,
                                                 .uid = c->uid,
                                                 .bytes = planned.bytes,
                                                 .inodes = planned.inodes};
    rc = tree_fit_upper(t, &c->of, c->disk_bytes, c->disk_inodes, e);
    if (rc == 0)
        rc = tree_helper_run(helper, &made, helper_fd, e);
    l->copy_base = c->scratch_use;
    if (rc == 0)
        return 0;
    l->sealed[out->layer] = (struct tree_sealed){0};
    (void)tree_fit_upper(t, &c->of, c->disk_bytes, c->disk_inodes, &ignored);
    tree_copying_close(out);
    return rc;
}

void
tree_copying_close(struct tree_copying *c)
{
    io_close(&c->target_fd);
    for (uint32_t i = 0; i < c->n; i++) {
        io_close(&c->source[i].fd);
        io_close(&c->source[i].dev_fd);
    }
}

// The layer that lies on `instead`, or the upper one, shows the same files on the copy.
static void
put_instead(struct tree_layers *l, uint32_t layer, uint32_t instead)
{
    for (uint32_t n = 1; n <= l->numbers; n++)
        if (l->sealed[n].there && l->sealed[n].below == instead && n != layer)
            l->sealed[n].below = layer;
    if (l->top == instead)
        l->top = layer;
}

int
tree_copied(const struct tree *t, const struct tree_copy *c, uint32_t layer, uint32_t instead,
            struct err *e)
{
    struct in_use u = {0, 0};
    struct tree_layers *l = c->of.layers;
    struct tree_sealed *s = &l->sealed[layer];
    if (!tree_layers_have(l, layer) || l->copy != layer)
        return err_set(e, ERR_NOT_FOUND, "layer %u is not being copied", layer);
    int rc = look_at(l->copy_fd, &l->copy_base, &u, e);
    if (rc < 0)
        return rc;
    s->bytes = u.bytes;
    s->inodes = u.inodes;
    l->copy = 0;
    io_close(&l->copy_fd);
    if (instead != 0)
        put_instead(l, layer, instead);
    return tree_fit_upper(t, &c->of, c->disk_bytes, c->disk_inodes, e);
}
