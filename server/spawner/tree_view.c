// SPDX-License-Identifier: Apache-2.0
// Shows a sandbox's limits in the files that programs read to choose the sizes of heaps and thread pools. The kernel
// has no /proc/meminfo per cgroup, and Node, for example, uses a fraction of the memory that it sees.
//
//   disk       e/meminfo e/cpuinfo e/stat      over those of /proc; as if all memory were free and all processors idle
//              e/loadavg                       the same in every sandbox
//              v/                              at /sys/fs/cgroup, read-only:
//                memory.max cpu.max            like the root of a cgroup namespace on a v2 host
//                cpuset.cpus.effective         /sys/devices/system/cpu/online and similar files are links to it
//
// No cgroup file system is mounted there, so programs that require one (Java, Go, .NET) ignore these files; command.c
// sets variables for Java and Go. sysinfo(2) and sched_getaffinity(2) show the host, so there is a variable for
// nproc(1), too.
//
// The files belong to the sandbox and are on its own disk, which is larger by their size. When limits change, the
// spawner writes them again, to the same inodes, because these are mounted. Processors are numbered from 0, whatever
// their numbers on the host. Only tree_view_look() allocates.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/now.h"
#include "proto/auto.h"
#include "io.h"
#include "tree_internal.h"
#include "tree_mount.h"

enum {
    CPUINFO_MAX = 1 << 20,
    CHUNK = 2048,
    LINE_MAX_BYTES = 256,
    COUNT_MARK = 1, // in tree.cpuinfo: stands for the number of processors
    PAGE = 4096,
    FILES = 7,
    PERIOD_US = 100000,
};

// A file that is being written from its start.
struct out {
    int fd;
    size_t n;
    off_t at;
    int sys;
    char chunk[CHUNK];
};

static void
out_flush(struct out *o)
{
    if (o->sys == 0 && o->n > 0 && pwrite(o->fd, o->chunk, o->n, o->at) != (ssize_t)o->n)
        o->sys = errno != 0 ? errno : EIO;
    o->at += (off_t)o->n;
    o->n = 0;
}

static void
out_bytes(struct out *o, const char *text, size_t n)
{
    while (n > 0) {
        if (o->n == sizeof o->chunk)
            out_flush(o);
        size_t part = sizeof o->chunk - o->n < n ? sizeof o->chunk - o->n : n;
        memcpy(o->chunk + o->n, text, part);
        o->n += part;
        text += part;
        n -= part;
    }
}

