// SPDX-License-Identifier: Apache-2.0
// See job_private.h: the limits of a job that the kernel does not enforce, wall-clock and CPU time, and which limit
// ended a job.
#include "job_private.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "proto/quantity.h"
#include "sandbox.h"
#include "server/base/server.h"

#define MS UINT64_C(1000000)
enum { CPU_CHECK_MIN_MS = 5, DISK_LOOK_MS = 60 * 1000 };

static uv_loop_t *
loop_of(const struct job *j)
{
    return j->all->srv->loop;
}

// ---- while the job runs

// Ends the job if there is no memory for the timer of a limit, because nothing else would enforce the limit.
static void
must_watch(struct job *j, int r)
{
    if (r < 0)
        job_cancel(j, "out of memory: its time limits cannot be stored");
}

// A timer counts whole milliseconds from the begin of the loop iteration, so it may expire before the limit.
static void on_wall(void *cookie);

static void
wall_start(struct job *j)
{
    if (j->limits.v[LIMIT_WALL_MS] == 0)
        return;
    j->wall_from_ns = uv_hrtime();
    uint64_t ms = (j->wall_left_ns + MS - 1) / MS;
    must_watch(j, loop_timer_start(loop_of(j), &j->wall, ms, on_wall, j));
}

static void
on_wall(void *cookie)
{
    struct job *j = cookie;
    const uint64_t ran = uv_hrtime() - j->wall_from_ns;
    if (ran >= j->wall_left_ns) {
        job_end_now(j, END_WALL);
        return;
    }
    j->wall_left_ns -= ran;
    wall_start(j);
}

void
job_pause(struct job *j)
{
    uint64_t now = uv_hrtime();
    j->paused_from_ns = now;
    if (j->wall == NULL || j->state != JOB_RUNNING)
        return;
    uint64_t ran = now - j->wall_from_ns;
    j->wall_left_ns = j->wall_left_ns > ran ? j->wall_left_ns - ran : 0;
    loop_timer_stop(&j->wall);
}

void
job_resume(struct job *j)
{
    if (j->paused_from_ns != 0)
        j->used.paused_ns += uv_hrtime() - j->paused_from_ns;
    j->paused_from_ns = 0;
    if (j->state == JOB_RUNNING && j->end == END_NONE)
        wall_start(j);
}

// The quota bounds the speed of CPU time, so the next check is not needed before the limit can be reached. Without a
// limit only the disk is checked.
static void on_cpu(void *cookie);

static void
cpu_look_later(struct job *j, uint64_t used_ms)
{
    uint64_t limit_ms = j->limits.v[LIMIT_CPU_TIME_MS];
    uint64_t wait =
        limit_ms != 0 ? (limit_ms - used_ms) * 1000 / j->limits.v[LIMIT_CPU_MILLIS] : DISK_LOOK_MS;
    uint64_t ms = wait > CPU_CHECK_MIN_MS ? wait : CPU_CHECK_MIN_MS;
    must_watch(j, loop_timer_start(loop_of(j), &j->cpu, ms, on_cpu, j));
}

void
job_look_at_disk(struct job *j)
{
    unsigned full = cgstat_disk_full(&j->sandbox->dirs);
    unsigned became_full = full & j->disk_had_room;
    j->disk_had_room |= ~full;
    j->used.disk_full += (became_full & DISK_BYTES_FULL) != 0;
    j->used.inodes_full += (became_full & DISK_INODES_FULL) != 0;
}

static void
on_cpu(void *cookie)
{
    struct job *j = cookie;
    job_look_at_disk(j);
    uint64_t limit_ms = j->limits.v[LIMIT_CPU_TIME_MS];
    uint64_t used_ms = limit_ms != 0 ? cgstat_cpu_ns(&j->sandbox->dirs, j->number) / MS : 0;
    if (limit_ms != 0 && used_ms >= limit_ms)
        job_end_now(j, END_CPU);
    else
        cpu_look_later(j, used_ms);
}

void
job_limits_begin(struct job *j)
{
    j->wall_left_ns = j->limits.v[LIMIT_WALL_MS] * MS;
    wall_start(j);
    cpu_look_later(j, 0);
}

