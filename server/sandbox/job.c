// SPDX-License-Identifier: Apache-2.0
// See job.h: the life of a job, from Start to its result. job_limits.c has what ends it.
#include "job_private.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/utf8.h"
#include "agent.h"
#include "guest_link.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "proto/now.h"
#include "proto/plural.h"
#include "sandbox.h"
#include "server/base/server.h"
#include "spawn.h"

#define TO(state) (1u << JOB_##state)

// The permitted changes of state, as drawn in job.h.
static const unsigned moves[JOB_STATES_N] = {
    [JOB_STARTING] = TO(RUNNING) | TO(DRAINING),
    [JOB_RUNNING] = TO(DRAINING),
    [JOB_DRAINING] = TO(DONE),
};

static void
count_state(const struct job *j, int by)
{
    metrics_move_by(METRIC_JOBS, j->state, j->sandbox->spec.template->number, by);
}

static void
move(struct job *j, enum job_state to)
{
    assert((moves[j->state] >> to & 1) != 0);
    observers_assert_idle(job_observers(j));
    count_state(j, -1);
    j->state = to;
    if (to != JOB_DONE)
        count_state(j, 1);
}

static uv_loop_t *
loop_of(const struct job *j)
{
    return j->all->srv->loop;
}

static void
log_job(const struct job *j, const char *event, const struct err *e)
{
    const struct log_about about = {
        .sandbox = j->sandbox_id, .job = j->id.id, .tenant = j->tenant->name};
    log_err_about(LOG_WARNING, event, &about, e);
}

static void wait_for_its_end(struct job *j);
static void on_settled(struct sandbox_settler *w);

static bool
is_frozen(const struct sandbox *s)
{
    return s->state == SANDBOX_PAUSING || s->state == SANDBOX_PAUSED ||
           s->state == SANDBOX_RESUMING || s->state == SANDBOX_COPYING;
}

// The guest did not respond, so its sandbox is not trusted any more. But if the spawner has not killed the job yet,
// the guest has nothing to report.
static void
on_no_answer(void *cookie)
{
    struct job *j = cookie;
    struct err e;
    if (j->end != END_NONE && !sandbox_kills_done(j->sandbox)) {
        wait_for_its_end(j);
        return;
    }
    if (j->state == JOB_STARTING && j->end == END_NONE && is_frozen(j->sandbox)) {
        (void)loop_timer_start(loop_of(j), &j->timeout, JOB_START_MS, on_no_answer, j);
        return;
    }
    if (j->state == JOB_STARTING && j->end == END_NONE)
        (void)err_set(
            &e, ERR_INTERNAL,
            "the guest of sandbox %s did not respond for %d s, so the process was not started",
            j->sandbox_id, JOB_START_MS / 1000);
    else
        (void)err_set(&e, ERR_INTERNAL, "the guest of sandbox %s did not respond", j->sandbox_id);
    log_job(j, "guest-silent", &e);
    sandbox_destroy(j->sandbox, &e, NULL);
}

// While the spawner hangs, it cannot kill the job's cgroup. The guest can kill the main process, which ends the job.
static void
wait_for_its_end(struct job *j)
{
    struct err e;
    if (!spawn_answers(j->all->srv->spawn) &&
        guest_link_signal(j->sandbox->link, j->number, SIGKILL, true, &e) < 0)
        log_job(j, "kill-job", &e);
    (void)loop_timer_start(loop_of(j), &j->timeout, JOB_KILL_MS, on_no_answer, j);
}

void
job_end_now(struct job *j, enum job_end why)
{
    if (j->end != END_NONE || j->state == JOB_DRAINING || j->state == JOB_DONE)
        return;
    observers_assert_idle(job_observers(j));
    j->end = why;
    loop_timer_stop(&j->wall);
    loop_timer_stop(&j->cpu);
    sandbox_kill_job(j->sandbox, j->number);
    wait_for_its_end(j);
}

