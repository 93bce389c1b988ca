// SPDX-License-Identifier: Apache-2.0
// See tree_swap.h. A helper, a process with real root's rights, enters the mount namespace of the sandbox by the guest's
// pidfd. It shares the spawner's memory, which waits for it as after vfork(2), and ends when it is done:
//
//   on the disk   u0 k0               before: the upper layer and its work folder        (tree_enter.c)
//                 s0  u1 k1  l0 l1    after: what was in u0; a fresh upper; the root's own lower layers, mounted
//
//   overlay of u1 over s0:l0:l1  ->  on top of the old root, where no process sees it  ->  a new /dev, which shows a folder of it
//   -> each mount of the old root moved to the same place in the new one  ->  pivot_root  ->  the old root detached
//
// The entries of u0 move to s0, since the old overlay still holds the folder u0 itself, and the kernel would write a line
// to its log that a lower layer is another's upper. Until pivot_root each step can be undone, in the reverse order.
//
// The helper follows no link, and names nothing that a job can choose but entries that it moves within the disk. It is not in
// the sandbox's pid namespace or cgroup. The old root is its working directory when it ends: to free what the kernel
// remembers of a large tree takes long, and neither the spawner nor the sandbox waits for that.
#include "tree_swap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/auto.h"
#include "clone_here.h"
#include "io.h"
#include "tree_internal.h"
#include "tree_mount.h"

enum {
    NAME = 16,
    LOWER_MAX = 256, // fsconfig(2)
    ENTRIES_BYTES = 4096,
    MOUNTS_MAX = SPAWN_ROOT_LAYERS_MAX + 4,
};
_Static_assert((size_t)TREE_SEALED_MAX * 4 + sizeof "l0:l1" <= LOWER_MAX, "all fit: sNN:");

// All of it lives in the spawner's memory, which the helper shares.
struct work {
    const struct tree *tree;
    const struct tree_swap *plan;
    struct tree_layers *layers;
    int skeleton_fd, dev_fd; // clones, -1: they are placed already
    int old_fd, new_fd;      // the two roots
    int layer_fd;
    const char *moved[MOUNTS_MAX];
    unsigned moved_n;
    bool made, entries_moved, attached, over; // how far it came
    char upper[NAME], upper_next[NAME], work_next[NAME], seal[NAME];
};

// ---- names on the disk

static void
name_folders(struct work *w)
{
    uint32_t n = w->layers->sealed;
    (void)snprintf(w->upper, NAME, "u%u", n);
    (void)snprintf(w->upper_next, NAME, "u%u", n + 1);
    (void)snprintf(w->work_next, NAME, "k%u", n + 1);
    (void)snprintf(w->seal, NAME, "s%u", n);
}

// The newest first.
static void
name_lower(const struct work *w, char out[LOWER_MAX])
{
    size_t at = 0;
    for (uint32_t i = w->layers->sealed + 1; i-- > 0;)
        at += (size_t)snprintf(out + at, LOWER_MAX - at, "s%u:", i);
    (void)snprintf(out + at, LOWER_MAX - at, "l0:l1");
}

// As the upper layer was: / looks the same afterwards.
static int
make_alike(const char *name, const struct stat *like, struct err *e)
{
    if (mkdirat(AT_FDCWD, name, 0700) < 0 ||
        fchownat(AT_FDCWD, name, like->st_uid, like->st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        fchmodat(AT_FDCWD, name, like->st_mode & 07777, 0) < 0)
        return err_sys(e, errno, "create %s", name);
    return 0;
}

// As getdents64(2) fills it in.
struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

// 1: it was moved; 0: it stays.
static int
move_entry(int from, int to, const struct entry *entry, struct err *e)
{
    if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0)
        return 0;
    return renameat(from, entry->name, to, entry->name) < 0 ? err_sys(e, errno, "move an entry")
                                                            : 1;
}

// Lists the folder from its start again after each turn, because the entries that were listed have moved.
static int
move_entries(const char *from_name, const char *to_name, struct err *e)
{
    _Alignas(struct entry) char buffer[ENTRIES_BYTES];
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int auto_close from = openat(AT_FDCWD, from_name, flags);
    int auto_close to = openat(AT_FDCWD, to_name, flags);
    if (from < 0 || to < 0)
        return err_sys(e, errno, "open %s and %s", from_name, to_name);
    for (bool more = true; more;) {
        more = false;
        long n = lseek(from, 0, SEEK_SET) < 0
                     ? -1
                     : syscall(SYS_getdents64, from, buffer, sizeof buffer);
        if (n < 0)
            return err_sys(e, errno, "list %s", from_name);
        for (long at = 0; at < n;) {
            const struct entry *entry = (const struct entry *)(const void *)(buffer + at);
            int rc = move_entry(from, to, entry, e);
            if (rc < 0)
                return rc;
            more = more || rc > 0;
            at += entry->bytes;
        }
    }
    return 0;
}

// ---- mounts

