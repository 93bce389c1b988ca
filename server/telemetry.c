// See telemetry.h: which sandboxes and jobs there are, and the clock of it all.
#include "telemetry_private.h"

#include <assert.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config.h"
#include "log.h"
#include "loop.h"

#define MS UINT64_C(1000000)

enum { TICKS_PER_LOOK = ANOMALY_TICK_MS / TELEMETRY_DRAIN_MS, TICKS_PER_SWEEP = 100 };

static int64_t
clock_ns(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// ---- the whole

// How many events a sandbox may cause: at once, and per second. Each class has its own, so none silences another.
static void
write_budgets(const struct bpf *bpf)
{
    static const struct budget_rate rates[EVENT_CLASSES] = {
        [CLASS_DENIAL] = {200, 400},  [CLASS_ALARM] = {100, 200},    [CLASS_PROCESS] = {1000, 2000},
        [CLASS_FILE] = {200, 400},    [CLASS_NETWORK] = {500, 1000}, [CLASS_SIGNAL] = {100, 200},
        [CLASS_SYSCALL] = {100, 200}, [CLASS_UNCOUNTED] = {1, 1},    [CLASS_PROFILE] = {50, 100},
    };
    for (uint32_t class = 0; class < EVENT_CLASSES; class ++)
        if (bpf->fd[BPF_FD_BUDGET_RATES] >= 0)
            (void)bpf_map_update_elem(bpf->fd[BPF_FD_BUDGET_RATES], &class, &rates[class], BPF_ANY);
}

static void
on_report(void *cookie, const struct relay_report *r)
{
    telemetry_relay(cookie, r);
}

struct telemetry *
telemetry_new(struct server *srv)
{
    struct telemetry *t = calloc(1, sizeof *t);
    struct err e;
    if (t == NULL)
        return NULL;
    t->srv = srv;
    list_init(&t->waiters);
    int cpus = libbpf_num_possible_cpus();
    t->cpus = cpus > 0 ? (uint32_t)cpus : 1;
    t->events = events_new(srv->loop);
    t->records = record_store_new();
    t->scratch = calloc(t->cpus, sizeof *t->scratch);
    if (t->events == NULL || t->records == NULL || t->scratch == NULL) {
        telemetry_free(t);
        return NULL;
    }
    if (srv->bpf != NULL) {
        write_budgets(srv->bpf);
        if (telemetry_rings_open(t, &e) < 0)
            log_err(LOG_WARNING, "telemetry", &e);
    }
    srv->on_relay_report = on_report;
    srv->relay_report_cookie = t;
    if (srv->anomaly != NULL)
        anomaly_listen(srv->anomaly, telemetry_finding, t);
    if (srv->config->telemetry.syscalls == SYSCALLS_ALWAYS)
        telemetry_want(t);
    return t;
}

static void
box_free(struct telemetry *t, struct box *b)
{
    list_each(it, &b->ended_jobs)
    {
        telemetry_cell_back(t, list_entry(it, struct ended, node)->cgroup);
        free(list_entry(it, struct ended, node));
    }
    telemetry_cell_back(t, b->guest_cgroup);
    if (b->cgroup != b->guest_cgroup)
        telemetry_cell_back(t, b->cgroup);
    usage_close(&b->files);
    free(b->lost);
    free(b);
}

void
telemetry_free(struct telemetry *t)
{
    if (t == NULL)
        return;
    loop_timer_stop(&t->tick);
    loop_timer_stop(&t->linger);
    telemetry_rings_close(t);
    for (size_t i = 0; i < BPF_SLOTS; i++)
        if (t->box[i] != NULL)
            box_free(t, t->box[i]);
    events_free(t->events);
    record_store_free(t->records);
    free(t->scratch);
    free(t);
}

void
telemetry_drain_begun(struct telemetry *t)
{
    if (t != NULL)
        events_wake_all(t->events);
}

struct events *
telemetry_events(struct telemetry *t)
{
    return t != NULL ? t->events : NULL;
}

struct record_store *
telemetry_records(struct telemetry *t)
{
    return t != NULL ? t->records : NULL;
}

uint64_t
telemetry_bad(const struct telemetry *t)
{
    return t != NULL ? t->bad : 0;
}

// ---- the clock

void
telemetry_drain(struct telemetry *t)
{
    if (t == NULL)
        return;
    t->clock_offset_ns = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_BOOTTIME);
    if (t->alerts_ring != NULL)
        (void)ring_buffer__consume(t->alerts_ring);
    if (t->events_ring != NULL)
        (void)ring_buffer__consume(t->events_ring);
}

