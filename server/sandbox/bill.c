// SPDX-License-Identifier: Apache-2.0
// See bill.h.
#include "bill.h"

#include <string.h>

static const char *const names[BILL_FIGURES_N] = {
    [BILL_WALL_US] = "wall_us",
    [BILL_QUEUE_US] = "queue_us",
    [BILL_SETUP_US] = "setup_us",
    [BILL_CPU_USER_NS] = "cpu_user_ns",
    [BILL_CPU_SYSTEM_NS] = "cpu_system_ns",
    [BILL_MEMORY_PEAK_BYTES] = "memory_peak_bytes",
    [BILL_FAULTS_MINOR] = "faults_minor",
    [BILL_FAULTS_MAJOR] = "faults_major",
    [BILL_IO_READ_BYTES] = "io_read_bytes",
    [BILL_IO_WRITE_BYTES] = "io_write_bytes",
    [BILL_IO_READ_OPS] = "io_read_ops",
    [BILL_IO_WRITE_OPS] = "io_write_ops",
    [BILL_PIDS_PEAK] = "pids_peak",
    [BILL_SWITCHES_VOLUNTARY] = "switches_voluntary",
    [BILL_SWITCHES_INVOLUNTARY] = "switches_involuntary",
    [BILL_THROTTLED_NS] = "throttled_ns",
    [BILL_OUTPUT_BYTES] = "output_bytes",
    [BILL_OUTPUT_CUT_BYTES] = "output_cut_bytes",
};

const char *
bill_name(enum bill_figure i)
{
    return names[i];
}

// A figure from cgroups: the job's own, otherwise the increase of the sandbox's (or its peak, minus the guest's
// part).
struct cgroup_row {
    enum bill_figure figure;
    enum cgroup_stat stat;
    bool peak;
    uint64_t guest; // part of the sandbox's figure that belongs to the guest
    const char *unknown;
};

static const struct cgroup_row cgroup_rows[] = {
    {BILL_CPU_USER_NS, STAT_CPU_USER_NS, false, 0, "no cpu.stat"},
    {BILL_CPU_SYSTEM_NS, STAT_CPU_SYSTEM_NS, false, 0, "no cpu.stat"},
    {BILL_MEMORY_PEAK_BYTES, STAT_MEMORY_PEAK_BYTES, true, 0,
     "no memory controller, or a kernel without memory.peak"},
    {BILL_FAULTS_MAJOR, STAT_FAULTS_MAJOR, false, 0, "neither memory.stat nor rusage"},
    {BILL_IO_READ_BYTES, STAT_IO_READ_BYTES, false, 0, "no io controller"},
    {BILL_IO_WRITE_BYTES, STAT_IO_WRITE_BYTES, false, 0, "no io controller"},
    {BILL_IO_READ_OPS, STAT_IO_READS, false, 0, "no io controller"},
    {BILL_IO_WRITE_OPS, STAT_IO_WRITES, false, 0, "no io controller"},
    {BILL_PIDS_PEAK, STAT_PIDS_PEAK, true, 1, "no pids controller, or a kernel without pids.peak"},
    {BILL_THROTTLED_NS, STAT_THROTTLED_NS, false, 0, "no cpu controller"},
};

static uint64_t
minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static void
from_cgroup(const struct bill_input *in, const struct cgroup_row *row, struct bill *out)
{
    struct figure *f = &out->f[row->figure];
    if (cgstat_known(&in->job, row->stat)) {
        *f = (struct figure){in->job.v[row->stat], BILL_CGROUP, BILL_JOB};
    } else if (row->stat == STAT_PIDS_PEAK && in->before.v[row->stat] > row->guest &&
               in->before.v[row->stat] == in->after.v[row->stat]) {
        // unlike the one of memory, no kernel starts it again
        out->unknown[row->figure] = "an earlier job of the sandbox had as many or more";
    } else if (cgstat_known(&in->after, row->stat)) {
        uint64_t before = row->peak ? row->guest : in->before.v[row->stat];
        *f = (struct figure){minus(in->after.v[row->stat], before), BILL_CGROUP, BILL_SANDBOX};
    } else {
        out->unknown[row->figure] = row->unknown;
    }
}

// A figure from rusage, unless a cgroup has it.
static void
from_rusage(const struct bill_input *in, enum bill_figure i, uint64_t value, struct bill *out)
{
    if (out->f[i].source != BILL_UNKNOWN)
        return;
    if (!in->rusage.known) {
        out->unknown[i] = "the guest did not report it (rusage)";
        return;
    }
    out->f[i] = (struct figure){value, BILL_RUSAGE, BILL_JOB};
    out->unknown[i] = NULL;
}

static void
from_clock(const struct bill_input *in, struct bill *out)
{
    uint64_t ready = in->started_ns != 0 ? in->started_ns : in->ended_ns;
    uint64_t wall =
        in->started_ns != 0 ? minus(minus(in->ended_ns, in->started_ns), in->paused_ns) : 0;
    out->f[BILL_WALL_US] = (struct figure){wall / 1000, BILL_BROKER, BILL_JOB};
    out->f[BILL_QUEUE_US] =
        (struct figure){minus(in->sandbox_ns, in->arrived_ns) / 1000, BILL_BROKER, BILL_JOB};
    out->f[BILL_SETUP_US] =
        (struct figure){minus(ready, in->sandbox_ns) / 1000, BILL_BROKER, BILL_JOB};
    out->f[BILL_OUTPUT_BYTES] = (struct figure){in->output_bytes, BILL_BROKER, BILL_JOB};
    out->f[BILL_OUTPUT_CUT_BYTES] = (struct figure){in->output_cut_bytes, BILL_BROKER, BILL_JOB};
}