static int
check_quotas(const struct sandbox *s, const struct job_spec *spec, struct err *e)
{
    const struct sandbox_quotas *q = &sandboxes_settings(s->all)->quotas;
    if (s->jobs_n >= q->jobs_per_sandbox) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%u %s in this sandbox", s->jobs_n,
                        plural(s->jobs_n, "process already runs", "processes already run"));
        err_detail(
            e, "QUOTA_JOBS_PER_SANDBOX", s->id.id,
            "wait for one to end, or raise quotas.jobs_per_sandbox and reload the configuration");
        return r;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < spec->args_n; i++)
        bytes += strlen(spec->args[i]) + 1;
    for (size_t i = 0; i < spec->env_n; i++)
        bytes += strlen(spec->env[i]) + 1;
    if (bytes > JOB_COMMAND_BYTES_MAX)
        return err_field(e, "command",
                         "arguments and environment are %zu bytes; at most %d are allowed", bytes,
                         JOB_COMMAND_BYTES_MAX);
    return 0;
}

// Charges one more job to its tenant.
static int
charge(const struct sandbox *s, struct err *e)
{
    int r = tenant_check_jobs(s->tenant, uv_hrtime(), e);
    return r < 0 ? r : tenant_charge_quota(s->tenant, QUOTA_JOBS, 1, e);
}

static void
discard(struct job *j)
{
    job_io_end(j);
    output_free(j->output);
    for (size_t i = 0; i < j->shown_n; i++)
        free(j->shown[i]);
    tenant_drop(j->tenant);
    free(j);
}

// The length of an argument that is shown. It does not cut a character, because a message with invalid UTF-8 would be
// refused as a whole.
static size_t
shown_length(const char *arg)
{
    return utf8_cut(arg, strnlen(arg, JOB_SHOWN_ARG_BYTES));
}

static struct job *
job_new(struct sandbox *s, const struct job_spec *spec)
{
    struct job *j = calloc(1, sizeof *j);
    if (j == NULL)
        return NULL;
    uint8_t bytes[ID_BYTES];
    id_make(sandboxes_settings(s->all)->node, bytes, j->id.id);
    memcpy(j->sandbox_id, s->id.id, sizeof j->sandbox_id);
    j->all = sandboxes_server(s->all)->jobs;
    j->sandbox = s;
    j->tenant = tenant_hold_again(s->tenant);
    j->limits = spec->limits;
    j->one_shot = spec->one_shot;
    j->unkept = spec->one_shot || spec->unkept;
    j->terminal = spec->terminal;
    j->used.arrived_ns = spec->arrived_ns;
    j->used.sandbox_ns = spec->sandbox_ns;
    if (spec->traceparent != NULL && traceparent_valid(spec->traceparent))
        (void)snprintf(j->traceparent, sizeof j->traceparent, "%s", spec->traceparent);
    list_init(&j->all_node);
    list_init(&j->of_sandbox);
    list_init(&j->kept_node);
    list_init(&j->followers);
    list_init(&j->settler.node);
    j->settler.done = on_settled;
    for (int i = 0; i < STDIO_N; i++)
        j->fd[i] = -1;
    j->output = output_new(spec->limits.v[LIMIT_OUTPUT_BYTES]);
    bool whole = j->output != NULL;
    if (whole)
        job_share_begin(j);
    for (size_t i = 0; i < spec->args_n && i < JOB_SHOWN_ARGS && whole; i++) {
        j->shown[i] = strndup(spec->args[i], shown_length(spec->args[i]));
        j->shown_n = i + 1;
        whole = j->shown[i] != NULL;
    }
    if (whole)
        return j;
    discard(j);
    return NULL;
}

// Takes *link.
static int
send_start(struct job *j, const struct job_spec *spec, int *link, struct err *e)
{
    uint64_t cpu_ms = spec->limits.v[LIMIT_CPU_TIME_MS];
    struct guest_start start = {
        .job = j->number,
        .args = spec->args,
        .args_n = spec->args_n,
        .env = spec->env,
        .env_n = spec->env_n,
        .workdir = spec->workdir,
        .files_max = spec->limits.v[LIMIT_FILES],
        .file_bytes_max = spec->limits.v[LIMIT_FILE_SIZE_BYTES],
        .network_off = sandbox_starts_off(j->sandbox),
        .tasks_max = spec->limits.v[LIMIT_PIDS] + FORKS_REFUSED_AT_ONCE,
        .cpu_seconds_max = cpu_ms != 0 ? cpu_ms / 1000 + 1 : 0,
        .terminal = spec->terminal,
        .rows = spec->rows,
        .columns = spec->columns,
        .stdio = {-1, -1, -1},
        .has_link = spec->has_link,
        .link = take_fd(link),
    };
    int r = job_io_open(j, spec, start.stdio, e);
    if (r == 0)
        return guest_link_start(j->sandbox->link, &start, e);
    if (start.has_link)
        (void)close(start.link);
    return r;
}