// Accounts of jobs whose cgroup is gone now.
static void
sweep(struct telemetry *t, struct box *b)
{
    list_each(it, &b->ended_jobs)
    {
        struct ended *gone = list_entry(it, struct ended, node);
        if (cgstat_cgroup_id(&b->sandbox->dirs, gone->job) != 0)
            continue;
        telemetry_cell_back(t, gone->cgroup);
        list_remove(&gone->node);
        free(gone);
    }
}

void
telemetry_usage(struct telemetry *t, const struct sandbox *s, struct usage *out)
{
    struct box *b = t != NULL && s->live ? telemetry_box(t, s->slot, s->generation) : NULL;
    *out = (struct usage){0};
    if (b == NULL)
        return;
    usage_read(&s->dirs, &b->files, uv_hrtime() / MS, out);
    telemetry_tick_start(t);
}

static void
tick_anomaly(struct telemetry *t, struct box *b, const struct cgstat *just_read)
{
    struct anomaly_sums sums;
    telemetry_sums(t, b, just_read, &sums);
    anomaly_tick(t->srv->anomaly, b->sandbox, &sums, (uint64_t)clock_ns(CLOCK_BOOTTIME));
}

static void
look(struct telemetry *t, struct box *b, bool sweeping)
{
    if (sweeping)
        usage_close_idle(&b->files, uv_hrtime() / MS);
    if (b->sandbox->tenant == NULL || b->sandbox->state == SANDBOX_DELETING)
        return;
    if (sweeping)
        sweep(t, b);
    if (b->sandbox->jobs_n == 0)
        return; // the guest alone causes nothing, and the end of each job looked
    telemetry_read_lost(t, b);
    if (t->srv->anomaly != NULL)
        tick_anomaly(t, b, NULL);
}

// The detectors want system calls as long as a sandbox is somebody's.
static void
want_for_anomaly(struct telemetry *t)
{
    const struct anomaly *a = t->srv->anomaly;
    bool wants = t->owned > 0 && a != NULL && anomaly_wants_syscalls(a);
    if (wants == t->anomaly_wants)
        return;
    t->anomaly_wants = wants;
    if (wants)
        telemetry_want(t);
    else
        telemetry_unwant(t);
}

static void
on_tick(void *cookie)
{
    struct telemetry *t = cookie;
    bool sweeping = ++t->ticks % TICKS_PER_SWEEP == 0;
    telemetry_drain(t);
    if (t->ticks % TICKS_PER_LOOK == 0) {
        want_for_anomaly(t);
        for (size_t i = 0; i < BPF_SLOTS; i++)
            if (t->box[i] != NULL)
                look(t, t->box[i], sweeping);
    }
    if (jobs_running(t->srv->jobs) > 0 || usage_open() > 0 || !sweeping)
        (void)loop_timer_start(t->srv->loop, &t->tick, TELEMETRY_DRAIN_MS, on_tick, t);
    else
        loop_timer_stop(&t->tick);
}

void
telemetry_tick_start(struct telemetry *t)
{
    if (t->tick == NULL)
        (void)loop_timer_start(t->srv->loop, &t->tick, TELEMETRY_DRAIN_MS, on_tick, t);
}

// ---- sandboxes

struct box *
telemetry_box(const struct telemetry *t, uint32_t slot, uint32_t generation)
{
    struct box *b = slot < BPF_SLOTS ? t->box[slot] : NULL;
    return b != NULL && b->sandbox->generation == generation ? b : NULL;
}

static struct box *
box_of(const struct telemetry *t, const struct sandbox *s)
{
    return t != NULL && s->live ? telemetry_box(t, s->slot, s->generation) : NULL;
}

void
telemetry_sandbox_live(struct telemetry *t, struct sandbox *s)
{
    if (t == NULL || s->slot >= BPF_SLOTS)
        return;
    struct box *b = calloc(1, sizeof *b);
    uint64_t *lost = calloc((size_t)t->cpus * EVENT_CLASSES, sizeof *lost);
    if (b == NULL || lost == NULL) {
        free(b);
        free(lost);
        return; // it is not watched: telemetry_box() finds nothing
    }
    b->sandbox = s;
    b->lost = lost;
    b->cgroup = s->cgroup_id;
    b->guest_cgroup = cgstat_cgroup_id(&s->dirs, 0);
    list_init(&b->ended_jobs);
    if (t->box[s->slot] != NULL)
        box_free(t, t->box[s->slot]);
    t->box[s->slot] = b;
    telemetry_read_lost(t, b); // nobody's yet: that is where it begins
    b->lost_total = 0;
    if (t->srv->bpf != NULL && t->srv->bpf->net != NULL)
        b->net = t->srv->bpf->net[s->slot];
}

