// SPDX-License-Identifier: Apache-2.0
// See tree_swap.h. A helper (tree_helper.h) enters the mount namespace of the sandbox by the guest's pidfd:
//
//   on the disk   u0 k0 shm                    before: the upper layer and its work folder        (tree_enter.c)
//                 Ab/s  Ac/u Ac/k  l0 l1       after the first SEAL: what was in u0, and in shm; Ac is a new tmpfs
//                 Ab/s  Ac/s  Ad/u Ad/k l0 l1  after the second one
//
//   overlay of Ad/u over Ac/s:Ab/s:l0:l1  ->  on top of the old root, where no process sees it  ->  a new /dev and /dev/shm, which
//   show folders of it  ->  other mounts of the old root moved to the same path in the new one  ->  pivot_root
//   ->  the old root detached
//
// Where the root is writable, the same happens to /usr and the root's further folders, each of which is an overlay of its own then
// (tree_parts.c).
//
// The entries of u move to s, since the old overlay still holds the folder u itself, and the kernel would write a line
// to its log that a lower layer is another's upper. Until pivot_root each step can be undone, in the reverse order.
//
// The helper follows no link, and names nothing that a job can choose but entries that it moves within the disk. It is not in
// the sandbox's pid namespace or cgroup. The old root is its working directory when it ends: to free what the kernel
// remembers of a large tree takes long, and neither the spawner nor the sandbox waits for that.
#include "tree_swap.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "proto/auto.h"
#include "holder.h"
#include "io.h"
#include "tree_helper.h"
#include "tree_internal.h"
#include "tree_mount.h"
#include "tree_swap_private.h"

enum { MOUNTS_MAX = SPAWN_ROOT_LAYERS_MAX + 4, UPPER_INODES = 8, PART_INODES = 4 };

// All of it lives in the spawner's memory, which the helper shares.
struct work {
    const struct tree *tree;
    const struct tree_swap *plan;
    struct tree_layers *layers;
    struct tree_inherited inherited;
    uint32_t top;  // the layer right below the new upper one
    uint32_t next; // number of the new upper one
    uint32_t parts;
    // clones of each part's own lower layer, -1: they are attached already
    int base_fd[SPAWN_ROOT_LAYERS_MAX];
    int dev_fd;
    int old_fd, new_fd; // the two roots
    int upper_fd;
    const char *moved[MOUNTS_MAX];
    unsigned moved_n;
    int disk_fd[SPAWN_MOUNTS_OF_SANDBOX]; // clones, on their way
    bool sealed[SPAWN_ROOT_LAYERS_MAX];
    bool made, shm_moved, attached, over; // how far it came
    char mount_point[TREE_MOUNT_POINT];
};

static bool
is_first_seal(const struct work *w)
{
    return w->plan->kind == TREE_SEAL && w->layers->upper == 0;
}

// ---- mounts

static int
move_mounted(struct work *w, const char *path, struct err *e)
{
    int rc = tree_move_mount(w->old_fd, w->new_fd, path, e);
    if (rc == 0)
        w->moved[w->moved_n++] = path;
    return rc;
}

// One of a root's folders that lies in another one is mounted on that, and moves with it.
static bool
is_inside_another(const struct tree_root *r, uint32_t i)
{
    for (uint32_t j = 1; j < i; j++) {
        size_t n = strlen(r->at[j]);
        if (strncmp(r->at[i], r->at[j], n) == 0 && r->at[i][n] == '/')
            return true;
    }
    return false;
}

// ---- the steps of the helper

// Disks are cloned again instead of moved: their mount points in the old root may be elsewhere now.
static int
gather_disks(struct work *w, struct err *e)
{
    const struct disk_mounts *m = w->plan->mounts;
    for (uint32_t i = 0; m != NULL && i < m->n; i++) {
        w->disk_fd[i] = disk_clone(w->plan->space_fd, &m->mount[i], w->plan->userns_fd, e);
        if (w->disk_fd[i] < 0)
            return w->disk_fd[i];
    }
    return 0;
}

