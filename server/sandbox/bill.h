// SPDX-License-Identifier: Apache-2.0
// The resources that a job used, and the limits that it reached: from samples of cgroups, wait4(2), and the broker's
// own counters.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cgstat.h"
#include "limits.h"

// In the order of the fields of stockade.v1.Bill.
enum bill_figure {
    BILL_WALL_US,
    BILL_QUEUE_US,
    BILL_SETUP_US,
    BILL_CPU_USER_NS,
    BILL_CPU_SYSTEM_NS,
    BILL_MEMORY_PEAK_BYTES,
    BILL_FAULTS_MINOR,
    BILL_FAULTS_MAJOR,
    BILL_IO_READ_BYTES,
    BILL_IO_WRITE_BYTES,
    BILL_IO_READ_OPS,
    BILL_IO_WRITE_OPS,
    BILL_PIDS_PEAK,
    BILL_SWITCHES_VOLUNTARY,
    BILL_SWITCHES_INVOLUNTARY,
    BILL_THROTTLED_NS,
    BILL_OUTPUT_BYTES,
    BILL_OUTPUT_CUT_BYTES,
    BILL_FIGURES_N,
};

// Numbers as in stockade.v1.FigureSource and FigureScope.
enum bill_source { BILL_UNKNOWN, BILL_CGROUP, BILL_RUSAGE, BILL_BROKER };
enum bill_scope { BILL_NO_SCOPE, BILL_JOB, BILL_SANDBOX };

struct figure {
    uint64_t value;
    enum bill_source source;
    enum bill_scope scope;
};

struct bill {
    struct figure f[BILL_FIGURES_N];
    const char *unknown[BILL_FIGURES_N]; // why a figure is unknown, or NULL; constant texts
};

// getrusage(2) of the job, as reported by the guest.
struct bill_rusage {
    bool known;
    uint64_t user_us, system_us, faults_minor, faults_major, in_blocks, out_blocks;
    uint64_t switches_voluntary, switches_involuntary, maxrss_bytes;
};

struct bill_input {
    uint64_t arrived_ns;  // arrival of the request
    uint64_t sandbox_ns;  // a sandbox was available
    uint64_t started_ns;  // the main process started; 0: it did not
    uint64_t ended_ns;    // the main process ended
    uint64_t paused_ns;   // of that time, frozen
    struct cgstat job;    // at its end
    struct cgstat before; // of the sandbox, at its start
    struct cgstat after;  // of the sandbox, at its end
    struct bill_rusage rusage;
    uint64_t output_bytes, output_cut_bytes;
    uint32_t disk_full, inodes_full; // number of checks that found that the disk had become full
    uint64_t oversized;              // writes refused because of the file size limit
    bool oversized_known;
    uint64_t no_file; // calls that the limit of open files refused
};

void bill_compute(const struct bill_input *in, struct bill *out);

// The name of a figure: that of its field in stockade.v1.Bill.
const char *bill_name(enum bill_figure i);

// A limit that was reached (stockade.v1.LimitHit).
struct limit_hit {
    enum limit limit;
    bool count; // over counts refusals
    uint64_t value;
    uint64_t over;
};

struct limit_hits {
    uint32_t n;
    struct limit_hit hit[LIMITS_N]; // each limit once; the one that ended the job is first
};

// Adds a hit unless the limit is already in the list. first: before all others.
void limit_hits_add(struct limit_hits *hits, struct limit_hit hit, bool first);

// Adds the limits that the samples show: memory, processes, disk, output, CPU quota.
void bill_limit_hits(const struct bill_input *in, const struct limits *limits,
                     struct limit_hits *hits);

// Number of processes of the job that the kernel killed for lack of memory since its start.
uint64_t bill_oom_kills(const struct bill_input *in);

// The same for its whole sandbox, including the guest, which no job's counter covers.
uint64_t bill_oom_kills_of_sandbox(const struct bill_input *in);
