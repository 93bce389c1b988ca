// SPDX-License-Identifier: Apache-2.0
// See lists.h. Memory that is not charged comes from the kernel's general caches: those that are charged are others
// ("kmalloc-cg-N", Linux 5.14), and are not counted. A list can be held by descriptors of the sandbox's processes, by those of threads that
// have their own table, and by descriptors that are on their way through a unix socket. The spawner examines descriptors from outside,
// with statx(2) and without opening the object itself, so that nothing in a sandbox can block it.
#include "lists.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/now.h"

enum {
    LOOK_MS_MAX = 50,    // CPU time of one look at a sandbox
    OUT_OF_SIGHT = 4096, // a process without a readable /proc/PID/fd, or the rest after LOOK_MS_MAX
};

// ---- the host's memory

// "kmalloc-96", "kmalloc-rnd-03-96", "kmalloc-1k"; not "kmalloc-cg-96", "kmalloc-rcl-96".
static bool
is_uncharged(const char *name)
{
    static const char general[] = "kmalloc-", random[] = "rnd-";
    if (strncmp(name, general, sizeof general - 1) != 0)
        return false;
    name += sizeof general - 1;
    return (*name >= '0' && *name <= '9') || strncmp(name, random, sizeof random - 1) == 0;
}

static FILE *
open_text(int folder_fd, const char *name)
{
    int fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (fd >= 0 && f == NULL)
        (void)close(fd);
    return f;
}

static int
all_slabs(const struct spawner *s, uint64_t *out, struct err *e)
{
    static const char key[] = "SUnreclaim:";
    char line[256];
    FILE *f = open_text(s->proc_fd, "meminfo");
    if (f == NULL)
        return err_sys(e, errno, "open /proc/meminfo");
    int r = err_set(e, ERR_INTERNAL, "/proc/meminfo has no SUnreclaim");
    while (r < 0 && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, key, sizeof key - 1) != 0)
            continue;
        *out = strtoull(line + sizeof key - 1, NULL, 10) << 10;
        r = 0;
    }
    (void)fclose(f);
    return r;
}

// Of a kernel without slabinfo: all of them.
static int
uncharged(const struct spawner *s, uint64_t *out, struct err *e)
{
    char line[512];
    unsigned long long objects, bytes;
    FILE *f = open_text(s->proc_fd, "slabinfo");
    if (f == NULL)
        return all_slabs(s, out, e);
    *out = 0;
    while (fgets(line, sizeof line, f) != NULL) { // NAME ACTIVE OBJECTS BYTES ...
        // NOLINTNEXTLINE(cert-err34-c): the kernel wrote it
        if (is_uncharged(line) && sscanf(line, "%*s %*u %llu %llu", &objects, &bytes) == 2)
            *out += (uint64_t)(objects * bytes);
    }
    (void)fclose(f);
    return 0;
}

// ---- the descriptors of a sandbox

struct look {
    uint64_t folders, hidden;
    uint64_t until_ns; // of the CPU time of this thread
    pid_t before;      // the last task
};

static uint64_t
cpu_ns(void)
{
    return (uint64_t)now_ns(CLOCK_THREAD_CPUTIME_ID);
}

static bool
is_late(struct look *l)
{
    return cpu_ns() > l->until_ns;
}

static bool
is_of_overlay(int folder_fd, const char *name)
{
    struct statfs fs;
    int auto_close fd = openat(folder_fd, name, O_PATH | O_CLOEXEC);
    return fd >= 0 && fstatfs(fd, &fs) == 0 && fs.f_type == OVERLAYFS_SUPER_MAGIC;
}

// How many descriptors are on their way to this socket (proc_pid_fdinfo(5), Linux 5.8).
static uint64_t
in_flight(int info_fd, const char *name)
{
    char text[1024];
    int auto_close fd = info_fd < 0 ? -1 : openat(info_fd, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n < 0)
        return 0;
    text[n] = '\0';
    const char *at = strstr(text, "scm_fds:");
    return at == NULL ? 0 : strtoull(at + strlen("scm_fds:"), NULL, 10);
}