static int
step_gather(struct work *w, struct err *e)
{
    int rc = gather_disks(w, e);
    if (rc < 0)
        return rc;
    return w->plan->kind == TREE_INHERIT ? tree_inherited_clone(&w->inherited, &w->plan->from, e)
                                         : 0;
}

static int
step_enter(struct work *w, struct err *e)
{
    int rc = tree_helper_enter(w->plan->of.pid_fd, e);
    if (rc < 0)
        return rc;
    (void)umask(0);
    w->old_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (w->old_fd < 0 || fchdir(w->plan->of.disk_fd) < 0)
        return err_sys(e, errno, "open the root and the disk");
    return 0;
}

// The root's own lower layers, once per sandbox: below the disk's root, which no path of a job leads to.
static int
step_attach_layers(struct work *w, struct err *e)
{
    char name[TREE_MOUNT_POINT];
    int rc = w->plan->kind == TREE_INHERIT ? tree_inherited_attach(&w->inherited, e) : 0;
    if (rc < 0 || w->layers->attached)
        return rc;
    rc = tree_attach(w->base_fd[0], "l0", e);
    if (rc == 0)
        rc = tree_attach(w->dev_fd, "l1", e);
    for (uint32_t part = 1; rc == 0 && part < w->parts; part++) {
        (void)snprintf(name, sizeof name, "b%u", part);
        rc = tree_attach(w->base_fd[part], name, e);
    }
    w->layers->attached = rc == 0;
    return rc;
}

// What an upper layer has of its own: its root, and the folders of each part.
static uint32_t
upper_inodes(const struct work *w)
{
    return UPPER_INODES + PART_INODES * (w->parts - 1);
}

static int
mount_upper(struct work *w, struct err *e)
{
    char size[24], count[16];
    uint64_t bytes;
    uint32_t inodes;
    tree_layers_room(w->layers, w->plan->disk_bytes, w->plan->inodes, &bytes, &inodes);
    (void)snprintf(size, sizeof size, "%" PRIu64, bytes);
    (void)snprintf(count, sizeof count, "%u", inodes + upper_inodes(w));
    const struct mount_option options[] = {
        {"size", size}, {"nr_inodes", count}, {"mode", "0755"}, {"source", "stockade"}};
    if (w->plan->on_disk)
        w->upper_fd = fcntl(w->plan->scratch_fd, F_DUPFD_CLOEXEC, 3);
    else
        w->upper_fd = mount_new("tmpfs", options, 4, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, e);
    if (w->upper_fd < 0)
        return w->plan->on_disk ? err_sys(e, errno, "copy a descriptor") : w->upper_fd;
    return mount_attach(w->upper_fd, AT_FDCWD, w->mount_point, e);
}

// Each part looks as it does now, or as it did in the layer that it returns to.
static int
step_upper(struct work *w, struct err *e)
{
    char like[TREE_PART];
    int rc = tree_make_mount_point(w->mount_point, e);
    if (rc == 0) {
        w->made = true;
        rc = mount_upper(w, e);
    }
    for (uint32_t part = 0; rc == 0 && part < w->parts; part++) {
        if (w->plan->kind == TREE_SEAL || w->plan->kind == TREE_FRESH)
            tree_part_upper(w->layers->upper, part, like);
        else
            tree_part_sealed(w->top, part, like);
        rc = tree_part_make_upper(w->next, part, like, e);
    }
    return rc == 0 && w->plan->kind == TREE_FRESH
               ? tree_fresh_folders(w->tree, w->plan, w->mount_point, e)
               : rc;
}