static void
tell_of_sandbox(struct telemetry *t, struct sandbox *s, Stockade__V1__EventKind kind,
                const char *note)
{
    Stockade__V1__Event m;
    struct box *b = box_of(t, s);
    if (b == NULL || s->tenant == NULL)
        return;
    telemetry_fill(&m, s, NULL, kind, STOCKADE__V1__SEVERITY__SEVERITY_INFO);
    char text[512];
    if (note != NULL) {
        m.detail_case = STOCKADE__V1__EVENT__DETAIL_NOTE;
        m.note = record_text(note, strlen(note), text, sizeof text);
    }
    telemetry_tell(t, b, &m);
}

void
telemetry_sandbox_taken(struct telemetry *t, struct sandbox *s)
{
    if (t != NULL && t->srv->anomaly != NULL)
        anomaly_sandbox_taken(t->srv->anomaly, s);
    struct box *b = box_of(t, s);
    if (b != NULL) {
        b->owned = true;
        b->taken_ns = (uint64_t)clock_ns(CLOCK_BOOTTIME);
        t->owned++;
        want_for_anomaly(t);
    }
    tell_of_sandbox(t, s, STOCKADE__V1__EVENT_KIND__EVENT_KIND_SANDBOX_CREATED, NULL);
}

void
telemetry_sandbox_paused(struct telemetry *t, struct sandbox *s, bool paused)
{
    tell_of_sandbox(t, s,
                    paused ? STOCKADE__V1__EVENT_KIND__EVENT_KIND_SANDBOX_PAUSED
                           : STOCKADE__V1__EVENT_KIND__EVENT_KIND_SANDBOX_RESUMED,
                    NULL);
}

void
telemetry_policy_changed(struct telemetry *t, struct sandbox *s, const char *note)
{
    tell_of_sandbox(t, s, STOCKADE__V1__EVENT_KIND__EVENT_KIND_POLICY_CHANGED, note);
}

void
telemetry_sandbox_deleted(struct telemetry *t, struct sandbox *s, const char *why)
{
    struct box *b = box_of(t, s);
    if (b == NULL || s->tenant == NULL)
        return;
    telemetry_drain(t);
    telemetry_read_lost(t, b);
    tell_of_sandbox(t, s, STOCKADE__V1__EVENT_KIND__EVENT_KIND_SANDBOX_DELETED, why);
}

void
telemetry_sandbox_gone(struct telemetry *t, struct sandbox *s)
{
    struct box *b = box_of(t, s);
    if (t != NULL && t->srv->anomaly != NULL)
        anomaly_sandbox_end(t->srv->anomaly, s);
    if (b == NULL)
        return;
    telemetry_drain(t);
    t->box[s->slot] = NULL;
    t->owned -= b->owned;
    box_free(t, b);
    want_for_anomaly(t);
}

// ---- jobs

void
telemetry_job_begun(struct telemetry *t, struct job *j, bool count_syscalls)
{
    struct sandbox *s = j->sandbox;
    struct box *b = box_of(t, s);
    struct job_watch *w = b != NULL ? calloc(1, sizeof *w) : NULL;
    if (w != NULL)
        w->record = record_new(clock_ns(CLOCK_REALTIME));
    if (w == NULL || w->record == NULL) {
        free(w);
        return;
    }
    j->watch = w;
    telemetry_read_lost(t, b); // what was lost before is none of its
    w->alone = s->jobs_n <= 1;
    list_each(it, &s->jobs)
    {
        struct job *other = job_of_sandbox(it);
        if (other != j && other->watch != NULL)
            other->watch->alone = false;
    }
    if (t->srv->bpf != NULL && t->srv->bpf->net != NULL)
        w->net = t->srv->bpf->net[s->slot];
    w->queries = b->queries;
    w->wants = count_syscalls || s->spec.template->count_syscalls;
    if (w->wants)
        telemetry_want(t);
    w->syscalls = t->watching == WATCH_IS_ON;
    w->detached = t->detached;
    telemetry_tick_start(t);
}