// What a file system without a block device, such as NFS or 9p, reads counts for the process and in no cgroup.
static void
drop_false_reads(const struct bill_rusage *u, struct bill *out)
{
    struct figure *f = &out->f[BILL_IO_READ_BYTES];
    if (!u->known || u->in_blocks == 0 || f->source != BILL_CGROUP || f->value != 0)
        return;
    *f = (struct figure){0};
    out->f[BILL_IO_READ_OPS] = (struct figure){0};
    out->unknown[BILL_IO_READ_OPS] = "read from a file system without a block device";
}

void
bill_compute(const struct bill_input *in, struct bill *out)
{
    *out = (struct bill){0};
    from_clock(in, out);
    for (size_t i = 0; i < sizeof cgroup_rows / sizeof cgroup_rows[0]; i++)
        from_cgroup(in, &cgroup_rows[i], out);
    if (cgstat_known(&in->job, STAT_FAULTS))
        out->f[BILL_FAULTS_MINOR] = (struct figure){
            minus(in->job.v[STAT_FAULTS], in->job.v[STAT_FAULTS_MAJOR]), BILL_CGROUP, BILL_JOB};
    const struct bill_rusage *u = &in->rusage;
    drop_false_reads(u, out);
    from_rusage(in, BILL_CPU_USER_NS, u->user_us * 1000, out);
    from_rusage(in, BILL_CPU_SYSTEM_NS, u->system_us * 1000, out);
    from_rusage(in, BILL_FAULTS_MINOR, u->faults_minor, out);
    from_rusage(in, BILL_FAULTS_MAJOR, u->faults_major, out);
    from_rusage(in, BILL_SWITCHES_VOLUNTARY, u->switches_voluntary, out);
    from_rusage(in, BILL_SWITCHES_INVOLUNTARY, u->switches_involuntary, out);
    if (u->known) { // 512-byte blocks, getrusage(2)
        from_rusage(in, BILL_IO_READ_BYTES, u->in_blocks * 512, out);
        from_rusage(in, BILL_IO_WRITE_BYTES, u->out_blocks * 512, out);
    }
}

void
limit_hits_add(struct limit_hits *hits, struct limit_hit hit, bool first)
{
    for (uint32_t i = 0; i < hits->n; i++)
        if (hits->hit[i].limit == hit.limit)
            return;
    uint32_t at = first ? 0 : hits->n;
    memmove(&hits->hit[at + 1], &hits->hit[at], (hits->n - at) * sizeof hit);
    hits->hit[at] = hit;
    hits->n++;
}

// The increase of a counter of refusals, in the job's cgroup or in the sandbox's: kernels differ in which one counts.
static uint64_t
rose(const struct bill_input *in, enum cgroup_stat i)
{
    uint64_t sandbox = minus(in->after.v[i], in->before.v[i]);
    return in->job.v[i] > sandbox ? in->job.v[i] : sandbox;
}

uint64_t
bill_oom_kills(const struct bill_input *in)
{
    return cgstat_known(&in->job, STAT_OOM_KILLS) ? in->job.v[STAT_OOM_KILLS]
                                                  : rose(in, STAT_OOM_KILLS);
}

uint64_t
bill_oom_kills_of_sandbox(const struct bill_input *in)
{
    return rose(in, STAT_OOM_KILLS);
}

void
bill_limit_hits(const struct bill_input *in, const struct limits *limits, struct limit_hits *hits)
{
    uint64_t oom = bill_oom_kills(in);
    if (oom == 0)
        oom = in->job.v[STAT_OOM];
    const struct limit_hit found[] = {
        {LIMIT_MEMORY_BYTES, true, limits->v[LIMIT_MEMORY_BYTES], oom},
        {LIMIT_PIDS, true, limits->v[LIMIT_PIDS], rose(in, STAT_PIDS_DENIED)},
        {LIMIT_FILE_SIZE_BYTES, true, limits->v[LIMIT_FILE_SIZE_BYTES], in->oversized},
        {LIMIT_FILES, true, limits->v[LIMIT_FILES], in->no_file},
        {LIMIT_DISK_BYTES, true, limits->v[LIMIT_DISK_BYTES], in->disk_full},
        {LIMIT_INODES, true, limits->v[LIMIT_INODES], in->inodes_full},
        {LIMIT_OUTPUT_BYTES, false, limits->v[LIMIT_OUTPUT_BYTES], in->output_cut_bytes},
        {LIMIT_CPU_MILLIS, true, limits->v[LIMIT_CPU_MILLIS], rose(in, STAT_THROTTLED)},
    };
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++)
        if (found[i].over > 0)
            limit_hits_add(hits, found[i], false);
}