static int
place(int fd, const char *name, struct err *e)
{
    if (mkdirat(AT_FDCWD, name, 0555) < 0 && errno != EEXIST)
        return err_sys(e, errno, "create %s", name);
    return mount_attach(fd, AT_FDCWD, name, e);
}

// The root's own lower layers, once per sandbox: below the disk's root, which no path of a job leads to.
static int
place_layers(struct work *w, struct err *e)
{
    if (w->layers->placed)
        return 0;
    int rc = place(w->skeleton_fd, "l0", e);
    if (rc == 0)
        rc = place(w->dev_fd, "l1", e);
    w->layers->placed = rc == 0;
    return rc;
}

static int
make_overlay(const struct work *w, struct err *e)
{
    char lower[LOWER_MAX];
    name_lower(w, lower);
    const struct mount_option options[] = {
        {"lowerdir", lower},          {"upperdir", w->upper_next},
        {"workdir", w->work_next},    {"index", "off"},
        {"metacopy", "off"},          {"xino", "on"},
        {"redirect_dir", "nofollow"}, {"source", "stockade"},
    };
    return mount_new("overlay", options, 8, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, e);
}

// From one root to the other: what is mounted there, with all below it.
static int
move_one(int from, int to, const char *path, struct err *e)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve =
                               RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH};
    int auto_close fd = (int)syscall(SYS_openat2, from, path, &how, sizeof how);
    return fd < 0 ? err_sys(e, errno, "open the mount %s", path) : mount_attach(fd, to, path, e);
}

static int
move_mounted(struct work *w, const char *path, struct err *e)
{
    int rc = move_one(w->old_fd, w->new_fd, path, e);
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

static int
move_mounts(struct work *w, struct err *e)
{
    static const char *const own[] = {"dev/pts", "dev/shm", "proc", "sys/fs/cgroup"};
    const struct tree_root *r = &w->tree->roots[w->plan->root];
    int rc = 0;
    for (uint32_t i = 1; i < r->layers_n && rc == 0; i++)
        if (!is_inside_another(r, i))
            rc = move_mounted(w, r->at[i] + 1, e);
    for (size_t i = 0; i < sizeof own / sizeof own[0] && rc == 0; i++)
        rc = move_mounted(w, own[i], e);
    return rc;
}

// ---- the steps of the helper

static int
step_enter(struct work *w, struct err *e)
{
    if (setns(w->plan->pid_fd, CLONE_NEWNS) < 0)
        return err_sys(e, errno, "enter the mount namespace");
    (void)umask(0);
    w->old_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (w->old_fd < 0 || fchdir(w->plan->disk_fd) < 0)
        return err_sys(e, errno, "open the root and the disk");
    return 0;
}

static int
step_folders(struct work *w, struct err *e)
{
    struct stat st;
    int rc = place_layers(w, e);
    if (rc < 0)
        return rc;
    if (fstatat(AT_FDCWD, w->upper, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "look at %s", w->upper);
    w->made = true;
    rc = make_alike(w->upper_next, &st, e);
    if (rc == 0)
        rc = make_alike(w->seal, &st, e);
    if (rc == 0 && mkdirat(AT_FDCWD, w->work_next, 0700) < 0)
        rc = err_sys(e, errno, "create %s", w->work_next);
    return rc;
}

static int
step_seal(struct work *w, struct err *e)
{
    w->entries_moved = true;
    return move_entries(w->upper, w->seal, e);
}

static int
step_layer(struct work *w, struct err *e)
{
    const unsigned attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    w->layer_fd = mount_clone(AT_FDCWD, w->seal, attributes, e);
    return w->layer_fd < 0 ? w->layer_fd : 0;
}

// Over the old root: the guest's paths begin below it, and do not see it.
static int
step_root(struct work *w, struct err *e)
{
    w->new_fd = make_overlay(w, e);
    int rc = w->new_fd < 0 ? w->new_fd : mount_attach(w->new_fd, AT_FDCWD, "/", e);
    w->attached = rc == 0;
    return rc;
}

static int
step_dev(struct work *w, struct err *e)
{
    int auto_close dev = tree_dev_open(w->new_fd, e);
    return dev < 0 ? dev : mount_attach(dev, w->new_fd, "dev", e);
}

static int
step_move(struct work *w, struct err *e)
{
    return move_mounts(w, e);
}

static int
step_pivot(struct work *w, struct err *e)
{
    w->over = true;
    return mount_become_root(w->new_fd, e);
}

static int (*const steps[])(struct work *, struct err *) = {
    step_enter, step_folders, step_seal, step_layer, step_root, step_dev, step_move, step_pivot,
};

// What the old overlay leaves: its folders are empty.
static void
tidy(const struct work *w, const char *upper, const char *work)
{
    char inner[NAME + 8];
    (void)snprintf(inner, sizeof inner, "%s/work", work);
    if (fchdir(w->plan->disk_fd) < 0)
        return;
    (void)unlinkat(AT_FDCWD, inner, AT_REMOVEDIR);
    (void)unlinkat(AT_FDCWD, work, AT_REMOVEDIR);
    (void)unlinkat(AT_FDCWD, upper, AT_REMOVEDIR);
}

static int
undo(struct work *w)
{
    struct err ignored; // only the first failure is reported
    if (w->over)
        return -ENOTRECOVERABLE;
    while (w->moved_n > 0)
        if (move_one(w->new_fd, w->old_fd, w->moved[--w->moved_n], &ignored) < 0)
            return -ENOTRECOVERABLE;
    if (w->attached && (fchdir(w->new_fd) < 0 || umount2(".", MNT_DETACH) < 0))
        return -ENOTRECOVERABLE;
    if (w->made && fchdir(w->plan->disk_fd) < 0)
        return -ENOTRECOVERABLE;
    if (w->entries_moved && move_entries(w->seal, w->upper, &ignored) < 0)
        return -ENOTRECOVERABLE;
    if (w->made) {
        tidy(w, w->upper_next, w->work_next);
        (void)unlinkat(AT_FDCWD, w->seal, AT_REMOVEDIR);
    }
    return 0;
}

static int
swap(struct work *w, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && rc == 0; i++)
        rc = steps[i](w, e);
    if (rc < 0 && e->sys == ENOSPC) {
        e->code = ERR_RESOURCE_EXHAUSTED;
        err_detail(e, "DISK_FULL", "inodes", "remove files, or raise the limit");
    }
    if (rc < 0)
        return undo(w) < 0 ? -ENOTRECOVERABLE : rc;
    char work[NAME];
    (void)snprintf(work, sizeof work, "k%u", w->layers->sealed);
    tidy(w, w->upper, work);
    w->layers->sealed++;
    return 0;
}

// ---- the spawner's half

struct outcome {
    struct work *work;
    struct err *e;
    int rc;
};

// Runs on the sleeping spawner's stack and memory.
static __attribute__((noinline, noreturn)) void
helper(struct outcome *o)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    o->rc = swap(o->work, o->e);
    if (o->work->old_fd >= 0)
        (void)!fchdir(o->work->old_fd);
    io_close(&o->work->old_fd);
    io_close(&o->work->new_fd);
    _exit(0);
}