// Gives the job the process of an agent. Takes *link.
static int
take_process(struct job *j, const struct job_spec *spec, int *link, struct err *e)
{
    int fds[STDIO_N + 1] = {-1, -1, -1, -1};
    int r = job_io_open(j, spec, fds, e);
    if (r < 0)
        return r;
    fds[STDIO_N] = take_fd(link);
    return agent_give(spec->agent, fds, STDIO_N + 1, e);
}

// Adds the job to the tables and counts.
static void
enroll(struct job *j)
{
    struct sandbox *s = j->sandbox;
    j->order = ++j->all->begun;
    idtable_add(&j->all->table, &j->id);
    list_append(&j->all->list, &j->all_node);
    list_append(&s->jobs, &j->of_sandbox);
    s->jobs_n++;
    j->all->running++;
    metrics_add(METRIC_JOBS_STARTED, 1);
    count_state(j, 1);
}

// Its program runs.
static int
began(struct job *j, uint32_t pid, int terminal)
{
    struct err e;
    if (terminal >= 0 && job_io_terminal(j, terminal, &e) < 0)
        return -EPROTO;
    j->started_ms = now_wall_ms();
    j->pid = pid;
    j->used.started_ns = uv_hrtime();
    move(j, JOB_RUNNING);
    OBSERVERS_NOTIFY(job_observers(j), job_started, j);
    if (j->end == END_NONE) {
        loop_timer_stop(&j->timeout);
        job_limits_begin(j);
    }
    if (job_io_begin(j, &e) < 0)
        job_cancel(j, e.text);
    (void)job_notify_followers(j);
    return 0;
}

// The sandbox's counters before it. The first job need not read them, unless an interpreter ran before.
static void
count_from(struct job *j, bool forked)
{
    if (j->sandbox->jobs_begun == 1 && !forked)
        j->used.before = j->sandbox->fresh;
    else
        cgstat_read(&j->sandbox->dirs, 0, &j->used.before);
}

int
job_start(struct sandbox *s, const struct job_spec *spec, struct job **out, struct err *e)
{
    observers_assert_idle(sandboxes_observers(s->all));
    int auto_close link = spec->has_link ? spec->link : -1;
    int r = sandbox_check_running(s, e);
    if (r == 0)
        r = check_quotas(s, spec, e);
    if (r == 0)
        r = charge(s, e);
    if (r < 0)
        return r;
    struct job *j = job_new(s, spec);
    if (j == NULL) {
        tenant_release(s->tenant, LEDGER_JOBS, 1);
        return err_sys(e, ENOMEM, "start a process");
    }
    const uint32_t pid = spec->agent != NULL ? agent_pid(spec->agent) : 0;
    j->number = spec->agent != NULL ? agent_number(spec->agent) : ++s->jobs_begun;
    count_from(j, spec->agent != NULL);
    job_look_at_disk(j);
    r = spec->agent != NULL ? take_process(j, spec, &link, e) : send_start(j, spec, &link, e);
    if (r < 0) {
        tenant_release(s->tenant, LEDGER_JOBS, 1);
        discard(j);
        return err_wrap(e, "start a process");
    }
    tenant_count_job(s->tenant, uv_hrtime());
    enroll(j);
    OBSERVERS_NOTIFY(job_observers(j), job_begun, j, spec);
    if (spec->agent != NULL)
        (void)began(j, pid, -1);
    else
        (void)loop_timer_start(loop_of(j), &j->timeout, JOB_START_MS, on_no_answer, j);
    *out = j;
    return 0;
}