// /dev/shm is a folder of the disk at first. It becomes one of the layer, so that its files are part of it.
static int
seal_shm(struct work *w, struct err *e)
{
    struct stat st;
    char sealed[TREE_PART], dev[TREE_PART + 8], shm[TREE_PART + 16];
    tree_part_sealed(w->top, 0, sealed);
    (void)snprintf(dev, sizeof dev, "%s/dev", sealed);
    (void)snprintf(shm, sizeof shm, "%s/dev/shm", sealed);
    if (fstatat(w->old_fd, "dev", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "look at /dev");
    int rc = tree_make_alike(dev, &st, e);
    if (rc == 0 && renameat(AT_FDCWD, "shm", AT_FDCWD, shm) < 0)
        rc = err_sys(e, errno, "move shm");
    w->shm_moved = rc == 0;
    return rc;
}

static int
step_seal(struct work *w, struct err *e)
{
    char mount_point[TREE_MOUNT_POINT];
    if (w->plan->kind != TREE_SEAL)
        return 0;
    tree_layers_mount_point(w->top, mount_point);
    int rc = is_first_seal(w) ? tree_make_mount_point(mount_point, e) : 0;
    for (uint32_t part = 0; rc == 0 && part < w->parts; part++)
        rc = tree_part_seal(w->layers->upper, w->top, part, &w->sealed[part], e);
    return rc == 0 && is_first_seal(w) ? seal_shm(w, e) : rc;
}

// Over the old root: the guest's paths begin below it, and do not see it.
static int
step_root(struct work *w, struct err *e)
{
    w->new_fd = tree_part_overlay(w->layers, w->top, w->next, 0, e);
    int rc = w->new_fd < 0 ? w->new_fd : mount_attach(w->new_fd, AT_FDCWD, "/", e);
    w->attached = rc == 0;
    return rc;
}

static int
step_dev(struct work *w, struct err *e)
{
    const bool fresh = w->plan->kind == TREE_FRESH;
    int auto_close shm = mount_clone(fresh ? w->upper_fd : w->new_fd, fresh ? "shm" : "dev/shm",
                                     MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, e);
    if (shm < 0)
        return shm;
    int auto_close dev = tree_dev_open(w->new_fd, e);
    int rc = dev < 0 ? dev : mount_attach(dev, w->new_fd, "dev", e);
    return rc < 0 ? rc : mount_attach(shm, w->new_fd, "dev/shm", e);
}

// In their order, since one may lie in another.
static int
step_parts(struct work *w, struct err *e)
{
    const struct tree_root *r = &w->tree->roots[w->plan->root];
    for (uint32_t part = 1; part < w->parts; part++) {
        int auto_close fd = tree_part_overlay(w->layers, w->top, w->next, part, e);
        int rc = fd < 0 ? fd : mount_attach(fd, w->new_fd, r->at[part] + 1, e);
        if (rc < 0)
            return err_wrap(e, "folder %s", r->at[part]);
    }
    return 0;
}

static int
step_move(struct work *w, struct err *e)
{
    static const char *const own[] = {"dev/pts", "proc", "sys/fs/cgroup"};
    const struct tree_root *r = &w->tree->roots[w->plan->root];
    int rc = 0;
    for (uint32_t i = w->parts; i < r->layers_n && rc == 0; i++)
        if (!is_inside_another(r, i))
            rc = move_mounted(w, r->at[i] + 1, e);
    for (size_t i = 0; i < sizeof own / sizeof own[0] && rc == 0; i++)
        rc = move_mounted(w, own[i], e);
    return rc;
}

static int
step_disks(struct work *w, struct err *e)
{
    const struct disk_mounts *m = w->plan->mounts;
    int rc = 0;
    for (uint32_t i = 0; m != NULL && i < m->n && rc == 0; i++)
        rc = disk_attach(w->disk_fd[i], w->new_fd, m->mount[i].at, w->plan->uid, e);
    return rc;
}

static int
step_pivot(struct work *w, struct err *e)
{
    w->over = true;
    return mount_become_root(w->new_fd, e);
}

static int (*const steps[])(struct work *, struct err *) = {
    step_gather, step_enter, step_attach_layers, step_upper, step_seal,  step_root,
    step_dev,    step_parts, step_move,          step_disks, step_pivot,
};

// ---- the way back, and what is left

static void
remove_mount_point(uint32_t number)
{
    char name[TREE_MOUNT_POINT];
    tree_layers_mount_point(number, name);
    (void)umount2(name, MNT_DETACH);
    (void)unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}

static int
undo_seal(struct work *w)
{
    char sealed[TREE_PART], dev[TREE_PART + 8], shm[TREE_PART + 16], mount_point[TREE_MOUNT_POINT];
    tree_part_sealed(w->top, 0, sealed);
    (void)snprintf(dev, sizeof dev, "%s/dev", sealed);
    (void)snprintf(shm, sizeof shm, "%s/dev/shm", sealed);
    if (w->shm_moved && renameat(AT_FDCWD, shm, AT_FDCWD, "shm") < 0)
        return -ENOTRECOVERABLE;
    if (is_first_seal(w))
        (void)unlinkat(AT_FDCWD, dev, AT_REMOVEDIR);
    for (uint32_t part = 0; part < w->parts; part++)
        if (w->sealed[part] && tree_part_unseal(w->layers->upper, w->top, part) < 0)
            return -ENOTRECOVERABLE;
    tree_layers_mount_point(w->top, mount_point);
    if (is_first_seal(w))
        (void)unlinkat(AT_FDCWD, mount_point, AT_REMOVEDIR);
    return 0;
}

static int
undo(struct work *w)
{
    struct err ignored;
    if (w->over || w->plan->kind == TREE_INHERIT)
        return -ENOTRECOVERABLE;
    while (w->moved_n > 0)
        if (tree_move_mount(w->new_fd, w->old_fd, w->moved[--w->moved_n], &ignored) < 0)
            return -ENOTRECOVERABLE;
    if (w->attached && (fchdir(w->new_fd) < 0 || umount2(".", MNT_DETACH) < 0))
        return -ENOTRECOVERABLE;
    if (!w->made)
        return 0;
    if (fchdir(w->plan->of.disk_fd) < 0 || (w->plan->kind == TREE_SEAL && undo_seal(w) < 0))
        return -ENOTRECOVERABLE;
    remove_mount_point(w->next);
    return 0;
}

// What the old overlay leaves: empty folders, or a whole file system.
static void
tidy(struct work *w)
{
    if (fchdir(w->plan->of.disk_fd) < 0)
        return;
    if (w->plan->kind == TREE_RESTORE || w->plan->kind == TREE_FRESH) {
        if (w->layers->upper != 0)
            remove_mount_point(w->layers->upper);
        return;
    }
    for (uint32_t part = 0; part < w->parts; part++)
        tree_part_tidy(w->layers->upper, part);
}

static int
helper(void *cookie, struct err *e)
{
    struct work *w = cookie;
    int rc = 0;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && rc == 0; i++)
        rc = steps[i](w, e);
    if (rc < 0 && e->sys == ENOSPC) {
        e->code = ERR_RESOURCE_EXHAUSTED;
        err_detail(e, "DISK_FULL", "inodes", "remove files, or raise the limit");
    }
    if (rc == 0)
        tidy(w);
    else
        rc = undo(w) < 0 ? -ENOTRECOVERABLE : rc;
    if (w->old_fd >= 0)
        (void)!fchdir(w->old_fd);
    io_close(&w->old_fd);
    io_close(&w->new_fd);
    return rc;
}

