// SPDX-License-Identifier: Apache-2.0
// See tree_states.h.
#include "tree_states.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

#include "proto/auto.h"
#include "io.h"
#include "ops.h"
#include "tree_helper.h"
#include "tree_mount.h"
#include "tree_swap_private.h"

static const unsigned READ_ONLY = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

struct look {
    const struct tree_of *of;
    uint32_t from, to; // layers; 0: the files of now
    int *fds;
};

// Those of one chain that the other has not, the upper one first. Returns their number.
static uint32_t
only_in(const struct tree_layers *l, uint32_t top, uint32_t other, uint32_t out[TREE_DEPTH])
{
    uint32_t mine[TREE_DEPTH], theirs[TREE_DEPTH];
    uint32_t n = tree_layers_chain(l, top, mine);
    uint32_t m = tree_layers_chain(l, other, theirs);
    while (n > 0 && m > 0 && mine[n - 1] == theirs[m - 1])
        n--, m--;
    for (uint32_t i = 0; i < n; i++)
        out[i] = mine[i];
    return n;
}

static int
lower_only(const char *lower, struct err *e)
{
    const struct mount_option options[] = {
        {"lowerdir", lower},          {"index", "off"},       {"metacopy", "off"}, {"xino", "on"},
        {"redirect_dir", "nofollow"}, {"source", "stockade"},
    };
    return mount_new("overlay", options, 6, READ_ONLY, e);
}

static int
open_state(const struct tree_layers *l, uint32_t layer, struct err *e)
{
    char lower[TREE_LOWER_MAX];
    if (layer == 0)
        return mount_clone(AT_FDCWD, "/", READ_ONLY, e);
    tree_layers_lower(l, layer, 0, lower);
    return lower_only(lower, e);
}

// -1: there is no layer that only this state has.
static int
open_difference(const struct tree_layers *l, uint32_t top, uint32_t other, int *out, struct err *e)
{
    uint32_t layer[TREE_DEPTH];
    char lower[TREE_LOWER_MAX];
    size_t at = 0;
    uint32_t n = only_in(l, top, other, layer);
    for (uint32_t i = 0; i < n; i++) {
        char mount_point[TREE_MOUNT_POINT];
        tree_layers_mount_point(layer[i], mount_point);
        at += (size_t)snprintf(lower + at, sizeof lower - at, "%s%s/s", i > 0 ? ":" : "",
                               mount_point);
    }
    if (n > 0)
        *out = n == 1 ? mount_clone(AT_FDCWD, lower, READ_ONLY, e) : lower_only(lower, e);
    return n > 0 && *out < 0 ? *out : 0;
}

// A sealed layer is never under the upper folder's name, so the kernel does not see one folder in two roles.
static int
open_upper(const struct tree_layers *l, int *out, struct err *e)
{
    char name[TREE_MOUNT_POINT + 4], mount_point[TREE_MOUNT_POINT];
    tree_layers_mount_point(l->upper, mount_point);
    (void)snprintf(name, sizeof name, "%s/u", mount_point);
    *out = mount_clone(AT_FDCWD, name, READ_ONLY, e);
    return *out < 0 ? *out : 0;
}

static int
helper(void *cookie, struct err *e)
{
    const struct look *k = cookie;
    const struct tree_layers *l = k->of->layers;
    const uint32_t from = k->from != 0 ? k->from : l->top;
    const uint32_t to = k->to != 0 ? k->to : l->top;
    int rc = tree_enter_source(k->of, e);
    if (rc < 0)
        return rc;
    k->fds[STATE_FD_FROM] = open_state(l, k->from, e);
    if (k->fds[STATE_FD_FROM] < 0)
        return err_errno(e);
    k->fds[STATE_FD_TO] = open_state(l, k->to, e);
    if (k->fds[STATE_FD_TO] < 0)
        return err_errno(e);
    rc = open_difference(l, from, to, &k->fds[STATE_FD_FROM_ONLY], e);
    if (rc == 0)
        rc = open_difference(l, to, from, &k->fds[STATE_FD_TO_ONLY], e);
    return rc == 0 && (k->from == 0) != (k->to == 0) ? open_upper(l, &k->fds[STATE_FD_UPPER], e)
                                                     : rc;
}

static int
check(const struct tree_layers *l, uint32_t layer, struct err *e)
{
    return layer != 0 && !tree_layers_have(l, layer)
               ? err_set(e, ERR_NOT_FOUND, "the sandbox has no layer %u", layer)
               : 0;
}

int
tree_states(const struct tree_of *p, uint32_t from, uint32_t to, int *fds, int *helper_fd,
            struct err *e)
{
    struct look k = {p, from, to, fds};
    *helper_fd = -1;
    for (int i = 0; i < STATE_FDS; i++)
        fds[i] = -1;
    int rc = check(p->layers, from, e);
    if (rc == 0)
        rc = check(p->layers, to, e);
    if (rc == 0)
        rc = tree_helper_run(helper, &k, helper_fd, e);
    for (int i = 0; i < STATE_FDS && rc < 0; i++)
        io_close(&fds[i]);
    return rc;
}