static void
count(const struct job *j)
{
    const struct job_result *r = &j->result;
    const struct figure *f = r->bill.f;
    const uint32_t template = j->sandbox->spec.template->number;
    const uint32_t tenant = sandbox_tenant_metric(j->sandbox);
    const uint64_t cpu_ns = f[BILL_CPU_USER_NS].value + f[BILL_CPU_SYSTEM_NS].value;
    metrics_add_by(METRIC_JOBS_ENDED, r->outcome, template, 1);
    metrics_add_by(METRIC_TENANT_JOBS, tenant, r->outcome, 1);
    metrics_add_by(METRIC_TENANT_CPU, tenant, 0, cpu_ns);
    metrics_add(METRIC_JOB_CPU, cpu_ns);
    metrics_add(METRIC_JOB_THROTTLED, f[BILL_THROTTLED_NS].value);
    metrics_add(METRIC_JOB_OOM_KILLS, bill_oom_kills(&j->used));
    metrics_add(METRIC_OUTPUT_BYTES, j->used.output_bytes);
    metrics_add(METRIC_OUTPUT_CUT, j->used.output_cut_bytes);
    for (uint32_t i = 0; i < r->hits.n; i++)
        metrics_add_by(METRIC_LIMITS_HIT, r->hits.hit[i].limit, 0, 1);
    if (j->used.started_ns != 0)
        metrics_observe(METRIC_JOB_TIME, 0, j->used.ended_ns - j->used.started_ns);
}

// The job has ended and its output is complete.
static void
finish(struct job *j)
{
    struct sandbox *s = j->sandbox;
    list_remove(&j->settler.node);
    j->used.output_bytes = output_total(j->output);
    j->used.output_cut_bytes = output_cut(j->output);
    bill_compute(&j->used, &j->result.bill);
    bill_limit_hits(&j->used, &j->limits, &j->result.hits);
    move(j, JOB_DONE);
    count(j);
    OBSERVERS_NOTIFY(job_observers(j), job_ended, j);
    job_io_end(j);
    output_trim(j->output);
    loop_timer_stop(&j->timeout);
    list_remove(&j->of_sandbox);
    s->jobs_n--;
    tenant_release(j->tenant, LEDGER_JOBS, 1);
    j->all->running--;
    j->sandbox = NULL;
    bool one_shot = j->one_shot;
    struct err e;
    if (!one_shot && s->link != NULL && guest_link_remove(s->link, j->number, &e) < 0)
        log_job(j, "remove-job", &e);
    job_keep(j); // j may be freed after this
    if (!one_shot)
        return;
    (void)err_set(&e, ERR_CANCELLED, "its only process has ended");
    sandbox_destroy(s, &e, NULL);
}

static void
on_settled(struct sandbox_settler *w)
{
    finish(container_of(w, struct job, settler));
}

static void
on_unsettled(void *cookie)
{
    finish(cookie);
}

// Its processes and its output have ended. What was reported about its traffic follows at once, unless the relay is stuck.
static void
settle(struct job *j)
{
    if (!list_empty(&j->settler.node))
        return;
    if (sandbox_settle_traffic(j->sandbox, &j->settler))
        (void)loop_timer_start(loop_of(j), &j->timeout, JOB_SETTLE_MS, on_unsettled, j);
    else
        finish(j);
}

void
job_output_ended(struct job *j)
{
    if (j->state == JOB_DRAINING)
        settle(j);
}

static void
on_grace_over(void *cookie)
{
    struct job *j = cookie;
    (void)job_io_drain(j);
    settle(j);
}

// The main process has ended: reads the counters, then the rest of the pipes.
static void
ended(struct job *j)
{
    j->used.ended_ns = uv_hrtime();
    if (j->paused_from_ns != 0)
        job_resume(j);
    move(j, JOB_DRAINING);
    loop_timer_stop(&j->wall);
    loop_timer_stop(&j->cpu);
    cgstat_read(&j->sandbox->dirs, j->number, &j->used.job);
    cgstat_read(&j->sandbox->dirs, 0, &j->used.after);
    sandbox_share(j->sandbox, j->used.after.v[STAT_CPU_NS], j->used.ended_ns);
    job_look_at_disk(j);
    OBSERVERS_NOTIFY(job_observers(j), job_exited, j);
    output_final(j->output);
}

static void
drain_then_finish(struct job *j)
{
    if (job_io_drain(j))
        settle(j);
    else
        (void)loop_timer_start(loop_of(j), &j->timeout, JOB_GRACE_MS, on_grace_over, j);
}

static struct job *
find_in(struct sandbox *s, uint32_t number)
{
    list_each(it, &s->jobs) if (job_of_sandbox(it)->number == number) return job_of_sandbox(it);
    return NULL;
}

