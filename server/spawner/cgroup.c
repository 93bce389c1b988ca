// SPDX-License-Identifier: Apache-2.0
// The cgroups of one sandbox: see cgroup.h. cgroup_root.c makes the container that they are in.
#include "cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/auto.h"
#include "cgroup_leaf.h"
#include "holder.h"
#include "io.h"

enum { CPU_PERIOD_US = 100000, CPU_QUOTA_US_MIN = 1000, SUBTREE_TRIES = 200 };

// Writes the text for a limit file, at most 40 bytes; "": the file stays as it is.
typedef void limit_text(const struct spawn_limits *l, char text[40]);

static void
text_memory(const struct spawn_limits *l, char text[40])
{
    (void)snprintf(text, 40, "%" PRIu64, l->memory_bytes);
}

// v1 counts TCP buffers separately. The limit is the sum of both: a sixteenth, at most 32 MiB, is for TCP.
static uint64_t
tcp_bytes(const struct spawn_limits *l)
{
    const uint64_t most = 32 << 20;
    uint64_t part = l->memory_bytes / 16;
    return part > most ? most : part;
}

static void
text_tcp(const struct spawn_limits *l, char text[40])
{
    (void)snprintf(text, 40, "%" PRIu64, tcp_bytes(l));
}

static void
text_memory_v1(const struct spawn_limits *l, char text[40])
{
    (void)snprintf(text, 40, "%" PRIu64, l->memory_bytes - tcp_bytes(l));
}

static void
text_zero(const struct spawn_limits *l, char text[40])
{
    (void)l;
    (void)snprintf(text, 40, "0");
}

static void
text_pids(const struct spawn_limits *l, char text[40])
{
    (void)snprintf(text, 40, "%" PRIu64, (uint64_t)l->pids + CGROUP_GUEST_PIDS);
}

static uint64_t
quota_us(const struct spawn_limits *l)
{
    uint64_t us = (uint64_t)l->cpu_millis * (CPU_PERIOD_US / 1000);
    return us < CPU_QUOTA_US_MIN ? CPU_QUOTA_US_MIN : us;
}

static void
text_quota(const struct spawn_limits *l, char text[40])
{
    (void)snprintf(text, 40, "%" PRIu64, quota_us(l));
}

static void
text_cpu_max(const struct spawn_limits *l, char text[40])
{
    (void)snprintf(text, 40, "%" PRIu64 " %d", quota_us(l), CPU_PERIOD_US);
}

static bool
is_idle(const struct spawn_limits *l)
{
    return l->cpu_weight == SPAWN_WEIGHT_IDLE;
}

// The kernel refuses a weight while cpu.idle is 1, and sets the default weight when it becomes 0. So this is written
// before the weight, and text_idle after it.
static void
text_not_idle(const struct spawn_limits *l, char text[40])
{
    (void)snprintf(text, 40, "%s", is_idle(l) ? "" : "0");
}

static void
text_idle(const struct spawn_limits *l, char text[40])
{
    (void)snprintf(text, 40, "%s", is_idle(l) ? "1" : "");
}

static void
text_weight(const struct spawn_limits *l, char text[40])
{
    text[0] = '\0';
    if (!is_idle(l))
        (void)snprintf(text, 40, "%u", l->cpu_weight);
}

// v1's shares: the default is 1024, where v2's weight has 100; the kernel's minimum is 2.
static void
text_shares(const struct spawn_limits *l, char text[40])
{
    uint64_t shares = (uint64_t)l->cpu_weight * 1024 / 100;
    text[0] = '\0';
    if (!is_idle(l))
        (void)snprintf(text, 40, "%" PRIu64, shares < 2 ? 2 : shares);
}