// ---- the spawner's half

static const unsigned READ_ONLY = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY;

static int
clone_layer(const struct work *w, uint32_t part, struct err *e)
{
    char source[TREE_NAME_MAX];
    const uint32_t layer = w->tree->roots[w->plan->root].layer[part];
    tree_layer_source(layer, source);
    int auto_close fd = mount_clone(AT_FDCWD, source, READ_ONLY, e);
    if (fd < 0)
        return fd;
    int rc = w->tree->layers[layer].idmapped ? mount_idmap(fd, w->plan->userns_fd, e) : 0;
    return rc < 0 ? rc : take_fd(&fd);
}

static int
clone_layers(struct work *w, struct err *e)
{
    for (uint32_t part = 0; part < w->parts; part++) {
        w->base_fd[part] = clone_layer(w, part, e);
        if (w->base_fd[part] < 0)
            return w->base_fd[part];
    }
    w->dev_fd = mount_clone(AT_FDCWD, "/d", READ_ONLY, e);
    return w->dev_fd < 0 ? w->dev_fd : 0;
}

// For the mount points of layers, which no job can use up once the upper layer is not on the disk.
static int
make_room(const struct work *w, struct err *e)
{
    return w->layers->upper != 0 || w->plan->on_disk
               ? 0
               : tree_resize(w->tree, w->plan->of.disk_fd, w->plan->disk_bytes,
                             w->plan->inodes + 4 * TREE_NUMBERS + PART_INODES * w->parts, e);
}

