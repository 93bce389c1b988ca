// SPDX-License-Identifier: Apache-2.0
// See cgstat.h.
#include "cgstat.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "proto/auto.h"

// The file of a figure. Rows of the same file are adjacent, so that each file is read once.
struct stat_row {
    const char *file;
    const char *key;
    uint64_t scale;
    enum spawn_fd dir;
    enum cgstat_form form;
    enum cgroup_stat stat;
    bool early; // may be non-zero before the first job; the same for all rows of a file
};

static const struct stat_row of_job[] = {
    {"cpu.stat", "usage_usec", 1000, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_CPU_NS, false},
    {"cpu.stat", "user_usec", 1000, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_CPU_USER_NS, false},
    {"cpu.stat", "system_usec", 1000, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_CPU_SYSTEM_NS, false},
    {"memory.peak", NULL, 1, SPAWN_FD_CGROUP, CGSTAT_NUMBER, STAT_MEMORY_PEAK_BYTES, false},
    {"memory.events", "oom", 1, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_OOM, false},
    {"memory.events", "oom_kill", 1, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_OOM_KILLS, false},
    {"memory.stat", "pgfault", 1, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_FAULTS, false},
    {"memory.stat", "pgmajfault", 1, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_FAULTS_MAJOR, false},
    {"pids.peak", NULL, 1, SPAWN_FD_CGROUP, CGSTAT_NUMBER, STAT_PIDS_PEAK, false},
    {"pids.events", "max", 1, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_PIDS_DENIED, false},
    {"io.stat", "rbytes", 1, SPAWN_FD_CGROUP, CGSTAT_SUM, STAT_IO_READ_BYTES, false},
    {"io.stat", "wbytes", 1, SPAWN_FD_CGROUP, CGSTAT_SUM, STAT_IO_WRITE_BYTES, false},
    {"io.stat", "rios", 1, SPAWN_FD_CGROUP, CGSTAT_SUM, STAT_IO_READS, false},
    {"io.stat", "wios", 1, SPAWN_FD_CGROUP, CGSTAT_SUM, STAT_IO_WRITES, false},
};

// With v2 the limits are set on the sandbox, so their counters are there; the others are per job.
static const struct stat_row of_sandbox[] = {
    {"cpu.stat", "usage_usec", 1000, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_CPU_NS, true},
    {"cpu.stat", "user_usec", 1000, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_CPU_USER_NS, true},
    {"cpu.stat", "system_usec", 1000, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_CPU_SYSTEM_NS, true},
    {"cpu.stat", "throttled_usec", 1000, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_THROTTLED_NS, true},
    {"cpu.stat", "nr_throttled", 1, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_THROTTLED, true},
    {"memory.events", "oom", 1, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_OOM, false},
    {"memory.events", "oom_kill", 1, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_OOM_KILLS, false},
    {"pids.events", "max", 1, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_PIDS_DENIED, false},
};

static const struct stat_row of_sandbox_v1[] = {
    {"cpu.stat", "usage_usec", 1000, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_CPU_NS, true},
    {"cpu.stat", "user_usec", 1000, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_CPU_USER_NS, true},
    {"cpu.stat", "system_usec", 1000, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_CPU_SYSTEM_NS, true},
    {"cpu.stat", "throttled_time", 1, SPAWN_FD_CPU, CGSTAT_KEY, STAT_THROTTLED_NS, true},
    {"cpu.stat", "nr_throttled", 1, SPAWN_FD_CPU, CGSTAT_KEY, STAT_THROTTLED, true},
    {"memory.max_usage_in_bytes", NULL, 1, SPAWN_FD_MEMORY, CGSTAT_NUMBER, STAT_MEMORY_PEAK_BYTES,
     false},
    {"memory.oom_control", "oom_kill", 1, SPAWN_FD_MEMORY, CGSTAT_KEY, STAT_OOM_KILLS, false},
    {"pids.peak", NULL, 1, SPAWN_FD_PIDS, CGSTAT_NUMBER, STAT_PIDS_PEAK, false},
    {"pids.events", "max", 1, SPAWN_FD_PIDS, CGSTAT_KEY, STAT_PIDS_DENIED, false},
    {"blkio.throttle.io_service_bytes", "Read", 1, SPAWN_FD_BLKIO, CGSTAT_SUM, STAT_IO_READ_BYTES,
     true},
    {"blkio.throttle.io_service_bytes", "Write", 1, SPAWN_FD_BLKIO, CGSTAT_SUM, STAT_IO_WRITE_BYTES,
     true},
    {"blkio.throttle.io_serviced", "Read", 1, SPAWN_FD_BLKIO, CGSTAT_SUM, STAT_IO_READS, true},
    {"blkio.throttle.io_serviced", "Write", 1, SPAWN_FD_BLKIO, CGSTAT_SUM, STAT_IO_WRITES, true},
};

