// SPDX-License-Identifier: Apache-2.0
// See tree_swap_private.h: the folders that a sandbox writes to, each of which is one overlay. / is part 0; where the root is
// writable, /usr and the root's further folders are parts, too, with the numbers of their layers.
//
//   on the disk   u0 k0   u1 k1   ...    upper and work folders before the first SEAL    (tree_enter.c)
//                 Ab/s    Ab/b    ...    a layer
//                 Ac/u    Ac/B    ...    the upper layer after that; work folders Ac/k, Ac/kB
//                 l0 l1   b1      ...    the root's own lower layers
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "tree_internal.h"
#include "tree_mount.h"
#include "tree_swap_private.h"

uint32_t
tree_parts(const struct tree_root *r)
{
    return r->writable ? r->layers_n : 1;
}

bool
tree_parts_are_alike(const struct tree_root *a, const struct tree_root *b)
{
    bool same = a->writable == b->writable && (!a->writable || a->layers_n == b->layers_n);
    for (uint32_t i = 1; same && a->writable && i < a->layers_n; i++)
        same = strncmp(a->at[i], b->at[i], SPAWN_PATH_MAX) == 0;
    return same;
}

void
tree_part_upper(uint32_t number, uint32_t part, char out[TREE_PART])
{
    char mount_point[TREE_MOUNT_POINT];
    tree_layers_mount_point(number, mount_point);
    if (number == 0)
        (void)snprintf(out, TREE_PART, "u%u", part);
    else
        (void)snprintf(out, TREE_PART, "%.2s/%c", mount_point,
                       part == 0 ? 'u' : (char)('A' + part));
}

void
tree_part_work(uint32_t number, uint32_t part, char out[TREE_PART])
{
    char mount_point[TREE_MOUNT_POINT];
    tree_layers_mount_point(number, mount_point);
    if (number == 0)
        (void)snprintf(out, TREE_PART, "k%u", part);
    else if (part == 0)
        (void)snprintf(out, TREE_PART, "%.2s/k", mount_point);
    else
        (void)snprintf(out, TREE_PART, "%.2s/k%c", mount_point, (char)('A' + part));
}

void
tree_part_sealed(uint32_t number, uint32_t part, char out[TREE_PART])
{
    char mount_point[TREE_MOUNT_POINT];
    tree_layers_mount_point(number, mount_point);
    (void)snprintf(out, TREE_PART, "%.2s/%c", mount_point, tree_layers_folder(part));
}

int
tree_make_alike(const char *name, const struct stat *like, struct err *e)
{
    if (mkdirat(AT_FDCWD, name, 0700) < 0 ||
        fchownat(AT_FDCWD, name, like->st_uid, like->st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        fchmodat(AT_FDCWD, name, like->st_mode & 07777, 0) < 0)
        return err_sys(e, errno, "create %s", name);
    return 0;
}

int
tree_part_make_upper(uint32_t number, uint32_t part, const char *like, struct err *e)
{
    struct stat st;
    char name[TREE_PART];
    if (fstatat(AT_FDCWD, like, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "look at %s", like);
    tree_part_upper(number, part, name);
    int rc = tree_make_alike(name, &st, e);
    if (rc < 0)
        return rc;
    tree_part_work(number, part, name);
    return mkdirat(AT_FDCWD, name, 0700) < 0 ? err_sys(e, errno, "create %s", name) : 0;
}

int
tree_part_seal(uint32_t upper, uint32_t to, uint32_t part, bool *moved, struct err *e)
{
    struct stat st;
    char from_name[TREE_PART], to_name[TREE_PART];
    tree_part_upper(upper, part, from_name);
    tree_part_sealed(to, part, to_name);
    if (fstatat(AT_FDCWD, from_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "look at %s", from_name);
    int rc = tree_make_alike(to_name, &st, e);
    *moved = rc == 0;
    return rc < 0 ? rc : tree_move_entries(from_name, to_name, e);
}

int
tree_part_unseal(uint32_t upper, uint32_t from, uint32_t part)
{
    struct err ignored; // the first failure is the one that is reported
    char from_name[TREE_PART], to_name[TREE_PART];
    tree_part_sealed(from, part, from_name);
    tree_part_upper(upper, part, to_name);
    if (tree_move_entries(from_name, to_name, &ignored) < 0)
        return -ENOTRECOVERABLE;
    (void)unlinkat(AT_FDCWD, from_name, AT_REMOVEDIR);
    return 0;
}

void
tree_part_tidy(uint32_t upper, uint32_t part)
{
    char name[TREE_PART], inner[TREE_PART + 8];
    tree_part_work(upper, part, name);
    (void)snprintf(inner, sizeof inner, "%s/work", name);
    (void)unlinkat(AT_FDCWD, inner, AT_REMOVEDIR);
    (void)unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
    tree_part_upper(upper, part, name);
    (void)unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}

int
tree_part_overlay(const struct tree_layers *l, uint32_t top, uint32_t upper, uint32_t part,
                  struct err *e)
{
    char lower[TREE_LOWER_MAX], over[TREE_PART], work[TREE_PART];
    tree_layers_lower(l, top, part, lower);
    tree_part_upper(upper, part, over);
    tree_part_work(upper, part, work);
    const struct mount_option options[] = {
        {"lowerdir", lower},
        {"upperdir", over},
        {"workdir", work},
        {"index", "off"},
        {"metacopy", "off"},
        {"xino", "on"},
        {"redirect_dir", "nofollow"},
        {"source", "stockade"},
    };
    return mount_new("overlay", options, 8, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, e);
}