static bool
said_exited(struct sandbox *s, uint32_t number, uint32_t status, const struct bill_rusage *usage)
{
    struct job *j = find_in(s, number);
    if (j == NULL)
        return agents_exited(s, number, status);
    if (j->state != JOB_RUNNING)
        return false;
    int wait_status = (int)status;
    if (!WIFEXITED(wait_status) && !WIFSIGNALED(wait_status))
        return false;
    j->used.rusage = *usage;
    ended(j);
    if (WIFSIGNALED(wait_status)) {
        job_classify_signal(j, WTERMSIG(wait_status));
    } else {
        j->result.outcome = OUTCOME_EXITED;
        j->result.exit_code = (uint32_t)WEXITSTATUS(wait_status);
    }
    drain_then_finish(j);
    return true;
}

static bool
said_failed(struct sandbox *s, uint32_t number, uint32_t exit_code, int sys, const char *text)
{
    struct job *j = find_in(s, number);
    if (j == NULL)
        return agents_failed(s, number, sys, text);
    if (j->state != JOB_STARTING || (exit_code != 0 && exit_code != 126 && exit_code != 127))
        return false;
    ended(j);
    if (j->end != END_NONE)
        job_classify_end(j);
    else
        job_classify_failure(j, exit_code, sys, text);
    finish(j);
    return true;
}

static bool
said_started(struct sandbox *s, uint32_t number, uint32_t pid, int terminal)
{
    struct job *j = find_in(s, number);
    if (j == NULL && terminal < 0)
        return agents_started(s, number, pid);
    if (j == NULL || j->state != JOB_STARTING || j->terminal != (terminal >= 0)) {
        if (terminal >= 0)
            (void)close(terminal);
        return false;
    }
    return began(j, pid, terminal) == 0;
}

void
job_cancel(struct job *j, const char *reason)
{
    if (j->state == JOB_DRAINING || j->state == JOB_DONE || j->end != END_NONE)
        return;
    (void)snprintf(j->end_reason, sizeof j->end_reason, "%s", reason);
    job_end_now(j, END_CANCEL);
}

static void
end_with_sandbox(struct job *j, const struct err *why)
{
    if (j->state != JOB_DRAINING) {
        ended(j);
        j->result.signal = j->used.started_ns != 0 ? SIGKILL : 0;
        uint64_t kills = bill_oom_kills_of_sandbox(&j->used);
        if (j->end != END_NONE) {
            job_classify_end(j);
        } else if (kills > 0) {
            job_limit_ended(j, LIMIT_MEMORY_BYTES, kills, true,
                            "its sandbox ran out of memory and was destroyed");
        } else if (strcmp(why->reason, SANDBOX_KERNEL_MEMORY) == 0) {
            job_limit_ended(j, LIMIT_MEMORY_BYTES, 0, false, why->text);
        } else {
            j->result.outcome = why->code == ERR_CANCELLED ? OUTCOME_CANCELLED : OUTCOME_FAILED;
            (void)snprintf(j->result.reason, sizeof j->result.reason, "%s", why->text);
        }
    }
    (void)job_io_drain(j);
    finish(j);
}

int
job_signal(struct job *j, uint32_t signal, bool group, struct err *e)
{
    if (j->state != JOB_RUNNING)
        return err_set(e, ERR_FAILED_PRECONDITION, "process %s %s", j->id.id,
                       j->state == JOB_STARTING ? "has not started yet" : "has ended");
    return guest_link_signal(j->sandbox->link, j->number, signal, group, e);
}

// ---- events of the sandbox

static void
on_paused(struct sandbox *s, bool paused)
{
    list_each(it, &s->jobs)
    {
        if (paused)
            job_pause(job_of_sandbox(it));
        else
            job_resume(job_of_sandbox(it));
    }
}

static void
on_sandbox_gone(struct sandbox *s, const struct err *why)
{
    agents_gone(s, why);
    while (!list_empty(&s->jobs))
        end_with_sandbox(job_of_sandbox(s->jobs.next), why);
}

const struct sandbox_jobs job_sandbox_events = {
    .started = said_started,
    .failed = said_failed,
    .exited = said_exited,
    .paused = on_paused,
    .gone = on_sandbox_gone,
};
