// SPDX-License-Identifier: Apache-2.0
// See usage.h. Files: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/*.rst, accounting/psi.rst.
#include "usage.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cgstat.h"

enum { TEXT_BYTES = 16384 }; // of one file: io.stat of a host with 200 disks

enum file {
    CPU_STAT,
    CPU_STAT_V1,
    MEMORY,
    MEMORY_V1,
    PIDS,
    IO,
    IO_V1,
    CPU_PRESSURE,
    MEMORY_PRESSURE,
    IO_PRESSURE,
    FILES,
};

static const struct {
    const char *name;
    enum spawn_fd dir;
} files_at[FILES] = {
    [CPU_STAT] = {"cpu.stat", SPAWN_FD_CGROUP},
    [CPU_STAT_V1] = {"cpu.stat", SPAWN_FD_CPU},
    [MEMORY] = {"memory.current", SPAWN_FD_CGROUP},
    [MEMORY_V1] = {"memory.usage_in_bytes", SPAWN_FD_MEMORY},
    [PIDS] = {"pids.current", SPAWN_FD_CGROUP}, // on hybrid hosts below SPAWN_FD_PIDS
    [IO] = {"io.stat", SPAWN_FD_CGROUP},
    [IO_V1] = {"blkio.throttle.io_service_bytes", SPAWN_FD_BLKIO},
    [CPU_PRESSURE] = {"cpu.pressure", SPAWN_FD_CGROUP},
    [MEMORY_PRESSURE] = {"memory.pressure", SPAWN_FD_CGROUP},
    [IO_PRESSURE] = {"io.pressure", SPAWN_FD_CGROUP},
};

static const struct row {
    enum file file;
    enum cgstat_form form;
    const char *key;
    uint64_t scale;
    enum usage_figure figure;
} rows[] = {
    {CPU_STAT, CGSTAT_KEY, "usage_usec", 1000, USAGE_CPU_NS},
    {CPU_STAT, CGSTAT_KEY, "throttled_usec", 1000, USAGE_THROTTLED_NS},
    {CPU_STAT_V1, CGSTAT_KEY, "throttled_time", 1, USAGE_THROTTLED_NS},
    {MEMORY, CGSTAT_NUMBER, NULL, 1, USAGE_MEMORY_BYTES},
    {MEMORY_V1, CGSTAT_NUMBER, NULL, 1, USAGE_MEMORY_BYTES},
    {PIDS, CGSTAT_NUMBER, NULL, 1, USAGE_PIDS},
    {IO, CGSTAT_SUM, "rbytes", 1, USAGE_IO_READ_BYTES},
    {IO, CGSTAT_SUM, "wbytes", 1, USAGE_IO_WRITE_BYTES},
    {IO_V1, CGSTAT_SUM, "Read", 1, USAGE_IO_READ_BYTES},
    {IO_V1, CGSTAT_SUM, "Write", 1, USAGE_IO_WRITE_BYTES},
};

struct usage_files {
    int fd[FILES]; // -1: not open; -2: does not exist
    uint64_t read_ms;
};

static uint32_t open_files; // of all sandboxes
static uint32_t open_most = USAGE_OPEN_MAX;

static const char *const names[USAGE_FIGURES] = {
    [USAGE_CPU_NS] = "cpu_ns",
    [USAGE_THROTTLED_NS] = "throttled_ns",
    [USAGE_MEMORY_BYTES] = "memory_bytes",
    [USAGE_PIDS] = "pids",
    [USAGE_IO_READ_BYTES] = "io_read_bytes",
    [USAGE_IO_WRITE_BYTES] = "io_write_bytes",
};

const char *
usage_name(enum usage_figure i)
{
    return names[i];
}

