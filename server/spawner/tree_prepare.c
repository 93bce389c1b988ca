// SPDX-License-Identifier: Apache-2.0
// The spawner's part: once, at start, as real root. The order matters, because each step needs the previous one:
//
//   detached clones of what is needed of the host (a mount can be cloned only in its own namespace) -> a mount
//   namespace of our own -> pivot into an empty root -> a stage on top of it with what children need -> chroot
//   -> try whether /usr and the state directory's file system can be id-mapped, as the layers of roots will be.
//
// Each new sandbox copies all mounts of this namespace, so there are as few as possible.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/state_folder.h"
#include "feature.h"
#include "io.h"
#include "tree_internal.h"
#include "tree_mount.h"

#define PLAIN       (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

#define PTY_MAX     "/proc/sys/kernel/pty/max"
#define PTY_RESERVE "/proc/sys/kernel/pty/reserve"
#define FILE_MAX    "/proc/sys/fs/file-max"

enum {
    PTYS_WANTED = 16, // per sandbox: a terminal multiplexer with its windows
    PTYS_MAX = 64,
    PTYS_OF_OTHERS = 3072, // the kernel's default for containers
};

// No limit in practice.
static const uint64_t FILES_WANTED = INT64_MAX;

// Descriptors that are carried from the old namespace into the new one.
struct host_mounts {
    int usr;
    int state;
    int cgroup;
};

// A user namespace with 65,536 ids, only for the probe. Its process ends at once; the descriptor keeps the namespace.
static int
make_userns(uint32_t id_base, struct err *e)
{
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid < 0)
        return err_sys(e, errno, "create a user namespace");
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            (void)pause();
    }
    char path[48];
    char map[48];
    int n = snprintf(map, sizeof map, "0 %u %d\n", id_base, SPAWN_IDS_PER_SANDBOX);
    int rc = 0;
    static const char *const files[] = {"uid_map", "gid_map"};
    for (int i = 0; rc == 0 && i < 2; i++) {
        (void)snprintf(path, sizeof path, "/proc/%d/%s", pid, files[i]);
        int auto_close fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, map, (size_t)n) != n)
            rc = err_sys(e, errno, "write %s", path);
    }
    (void)snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
    int auto_close ns = rc == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (rc == 0 && ns < 0)
        rc = err_sys(e, errno, "open %s", path);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    return rc < 0 ? rc : take_fd(&ns);
}

static int
clone_host(const struct spawn_config *c, int cgroup, struct host_mounts *l, struct err *e)
{
    int auto_close state = state_folder_open(c->state_dir, e);
    if (state < 0)
        return state;
    if ((l->state = mount_clone(state, "", PLAIN, e)) < 0)
        return err_wrap(e, "state directory");
    if ((l->usr = mount_clone(AT_FDCWD, "/usr", PLAIN, e)) < 0)
        return l->usr;
    if ((l->cgroup = mount_clone(cgroup, "", PLAIN, e)) < 0)
        return err_wrap(e, "cgroup");
    return 0;
}

struct node {
    const char *name;
    unsigned major;
    unsigned minor;
};

