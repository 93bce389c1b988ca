// SPDX-License-Identifier: Apache-2.0
// Reusable leaves below v1 controllers: see cgroup_leaf.h.
//
//   take -> in use by a sandbox -> give -> idle, until the kernel has freed the charged memory -> like new? -> take
//                                            '-> too many idle, or idle for too long: removed
#include "cgroup_leaf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io.h"

enum { IDLE_MAX = 64, IDLE_MS = 300, LOOKS_PER_TAKE = 8, NAME_BYTES = 24 };

static const char prefix[] = "leaf-";

bool
cgroup_leaf_is_for(const struct cgroups *cg, enum cgroup_controller c)
{
    return c != CG_PIDS && cg->body[c] == CG_V1 && cg->body[CG_MEMORY] == CG_V1;
}

bool
cgroup_leaf_is_name(const char *name)
{
    return strncmp(name, prefix, sizeof prefix - 1) == 0;
}

// Removes its cgroups. False: one is still in use.
static bool
removed(const struct cgroups *cg, struct cgroup_leaf *l)
{
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s%u", prefix, l->number);
    for (int c = 0; c < CG_N; c++) {
        if (l->fd[c] >= 0 && unlinkat(cg->v1_fd[c], name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            return false;
        io_close(&l->fd[c]);
    }
    free(l);
    return true;
}

static void
append(struct cgroups *cg, struct cgroup_leaf *l)
{
    l->next = NULL;
    if (cg->idle_tail)
        cg->idle_tail->next = l;
    else
        cg->idle_head = l;
    cg->idle_tail = l;
    cg->idle_n++;
}

static struct cgroup_leaf *
first(struct cgroups *cg)
{
    struct cgroup_leaf *l = cg->idle_head;
    cg->idle_head = l->next;
    if (!l->next)
        cg->idle_tail = NULL;
    cg->idle_n--;
    return l;
}

// Includes swap if the kernel accounts for it, because swapped-out memory stays charged. TCP buffers are counted
// separately.
static bool
is_nothing_charged(int memory_fd)
{
    char text[32];
    long n = io_read_at(memory_fd, "memory.kmem.tcp.usage_in_bytes", text, sizeof text);
    if (n != -ENOENT && (n <= 0 || strcmp(text, "0\n") != 0))
        return false;
    n = io_read_at(memory_fd, "memory.memsw.usage_in_bytes", text, sizeof text);
    if (n == -ENOENT)
        n = io_read_at(memory_fd, "memory.usage_in_bytes", text, sizeof text);
    return n > 0 && strcmp(text, "0\n") == 0;
}

static bool
has_line(int dir_fd, const char *file, const char *line)
{
    char text[256];
    return io_read_at(dir_fd, file, text, sizeof text) > 0 && strstr(text, line);
}

// If a device was used, it has lines before the last line.
static bool
no_device_was_used(int blkio_fd)
{
    char text[32];
    return io_read_at(blkio_fd, "blkio.throttle.io_serviced", text, sizeof text) > 0 &&
           strcmp(text, "Total 0\n") == 0;
}

static bool
is_as_new(const struct cgroup_leaf *l)
{
    struct err ignored;
    return is_nothing_charged(l->fd[CG_MEMORY]) &&
           has_line(l->fd[CG_MEMORY], "memory.oom_control", "\noom_kill 0\n") &&
           (l->fd[CG_CPU] < 0 || has_line(l->fd[CG_CPU], "cpu.stat", "\nnr_throttled 0\n")) &&
           (l->fd[CG_IO] < 0 || no_device_was_used(l->fd[CG_IO])) &&
           io_write_at(l->fd[CG_MEMORY], "memory.max_usage_in_bytes", "0", &ignored) == 0;
}

static struct cgroup_leaf *
used_before(struct cgroups *cg)
{
    for (uint32_t n = cg->idle_n < LOOKS_PER_TAKE ? cg->idle_n : LOOKS_PER_TAKE; n > 0; n--) {
        struct cgroup_leaf *l = first(cg);
        if (is_as_new(l))
            return l;
        append(cg, l);
    }
    return NULL;
}

static int
make(struct cgroups *cg, struct cgroup_leaf **out, struct err *e)
{
    char name[NAME_BYTES];
    struct cgroup_leaf *l = malloc(sizeof *l);
    if (!l)
        return err_sys(e, ENOMEM, "make a leaf of v1 controllers");
    *l = (struct cgroup_leaf){.number = cg->leaves_made++, .fd = {-1, -1, -1, -1}, .is_new = true};
    (void)snprintf(name, sizeof name, "%s%u", prefix, l->number);
    for (int c = 0; c < CG_N; c++) {
        if (!cgroup_leaf_is_for(cg, (enum cgroup_controller)c))
            continue;
        int fd = -1;
        if (mkdirat(cg->v1_fd[c], name, 0755) == 0)
            fd = openat(cg->v1_fd[c], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) {
            (void)err_sys(e, errno, "make a v1 cgroup");
            (void)unlinkat(cg->v1_fd[c], name, AT_REMOVEDIR);
            (void)removed(cg, l);
            return err_errno(e);
        }
        l->fd[c] = io_keep_fd(fd);
    }
    *out = l;
    return 0;
}

int
cgroup_leaf_take(struct cgroups *cg, struct cgroup_leaf **out, struct err *e)
{
    if (!cgroup_leaf_is_for(cg, CG_MEMORY))
        return 0;
    struct cgroup_leaf *l = used_before(cg);
    if (!l)
        return make(cg, out, e);
    *out = l;
    return 0;
}

void
cgroup_leaf_give(struct cgroups *cg, struct cgroup_leaf *l, const struct spawn_limits *limits)
{
    if (!l)
        return;
    l->is_new = false;
    l->idle_since_ns = io_now_ns();
    l->limits_known = limits != NULL;
    if (limits)
        l->limits = *limits;
    if (cg->idle_n < IDLE_MAX || !removed(cg, l))
        append(cg, l);
}

int
cgroup_leaf_tidy(struct cgroups *cg)
{
    const uint64_t idle_ns = IDLE_MS * UINT64_C(1000000);
    uint64_t now_ns = cg->idle_n > 0 ? io_now_ns() : 0;
    // One that was checked without success is placed after younger ones, and is removed when they are.
    for (uint32_t n = cg->idle_n; n > 0; n--) {
        uint64_t age_ns = now_ns - cg->idle_head->idle_since_ns;
        if (age_ns < idle_ns)
            return (int)((idle_ns - age_ns) / 1000000 + 1);
        struct cgroup_leaf *l = first(cg);
        if (removed(cg, l))
            continue;
        l->idle_since_ns = now_ns; // still in use: try again later
        append(cg, l);
    }
    return cg->idle_n > 0 ? IDLE_MS : -1;
}