#define ROWS(t) (t), sizeof(t) / sizeof(t)[0]

// Reads a decimal number at [p, end). Returns the position after it, or NULL: none, or it does not fit.
static const char *
read_number(const char *p, const char *end, uint64_t *out)
{
    uint64_t v = 0;
    const char *from = p;
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return NULL;
    if (p == from)
        return NULL;
    *out = v;
    return p;
}

static bool
ends_here(const char *p, const char *end)
{
    return p == end || *p == '\n' || *p == ' ';
}

bool
cgstat_parse_number(const char *text, size_t n, uint64_t *out)
{
    uint64_t v = 0;
    const char *end = text + n;
    const char *p = read_number(text, end, &v);
    if (p == NULL || !(p == end || (*p == '\n' && p + 1 == end)))
        return false;
    *out = v;
    return true;
}

bool
cgstat_parse_key(const char *text, size_t n, const char *key, uint64_t *out)
{
    size_t key_n = strlen(key);
    const char *end = text + n;
    for (const char *line = text; line < end;) {
        const char *eol = memchr(line, '\n', (size_t)(end - line));
        const char *line_end = eol != NULL ? eol : end;
        bool fits = (size_t)(line_end - line) > key_n;
        // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): read(2) filled it
        if (fits && memcmp(line, key, key_n) == 0 && line[key_n] == ' ') {
            uint64_t v = 0;
            const char *p = read_number(line + key_n + 1, line_end, &v);
            if (p == NULL || p != line_end)
                return false;
            *out = v;
            return true;
        }
        line = line_end + 1;
    }
    return false;
}

// Whether a word may start at p: at the start of the text or of a line, or after a space.
static bool
begins_word(const char *text, const char *p)
{
    return p == text || p[-1] == ' ' || p[-1] == '\n';
}

bool
cgstat_parse_sum(const char *text, size_t n, const char *key, uint64_t *out)
{
    size_t key_n = strlen(key);
    uint64_t sum = 0;
    const char *end = text + n;
    for (const char *p = text; p < end; p++) {
        if ((size_t)(end - p) <= key_n || memcmp(p, key, key_n) != 0 || !begins_word(text, p) ||
            (p[key_n] != '=' && p[key_n] != ' '))
            continue;
        uint64_t v = 0;
        const char *q = read_number(p + key_n + 1, end, &v);
        if (q == NULL || !ends_here(q, end) || __builtin_add_overflow(sum, v, &sum))
            return false;
    }
    *out = sum;
    return true;
}

enum {
    FILES_EACH = 12, // more than the different files of a sandbox in all tables
    KEPT_MAX = 256,  // sandboxes whose files are open
    JOBS_KEPT_MAX = 64,
};
_Static_assert(FILES_EACH *(KEPT_MAX + JOBS_KEPT_MAX) == CGSTAT_FILES_MAX, "see cgstat.h");

struct cgstat_files {
    uint32_t n;
    struct {
        const char *name; // of a table
        enum spawn_fd dir;
        int fd;
    } file[FILES_EACH];
};

static uint32_t kept_n, jobs_kept_n;

// Counted by *n, at most `most`.
static void
keep(struct cgstat_files **files, uint32_t *n, uint32_t most)
{
    if (*files == NULL && *n < most && (*files = calloc(1, sizeof **files)) != NULL)
        ++*n;
}

static void
drop(struct cgstat_files **files, uint32_t *n)
{
    if (*files == NULL)
        return;
    for (uint32_t i = 0; i < (*files)->n; i++)
        (void)close((*files)->file[i].fd);
    free(*files);
    *files = NULL;
    --*n;
}

void
cgstat_keep(struct cgroup_dirs *dirs)
{
    keep(&dirs->files, &kept_n, KEPT_MAX);
}

void
cgstat_drop(struct cgroup_dirs *dirs)
{
    drop(&dirs->files, &kept_n);
}

void
cgstat_keep_job(struct cgstat_files **files)
{
    keep(files, &jobs_kept_n, JOBS_KEPT_MAX);
}

void
cgstat_drop_job(struct cgstat_files **files)
{
    drop(files, &jobs_kept_n);
}

// The cgroup that is read: a sandbox's, or that of one of its jobs.
struct source {
    const struct cgroup_dirs *dirs;
    uint32_t job;               // 0: the sandbox's
    struct cgstat_files *files; // of it, that are kept open; or NULL
};

static struct source
source_of(const struct cgroup_dirs *dirs, uint32_t job)
{
    return (struct source){dirs, job, job == 0 ? dirs->files : NULL};
}