// ---- why the job ended

static uint64_t
cpu_used_ms(const struct job *j)
{
    const struct cgstat *c = &j->used.job;
    return cgstat_known(c, STAT_CPU_NS)
               ? c->v[STAT_CPU_NS] / MS
               : (j->used.rusage.user_us + j->used.rusage.system_us) / 1000;
}

static uint64_t
beyond(uint64_t value, uint64_t limit)
{
    return value > limit ? value - limit : 0;
}

void
job_limit_ended(struct job *j, enum limit which, uint64_t over, bool count, const char *what)
{
    struct job_result *r = &j->result;
    char value[QUANTITY_TEXT];
    r->outcome = OUTCOME_LIMIT;
    (void)snprintf(r->reason, sizeof r->reason, "%s (limit %s: %s)", what, limit_table[which].key,
                   quantity_write(j->limits.v[which], limits_units((int)which), value));
    limit_hits_add(&r->hits, (struct limit_hit){which, count, j->limits.v[which], over}, true);
}

static void
wall_ended(struct job *j)
{
    uint64_t ms = (j->used.ended_ns - j->used.started_ns - j->used.paused_ns) / MS;
    job_limit_ended(j, LIMIT_WALL_MS, beyond(ms, j->limits.v[LIMIT_WALL_MS]), false,
                    "it exceeded its wall-clock time");
}

static void
cpu_ended(struct job *j)
{
    job_limit_ended(j, LIMIT_CPU_TIME_MS, beyond(cpu_used_ms(j), j->limits.v[LIMIT_CPU_TIME_MS]),
                    false, "it exceeded its CPU time");
}

// If the broker killed the job, it has stored the reason before.
void
job_classify_end(struct job *j)
{
    if (j->end == END_WALL) {
        wall_ended(j);
    } else if (j->end == END_CPU) {
        cpu_ended(j);
    } else {
        j->result.outcome = OUTCOME_CANCELLED;
        (void)snprintf(j->result.reason, sizeof j->result.reason, "%s", j->end_reason);
    }
}

void
job_classify_signal(struct job *j, int signal)
{
    uint64_t kills = bill_oom_kills(&j->used);
    j->result.signal = (uint32_t)signal;
    if (signal == SIGKILL && j->end != END_NONE)
        job_classify_end(j);
    else if (signal == SIGKILL && kills > 0)
        job_limit_ended(j, LIMIT_MEMORY_BYTES, kills, true,
                        "the kernel killed it because its sandbox was out of memory");
    else if ((signal == SIGXCPU || signal == SIGKILL) && // which the job may have sent itself
             j->limits.v[LIMIT_CPU_TIME_MS] != 0 &&
             cpu_used_ms(j) >= j->limits.v[LIMIT_CPU_TIME_MS])
        cpu_ended(j);
    else if (signal == SIGXFSZ && (j->used.oversized > 0 || !j->used.oversized_known))
        job_limit_ended(j, LIMIT_FILE_SIZE_BYTES, j->used.oversized > 0 ? j->used.oversized : 1,
                        true, "it exceeded the maximum file size");
    else
        j->result.outcome = OUTCOME_SIGNALED;
}

// If clone returned EAGAIN, the sandbox has its maximum of processes, or the host has.
void
job_classify_failure(struct job *j, uint32_t exit_code, int sys, const char *text)
{
    const struct cgstat *box = &j->used.after;
    bool full =
        !cgstat_known(box, STAT_PIDS_PEAK) || box->v[STAT_PIDS_PEAK] >= j->limits.v[LIMIT_PIDS];
    if (exit_code == 0 && sys == EAGAIN && full) {
        job_limit_ended(
            j, LIMIT_PIDS, 1, true,
            "its sandbox has reached its maximum number of processes, so it could not start");
        return;
    }
    j->result.outcome = exit_code != 0 ? OUTCOME_NOT_EXECUTED : OUTCOME_FAILED;
    j->result.exit_code = exit_code;
    (void)snprintf(j->result.reason, sizeof j->result.reason, "%.500s", text);
}