void
telemetry_job_started(struct telemetry *t, struct job *j)
{
    struct box *b = j->watch != NULL ? box_of(t, j->sandbox) : NULL;
    if (b == NULL)
        return;
    Stockade__V1__Event m;
    Stockade__V1__JobFacts facts = STOCKADE__V1__JOB_FACTS__INIT;
    const char *args[JOB_SHOWN_ARGS];
    telemetry_fill(&m, j->sandbox, j, STOCKADE__V1__EVENT_KIND__EVENT_KIND_JOB_STARTED,
                   STOCKADE__V1__SEVERITY__SEVERITY_INFO);
    facts.args = args;
    for (; facts.n_args < j->shown_n; facts.n_args++)
        args[facts.n_args] = j->shown[facts.n_args];
    m.detail_case = STOCKADE__V1__EVENT__DETAIL_JOB;
    m.job = &facts;
    telemetry_tell(t, b, &m);
}

static void
tell_limits(struct telemetry *t, struct box *b, const struct job *j)
{
    for (uint32_t i = 0; i < j->result.hits.n; i++) {
        const struct limit_hit *hit = &j->result.hits.hit[i];
        Stockade__V1__Event m;
        Stockade__V1__LimitHit l = STOCKADE__V1__LIMIT_HIT__INIT;
        telemetry_fill(&m, b->sandbox, j, STOCKADE__V1__EVENT_KIND__EVENT_KIND_LIMIT_HIT,
                       STOCKADE__V1__SEVERITY__SEVERITY_NOTICE);
        l.name = limit_table[hit->limit].name;
        l.value = hit->value;
        l.over = hit->over;
        l.count = hit->count;
        m.detail_case = STOCKADE__V1__EVENT__DETAIL_LIMIT;
        m.limit = &l;
        telemetry_tell(t, b, &m);
    }
}

static void
tell_end(struct telemetry *t, struct box *b, const struct job *j)
{
    const struct job_result *r = &j->result;
    Stockade__V1__Event m;
    Stockade__V1__JobFacts facts = STOCKADE__V1__JOB_FACTS__INIT;
    char reason[1024];
    telemetry_fill(&m, b->sandbox, j, STOCKADE__V1__EVENT_KIND__EVENT_KIND_JOB_ENDED,
                   STOCKADE__V1__SEVERITY__SEVERITY_INFO);
    facts.outcome = (Stockade__V1__Outcome)r->outcome;
    facts.exit_code = r->exit_code;
    facts.signal = r->signal;
    facts.reason = record_text(r->reason, sizeof r->reason, reason, sizeof reason);
    facts.wall_us = r->bill.f[BILL_WALL_US].value;
    facts.cpu_ns = r->bill.f[BILL_CPU_USER_NS].value + r->bill.f[BILL_CPU_SYSTEM_NS].value;
    facts.memory_peak_bytes = r->bill.f[BILL_MEMORY_PEAK_BYTES].value;
    m.detail_case = STOCKADE__V1__EVENT__DETAIL_JOB;
    m.job = &facts;
    telemetry_tell(t, b, &m);
}

// Adds the job's figures to the sandbox's, and remembers its cgroup until that is gone.
static void
settle_figures(struct telemetry *t, struct box *b, struct job *j)
{
    struct job_watch *w = j->watch;
    b->ended.output_bytes += output_total(j->output);
    const struct watch_account *account = telemetry_job_account(t, j);
    if (w->cgroup == 0)
        return;
    if (account != NULL)
        telemetry_add_account(&b->ended, account);
    struct ended *e = calloc(1, sizeof *e);
    if (e == NULL)
        return; // its account is given back when the broker starts anew
    e->cgroup = w->cgroup;
    e->job = j->number;
    list_append(&b->ended_jobs, &e->node);
}

void
telemetry_job_ended(struct telemetry *t, struct job *j)
{
    struct box *b = j->watch != NULL ? box_of(t, j->sandbox) : NULL;
    if (b == NULL)
        return;
    struct job_watch *w = j->watch;
    telemetry_drain(t);
    telemetry_read_lost(t, b);
    if (t->srv->anomaly != NULL) {
        tick_anomaly(t, b, &j->used.after); // what it did since the last one
        anomaly_job_end(t->srv->anomaly, b->sandbox, j);
    }
    tell_limits(t, b, j);
    tell_end(t, b, j);
    w->arena = arena_new(RECORD_ARENA_BYTES);
    if (w->arena != NULL)
        j->result.record = telemetry_record(t, j, w->arena);
    settle_figures(t, b, j);
    telemetry_store(t, j);
    if (w->wants)
        telemetry_unwant(t);
    w->wants = false;
}

void
job_watch_free(struct job_watch *w)
{
    if (w == NULL)
        return;
    record_free(w->record);
    arena_free(w->arena);
    free(w);
}