// The layer that is being sealed: what it takes is known, so that the new upper layer gets the rest.
static int
plan_seal(struct work *w, struct err *e)
{
    struct statfs fs;
    struct tree_layers *l = w->layers;
    int rc = tree_layers_may_add(l, l->top, e);
    if (rc < 0)
        return rc;
    w->top = l->upper != 0 ? l->upper : tree_layers_take(l, 0);
    if (w->top == 0)
        return err_sys(e, ENOMEM, "find a number for a layer");
    if (fstatfs(l->upper != 0 ? l->upper_fd : w->plan->of.disk_fd, &fs) < 0)
        return err_sys(e, errno, "look at the disk");
    const uint64_t blocks = fs.f_blocks - fs.f_bfree;
    const uint64_t bytes =
        (blocks > l->base.blocks ? blocks - l->base.blocks : 0) * (uint64_t)fs.f_bsize;
    const uint64_t views = l->upper == 0 ? w->tree->view_bytes : 0;
    const uint64_t all = fs.f_files - fs.f_ffree;
    const uint64_t inodes = all > l->base.inodes ? all - l->base.inodes : 0;
    l->sealed[w->top] = (struct tree_sealed){
        .below = l->top,
        .uid = w->plan->uid,
        .bytes = bytes > views ? bytes - views : 0,
        .inodes = inodes > upper_inodes(w) ? inodes - upper_inodes(w) : 0,
        .there = true,
    };
    return make_room(w, e);
}

// The upper layer has the folders of jobs and nothing else, so a sealed layer has no place below it.
static int
plan_fresh(struct work *w, struct err *e)
{
    if (tree_layers_count(w->layers) > 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "it has layers that are kept");
    if (w->tree->roots[w->plan->root].user_root)
        return err_set(e, ERR_FAILED_PRECONDITION, "its jobs are root inside");
    w->top = 0;
    return make_room(w, e);
}

static int
plan_inherit(struct work *w, struct err *e)
{
    const struct tree_swap *s = w->plan;
    if (!tree_parts_are_alike(&w->tree->roots[s->root], &w->tree->roots[s->from_root]))
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "the other sandbox shows other folders of the host: its template has changed");
    if (w->tree->memory_idmapped)
        return tree_inherited_plan(&w->inherited, s, &w->top, e);
    int r = err_set(e, ERR_FAILED_PRECONDITION,
                    "this kernel cannot share files in memory between sandboxes");
    err_detail(
        e, "FORKS_UNSUPPORTED", "forks",
        "before Linux 6.3 files in memory are copied instead; 'stockade info' shows what this kernel said");
    return r;
}

