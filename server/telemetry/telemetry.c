// SPDX-License-Identifier: Apache-2.0
// See telemetry.h: the table of watched sandboxes, and the timers.
#include "private.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include <sodium.h>

#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "proto/now.h"

#define MS UINT64_C(1000000)

enum { PATH_BYTES = 255, PATH_TEXT = 3 * PATH_BYTES + 1 };
enum { TICKS_PER_LOOK = TELEMETRY_LOOK_MS / TELEMETRY_DRAIN_MS, TICKS_PER_SWEEP = 100 };

// ---- its budgets

// The budget of events of a sandbox: at once, and per second. Each class has its own, so no class can use up
// another's.
static void
write_budgets(const struct bpf *bpf)
{
    static const struct budget_rate rates[EVENT_CLASSES] = {
        [CLASS_DENIAL] = {200, 400},     [CLASS_ALARM] = {100, 200},
        [CLASS_PROCESS] = {1000, 2000},  [CLASS_FILE] = {200, 400},
        [CLASS_NETWORK] = {500, 1000},   [CLASS_SIGNAL] = {100, 200},
        [CLASS_SYSCALL] = {100, 200},    [CLASS_UNCOUNTED] = {1, 1},
        [CLASS_PROFILE] = {50, 100},     [CLASS_EXIT] = {1000, 2000},
        [CLASS_NEW] = {100, 200},        [CLASS_RULED_NETWORK] = {100, 200},
        [CLASS_RULED_CALL] = {100, 200},
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

static void
box_free(struct telemetry *t, struct telemetry_box *b)
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
    free(b->names);
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

void
telemetry_unwatched(const char *what)
{
    metrics_add(METRIC_UNWATCHED, 1);
    log_event(LOG_ERROR, "telemetry", "out of memory: %s is not watched or recorded", what);
}

// ---- timers

void
telemetry_drain(struct telemetry *t)
{
    if (t == NULL)
        return;
    t->clock_offset_ns = now_ns(CLOCK_REALTIME) - now_ns(CLOCK_BOOTTIME);
    if (t->alerts_ring != NULL)
        (void)ring_buffer__consume(t->alerts_ring);
    if (t->events_ring != NULL)
        (void)ring_buffer__consume(t->events_ring);
}

void
telemetry_end(struct telemetry *t)
{
    if (t == NULL)
        return;
    telemetry_drain(t);
    events_wake_all(t->events);
}

// Releases the accounts of jobs whose cgroup was removed.
static void
sweep(struct telemetry *t, struct telemetry_box *b)
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
    struct telemetry_box *b = telemetry_box_of(t, s);
    *out = (struct usage){0};
    if (b == NULL)
        return;
    usage_read(&s->dirs, &b->files, uv_hrtime() / MS, out);
    telemetry_tick_start(t);
}

void
telemetry_detect(struct telemetry *t, const struct telemetry_detectors *d, void *cookie)
{
    t->detectors = d;
    t->detectors_cookie = cookie;
}

void
telemetry_look(struct telemetry *t, struct telemetry_box *b, const struct cgstat *just_read)
{
    struct activity sums;
    list_each(it, &b->sandbox->jobs)
    {
        struct job *j = job_of_sandbox(it);
        const struct watch_account *account = telemetry_job_account(t, j);
        sums = (struct activity){0};
        if (account != NULL)
            telemetry_add_account(&sums, account);
        if (t->detectors != NULL && account != NULL && t->detectors->job_counters != NULL)
            t->detectors->job_counters(t->detectors_cookie, b->sandbox, j, account);
        if (t->detectors != NULL)
            t->detectors->job_activity(t->detectors_cookie, b->sandbox, j, &sums);
    }
    telemetry_sums(t, b, just_read, &sums);
    sandbox_share(b->sandbox, sums.cpu_ns, uv_hrtime());
    if (t->detectors != NULL)
        t->detectors->activity(t->detectors_cookie, b->sandbox, &sums,
                               (uint64_t)now_ns(CLOCK_BOOTTIME));
}

static void
look(struct telemetry *t, struct telemetry_box *b, bool sweeping)
{
    if (sweeping)
        usage_close_idle(&b->files, uv_hrtime() / MS);
    if (b->sandbox->tenant == NULL || b->sandbox->state == SANDBOX_DELETING)
        return;
    if (sweeping)
        sweep(t, b);
    if (b->sandbox->jobs_n == 0)
        return; // the guest alone causes no activity, and the end of each job has read the counters
    telemetry_read_lost(t, b);
    telemetry_look(t, b, NULL);
}

bool
telemetry_detectors_want(const struct telemetry *t)
{
    return t->detectors != NULL && t->detectors->wants_syscalls(t->detectors_cookie);
}

// The detectors need system calls as long as a sandbox has an owner.
void
telemetry_want_for_detectors(struct telemetry *t)
{
    if (t == NULL)
        return;
    bool wants = t->owned > 0 && telemetry_detectors_want(t);
    if (wants == t->detectors_want)
        return;
    t->detectors_want = wants;
    if (wants)
        telemetry_want(t);
    else
        telemetry_unwant(t);
}

// Calls that start a task, also those that failed. 0 if system calls are not counted at the moment.
static uint64_t
fork_calls(const struct watch_account *account)
{
    return account->syscalls[SYS_clone] + account->syscalls[SYS_fork] +
           account->syscalls[SYS_vfork];
}

// Passes on how many processes a sandbox started or tried to, including the first of each job.
static void
look_at_forks(struct telemetry *t, const struct telemetry_box *b, uint64_t now_ns)
{
    uint64_t began = 0;
    list_each(it, &b->sandbox->jobs)
    {
        struct job *j = job_of_sandbox(it);
        const struct watch_account *account = telemetry_job_account(t, j);
        if (account == NULL)
            continue;
        struct job_watch *w = telemetry_watch(t, j);
        uint64_t calls = fork_calls(account);
        uint64_t tasks = account->tasks;
        // A call that starts a task returns twice, in the parent and in the child, and both are counted.
        uint64_t forks = calls > 2 * tasks ? calls - tasks : tasks;
        began += forks > w->forks ? forks - w->forks : 0;
        w->forks = forks;
    }
    sandbox_forked(b->sandbox, began, now_ns);
}

static void
on_tick(void *cookie)
{
    struct telemetry *t = cookie;
    uint64_t now = uv_hrtime();
    bool sweeping = ++t->ticks % TICKS_PER_SWEEP == 0;
    telemetry_drain(t);
    bool held = false;
    for (size_t i = 0; i < BPF_SLOTS; i++) {
        struct telemetry_box *b = t->box[i];
        if (b != NULL && (b->sandbox->jobs_n > 0 || b->sandbox->forks.held))
            look_at_forks(t, b, now);
        held = held || (b != NULL && b->sandbox->forks.held);
    }
    if (t->ticks % TICKS_PER_LOOK == 0) {
        telemetry_want_for_detectors(t);
        for (size_t i = 0; i < BPF_SLOTS; i++)
            if (t->box[i] != NULL)
                look(t, t->box[i], sweeping);
    }
    if (held || jobs_running(t->srv->jobs) > 0 || usage_open() > 0 || !sweeping)
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

struct telemetry_box *
telemetry_box(const struct telemetry *t, uint32_t slot, uint32_t generation)
{
    struct telemetry_box *b = slot < BPF_SLOTS ? t->box[slot] : NULL;
    return b != NULL && b->sandbox->generation == generation ? b : NULL;
}

struct telemetry_box *
telemetry_box_of(const struct telemetry *t, const struct sandbox *s)
{
    return t != NULL && s->live ? telemetry_box(t, s->slot, s->generation) : NULL;
}

static void
on_live(void *cookie, struct sandbox *s)
{
    struct telemetry *t = cookie;
    if (s->slot >= BPF_SLOTS)
        return;
    struct telemetry_box *b = calloc(1, sizeof *b);
    uint64_t *lost = calloc((size_t)t->cpus * EVENT_CLASSES, sizeof *lost);
    if (b == NULL || lost == NULL) {
        free(b);
        free(lost);
        telemetry_unwatched(s->id.id); // from now on telemetry_box() returns NULL
        return;
    }
    b->sandbox = s;
    b->lost = lost;
    b->cgroup = s->net.cgroup_id;
    b->guest_cgroup = cgstat_cgroup_id(&s->dirs, 0);
    list_init(&b->ended_jobs);
    if (t->box[s->slot] != NULL)
        box_free(t, t->box[s->slot]);
    t->box[s->slot] = b;
    telemetry_read_lost(t, b); // it has no owner yet: counting starts here
    b->lost_total = 0;
    if (t->srv->bpf != NULL && t->srv->bpf->net != NULL)
        b->net = t->srv->bpf->net[s->slot];
}

static void
publish_sandbox(struct telemetry *t, struct sandbox *s, Stockade__V1__EventKind kind,
                const char *note)
{
    Stockade__V1__Event m;
    struct telemetry_box *b = telemetry_box_of(t, s);
    if (b == NULL || s->tenant == NULL)
        return;
    telemetry_fill(&m, s, NULL, kind, GRAVE(INFO));
    char text[512];
    if (note != NULL) {
        m.detail_case = DETAIL(NOTE);
        m.note = record_text(note, strlen(note), text, sizeof text);
    }
    telemetry_publish(t, b, &m);
}

static void
on_taken(void *cookie, struct sandbox *s)
{
    struct telemetry *t = cookie;
    struct telemetry_box *b = telemetry_box_of(t, s);
    if (b != NULL) {
        b->owned = true;
        b->taken_ns = (uint64_t)now_ns(CLOCK_BOOTTIME);
        t->owned++;
        telemetry_want_for_detectors(t);
    }
    publish_sandbox(t, s, s->woken ? KIND(SANDBOX_AWAKE) : KIND(SANDBOX_CREATED), NULL);
}

static void
on_changed(void *cookie, struct sandbox *s, enum sandbox_change what)
{
    if (what == SANDBOX_NETWORK)
        publish_sandbox(cookie, s, KIND(POLICY_CHANGED), network_mode_name[s->net.in_force->mode]);
    else if (what == SANDBOX_PAUSED_NOW)
        publish_sandbox(cookie, s, KIND(SANDBOX_PAUSED), NULL);
    else if (what == SANDBOX_RESUMED_NOW)
        publish_sandbox(cookie, s, KIND(SANDBOX_RESUMED), NULL);
}

static void
on_carried(void *cookie, struct sandbox *s, const struct sandbox_carried *what)
{
    struct telemetry *t = cookie;
    struct telemetry_box *b = s != NULL ? telemetry_box_of(t, s) : NULL;
    Stockade__V1__FileTransfer detail = STOCKADE__V1__FILE_TRANSFER__INIT;
    Stockade__V1__Event m;
    char path[PATH_TEXT];
    char digest[2 * SANDBOX_DIGEST_BYTES + 1] = "";
    stockade__v1__event__init(&m);
    m.kind = KIND(FILE_TRANSFER);
    m.severity = GRAVE(INFO);
    m.sandbox_id = (char *)(uintptr_t)what->sandbox_id;
    m.tenant = (char *)(uintptr_t)what->tenant;
    m.detail_case = DETAIL(TRANSFER);
    m.transfer = &detail;
    detail.direction = (char *)(uintptr_t)(what->out ? "out" : "in");
    detail.method = (char *)(uintptr_t)what->method;
    size_t n = what->path_n < PATH_BYTES ? what->path_n : PATH_BYTES;
    detail.path = (char *)(uintptr_t)record_text((const char *)what->path, n, path, sizeof path);
    detail.bytes = what->bytes;
    if (what->digest != NULL)
        (void)sodium_bin2hex(digest, sizeof digest, what->digest, SANDBOX_DIGEST_BYTES);
    detail.digest = digest;
    detail.complete = what->complete;
    if (b == NULL) {
        events_publish(t->events, &m);
        return;
    }
    m.template_ = s->spec.template->name;
    telemetry_publish(t, b, &m);
}

static void
on_deleting(void *cookie, struct sandbox *s, const struct err *why)
{
    struct telemetry *t = cookie;
    struct telemetry_box *b = telemetry_box_of(t, s);
    if (b == NULL || s->tenant == NULL)
        return;
    telemetry_drain(t);
    telemetry_read_lost(t, b);
    publish_sandbox(t, s, s->falls_asleep ? KIND(SANDBOX_ASLEEP) : KIND(SANDBOX_DELETED),
                    why->text);
}

static void
on_gone(void *cookie, struct sandbox *s)
{
    struct telemetry *t = cookie;
    struct telemetry_box *b = telemetry_box_of(t, s);
    if (b == NULL)
        return;
    telemetry_drain(t);
    t->box[s->slot] = NULL;
    t->owned -= b->owned;
    box_free(t, b);
    telemetry_want_for_detectors(t);
}

// ---- start and end

static void
name_values(void)
{
    _Static_assert((int)EVENT_CLASSES <= (int)METRIC_VALUES_CLASS, "a value for each class");
    _Static_assert((int)RESPONSE_DENY_NETWORK < (int)METRIC_VALUES_RESPONSE,
                   "a value for each response");
    for (uint32_t i = 0; i < EVENT_CLASSES; i++)
        metrics_name_value(METRIC_BY_CLASS, i, record_class_name(i));
    for (uint32_t i = RESPONSE_LOG; i <= RESPONSE_DENY_NETWORK; i++)
        metrics_name_value(METRIC_BY_RESPONSE, i, finding_response_name(i));
    telemetry_name_denials();
    metrics_name_own();
    metrics_name_value(METRIC_BY_VERSION, 0, STOCKADE_VERSION);
    metrics_set(METRIC_BUILD_INFO, 0, 1);
    metrics_set(METRIC_START_TIME, 0, now_ns(CLOCK_REALTIME));
}

struct telemetry *
telemetry_new(struct server *srv, const struct telemetry_settings *settings)
{
    struct telemetry *t = calloc(1, sizeof *t);
    struct err e;
    if (t == NULL)
        return NULL;
    t->srv = srv;
    t->settings = settings;
    name_values();
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
    const struct observer o = {
        .cookie = t,
        .live = on_live,
        .taken = on_taken,
        .changed = on_changed,
        .carried = on_carried,
        .deleting = on_deleting,
        .gone = on_gone,
        .job_begun = telemetry_job_begun,
        .job_started = telemetry_job_started,
        .job_exited = telemetry_job_exited,
        .job_ended = telemetry_job_ended,
        .job_gone = telemetry_job_gone,
    };
    t->observer = observers_add(sandboxes_observers(srv->sandboxes), &o);
    if (settings->syscalls == SYSCALLS_ALWAYS)
        telemetry_want(t);
    return t;
}