static const struct limit_row {
    enum cgroup_controller controller;
    enum cgroup_body body;
    const char *file;
    limit_text *text;
    bool optional;     // missing if the kernel or its command line disables that accounting
    bool anew;         // written for each sandbox, because that starts a new period
    const char *fresh; // the value in a new cgroup, if that equals a limit of ours
} limit_rows[] = {
    {CG_MEMORY, CG_V2, "memory.max", text_memory, false, false, ""},
    {CG_MEMORY, CG_V2, "memory.swap.max", text_zero, true, false, ""},
    {CG_CPU, CG_V2, "cpu.max", text_cpu_max, false, false, ""},
    {CG_CPU, CG_V2, "cpu.idle", text_not_idle, false, false, "0"},
    {CG_CPU, CG_V2, "cpu.weight", text_weight, false, false, "100"},
    {CG_CPU, CG_V2, "cpu.idle", text_idle, false, false, ""},
    {CG_PIDS, CG_V2, "pids.max", text_pids, false, false, ""},
    {CG_MEMORY, CG_V1, "memory.limit_in_bytes", text_memory_v1, false, false, ""},
    {CG_MEMORY, CG_V1, "memory.memsw.limit_in_bytes", text_memory_v1, true, false, ""},
    {CG_MEMORY, CG_V1, "memory.kmem.tcp.limit_in_bytes", text_tcp, true, false, ""},
    {CG_CPU, CG_V1, "cpu.cfs_quota_us", text_quota, false, true, ""},
    {CG_CPU, CG_V1, "cpu.idle", text_not_idle, false, false, "0"},
    {CG_CPU, CG_V1, "cpu.shares", text_shares, false, false, "1024"},
    {CG_CPU, CG_V1, "cpu.idle", text_idle, false, false, ""},
    {CG_PIDS, CG_V1, "pids.max", text_pids, false, false, ""},
};

// The current values in a controller's files.
struct held {
    bool fresh;                     // the kernel's defaults
    bool born;                      // a leaf that was used before, for a new sandbox
    const struct spawn_limits *now; // NULL: unknown
};

// Whether the file has this value already, or none is to be written. Unchanged values are not written, because for a
// quota the kernel visits all cgroups of the host.
static bool
is_there(const struct limit_row *row, const struct spawn_limits *l, const struct held *held)
{
    char text[40];
    char text_now[40];
    row->text(l, text);
    if (text[0] == '\0')
        return true;
    if (held->fresh)
        return strcmp(text, row->fresh) == 0;
    if (!held->now || (held->born && row->anew))
        return false;
    row->text(held->now, text_now);
    return strcmp(text, text_now) == 0;
}

// v1: memory plus swap must never be below memory, so it is raised first and lowered last.
static void
raise_swap_first(int memory_fd, const struct spawn_limits *l)
{
    char text[40];
    struct err ignored;
    text_memory_v1(l, text);
    (void)io_write_at(memory_fd, "memory.memsw.limit_in_bytes", text, &ignored);
}

// dir_fd[c]: the directory with controller c's files.
static int
write_limits(const struct cgroups *cg, const int dir_fd[CG_N], const struct spawn_limits *l,
             const struct held held[CG_N], struct err *e)
{
    for (size_t i = 0; i < sizeof limit_rows / sizeof limit_rows[0]; i++) {
        const struct limit_row *row = &limit_rows[i];
        if (cg->body[row->controller] != row->body || is_there(row, l, &held[row->controller]))
            continue;
        char text[40];
        row->text(l, text);
        int r = io_write_at(dir_fd[row->controller], row->file, text, e);
        if (r < 0 && !(row->optional && r == -ENOENT))
            return r;
    }
    return 0;
}

void
cgroup_close_birth(struct cgroup_sandbox *s)
{
    io_close(&s->guest_fd);
    io_close(&s->tree_fd);
    io_close(&s->ns_fd);
    for (int c = 0; c < CG_N; c++) {
        io_close(&s->v1_fd[c]);
        io_close(&s->tasks_fd[c]);
    }
}