static int
make_dev(int root, struct err *e)
{
    static const struct node nodes[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
                                        {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};
    static const char *const links[][2] = {{"ptmx", "pts/ptmx"},
                                           {"fd", "/proc/self/fd"},
                                           {"stdin", "/proc/self/fd/0"},
                                           {"stdout", "/proc/self/fd/1"},
                                           {"stderr", "/proc/self/fd/2"}};
    const struct mount_option options[] = {
        {"size", "64k"}, {"nr_inodes", "32"}, {"mode", "0755"}, {"source", "stockade"}};
    int auto_close layer = mount_new("tmpfs", options, 4, PLAIN, e);
    if (layer < 0)
        return layer;
    if (mkdirat(layer, "dev", 0755) < 0)
        return err_sys(e, errno, "create dev");
    int auto_close dir = openat(layer, "dev", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return err_sys(e, errno, "open dev");
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        if (mknodat(dir, nodes[i].name, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) <
            0)
            return err_sys(e, errno, "create device %s", nodes[i].name);
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++)
        if (symlinkat(links[i][1], dir, links[i][0]) < 0)
            return err_sys(e, errno, "create link %s", links[i][0]);
    if (mkdirat(dir, "pts", 0755) < 0 || mkdirat(dir, "shm", 0755) < 0)
        return err_sys(e, errno, "create folders");
    int rc = mount_attach(layer, root, "d", e);
    return rc < 0 ? rc : mount_change(layer, MOUNT_ATTR_RDONLY, 0, e);
}

// Makes the folders of the tiny root, which tree_internal.h lists.
static int
make_mount_points(int root, struct err *e)
{
    static const char *const mount_points[] = {"c", "d", "e", "e/dir", "proc", "t", "w"};
    char name[TREE_NAME_MAX];
    for (size_t i = 0; i < sizeof mount_points / sizeof mount_points[0]; i++)
        if (mkdirat(root, mount_points[i], 0555) < 0)
            return err_sys(e, errno, "create %s", mount_points[i]);
    for (uint32_t i = 0; i < TREE_LAYERS_MAX + SPAWN_ROOT_LAYERS_MAX; i++) {
        if (i < TREE_LAYERS_MAX)
            tree_layer_source(i, name);
        else
            tree_layer_mapped(i - TREE_LAYERS_MAX, name);
        if (mkdirat(root, name + 1, 0555) < 0)
            return err_sys(e, errno, "create %s", name);
    }
    int auto_close file = openat(root, "e/file", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    return file < 0 ? err_sys(e, errno, "create e/file") : 0;
}

static int
attach_host(int root, const struct host_mounts *l, struct err *e)
{
    int rc = mount_attach(l->cgroup, root, "c", e);
    if (rc == 0)
        rc = make_dev(root, e);
    if (rc < 0)
        return rc;
    int auto_close proc = mount_new("proc", NULL, 0, PLAIN, e);
    return proc < 0 ? proc : mount_attach(proc, root, "proc", e);
}

// The namespace's root: read-only and empty, except for the mount point of a sandbox's root. The process pivots into
// it; its working directory stays there.
static int
make_base(const struct spawn_config *c, struct err *e)
{
    const struct mount_option options[] = {
        {"size", "4k"}, {"nr_inodes", "4"}, {"mode", "0555"}, {"source", "stockade"}};
    int auto_close base = mount_new("tmpfs", options, 4, PLAIN, e);
    if (base < 0)
        return base;
    if (mkdirat(base, "n", 0555) < 0 || mkdirat(base, "d", 0555) < 0)
        return err_sys(e, errno, "create n and d");
    int rc = mount_attach(base, AT_FDCWD, c->state_dir, e);
    if (rc == 0)
        rc = mount_become_root(base, e);
    return rc < 0 ? rc : mount_change(base, MOUNT_ATTR_RDONLY, 0, e);
}

// The stage with everything that children need is mounted on top of the root, not below it: they remove it with one
// umount, and mount their own root there (see tree_enter.c). Paths start at the stage, because it is the process's
// root; "." is the base below it.
static int
step_on(int stage, struct err *e)
{
    int auto_close base = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (base < 0 || fchdir(stage) < 0 || chroot(".") < 0 || fchdir(base) < 0)
        return err_sys(e, errno, "step on the stage");
    return 0;
}

static int
move_in(const struct spawn_config *c, const struct host_mounts *l, struct err *e)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_sys(e, errno, "create a mount namespace");
    const struct mount_option options[] = {
        {"size", "64k"}, {"nr_inodes", "128"}, {"mode", "0555"}, {"source", "stockade"}};
    int auto_close stage = mount_new("tmpfs", options, 4, PLAIN, e);
    int rc = stage < 0 ? stage : make_mount_points(stage, e);
    if (rc == 0)
        rc = make_base(c, e);
    if (rc == 0)
        rc = mount_attach(stage, AT_FDCWD, ".", e);
    if (rc == 0)
        rc = attach_host(stage, l, e);
    if (rc == 0)
        rc = step_on(stage, e);
    return rc < 0 ? rc : mount_change(stage, MOUNT_ATTR_RDONLY, 0, e);
}

// Terminals per sandbox, if the kernel permits containers `room` in total: an equal share, after a part for others.
static uint32_t
terminals_each(unsigned long room, unsigned long slots)
{
    const unsigned long others = room / 4 < PTYS_OF_OTHERS ? room / 4 : PTYS_OF_OTHERS;
    const unsigned long each = (room - others) / slots;
    return each < 1 ? 1 : each > PTYS_MAX ? PTYS_MAX : (uint32_t)each;
}

// All sandboxes together must not use up kernel.pty.max minus the host's own reserve. With the kernel's default that
// is 3,072, so one for each of 2,048 sandboxes; the setting is raised by what is missing, if permitted. The memory of
// a terminal counts towards its sandbox.
static void
share_terminals(const struct spawn_config *c, struct tree *t, struct spawn_features *f)
{
    const unsigned long slots = c->slots != 0 ? c->slots : 1;
    char text[24] = "";
    struct err ignored;
    (void)io_read_at(AT_FDCWD, PTY_RESERVE, text, sizeof text);
    const unsigned long reserve = strtoul(text, NULL, 10);
    const unsigned long wanted = reserve + PTYS_OF_OTHERS + slots * PTYS_WANTED;
    (void)io_read_at(AT_FDCWD, PTY_MAX, text, sizeof text);
    unsigned long most = strtoul(text, NULL, 10);
    if (most < wanted && io_write_u64_at(AT_FDCWD, PTY_MAX, wanted, &ignored) == 0)
        most = wanted;
    t->ptys = terminals_each(most > reserve ? most - reserve : 0, slots);
    feature_add(f, "terminals", t->ptys >= PTYS_WANTED, false,
                "%u in each sandbox: kernel.pty.max is %lu, for %lu of them", t->ptys, most, slots);
}

// The kernel's default of fs.file-max, a hundred per MiB of memory, is what a few dozen sandboxes may open; then open(2)
// and accept(2) fail with ENFILE for all but root, also in the broker. The memory of an open file counts towards its
// sandbox, so this limit is not needed. systemd raises it in the same way.
static void
share_files(struct spawn_features *f)
{
    char text[24] = "";
    struct err ignored;
    (void)io_read_at(AT_FDCWD, FILE_MAX, text, sizeof text);
    uint64_t most = strtoull(text, NULL, 10);
    if (most < FILES_WANTED && io_write_u64_at(AT_FDCWD, FILE_MAX, FILES_WANTED, &ignored) == 0)
        most = FILES_WANTED;
    feature_add(f, "open-files", most == FILES_WANTED, most != FILES_WANTED,
                most == FILES_WANTED ? "memory alone limits those of all sandboxes"
                                     : "fs.file-max is %" PRIu64
                                       ": sandboxes together can use up those of the host",
                most);
}

// Tests the two file systems that most layers of roots come from.
static int
probe(struct tree *t, const struct host_mounts *l, struct spawn_features *f, struct err *e)
{
    const struct {
        int clone;
        const char *what;
    } rows[] = {{l->usr, "files belong to nobody in sandboxes: /usr"},
                {l->state, "/etc belongs to nobody in sandboxes: the state directory"}};
    struct spawn_feature found = {.name = "idmapped-mounts", .available = 1};
    (void)snprintf(found.detail, sizeof found.detail,
                   "files of the host belong to root inside sandboxes");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err why = {0};
        int layer = tree_layer_add(t, rows[i].clone, &why, e);
        if (layer < 0)
            return layer;
        tree_layer_drop(t, (uint32_t)layer);
        if (why.code == ERR_OK || !found.available)
            continue;
        found.available = 0;
        (void)snprintf(found.detail, sizeof found.detail, "%.80s: %.90s", rows[i].what, why.text);
    }
    if (f->n < SPAWN_FEATURES_MAX)
        f->feature[f->n++] = found;
    return 0;
}

