// SPDX-License-Identifier: Apache-2.0
// See telemetry.h: a job from its start, when the active hooks are noted, to its end, when its record is complete.
#include <stdlib.h>

#include "proto/now.h"
#include "server/sandbox/job_message.h"
#include "private.h"

void
telemetry_job_begun(void *telemetry, struct job *j, const struct job_spec *spec)
{
    struct telemetry *t = telemetry;
    struct sandbox *s = job_sandbox(j);
    struct telemetry_box *b = telemetry_box_of(t, s);
    struct job_watch *w = b != NULL ? calloc(1, sizeof *w) : NULL;
    if (w != NULL)
        w->record = record_new(now_ns(CLOCK_REALTIME));
    if (w == NULL || w->record == NULL) {
        free(w);
        if (b != NULL)
            telemetry_unwatched(job_id(j));
        return;
    }
    *job_notes(j, t->observer) = w;
    telemetry_read_lost(t, b); // earlier losses are not part of its record
    w->alone = s->jobs_n <= 1;
    list_each(it, &s->jobs)
    {
        struct job_watch *other = telemetry_watch(t, job_of_sandbox(it));
        if (other != NULL && other != w)
            other->alone = false;
    }
    if (t->srv->bpf != NULL && t->srv->bpf->net != NULL)
        w->net = t->srv->bpf->net[s->slot];
    w->queries = b->queries;
    w->wants = spec->count_syscalls || s->spec.template->count_syscalls;
    if (w->wants)
        telemetry_want(t);
    w->syscalls = t->watching == WATCH_IS_ON;
    w->detached = t->detached;
    telemetry_tick_start(t);
}

// NULL: the job is not watched.
static struct telemetry_box *
box_of(const struct telemetry *t, const struct job *j)
{
    return telemetry_watch(t, j) != NULL ? telemetry_box_of(t, job_sandbox(j)) : NULL;
}

void
telemetry_job_started(void *telemetry, struct job *j)
{
    struct telemetry *t = telemetry;
    struct telemetry_box *b = box_of(t, j);
    if (b == NULL)
        return;
    Stockade__V1__Event m;
    Stockade__V1__JobFacts facts = STOCKADE__V1__JOB_FACTS__INIT;
    const char *args[JOB_SHOWN_ARGS];
    telemetry_fill(&m, job_sandbox(j), j, KIND(JOB_STARTED), GRAVE(INFO));
    facts.args = args;
    struct job_view v;
    job_view(j, &v);
    facts.traceparent = job_traceparent(j);
    for (; facts.n_args < v.args_n && facts.n_args < JOB_SHOWN_ARGS; facts.n_args++)
        args[facts.n_args] = v.args[facts.n_args];
    m.detail_case = DETAIL(JOB);
    m.job = &facts;
    telemetry_publish(t, b, &m);
}

static void
publish_limits(struct telemetry *t, struct telemetry_box *b, const struct job *j)
{
    for (uint32_t i = 0; i < job_result(j)->hits.n; i++) {
        const struct limit_hit *hit = &job_result(j)->hits.hit[i];
        Stockade__V1__Event m;
        Stockade__V1__LimitHit l = STOCKADE__V1__LIMIT_HIT__INIT;
        telemetry_fill(&m, b->sandbox, j, KIND(LIMIT_HIT), GRAVE(NOTICE));
        l.name = limit_table[hit->limit].name;
        l.value = hit->value;
        l.over = hit->over;
        l.count = hit->count;
        m.detail_case = DETAIL(LIMIT);
        m.limit = &l;
        telemetry_publish(t, b, &m);
    }
}

static void
publish_end(struct telemetry *t, struct telemetry_box *b, const struct job *j)
{
    const struct job_result *r = job_result(j);
    Stockade__V1__Event m;
    Stockade__V1__JobFacts facts = STOCKADE__V1__JOB_FACTS__INIT;
    Stockade__V1__Bill bill;
    Stockade__V1__Figure figures[BILL_FIGURES_N];
    char reason[1024];
    telemetry_fill(&m, b->sandbox, j, KIND(JOB_ENDED), GRAVE(INFO));
    facts.outcome = (Stockade__V1__Outcome)r->outcome;
    facts.exit_code = r->exit_code;
    facts.signal = r->signal;
    facts.reason = record_text(r->reason, sizeof r->reason, reason, sizeof reason);
    facts.wall_us = r->bill.f[BILL_WALL_US].value;
    facts.cpu_ns = r->bill.f[BILL_CPU_USER_NS].value + r->bill.f[BILL_CPU_SYSTEM_NS].value;
    facts.memory_peak_bytes = r->bill.f[BILL_MEMORY_PEAK_BYTES].value;
    facts.traceparent = job_traceparent(j);
    job_times(j, &facts.exec_us, &facts.collect_us);
    job_message_bill(&bill, figures, &r->bill);
    facts.bill = &bill;
    m.detail_case = DETAIL(JOB);
    m.job = &facts;
    telemetry_publish(t, b, &m);
}

// Adds the job's counters to the sandbox's, and remembers its cgroup until that is removed.
static void
settle_figures(struct telemetry *t, struct telemetry_box *b, struct job *j)
{
    struct job_watch *w = telemetry_watch(t, j);
    b->ended.output_bytes += job_output_bytes(j);
    const struct watch_account *account = telemetry_job_account(t, j);
    if (w->cgroup == 0)
        return;
    if (account != NULL)
        telemetry_add_account(&b->ended, account);
    struct ended *e = calloc(1, sizeof *e);
    if (e == NULL) { // its account is released when the broker restarts
        telemetry_unwatched(job_id(j));
        return;
    }
    e->cgroup = w->cgroup;
    e->job = job_number(j);
    list_append(&b->ended_jobs, &e->node);
}

void
telemetry_job_ended(void *telemetry, struct job *j)
{
    struct telemetry *t = telemetry;
    struct telemetry_box *b = box_of(t, j);
    if (b == NULL)
        return;
    struct job_watch *w = telemetry_watch(t, j);
    telemetry_drain(t);
    telemetry_read_lost(t, b);
    telemetry_look(t, b, job_stat_after(j)); // its activity since the last tick
    if (t->detectors != NULL)
        t->detectors->job_settled(t->detectors_cookie, b->sandbox, j);
    publish_limits(t, b, j);
    publish_end(t, b, j);
    w->arena = arena_new(RECORD_ARENA_BYTES);
    if (w->arena != NULL)
        job_set_record(j, telemetry_record(t, j, w->arena));
    settle_figures(t, b, j);
    telemetry_store(t, j);
    if (w->wants)
        telemetry_unwant(t);
    w->wants = false;
}

void
telemetry_job_gone(void *telemetry, struct job *j)
{
    struct job_watch *w = telemetry_watch(telemetry, j);
    if (w == NULL)
        return;
    record_free(w->record);
    arena_free(w->arena);
    free(w);
}