// Makes the leaves below v1 controllers, and opens their `tasks`.
static int
make_v1(struct cgroups *cg, const char *name, struct cgroup_sandbox *s, struct err *e)
{
    int r = cgroup_leaf_take(cg, &s->leaf, e);
    for (int c = 0; c < CG_N && r == 0; c++) {
        if (cg->body[c] != CG_V1)
            continue;
        if (s->leaf && s->leaf->fd[c] >= 0)
            s->v1_fd[c] = fcntl(s->leaf->fd[c], F_DUPFD_CLOEXEC, 0);
        else if (mkdirat(cg->v1_fd[c], name, 0755) < 0)
            return err_sys(e, errno, "make a v1 cgroup");
        else
            s->v1_fd[c] =
                openat(cg->v1_fd[c], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (s->v1_fd[c] < 0)
            return err_sys(e, errno, "open a v1 cgroup");
        s->tasks_fd[c] = openat(s->v1_fd[c], "tasks", O_WRONLY | O_CLOEXEC);
        if (s->tasks_fd[c] < 0)
            return err_sys(e, errno, "open a v1 cgroup's tasks");
    }
    return r;
}

// Sets the limits of a new sandbox.
static int
limit_newborn(const struct cgroups *cg, const struct cgroup_sandbox *s,
              const struct spawn_limits *l, struct err *e)
{
    int dirs[CG_N];
    struct held held[CG_N];
    const struct cgroup_leaf *leaf = s->leaf;
    for (int c = 0; c < CG_N; c++) {
        bool used = leaf && leaf->fd[c] >= 0 && !leaf->is_new;
        dirs[c] = cg->body[c] == CG_V1 ? s->v1_fd[c] : s->fd;
        held[c] = (struct held){
            .fresh = !used, .born = used, .now = used && leaf->limits_known ? &leaf->limits : NULL};
    }
    const struct held *memory = &held[CG_MEMORY];
    if (memory->born && (!memory->now || memory->now->memory_bytes != l->memory_bytes))
        raise_swap_first(dirs[CG_MEMORY], l);
    return write_limits(cg, dirs, l, held, e);
}

static int
make_v2(const struct cgroups *cg, const char *name, struct cgroup_sandbox *s, struct err *e)
{
    if (mkdirat(cg->fd, name, 0755) < 0)
        return errno == EEXIST ? err_set(e, ERR_ALREADY_EXISTS, "this id is in use")
                               : err_sys(e, errno, "make the sandbox's cgroup");
    s->fd = openat(cg->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (s->fd < 0)
        return err_sys(e, errno, "open the sandbox's cgroup");
    if (cg->guest_apart) {
        if (mkdirat(s->fd, "guest", 0755) < 0)
            return err_sys(e, errno, "make the guest's cgroup");
        s->guest_fd = openat(s->fd, "guest", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (s->guest_fd < 0)
            return err_sys(e, errno, "open the guest's cgroup");
    }
    return io_write_u64_at(s->fd, "cgroup.max.descendants", CGROUP_JOBS_MAX + 2, e);
}

// The root of the cgroup namespace must be SANDBOX so that nsdelegate confines the sandbox there. A process must have
// been in it before controllers are enabled below. That holder process has ended, but its cgroup may not be empty
// yet, so there are a few attempts.
static int
enable_below(const struct cgroups *cg, int proc_fd, struct cgroup_sandbox *s, struct err *e)
{
    if (!cg->guest_apart)
        return 0;
    s->ns_fd = holder_cgroup_namespace(s->fd, proc_fd, e);
    if (s->ns_fd < 0)
        return s->ns_fd;
    if (!cg->subtree[0])
        return 0;
    int r = 0;
    for (int i = 0; i < SUBTREE_TRIES; i++) {
        r = io_write_at(s->fd, "cgroup.subtree_control", cg->subtree, e);
        if (r != -EBUSY)
            break;
        (void)sched_yield();
    }
    return r;
}

// Gives the guest only the files that it needs to make, use and remove cgroups of jobs; root keeps the limits.
static int
give_to_guest(const struct cgroup_sandbox *s, uid_t guest, struct err *e)
{
    if (fchown(s->fd, guest, guest) < 0 ||
        fchownat(s->fd, "cgroup.procs", guest, guest, AT_SYMLINK_NOFOLLOW) < 0 ||
        (s->guest_fd >= 0 &&
         fchownat(s->guest_fd, "cgroup.procs", guest, guest, AT_SYMLINK_NOFOLLOW) < 0))
        return err_sys(e, errno, "give the cgroup to the guest");
    return 0;
}

int
cgroup_make(struct cgroups *cg, const char *name, uint32_t guest, int proc_fd,
            const struct spawn_limits *l, struct cgroup_sandbox *out, struct err *e)
{
    struct cgroup_sandbox s = CGROUP_SANDBOX_EMPTY;
    int r = make_v2(cg, name, &s, e);
    bool existed = r == -EEXIST;
    if (r == 0)
        r = make_v1(cg, name, &s, e);
    if (r == 0)
        r = limit_newborn(cg, &s, l, e);
    if (r == 0)
        r = enable_below(cg, proc_fd, &s, e);
    if (r == 0)
        r = give_to_guest(&s, guest, e);
    if (r == 0) {
        s.tree_fd = (int)syscall(SYS_open_tree, s.fd, "",
                                 OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (unsigned)AT_EMPTY_PATH);
        if (s.tree_fd < 0)
            r = err_sys(e, errno, "detach a mount of the sandbox's cgroup");
    }
    if (r == 0) {
        *out = s;
        return 0;
    }
    struct err ignored;
    cgroup_close_birth(&s);
    if (!existed)
        (void)cgroup_remove(cg, s.fd, name, &ignored);
    cgroup_leaf_give(cg, s.leaf, NULL);
    io_close(&s.fd);
    return err_wrap(e, "cgroup %s", name);
}

// Finds the controllers whose limits change.
static void
find_changed(const struct cgroups *cg, const struct spawn_limits *l, const struct held *held,
             bool changed[CG_N])
{
    for (int c = 0; c < CG_N; c++)
        changed[c] = false;
    for (size_t i = 0; i < sizeof limit_rows / sizeof limit_rows[0]; i++) {
        const struct limit_row *row = &limit_rows[i];
        if (cg->body[row->controller] == row->body && !is_there(row, l, held))
            changed[row->controller] = true;
    }
}

// The directories with each controller's files, while limits change.
struct limit_dirs {
    int fd[CG_N];     // borrowed from the sandbox, or from `opened`
    int opened[CG_N]; // owned; -1: none
};

static void
limit_dirs_close(struct limit_dirs *d)
{
    for (int c = 0; c < CG_N; c++)
        io_close(&d->opened[c]);
}

// The directories of the leaf and of the sandbox are open; the sandbox's v1 cgroups are opened if a limit in them
// changes.
static int
limit_dirs_open(struct limit_dirs *d, const struct cgroups *cg, const struct cgroup_sandbox *s,
                const char *name, const bool changed[CG_N], struct err *e)
{
    for (int c = 0; c < CG_N; c++) {
        const bool in_leaf = s->leaf && s->leaf->fd[c] >= 0;
        d->fd[c] = in_leaf ? s->leaf->fd[c] : s->fd;
        if (cg->body[c] != CG_V1 || !changed[c] || in_leaf)
            continue;
        d->opened[c] = openat(cg->v1_fd[c], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        d->fd[c] = d->opened[c];
        if (d->opened[c] < 0)
            return err_sys(e, errno, "open a v1 cgroup");
    }
    return 0;
}

// With a limit below the current use, v2 would kill processes and v1 refuses. Here both refuse.
static int
refuse_below_use(const struct cgroups *cg, const struct cgroup_sandbox *s,
                 const struct spawn_limits *l, struct err *e)
{
    char text[40];
    if (cg->body[CG_MEMORY] != CG_V2 ||
        io_read_at(s->fd, "memory.current", text, sizeof text) <= 0 ||
        strtoull(text, NULL, 10) <= l->memory_bytes)
        return 0;
    return err_sys(e, EBUSY, "memory limit below the %.20s bytes in use", text);
}

int
cgroup_limit(const struct cgroups *cg, const struct cgroup_sandbox *s, const char *name,
             const struct spawn_limits *l, const struct spawn_limits *now, struct err *e)
{
    struct limit_dirs dirs = {.opened = {-1, -1, -1, -1}};
    struct held held[CG_N];
    bool changed[CG_N];
    for (int c = 0; c < CG_N; c++)
        held[c] = (struct held){.now = now};
    find_changed(cg, l, &held[0], changed);
    int r = limit_dirs_open(&dirs, cg, s, name, changed, e);
    if (r == 0 && changed[CG_MEMORY])
        r = refuse_below_use(cg, s, l, e);
    if (r == 0 && changed[CG_MEMORY] && cg->body[CG_MEMORY] == CG_V1)
        raise_swap_first(dirs.fd[CG_MEMORY], l);
    if (r == 0)
        r = write_limits(cg, dirs.fd, l, held, e);
    limit_dirs_close(&dirs);
    return r;
}

int
cgroup_kill(int sandbox_fd, struct err *e)
{
    return io_write_at(sandbox_fd, "cgroup.kill", "1", e);
}

int
cgroup_kill_job(int sandbox_fd, uint32_t job, struct err *e)
{
    char path[48];
    (void)snprintf(path, sizeof path, "job-%u/cgroup.kill", job);
    int r = io_write_at(sandbox_fd, path, "1", e);
    return r == -ENOENT || r == -ENODEV ? 0 : r;
}

int
cgroup_freeze(int sandbox_fd, bool frozen, struct err *e)
{
    return io_write_at(sandbox_fd, "cgroup.freeze", frozen ? "1" : "0", e);
}

int
cgroup_event(int sandbox_fd, const char *key)
{
    char text[128];
    long n = io_read_at(sandbox_fd, "cgroup.events", text, sizeof text);
    if (n < 0)
        return (int)n;
    const char *at = strstr(text, key);
    size_t length = strlen(key);
    if (!at || at[length] != ' ')
        return -EPROTO;
    return at[length + 1] == '1';
}

// Removes the folders below SANDBOX. The container's cgroup.max.depth limits them to one level.
static int
remove_children(int sandbox_fd, struct err *e)
{
    int fd = openat(sandbox_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int sys = errno;
        io_close(&fd);
        return err_sys(e, sys, "list the sandbox's cgroup");
    }
    int r = 0;
    const struct dirent *entry;
    while ((entry = readdir(d)) != NULL) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        if (unlinkat(sandbox_fd, entry->d_name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            r = err_sys(e, errno, "remove a job's cgroup");
    }
    (void)closedir(d);
    return r;
}

static int
remove_one(int dir_fd, const char *name, struct err *e)
{
    if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    return err_sys(e, errno, "remove cgroup %s", name);
}

int
cgroup_remove(const struct cgroups *cg, int sandbox_fd, const char *name, struct err *e)
{
    if (sandbox_fd >= 0) { // present in nearly all sandboxes
        if (cg->guest_apart)
            (void)unlinkat(sandbox_fd, "guest", AT_REMOVEDIR);
        (void)unlinkat(sandbox_fd, "job-1", AT_REMOVEDIR);
    }
    int r = remove_one(cg->fd, name, e);
    if (r == -EBUSY && sandbox_fd >= 0) {
        r = remove_children(sandbox_fd, e);
        if (r == 0)
            r = remove_one(cg->fd, name, e);
    }
    for (int c = 0; c < CG_N && r == 0; c++) {
        if (cg->body[c] == CG_V1 && !cgroup_leaf_is_for(cg, (enum cgroup_controller)c))
            r = remove_one(cg->v1_fd[c], name, e);
    }
    return r;
}