// The layers of a fork are a tmpfs of another sandbox, whose ids are others.
static void
probe_memory(struct tree *t, struct spawn_features *f)
{
    const struct mount_option options[] = {{"size", "64k"}, {"mode", "0700"}};
    struct err why = {0};
    int auto_close fd = mount_new("tmpfs", options, 2, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, &why);
    t->memory_idmapped = fd >= 0 && mount_idmap(fd, t->userns_fd, &why) == 0;
    f->copies_layers = !t->memory_idmapped;
    if (t->memory_idmapped)
        feature_add(f, "forks", true, false, "files in memory can be shared by sandboxes");
    else
        feature_add(f, "forks", true, false, "each fork costs a copy of the files: %.160s",
                    why.text);
}

static void
host_mounts_free(struct host_mounts *l)
{
    int *fds[] = {&l->usr, &l->state, &l->cgroup};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (*fds[i] >= 0)
            (void)close(*fds[i]);
}

static int
prepare(const struct spawn_config *config, int cgroup_root_fd, struct tree *t,
        struct spawn_features *f, struct err *e)
{
    struct host_mounts l __attribute__((cleanup(host_mounts_free)));
    memset(&l, 0xff, sizeof l); // sets each to -1
    int rc = t->userns_fd = make_userns(config->id_base, e);
    if (rc >= 0)
        rc = clone_host(config, cgroup_root_fd, &l, e);
    if (rc == 0)
        rc = move_in(config, &l, e);
    if (rc == 0)
        rc = tree_view_look(t, e);
    if (rc == 0)
        rc = probe(t, &l, f, e);
    if (rc < 0)
        return rc;
    probe_memory(t, f);
    t->userns_fd = io_keep_fd(t->userns_fd);
    tree_proc_look(t);
    share_terminals(config, t, f);
    share_files(f);
    int fd = open("/c", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "open the cgroup") : fd;
}

int
tree_prepare(const struct spawn_config *config, int cgroup_root_fd, int *cgroup_fd,
             struct tree **out, struct spawn_features *f, struct err *e)
{
    struct tree *t = calloc(1, sizeof *t);
    if (t == NULL)
        return err_sys(e, ENOMEM, "prepare the trees");
    t->userns_fd = -1;
    mode_t umask_before = umask(0);
    int fd = prepare(config, cgroup_root_fd, t, f, e);
    (void)umask(umask_before);
    if (fd < 0) {
        io_close(&t->userns_fd);
        free(t);
        return err_wrap(e, "prepare the trees");
    }
    *cgroup_fd = fd;
    *out = t;
    return 0;
}

void
tree_free(struct tree *t)
{
    if (t == NULL)
        return;
    free(t->cpuinfo);
    free(t);
}
