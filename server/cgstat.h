// SPDX-License-Identifier: Apache-2.0
// What the kernel counted for a cgroup, read by the broker itself: the guest is not asked.
//
// And what the file system that it writes to says of itself, since both come with a sandbox in the same way.
//
// Descriptors of the cgroup directories come with a sandbox; files are opened below them. On a pure v2 host each job
// has a cgroup with its own figures; on a hybrid one the v1 controllers count for the sandbox as a whole, and only CPU
// time is known per job (cpu.stat is there in any v2 cgroup).
// Files: Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/{cpuacct,memory,pids,blkio-controller}.rst.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spawner/ops.h"

enum cgroup_stat {
    STAT_CPU_NS, // user and system together
    STAT_CPU_USER_NS,
    STAT_CPU_SYSTEM_NS,
    STAT_THROTTLED_NS,
    STAT_THROTTLED, // periods in which the quota was used up
    STAT_MEMORY_PEAK_BYTES,
    STAT_OOM,       // allocations that were about to fail
    STAT_OOM_KILLS, // processes killed for it
    STAT_FAULTS,    // all of them
    STAT_FAULTS_MAJOR,
    STAT_PIDS_PEAK,
    STAT_PIDS_DENIED,
    STAT_IO_READ_BYTES,
    STAT_IO_WRITE_BYTES,
    STAT_IO_READS,
    STAT_IO_WRITES,
    STATS_N,
};

struct cgstat {
    uint32_t known; // bit n: v[n] was read
    uint64_t v[STATS_N];
};

static inline bool
cgstat_known(const struct cgstat *s, enum cgroup_stat i)
{
    return (s->known >> i & 1) != 0;
}

// The directories of a sandbox, by enum spawn_fd, -1 where absent. Borrowed.
struct cgroup_dirs {
    int fd[SPAWN_FDS_MAX];
};

// Reads what there is for job `job`, or with job 0 for the sandbox. What is not there is not known; never fails.
void cgstat_read(const struct cgroup_dirs *dirs, uint32_t job, struct cgstat *out);

// What the sandbox may have had before its first job: CPU time, waiting for its quota, what its tree was read from. Its guest
// lives and has started nothing, so kills and denials are 0, which need no look; nor do peaks, which are not compared.
void cgstat_read_early(const struct cgroup_dirs *dirs, struct cgstat *out);

// CPU time of a job in nanoseconds; 0 when it cannot be read.
uint64_t cgstat_cpu_ns(const struct cgroup_dirs *dirs, uint32_t job);

// The id of the v2 cgroup of a job, or with job 0 of the guest (which may be the sandbox's own): its inode number. 0: it is
// not there.
uint64_t cgstat_cgroup_id(const struct cgroup_dirs *dirs, uint32_t job);

// What is full of the sandbox's disk at this moment: bit 0 its bytes, bit 1 its inodes. One fstatfs(2).
enum { DISK_BYTES_FULL = 1, DISK_INODES_FULL = 2 };
unsigned cgstat_disk_full(const struct cgroup_dirs *dirs);

// How a file says a figure, and the parser for it.
enum cgstat_form { CGSTAT_NUMBER, CGSTAT_KEY, CGSTAT_SUM };
bool cgstat_parse(enum cgstat_form form, const char *text, size_t n, const char *key,
                  uint64_t *out);

// Parsers, for n bytes that need no NUL behind them. False: it is not there, or no number of 64 bits.
// The whole text is a number:
bool cgstat_parse_number(const char *text, size_t n, uint64_t *out);
// A line "key number":
bool cgstat_parse_key(const char *text, size_t n, const char *key, uint64_t *out);
// The sum over all lines of "key=number" (io.stat) or of "MAJ:MIN key number" (blkio.throttle.*); true with 0 for
// an empty text, since the kernel lists a device only once it was used.
bool cgstat_parse_sum(const char *text, size_t n, const char *key, uint64_t *out);