static int
run_helper(struct work *w, int *helper_fd, struct err *e)
{
    static struct outcome outcome;
    static struct clone_args args;
    static int pid_fd = -1;
    (void)err_set(e, ERR_INTERNAL, "the helper ended on its way");
    outcome = (struct outcome){w, e, -ENOTRECOVERABLE};
    args = (struct clone_args){
        .flags = (uint64_t)CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)&pid_fd,
        .exit_signal = SIGCHLD,
    };
    long pid = clone_here(&args);
    if (pid == 0)
        helper(&outcome);
    if (pid < 0)
        return err_sys(e, (int)-pid, "clone the helper");
    *helper_fd = io_keep_fd(pid_fd);
    return ((volatile struct outcome *)&outcome)->rc;
}

static int
clone_layers(const struct tree *t, const struct tree_swap *s, struct work *w, struct err *e)
{
    char source[TREE_NAME_MAX];
    const uint32_t layer = t->roots[s->root].layer[0];
    const unsigned attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY;
    tree_layer_source(layer, source);
    w->skeleton_fd = mount_clone(AT_FDCWD, source, attributes, e);
    int rc = w->skeleton_fd < 0          ? w->skeleton_fd
             : t->layers[layer].idmapped ? mount_idmap(w->skeleton_fd, s->userns_fd, e)
                                         : 0;
    if (rc < 0)
        return rc;
    w->dev_fd = mount_clone(AT_FDCWD, "/d", attributes, e);
    return w->dev_fd < 0 ? w->dev_fd : 0;
}

int
tree_swap_upper(const struct tree *t, const struct tree_swap *s, struct tree_layers *layers,
                struct tree_swapped *out, struct err *e)
{
    *out = (struct tree_swapped){-1, -1};
    if (layers->sealed == TREE_SEALED_MAX) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "the sandbox has %d sealed layers already",
                        TREE_SEALED_MAX);
        err_detail(e, "LAYERS", "layers", "merge some of them");
        return r;
    }
    struct work w = {.tree = t,
                     .plan = s,
                     .layers = layers,
                     .skeleton_fd = -1,
                     .dev_fd = -1,
                     .old_fd = -1,
                     .new_fd = -1,
                     .layer_fd = -1};
    name_folders(&w);
    int rc = layers->placed ? 0 : clone_layers(t, s, &w, e);
    if (rc == 0)
        rc = run_helper(&w, &out->helper_fd, e);
    io_close(&w.skeleton_fd);
    io_close(&w.dev_fd);
    if (rc == 0)
        out->layer_fd = io_keep_fd(take_fd(&w.layer_fd));
    io_close(&w.layer_fd);
    return rc;
}