static int
plan(struct work *w, struct err *e)
{
    const struct tree_swap *s = w->plan;
    int rc = 0;
    if (s->kind == TREE_FRESH)
        rc = plan_fresh(w, e);
    else if (w->layers->recycled)
        rc = err_set(e, ERR_FAILED_PRECONDITION, "a batch recycles it, so its files are not kept");
    else if (s->kind == TREE_SEAL)
        rc = plan_seal(w, e);
    else if (!tree_layers_have(s->kind == TREE_RESTORE ? w->layers : s->from.layers, s->layer))
        rc = err_set(e, ERR_NOT_FOUND, "the sandbox has no layer %u", s->layer);
    else if (s->kind == TREE_RESTORE)
        w->top = s->layer;
    else
        rc = plan_inherit(w, e);
    if (rc < 0)
        return rc;
    w->next = tree_layers_take(w->layers, w->top);
    if (w->next == 0)
        return err_set(e, ERR_INTERNAL, "no number is left for a layer");
    tree_layers_mount_point(w->next, w->mount_point);
    return w->layers->attached ? 0 : clone_layers(w, e);
}

static void
commit(struct work *w)
{
    struct tree_layers *l = w->layers;
    io_close(&l->under_fd);
    if (w->plan->on_disk && w->plan->kind == TREE_SEAL) {
        const int first = l->upper == 0 ? fcntl(w->plan->of.disk_fd, F_DUPFD_CLOEXEC, 3) : -1;
        l->under_fd = l->upper == 0 ? io_keep_fd(first) : l->upper_fd;
        l->upper_fd = l->upper == 0 ? l->upper_fd : -1;
    }
    l->base = w->plan->scratch_use;
    l->top = w->top;
    l->upper = w->next;
    io_close(&l->upper_fd);
    l->upper_fd = io_keep_fd(take_fd(&w->upper_fd));
    l->recycled = l->recycled || w->plan->kind == TREE_FRESH;
}

// A layer that was planned and not made.
static void
forget(struct work *w)
{
    if (w->plan->kind == TREE_SEAL && w->top != 0)
        w->layers->sealed[w->top].there = false;
}

int
tree_swap(const struct tree *t, const struct tree_swap *s, uint32_t *layer, int *helper_fd,
          struct err *e)
{
    *helper_fd = -1;
    *layer = s->of.layers->top;
    if (s->kind == TREE_SEAL && s->of.layers->upper != 0 &&
        tree_upper_is_empty(s->of.layers, tree_parts(&t->roots[s->root])))
        return 0;
    struct work w = {.tree = t, .plan = s, .layers = s->of.layers};
    w.parts = tree_parts(&t->roots[s->root]);
    w.dev_fd = w.old_fd = w.new_fd = w.upper_fd = -1;
    memset(w.base_fd, 0xff, sizeof w.base_fd); // sets each to -1
    for (size_t i = 0; i < SPAWN_MOUNTS_OF_SANDBOX; i++)
        w.disk_fd[i] = -1;
    tree_inherited_init(&w.inherited);
    int rc = plan(&w, e);
    if (rc == 0 && s->on_disk) {
        tree_layers_room(w.layers, s->disk_bytes, s->inodes, s->scratch_bytes, s->scratch_inodes);
        *s->scratch_inodes += upper_inodes(&w);
        rc = s->scratch_fd < 0 || *s->scratch_bytes < s->scratch_has ? 1 : 0;
    }
    for (uint32_t n = 1; rc == 1 && s->kind == TREE_INHERIT && n <= w.top; n++)
        w.layers->sealed[n] = (struct tree_sealed){0};
    if (rc == 0)
        rc = tree_helper_run(helper, &w, helper_fd, e);
    if (rc == 0)
        commit(&w);
    else
        forget(&w);
    *layer = s->of.layers->top;
    int *fds[] = {&w.dev_fd, &w.old_fd, &w.new_fd, &w.upper_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        io_close(fds[i]);
    for (uint32_t part = 0; part < w.parts; part++)
        io_close(&w.base_fd[part]);
    for (size_t i = 0; i < SPAWN_MOUNTS_OF_SANDBOX; i++)
        io_close(&w.disk_fd[i]);
    tree_inherited_close(&w.inherited);
    return rc;
}