static void
look_at_descriptor(struct look *l, int folder_fd, int info_fd, const char *name)
{
    struct statx st;
    if (statx(folder_fd, name, AT_STATX_DONT_SYNC, STATX_TYPE, &st) < 0)
        return; // closed meanwhile
    if (S_ISDIR(st.stx_mode) && is_of_overlay(folder_fd, name))
        l->folders++;
    else if (S_ISSOCK(st.stx_mode))
        l->hidden += in_flight(info_fd, name);
}

static void
look_at_table(struct look *l, int folder_fd, int info_fd)
{
    DIR *d = fdopendir(folder_fd);
    if (d == NULL) {
        (void)close(folder_fd);
        l->folders += OUT_OF_SIGHT;
        return;
    }
    const struct dirent *entry;
    while (!is_late(l) && (entry = readdir(d)) != NULL)
        if (entry->d_name[0] != '.')
            look_at_descriptor(l, dirfd(d), info_fd, entry->d_name);
    (void)closedir(d);
}

// Threads share their table with the one before, unless they took care not to.
static void
look_at_task(const struct spawner *s, struct look *l, pid_t task)
{
    char path[64];
    if (l->before > 0 && syscall(SYS_kcmp, l->before, task, KCMP_FILES, 0L, 0L) == 0)
        return;
    (void)snprintf(path, sizeof path, "%d/fdinfo", (int)task);
    int auto_close info_fd = openat(s->proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    path[strlen(path) - strlen("info")] = '\0';
    int fd = openat(s->proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        look_at_table(l, fd, info_fd);
    else if (errno != ENOENT && errno != ESRCH)
        l->folders += OUT_OF_SIGHT;
    l->before = task;
}

// Those of one cgroup. One that has gone has none.
static void
look_at_tasks(const struct spawner *s, struct look *l, int cgroup_fd, const char *name)
{
    char path[300], line[32];
    (void)snprintf(path, sizeof path, "%s/cgroup.threads", name);
    FILE *f = open_text(cgroup_fd, path);
    if (f == NULL)
        return;
    while (!is_late(l) && fgets(line, sizeof line, f) != NULL) {
        long task = strtol(line, NULL, 10);
        if (task > 0)
            look_at_task(s, l, (pid_t)task);
    }
    (void)fclose(f);
}

// Its processes are in its cgroup and in those below it, which have none (cgroup.h).
static int
look_at_sandbox(const struct spawner *s, const struct slot *slot, struct spawn_reply *out,
                struct err *e)
{
    struct look l = {.until_ns = cpu_ns() + LOOK_MS_MAX * UINT64_C(1000000)};
    int fd = openat(slot->cgroup.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        int r = err_sys(e, errno, "list the cgroups of sandbox %s", slot->name);
        if (fd >= 0)
            (void)close(fd);
        return r;
    }
    const struct dirent *entry;
    while (!is_late(&l) && (entry = readdir(d)) != NULL)
        if (entry->d_type == DT_DIR && strcmp(entry->d_name, "..") != 0)
            look_at_tasks(s, &l, dirfd(d), entry->d_name);
    (void)closedir(d);
    out->amount = l.folders + (is_late(&l) ? OUT_OF_SIGHT : 0);
    out->hidden = l.hidden;
    return 0;
}

void
lists_handle(struct spawner *s, struct slot *slot, const struct spawn_request *q, struct answer *a)
{
    struct err e;
    struct spawn_reply *reply = answer_reply(a);
    int r = q->arg == SPAWN_LISTS_SLABS       ? all_slabs(s, &reply->amount, &e)
            : q->arg == SPAWN_LISTS_UNCHARGED ? uncharged(s, &reply->amount, &e)
                                              : look_at_sandbox(s, slot, reply, &e);
    if (r < 0)
        answer_err(s, a, &e);
    else
        answer_ok(s, a);
}
