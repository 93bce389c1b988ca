// SPDX-License-Identifier: Apache-2.0
// See tree_swap_private.h. A fork sees the layers of another sandbox as mounts of its own, so they stay when the other ends.
//
// Their files belong to the other's range of host ids, so each mount maps them to the ids of the fork: a user namespace whose
// ids "inside" are those of the owner's range. A mount can be mapped once. Therefore the one without a mapping is kept, too, for
// forks of the fork.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "holder.h"
#include "io.h"
#include "tree_helper.h"
#include "tree_mount.h"
#include "tree_swap_private.h"

static const unsigned READ_ONLY = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

void
tree_inherited_init(struct tree_inherited *i)
{
    *i = (struct tree_inherited){0};
    for (uint32_t k = 0; k < TREE_DEPTH; k++)
        i->layer[k].raw_fd = i->layer[k].mapped_fd = i->layer[k].userns_fd = -1;
}

void
tree_inherited_close(struct tree_inherited *i)
{
    for (uint32_t k = 0; k < i->n; k++) {
        io_close(&i->layer[k].raw_fd);
        io_close(&i->layer[k].mapped_fd);
        if (i->layer[k].owns)
            io_close(&i->layer[k].userns_fd);
    }
}

// Layers of one owner share the namespace that maps them.
static int
map_owner(struct tree_inherited *i, uint32_t k, const struct tree_swap *s, struct err *e)
{
    struct tree_inherited_layer *l = &i->layer[k];
    if (l->to->uid == s->uid)
        return 0;
    l->to->mapped = true;
    for (uint32_t before = 0; before < k; before++) {
        if (i->layer[before].to->uid == l->to->uid) {
            l->userns_fd = i->layer[before].userns_fd;
            return 0;
        }
    }
    l->userns_fd = holder_user_namespace_from(l->to->uid, s->uid, s->proc_fd, e);
    l->owns = l->userns_fd >= 0;
    return l->userns_fd < 0 ? l->userns_fd : 0;
}

int
tree_inherited_plan(struct tree_inherited *i, const struct tree_swap *s, uint32_t *top,
                    struct err *e)
{
    uint32_t chain[TREE_DEPTH];
    if (s->of.layers->upper != 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "the sandbox has layers of its own");
    i->n = tree_layers_chain(s->from.layers, s->layer, chain);
    int rc = 0;
    for (uint32_t k = 0; k < i->n && rc == 0; k++) {
        const uint32_t number = chain[i->n - 1 - k];
        const struct tree_sealed *from = &s->from.layers->sealed[number];
        struct tree_inherited_layer *l = &i->layer[k];
        char mount_point[TREE_MOUNT_POINT];
        tree_layers_mount_point(number, mount_point);
        (void)snprintf(l->source, sizeof l->source, "%s%.2s", from->mapped ? "r" : "", mount_point);
        l->to = &s->of.layers->sealed[k + 1];
        *l->to = (struct tree_sealed){.there = true, .below = k, .uid = from->uid};
        rc = map_owner(i, k, s, e);
    }
    *top = i->n;
    return rc;
}

int
tree_enter_source(const struct tree_of *from, struct err *e)
{
    int rc = tree_helper_enter(from->pid_fd, e);
    if (rc < 0)
        return err_wrap(e, "enter the sandbox that has the files");
    return fchdir(from->disk_fd) < 0 ? err_sys(e, errno, "enter the disk of the files") : 0;
}

int
tree_inherited_clone(struct tree_inherited *i, const struct tree_of *from, struct err *e)
{
    int rc = tree_enter_source(from, e);
    if (rc < 0)
        return rc;
    for (uint32_t k = 0; k < i->n; k++) {
        struct tree_inherited_layer *l = &i->layer[k];
        l->raw_fd = mount_clone(AT_FDCWD, l->source, READ_ONLY, e);
        if (l->raw_fd < 0)
            return l->raw_fd;
        if (l->userns_fd < 0)
            continue;
        l->mapped_fd = mount_clone(AT_FDCWD, l->source, READ_ONLY, e);
        if (l->mapped_fd < 0)
            return l->mapped_fd;
        rc = mount_idmap(l->mapped_fd, l->userns_fd, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int
tree_inherited_attach(const struct tree_inherited *i, struct err *e)
{
    int rc = 0;
    for (uint32_t k = 0; k < i->n && rc == 0; k++) {
        char name[TREE_MOUNT_POINT], raw[TREE_MOUNT_POINT];
        const struct tree_inherited_layer *l = &i->layer[k];
        tree_layers_mount_point(k + 1, name);
        (void)snprintf(raw, sizeof raw, "r%.2s", name);
        if (l->mapped_fd >= 0)
            rc = tree_attach(l->raw_fd, raw, e);
        if (rc == 0)
            rc = tree_attach(l->mapped_fd >= 0 ? l->mapped_fd : l->raw_fd, name, e);
    }
    return rc;
}
