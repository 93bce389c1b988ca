// SPDX-License-Identifier: Apache-2.0
// The kernel's counters of a cgroup, which the broker reads itself instead of asking the guest, and the fill level of
// the file system that the sandbox writes to.
//
// The descriptors of the cgroup directories come with a sandbox; this code opens files relative to them. On a pure v2
// host each job has a cgroup with its own counters; on a hybrid host the v1 controllers count for the sandbox as a
// whole, and only CPU time is known per job (every v2 cgroup has cpu.stat). Files:
// Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/{cpuacct,memory,pids,blkio-controller}.rst.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/spawner/ops.h"

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

enum { CGSTAT_FILES_MAX = 3840 }; // that stay open at a time, cgstat_keep() and cgstat_keep_job()

struct cgstat_files;

// The directories of a sandbox, by enum spawn_fd; -1: missing. Borrowed.
struct cgroup_dirs {
    int fd[SPAWN_FDS_MAX];
    // owned: cgstat_keep(); NULL: each file is opened whenever it is read
    struct cgstat_files *files;
};

// From now on the files of the sandbox, not those of its jobs, stay open: for one that runs many jobs. Does nothing if too many
// are open already, or without memory.
void cgstat_keep(struct cgroup_dirs *dirs);
// Closes them.
void cgstat_drop(struct cgroup_dirs *dirs);

// The same for the files of one job whose counters are read often. *files: NULL, or what an earlier call has set; *owned*, and
// dropped before the job's cgroup is removed or another job is read.
void cgstat_keep_job(struct cgstat_files **files);
void cgstat_drop_job(struct cgstat_files **files);

// Reads the counters of job `job`, or with job 0 of the sandbox. A missing counter is unknown; never fails.
void cgstat_read(const struct cgroup_dirs *dirs, uint32_t job, struct cgstat *out);

// Reads those of a job. files: of cgstat_keep_job() for this job; NULL: each is opened.
void cgstat_read_job(const struct cgroup_dirs *dirs, uint32_t job, struct cgstat_files *files,
                     struct cgstat *out);

// Reads the counters that may be non-zero before the first job: CPU time, time throttled, bytes read. The guest has
// started no process yet, so kills and refusals are 0 and need not be read, nor do peaks, which are not compared.
void cgstat_read_early(const struct cgroup_dirs *dirs, struct cgstat *out);

// Bytes of memory that the sandbox uses now; 0: it cannot be read.
uint64_t cgstat_memory_now(const struct cgroup_dirs *dirs);

// CPU time of a job in nanoseconds; 0: it cannot be read.
uint64_t cgstat_cpu_ns(const struct cgroup_dirs *dirs, uint32_t job);

// The same without what the kernel could give up at once: pages of files on disks.
uint64_t cgstat_memory_held(const struct cgroup_dirs *dirs);

// Processes that were refused because of a limit of processes, in a job or with job 0 in the sandbox; 0: it cannot be read.
// Before Linux 6.11 the kernel counts them in the cgroup that forks, since then where the limit is.
uint64_t cgstat_pids_denied(const struct cgroup_dirs *dirs, uint32_t job);

// Processes and threads of the sandbox now, with its guest, which has one; and its memory in bytes. 0: it cannot be read.
uint64_t cgstat_tasks(const struct cgroup_dirs *dirs);
uint64_t cgstat_memory(const struct cgroup_dirs *dirs);

// The id of the v2 cgroup of a job, or with job 0 of the guest (possibly the sandbox's own): its inode number. 0: it
// does not exist.
uint64_t cgstat_cgroup_id(const struct cgroup_dirs *dirs, uint32_t job);

// Whether the sandbox's disk is full: bit 0 its bytes, bit 1 its inodes. One fstatfs(2).
enum { DISK_BYTES_FULL = 1, DISK_INODES_FULL = 2 };
unsigned cgstat_disk_full(const struct cgroup_dirs *dirs);

// The format of a counter in its file, and its parser.
enum cgstat_form { CGSTAT_NUMBER, CGSTAT_KEY, CGSTAT_SUM };
bool cgstat_parse(enum cgstat_form form, const char *text, size_t n, const char *key,
                  uint64_t *out);

// Parsers for n bytes, not terminated by NUL. False: not found, or not a number of 64 bits. The whole text is a number:
bool cgstat_parse_number(const char *text, size_t n, uint64_t *out);
// A line "key number":
bool cgstat_parse_key(const char *text, size_t n, const char *key, uint64_t *out);
// The sum over all lines of "key=number" (io.stat) or "MAJ:MIN key number" (blkio.throttle.*); true with 0 for an empty
// text, since the kernel lists a device only after its first use.
bool cgstat_parse_sum(const char *text, size_t n, const char *key, uint64_t *out);