static int
open_file(const struct cgroup_dirs *dirs, enum file f)
{
    int dir = dirs->fd[files_at[f].dir];
    if (f == PIDS && dirs->fd[SPAWN_FD_PIDS] >= 0)
        dir = dirs->fd[SPAWN_FD_PIDS];
    return dir < 0 ? -1 : openat(dir, files_at[f].name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

// Reads the text of a file. Returns its length, or a negative value. A text that does not fit would give a wrong sum,
// so it counts as unreadable.
static ssize_t
read_file(const struct cgroup_dirs *dirs, struct usage_files *kept, enum file f, char *text,
          size_t n)
{
    if (kept != NULL && kept->fd[f] == -2)
        return -1;
    int fd = kept != NULL && kept->fd[f] >= 0 ? kept->fd[f] : open_file(dirs, f);
    ssize_t got = fd >= 0 ? pread(fd, text, n - 1, 0) : -1;
    if (kept == NULL) {
        if (fd >= 0)
            (void)close(fd);
    } else if (kept->fd[f] < 0) {
        kept->fd[f] = fd >= 0 ? fd : -2;
        open_files += fd >= 0;
    }
    if (got < 0 || (size_t)got == n - 1)
        return -1;
    text[got] = '\0';
    return got;
}

bool
usage_parse_pressure(const char *line, uint32_t *centipercent, uint64_t *total_us)
{
    unsigned whole = 0;
    unsigned hundredths = 0;
    uint64_t total = 0;
    if (sscanf(line, "%*4s avg10=%3u.%2u avg60=%*f avg300=%*f total=%20" SCNu64, &whole, // NOLINT
               &hundredths, &total) != 3 ||
        whole > 100)
        return false;
    *centipercent = whole * 100 + hundredths;
    *total_us = total;
    return true;
}

static void
read_pressure(const char *text, struct usage_pressure *out)
{
    const char *full = strstr(text, "\nfull ");
    out->known = usage_parse_pressure(text, &out->some_centipercent, &out->some_us);
    if (out->known && full != NULL)
        (void)usage_parse_pressure(full + 1, &out->full_centipercent, &out->full_us);
}

static void
take_rows(enum file f, const char *text, size_t n, struct usage *out)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *row = &rows[i];
        uint64_t v = 0;
        if (row->file != f)
            continue;
        bool found = cgstat_parse(row->form, text, n, row->key, &v);
        if (!found || __builtin_mul_overflow(v, row->scale, &out->v[row->figure]))
            continue;
        out->known |= 1u << row->figure;
    }
}

void
usage_read(const struct cgroup_dirs *dirs, struct usage_files **files, uint64_t now_ms,
           struct usage *out)
{
    char text[TEXT_BYTES];
    *out = (struct usage){0};
    if (*files == NULL && open_files + FILES <= open_most) {
        *files = calloc(1, sizeof **files);
        for (size_t i = 0; *files != NULL && i < FILES; i++)
            (*files)->fd[i] = -1;
    }
    if (*files != NULL)
        (*files)->read_ms = now_ms;
    for (enum file f = 0; f < FILES; f++) {
        ssize_t n = read_file(dirs, *files, f, text, sizeof text);
        if (n < 0)
            continue;
        if (f >= CPU_PRESSURE)
            read_pressure(text, &out->pressure[f - CPU_PRESSURE]);
        else
            take_rows(f, text, (size_t)n, out);
    }
}

void
usage_allow(uint64_t files)
{
    open_most = files < USAGE_OPEN_MAX ? (uint32_t)files : USAGE_OPEN_MAX;
}

uint32_t
usage_open(void)
{
    return open_files;
}

void
usage_close(struct usage_files **files)
{
    struct usage_files *f = *files;
    *files = NULL;
    for (size_t i = 0; f != NULL && i < FILES; i++)
        if (f->fd[i] >= 0) {
            (void)close(f->fd[i]);
            open_files--;
        }
    free(f);
}

void
usage_close_idle(struct usage_files **files, uint64_t now_ms)
{
    if (*files != NULL && now_ms - (*files)->read_ms >= USAGE_IDLE_MS)
        usage_close(files);
}