static void __attribute__((format(printf, 2, 3))) out_text(struct out *o, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    out_bytes(o, line, n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

struct view {
    const struct tree *tree;
    uint64_t memory_bytes;
    uint32_t cpu_millis;
    uint32_t cpus;
};

static void
write_meminfo(struct out *o, const struct view *v)
{
    static const char *const none[] = {
        "Buffers",      "Cached",         "SwapCached",   "Active",         "Inactive",
        "Active(anon)", "Inactive(anon)", "Active(file)", "Inactive(file)", "Unevictable",
        "Mlocked",      "SwapTotal",      "SwapFree",     "Dirty",          "Writeback",
        "AnonPages",    "Mapped",         "Shmem",        "KReclaimable",   "Slab",
        "SReclaimable", "SUnreclaim",     "KernelStack",  "PageTables",     "Committed_AS",
    };
    static const char *const all[] = {"MemTotal", "MemFree", "MemAvailable"};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        out_text(o, "%s:%*" PRIu64 " kB\n", all[i], (int)(23 - strlen(all[i])),
                 v->memory_bytes / 1024);
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        out_text(o, "%s:%*d kB\n", none[i], (int)(23 - strlen(none[i])), 0);
}

// The host's own file, with so many processors.
static void
write_cpuinfo(struct out *o, const struct view *v)
{
    const char *from = v->tree->cpuinfo;
    for (uint32_t i = 0; i < v->cpus && *from != '\0'; i++) {
        const char *gap = strstr(from, "\n\n");
        const char *end = gap != NULL ? gap + 2 : from + strlen(from);
        while (from < end) {
            const char *mark = memchr(from, COUNT_MARK, (size_t)(end - from));
            const char *to = mark != NULL ? mark : end;
            out_bytes(o, from, (size_t)(to - from));
            if (mark != NULL)
                out_text(o, "%u", v->cpus);
            from = mark != NULL ? mark + 1 : end;
        }
    }
}

// ps adds btime to the start of a process, which the kernel reports in the sandbox's time.
static void
write_stat(struct out *o, const struct view *v)
{
    const int64_t now_s = now_ns(CLOCK_REALTIME) / 1000000000;
    const int64_t up_s = now_ns(CLOCK_BOOTTIME) / 1000000000;
    out_text(o, "cpu  0 0 0 0 0 0 0 0 0 0\n");
    for (uint32_t i = 0; i < v->cpus; i++)
        out_text(o, "cpu%u 0 0 0 0 0 0 0 0 0 0\n", i);
    out_text(o,
             "intr 0\nctxt 0\nbtime %lld\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n"
             "softirq 0 0 0 0 0 0 0 0 0 0 0\n",
             (long long)(now_s - up_s));
}

static void
write_loadavg(struct out *o, const struct view *v)
{
    (void)v;
    out_text(o, "0.00 0.00 0.00 1/1 1\n");
}

static void
write_memory_max(struct out *o, const struct view *v)
{
    out_text(o, "%" PRIu64 "\n", v->memory_bytes);
}

static void
write_cpu_max(struct out *o, const struct view *v)
{
    out_text(o, "%" PRIu64 " %d\n", v->cpu_millis * UINT64_C(1000) / 10, PERIOD_US);
}

static void
write_cpus(struct out *o, const struct view *v)
{
    if (v->cpus == 1)
        out_text(o, "0\n");
    else
        out_text(o, "0-%u\n", v->cpus - 1);
}

static const struct row {
    const char *path;
    void (*write)(struct out *, const struct view *);
    bool memory; // its contents depend on memory
    bool cpu;
} rows[FILES] = {
    {"e/meminfo", write_meminfo, true, false},
    {"e/cpuinfo", write_cpuinfo, false, true},
    {"e/stat", write_stat, false, true},
    {"e/loadavg", write_loadavg, false, false},
    {"v/memory.max", write_memory_max, true, false},
    {"v/cpu.max", write_cpu_max, false, true},
    {"v/cpuset.cpus.effective", write_cpus, false, true},
};

static int
write_row(int disk, const struct row *row, const struct view *v, int flags, struct err *e)
{
    struct out o = {.sys = 0};
    o.fd = openat(disk, row->path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | flags, 0444);
    if (o.fd < 0)
        return err_sys(e, errno, "open %s", row->path);
    row->write(&o, v);
    out_flush(&o);
    if (o.sys == 0 && (flags & O_CREAT) == 0 && ftruncate(o.fd, o.at) < 0)
        o.sys = errno;
    (void)close(o.fd);
    return o.sys != 0 ? err_sys(e, o.sys, "write %s", row->path) : 0;
}

// At most the host's size: a limit above it has no effect.
static struct view
view_of(const struct tree *t, uint64_t memory_bytes, uint32_t cpu_millis)
{
    const uint32_t cpus = (cpu_millis + 999) / 1000;
    return (struct view){.tree = t,
                         .memory_bytes =
                             memory_bytes < t->memory_bytes ? memory_bytes : t->memory_bytes,
                         .cpu_millis = cpu_millis,
                         .cpus = cpus < 1         ? 1
                                 : cpus < t->cpus ? cpus
                                                  : t->cpus};
}

int
tree_view_make(const struct tree *t, const struct tree_sandbox *s, int disk, struct err *e)
{
    const struct view v = view_of(t, s->memory_bytes, s->cpu_millis);
    if (mkdirat(disk, "v", 0555) < 0)
        return err_sys(e, errno, "create v");
    for (size_t i = 0; i < FILES; i++) {
        int rc = write_row(disk, &rows[i], &v, O_CREAT | O_EXCL, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int
tree_view_change(const struct tree *t, int disk_fd, const struct spawn_limits *limits,
                 const struct spawn_limits *before, struct err *e)
{
    const struct view v = view_of(t, limits->memory_bytes, limits->cpu_millis);
    const bool memory = before == NULL || before->memory_bytes != limits->memory_bytes;
    const bool cpu = before == NULL || before->cpu_millis != limits->cpu_millis;
    for (size_t i = 0; i < FILES; i++) {
        if (!(memory && rows[i].memory) && !(cpu && rows[i].cpu))
            continue;
        int rc = write_row(disk_fd, &rows[i], &v, 0, e);
        if (rc < 0)
            return err_wrap(e, "write the sandbox's view of its limits");
    }
    return 0;
}

int
tree_view_attach(int disk, int root, struct err *e)
{
    int auto_close fd = mount_clone(
        disk, "v", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, e);
    return fd < 0 ? fd : mount_attach(fd, root, "sys/fs/cgroup", e);
}

static char *
read_cpuinfo(void)
{
    char *text = calloc(1, CPUINFO_MAX);
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (text != NULL && f != NULL)
        (void)!fread(text, 1, CPUINFO_MAX - 1, f);
    if (f != NULL)
        (void)fclose(f);
    return text;
}

// Replaces "siblings : 8" and "cpu cores : 4" by the numbers of the sandbox.
static void
mark_counts(char *text)
{
    static const char *const names[] = {"siblings", "cpu cores"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (char *at = text; (at = strstr(at, names[i])) != NULL;) {
            char *colon = strchr(at, ':');
            char *end = strchr(at, '\n');
            if (colon == NULL || end == NULL || colon + 3 > end)
                return;
            colon[2] = COUNT_MARK;
            memmove(colon + 3, end, strlen(end) + 1);
            at = colon + 3;
        }
}

static size_t
pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

int
tree_view_look(struct tree *t, struct err *e)
{
    t->cpuinfo = read_cpuinfo();
    if (t->cpuinfo == NULL)
        return err_sys(e, ENOMEM, "read /proc/cpuinfo");
    mark_counts(t->cpuinfo);
    char *fit = realloc(t->cpuinfo, strlen(t->cpuinfo) + 1);
    t->cpuinfo = fit != NULL ? fit : t->cpuinfo;
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    t->cpus = cpus > 0 ? (uint32_t)cpus : 1;
    t->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    const size_t of_stat = 256 + (size_t)t->cpus * 32;
    const size_t of_cpuinfo = strlen(t->cpuinfo) + (size_t)t->cpus * 20;
    t->view_bytes = pages(of_cpuinfo) + pages(of_stat) + (size_t)(FILES - 2) * PAGE;
    return 0;
}