static int
open_file(const struct source *from, enum spawn_fd dir, const char *file)
{
    char path[96];
    int n = from->job != 0 ? snprintf(path, sizeof path, "job-%u/%s", from->job, file)
                           : snprintf(path, sizeof path, "%s", file);
    assert(n > 0 && (size_t)n < sizeof path);
    int fd = openat(from->dirs->fd[dir], path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

// An open descriptor, or a negative errno. *kept: it stays open.
static int
find_file(const struct source *from, enum spawn_fd dir, const char *name, bool *kept)
{
    struct cgstat_files *f = from->files;
    *kept = true;
    for (uint32_t i = 0; f != NULL && i < f->n; i++)
        if (f->file[i].dir == dir && strcmp(f->file[i].name, name) == 0)
            return f->file[i].fd;
    int fd = open_file(from, dir, name);
    *kept = fd >= 0 && f != NULL && f->n < FILES_EACH;
    if (*kept) {
        f->file[f->n].name = name;
        f->file[f->n].dir = dir;
        f->file[f->n++].fd = fd;
    }
    return fd;
}

// Reads up to out_n bytes of a file below a directory. Returns how many, or -errno.
static ssize_t
read_below(const struct source *from, enum spawn_fd dir, const char *file, char *out, size_t out_n)
{
    if (from->dirs->fd[dir] < 0)
        return -ENOENT;
    bool kept;
    const int fd = find_file(from, dir, file, &kept);
    if (fd < 0)
        return fd;
    const ssize_t n = pread(fd, out, out_n, 0), r = n < 0 ? -errno : n;
    if (!kept)
        (void)close(fd);
    return r;
}

bool
cgstat_parse(enum cgstat_form form, const char *text, size_t n, const char *key, uint64_t *out)
{
    if (form == CGSTAT_NUMBER)
        return cgstat_parse_number(text, n, out);
    if (form == CGSTAT_KEY)
        return cgstat_parse_key(text, n, key, out);
    return cgstat_parse_sum(text, n, key, out);
}

// Both blkio files of v1 have a line per device. If one has none, the other has none either and need not be read.
static bool
has_no_device(const struct stat_row *row, const char *text, ssize_t n)
{
    return row->dir == SPAWN_FD_BLKIO && n >= 0 && memchr(text, ':', (size_t)n) == NULL;
}

static void
read_rows(const struct source *from, const struct stat_row *rows, size_t rows_n, bool early,
          struct cgstat *out)
{
    static char text[8192];
    ssize_t n = -1;
    for (size_t i = 0; i < rows_n; i++) {
        const struct stat_row *row = &rows[i];
        if (early && !row->early)
            continue;
        bool same = i > 0 && rows[i - 1].dir == row->dir &&
                    (rows[i - 1].file == row->file || has_no_device(row, text, n));
        if (!same)
            n = read_below(from, row->dir, row->file, text, sizeof text);
        uint64_t v = 0;
        if (n < 0 || !cgstat_parse(row->form, text, (size_t)n, row->key, &v) ||
            __builtin_mul_overflow(v, row->scale, &out->v[row->stat]))
            continue;
        out->known |= 1u << row->stat;
    }
}

static bool
is_hybrid(const struct cgroup_dirs *dirs)
{
    return dirs->fd[SPAWN_FD_MEMORY] >= 0 || dirs->fd[SPAWN_FD_PIDS] >= 0 ||
           dirs->fd[SPAWN_FD_CPU] >= 0;
}

static void
read_sandbox(const struct cgroup_dirs *dirs, bool early, struct cgstat *out)
{
    const struct source from = source_of(dirs, 0);
    *out = (struct cgstat){0};
    if (is_hybrid(dirs))
        read_rows(&from, ROWS(of_sandbox_v1), early, out);
    else
        read_rows(&from, ROWS(of_sandbox), early, out);
}

void
cgstat_read(const struct cgroup_dirs *dirs, uint32_t job, struct cgstat *out)
{
    if (job == 0)
        read_sandbox(dirs, false, out);
    else
        cgstat_read_job(dirs, job, NULL, out);
}

void
cgstat_read_job(const struct cgroup_dirs *dirs, uint32_t job, struct cgstat_files *files,
                struct cgstat *out)
{
    const struct source from = {dirs, job, files};
    *out = (struct cgstat){0};
    if (is_hybrid(dirs))
        // this cgroup has no controllers, only cpu.stat
        read_rows(&from, of_job, 3, false, out);
    else
        read_rows(&from, ROWS(of_job), false, out);
}

void
cgstat_read_early(const struct cgroup_dirs *dirs, struct cgstat *out)
{
    read_sandbox(dirs, true, out);
}

uint64_t
cgstat_cpu_ns(const struct cgroup_dirs *dirs, uint32_t job)
{
    const struct source from = source_of(dirs, job);
    struct cgstat s = {0};
    read_rows(&from, of_job, 1, false, &s);
    return s.v[STAT_CPU_NS];
}

uint64_t
cgstat_memory_now(const struct cgroup_dirs *dirs)
{
    static const struct stat_row v1 = {
        "memory.usage_in_bytes", NULL, 1, SPAWN_FD_MEMORY, CGSTAT_NUMBER,
        STAT_MEMORY_PEAK_BYTES,  false};
    static const struct stat_row v2 = {
        "memory.current", NULL, 1, SPAWN_FD_CGROUP, CGSTAT_NUMBER, STAT_MEMORY_PEAK_BYTES, false};
    const struct source from = source_of(dirs, 0);
    struct cgstat s = {0};
    read_rows(&from, is_hybrid(dirs) ? &v1 : &v2, 1, false, &s);
    return s.v[STAT_MEMORY_PEAK_BYTES];
}

// The two rows use counters that have nothing to do with memory: they are only places for the sum.
uint64_t
cgstat_memory_held(const struct cgroup_dirs *dirs)
{
    static const struct stat_row v1[] = {{"memory.stat", "total_inactive_file", 1, SPAWN_FD_MEMORY,
                                          CGSTAT_KEY, STAT_IO_READS, false},
                                         {"memory.stat", "total_active_file", 1, SPAWN_FD_MEMORY,
                                          CGSTAT_KEY, STAT_IO_WRITES, false}};
    static const struct stat_row v2[] = {
        {"memory.stat", "inactive_file", 1, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_IO_READS, false},
        {"memory.stat", "active_file", 1, SPAWN_FD_CGROUP, CGSTAT_KEY, STAT_IO_WRITES, false}};
    const struct source from = source_of(dirs, 0);
    struct cgstat s = {0};
    read_rows(&from, is_hybrid(dirs) ? v1 : v2, 2, false, &s);
    const uint64_t all = cgstat_memory_now(dirs);
    const uint64_t files = s.v[STAT_IO_READS] + s.v[STAT_IO_WRITES];
    return all > files ? all - files : 0;
}

uint64_t
cgstat_pids_denied(const struct cgroup_dirs *dirs, uint32_t job)
{
    static const struct stat_row v1 = {"pids.events",    "max", 1, SPAWN_FD_PIDS, CGSTAT_KEY,
                                       STAT_PIDS_DENIED, false};
    static const struct stat_row v2 = {"pids.events",    "max", 1, SPAWN_FD_CGROUP, CGSTAT_KEY,
                                       STAT_PIDS_DENIED, false};
    const struct source from = source_of(dirs, job);
    struct cgstat s = {0};
    if (job == 0 || !is_hybrid(dirs)) // on hybrid hosts, jobs have no pids cgroup
        read_rows(&from, is_hybrid(dirs) ? &v1 : &v2, 1, false, &s);
    return s.v[STAT_PIDS_DENIED];
}

static uint64_t
read_one(const struct cgroup_dirs *dirs, enum spawn_fd dir, const char *file)
{
    char text[32] = "";
    uint64_t v = 0;
    const struct source from = source_of(dirs, 0);
    ssize_t n = read_below(&from, dir, file, text, sizeof text);
    return n > 0 && cgstat_parse_number(text, (size_t)n, &v) ? v : 0;
}

uint64_t
cgstat_tasks(const struct cgroup_dirs *dirs)
{
    return read_one(dirs, is_hybrid(dirs) ? SPAWN_FD_PIDS : SPAWN_FD_CGROUP, "pids.current");
}

uint64_t
cgstat_memory(const struct cgroup_dirs *dirs)
{
    return is_hybrid(dirs) ? read_one(dirs, SPAWN_FD_MEMORY, "memory.usage_in_bytes")
                           : read_one(dirs, SPAWN_FD_CGROUP, "memory.current");
}

uint64_t
cgstat_cgroup_id(const struct cgroup_dirs *dirs, uint32_t job)
{
    char name[24] = "guest";
    struct stat st;
    int dir = dirs->fd[SPAWN_FD_CGROUP];
    if (job != 0)
        (void)snprintf(name, sizeof name, "job-%u", job);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return st.st_ino;
    return job == 0 && errno == ENOENT && fstat(dir, &st) == 0 ? st.st_ino : 0;
}

unsigned
cgstat_disk_full(const struct cgroup_dirs *dirs)
{
    struct statfs fs;
    int fd = dirs->fd[SPAWN_FD_DISK];
    if (fd < 0 || fstatfs(fd, &fs) < 0)
        return 0;
    return (fs.f_blocks > 0 && fs.f_bavail == 0 ? DISK_BYTES_FULL : 0u) |
           (fs.f_files > 0 && fs.f_ffree == 0 ? DISK_INODES_FULL : 0u);
}
