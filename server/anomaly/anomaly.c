// SPDX-License-Identifier: Apache-2.0
// See anomaly.h. Receives events and counters, keeps findings and notifies waiters.
#include "anomaly.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "private.h"
#include "sensitive.h"
#include "silences.h"
#include "server/sandbox/job.h"
#include "server/base/log.h"
#include "server/base/metrics.h"
#include "server/base/loop.h"
#include "server/network/enforce.h"
#include "server/network/net.h"
#include "server/network/witness.h"
#include "proto/detect.h"
#include "proto/now.h"
#include "proto/plural.h"
#include "server/telemetry/record.h"
#include "server/relay/relay.h"
#include "server/sandbox/agent.h"
#include "server/sandbox/observers.h"
#include "server/sandbox/sandbox.h"
#include "server/base/server.h"
#include "server/telemetry/telemetry.h"

enum { SAVE_EVERY_S = 10 };

static void
make_set(struct anomaly *a, uint32_t i)
{
    const struct template *t = &sandboxes_settings(a->srv->sandboxes)->template[i];
    const struct anomaly_config *own = &a->settings->of_template[i];
    struct profile_set *s = &a->profiles.set[i];
    memcpy(s->template, t->name, sizeof s->template);
    s->wanted = own->learn - 1;
    s->threshold = (uint32_t)own->rule[RULE_UNSEEN_SEQUENCE].threshold;
    s->state = PROFILES_OFF;
    s->version = 0;
    profiles_reset(&a->profiles, i);
    s->changed = false;
    if (profiles_possible(&a->profiles))
        anomaly_load(a->state_dir, &a->profiles, i);
}

static void
save_changed(struct anomaly *a, uint32_t i)
{
    struct err e;
    if (a->profiles.set[i].changed && anomaly_save(a, i, &e) < 0)
        log_err(LOG_WARNING, "profile", &e);
}

void
anomaly_reloaded(struct anomaly *a)
{
    const struct sandbox_settings *c = sandboxes_settings(a->srv->sandboxes);
    for (uint32_t i = 0; i < c->templates_n; i++) {
        if (strcmp(a->profiles.set[i].template, c->template[i].name) == 0)
            continue;
        save_changed(a, i);
        make_set(a, i);
    }
    a->profiles.sets_n = c->templates_n;
    anomaly_ruled_write(a);
    telemetry_want_for_detectors(a->srv->telemetry);
}

void
anomaly_free(struct anomaly *a)
{
    if (a == NULL)
        return;
    for (uint32_t i = 0; i < a->profiles.sets_n; i++)
        save_changed(a, i);
    loop_timer_stop(&a->soon);
    anomaly_snaps_end(a);
    for (uint32_t i = 0; i < BPF_SLOTS; i++)
        free(a->block[i]);
    findings_clear(&a->findings);
    free(a);
}

// The enum watch_flag bits that sandboxes of this template need in their map entry (bpf/sandbox.h).
static uint32_t
watch_flags(const struct anomaly *a, const struct template *t)
{
    const struct profile_set *s = &a->profiles.set[t->number];
    if (s->state == PROFILES_OFF)
        return WATCH_EVENTS;
    if (s->state != PROFILES_FROZEN)
        return WATCH_EVENTS | WATCH_PROFILE;
    return WATCH_EVENTS | WATCH_PROFILE | WATCH_NEW | (s->own_files ? 0 : (uint32_t)WATCH_NEW_OWN);
}

// Whether a template needs system calls counted as soon as it has a sandbox.
static bool
wants_syscalls(void *cookie)
{
    const struct anomaly *a = cookie;
    for (uint32_t i = 0; i < a->profiles.sets_n; i++)
        if (a->profiles.set[i].state != PROFILES_OFF || a->settings->of_template[i].syscalls == 1)
            return true;
    return false;
}

// ---- findings

static void
on_soon(void *cookie)
{
    struct anomaly *a = cookie;
    loop_timer_stop(&a->soon);
    // A waiter that waits again from its callback is appended after this mark.
    struct list mark;
    list_append(&a->waiters, &mark);
    while (a->waiters.next != &mark) {
        struct anomaly_waiter *w = list_entry(a->waiters.next, struct anomaly_waiter, node);
        list_remove(&w->node);
        w->done(w->cookie);
    }
    list_remove(&mark);
    anomaly_act(a);
}

void
anomaly_soon(struct anomaly *a)
{
    (void)loop_timer_start(a->srv->loop, &a->soon, 0, on_soon, a);
}

// The CLOCK_REALTIME of an event.
static uint64_t
real_time_of(uint64_t event_ns)
{
    uint64_t now = (uint64_t)now_ns(CLOCK_BOOTTIME);
    uint64_t ago = event_ns != 0 && now > event_ns ? now - event_ns : 0;
    return (uint64_t)now_ns(CLOCK_REALTIME) - ago;
}

static void
ask_for(struct anomaly_block *b, const struct finding *f)
{
    if (f->response < RESPONSE_THROTTLE)
        return;
    const bool deny = f->response == RESPONSE_DENY_NETWORK;
    if (deny ? b->act == 0 : f->response > b->act)
        (void)snprintf(b->why, sizeof b->why, "rule %s: %s", f->rule, f->text);
    b->deny_network = b->deny_network || deny;
    // A response without a snapshot does not wait for one.
    if (!deny && f->response >= b->act)
        b->first = f->snapshot_first && (f->response > b->act || b->first);
    if (!deny && f->response > b->act) {
        b->act = f->response;
        memcpy(b->act_rule, f->rule, sizeof b->act_rule);
        b->act_of_tenant = f->tenant_rule;
    }
    list_remove(&b->acting);
    list_append(&b->all->acting, &b->acting);
}

// The job that a finding is about. If the job is unknown and the sandbox has only one job, it is that one.
static struct job *
job_of(const struct anomaly *a, const struct box *box)
{
    if (box->job != NULL)
        return box->job->cookie;
    if (a->job == NULL && a->sandbox->jobs_n == 1)
        return job_of_sandbox(a->sandbox->jobs.next);
    return a->job;
}

// Copies as many labels as fit.
static void
fill_labels(const struct sandbox_spec *spec, struct finding *f)
{
    size_t at = 0;
    for (uint32_t i = 0; i < spec->labels_n; i++) {
        size_t key = strlen(spec->labels[i].key) + 1;
        size_t value = strlen(spec->labels[i].value) + 1;
        if (at + key + value > sizeof f->labels)
            continue;
        memcpy(f->labels + at, spec->labels[i].key, key);
        memcpy(f->labels + at + key, spec->labels[i].value, value);
        at += key + value;
        f->labels_n++;
    }
}

// What the rule does not say: when and where.
static void
fill_subject(const struct anomaly_block *b, struct finding *f, const struct job *j)
{
    const struct anomaly *a = b->all;
    f->time_ns = real_time_of(a->event_ns);
    f->event_ns = a->event_ns;
    (void)snprintf(f->sandbox_name, sizeof f->sandbox_name, "%s", a->sandbox->spec.name);
    fill_labels(&a->sandbox->spec, f);
    f->pid = a->pid;
    memcpy(f->comm, a->comm, sizeof f->comm);
    memcpy(f->sandbox_id, b->sandbox_id, sizeof f->sandbox_id);
    memcpy(f->tenant, b->tenant, sizeof f->tenant);
    memcpy(f->template, a->sandbox->spec.template->name, sizeof f->template);
    if (j != NULL) {
        struct job_view v;
        job_view(j, &v);
        (void)snprintf(f->process_id, sizeof f->process_id, "%s", v.id);
    }
}

void
anomaly_give(struct anomaly_block *b, enum box_voice voice, uint32_t rule, struct finding *of,
             struct job *j)
{
    struct anomaly *a = b->all;
    struct finding f = *of;
    fill_subject(b, &f, j);
    silences_apply(a->srv->silences, &f, voice == BOX_REPORT);
    const bool quiet = f.silenced || f.response == RESPONSE_LOG;
    if (voice == BOX_REPORT && (f.silenced || !quiet))
        metrics_add_by(f.silenced ? METRIC_FINDINGS_SILENCED : METRIC_ALERTS, rule, 0, 1);
    if (voice != BOX_ANSWER)
        metrics_add_by(voice == BOX_REPORT ? METRIC_FINDINGS : METRIC_FINDINGS_WITHHELD, rule, 0,
                       1);
    if (voice == BOX_REPORT && rule < ANOMALY_RULES)
        anomaly_tripwire_tags(a, rule, &f);
    if (voice == BOX_REPORT) {
        findings_add(&a->findings, &f);
        const struct log_about about = {
            .sandbox = f.sandbox_id, .job = f.process_id, .rule = f.rule, .tenant = f.tenant};
        log_event_about(quiet ? LOG_INFO : LOG_WARNING, "anomaly", &about,
                        "%s %s in sandbox %s: %s", finding_severity_name(f.severity), f.rule,
                        f.sandbox_id, f.text);
    }
    if (voice != BOX_ANSWER)
        telemetry_finding(a->srv->telemetry, &f, a->sandbox, j);
    ask_for(b, &f);
    if (!list_empty(&a->acting) || !list_empty(&a->waiters))
        anomaly_soon(a);
}

static void
on_raise(void *cookie, enum box_voice voice, enum anomaly_rule rule, double score, const char *text)
{
    struct anomaly_block *b = cookie;
    const struct anomaly_policy *p = &b->box.policy->rule[rule];
    struct finding f = {
        .severity = (enum severity)p->severity,
        .response = (enum response)p->response,
        .snapshot_first = p->snapshot == 1,
        .score = score,
        .threshold = (double)p->threshold,
    };
    (void)snprintf(f.rule, sizeof f.rule, "%s", anomaly_rule_table[rule].name);
    (void)snprintf(f.text, sizeof f.text, "%s", text);
    anomaly_give(b, voice, rule, &f, job_of(b->all, &b->box));
}

// ---- input

static void
block_free(struct anomaly *a, uint32_t slot)
{
    if (a->block[slot] == NULL)
        return;
    list_remove(&a->block[slot]->acting);
    box_close(&a->block[slot]->box);
    free(a->block[slot]);
    a->block[slot] = NULL;
}

struct anomaly_block *
anomaly_block_of(struct anomaly *a, struct sandbox *s)
{
    if (!s->live || s->slot >= BPF_SLOTS || s->tenant == NULL)
        return NULL;
    struct anomaly_block *b = a->block[s->slot];
    if (b != NULL && b->generation == s->generation)
        return b;
    block_free(a, s->slot);
    b = calloc(1, sizeof *b);
    if (b == NULL)
        return NULL;
    b->all = a;
    b->generation = s->generation;
    memcpy(b->sandbox_id, s->id.id, sizeof b->sandbox_id);
    memcpy(b->tenant, s->tenant->name, sizeof b->tenant);
    list_init(&b->acting);
    box_init(&b->box, &b->evidence, &a->settings->of_template[s->spec.template->number],
             (uint32_t)s->spec.limits.v[LIMIT_CPU_MILLIS], on_raise, b);
    a->block[s->slot] = b;
    return b;
}

// Adds a job to its box with its first event or counter. NULL: the job is not watched.
static struct box_job *
box_job_of(const struct anomaly *a, struct box *box, struct job *j)
{
    struct box_job *own = j != NULL ? *job_notes(j, a->observer) : NULL;
    if (own == NULL)
        return NULL;
    if (own->cookie == NULL) {
        own->cookie = j;
        box_job_begin(box, own);
    }
    return own;
}

static struct box *
enter(struct anomaly *a, struct sandbox *s, struct job *j, uint64_t event_ns)
{
    struct anomaly_block *b = anomaly_block_of(a, s);
    a->sandbox = s;
    a->job = j;
    a->event_ns = event_ns;
    a->pid = 0;
    a->comm[0] = '\0';
    if (b == NULL)
        return NULL;
    box_enter(&b->box, box_job_of(a, &b->box, j), a->settings->rules);
    return &b->box;
}

static void
on_event(void *cookie, struct sandbox *s, struct job *j, const struct event *event,
         const void *body, const Stockade__V1__Event *m)
{
    struct detect_event ev;
    struct anomaly *a = cookie;
    struct box *b = enter(a, s, j, event->time_ns);
    if (b == NULL)
        return;
    b->ours = event->kind == EVENT_OPEN && j == NULL && agents_are_ours(s, event->cgroup);
    anomaly_ruled_event(a, a->block[s->slot], j != NULL ? *job_notes(j, a->observer) : NULL, event,
                        body);
    a->pid = event->pid;
    (void)record_text(event->comm, sizeof event->comm, a->comm, sizeof a->comm);
    enum box_exe exe = BOX_EXE_KNOWN;
    if (event->kind == EVENT_EXEC && event->size >= sizeof(struct watch_exec) && j != NULL)
        exe = profiles_exec(&a->profiles, s->spec.template->number, body);
    box_event(b, event, body, exe, anomaly_fill_event(a, s, m, event->time_ns, &ev) ? &ev : NULL);
}

static void
on_report(void *cookie, struct sandbox *s, struct job *j, const struct relay_report *report)
{
    struct anomaly *a = cookie;
    struct box *b = enter(a, s, j, report->time_ns);
    if (b == NULL)
        return;
    a->pid = report->user.pid;
    (void)record_text(report->user.comm, sizeof report->user.comm, a->comm, sizeof a->comm);
    box_relay(b, report);
}

static void
on_job_activity(void *cookie, struct sandbox *s, struct job *j, const struct activity *sums)
{
    struct anomaly *a = cookie;
    struct box *b = enter(a, s, j, 0);
    if (b != NULL && b->job != NULL)
        b->job->now = *sums;
}

static void
on_activity(void *cookie, struct sandbox *s, const struct activity *sums, uint64_t now_ns)
{
    struct anomaly *a = cookie;
    struct box *b = enter(a, s, NULL, 0);
    if (b == NULL)
        return;
    box_tick(b, sums, now_ns);
    anomaly_ruled_look(a, a->block[s->slot], s, false);
}

// The kernel and the relay counted the traffic of the job's sandbox.
static void
ask_witnesses(const struct anomaly *a, struct box *b, const struct sandbox *s, uint64_t now_ns)
{
    struct witness w;
    const char *why = "";
    if (a->srv->net != NULL &&
        witnesses_of(net_witnesses(a->srv->net), s->slot, s->generation, &w) != NULL &&
        witness_judge(&w, &why) == WITNESS_DISAGREE)
        box_witnesses(b, now_ns, why);
}

static void
on_job_settled(void *cookie, struct sandbox *s, struct job *j)
{
    struct anomaly *a = cookie;
    uint32_t n = s->spec.template->number;
    uint64_t now = (uint64_t)now_ns(CLOCK_BOOTTIME);
    struct err e;
    struct box *b = enter(a, s, j, 0);
    if (b != NULL)
        box_settled(b, now, s->jobs_n <= 1);
    if (b != NULL)
        ask_witnesses(a, b, s, now);
    if (b != NULL && b->job != NULL)
        anomaly_ruled_end(a, s, j, *job_notes(j, a->observer));
    if (b != NULL && s->jobs_n <= 1)
        anomaly_ruled_look(a, a->block[s->slot], s, true);
    if (b != NULL && b->job != NULL)
        box_job_end(b->job);
    bool frozen = profiles_run(&a->profiles, n);
    const struct profile_set *set = &a->profiles.set[n];
    if (frozen) {
        log_event(LOG_INFO, "profile", "template %s: version %u is frozen after %u %s",
                  set->template, set->version, set->runs, plural(set->runs, "run", "runs"));
        anomaly_changed(a, n);
    }
    if (!frozen && (!set->changed || now - a->saved_ns < SAVE_EVERY_S * 1000000000ULL))
        return;
    if (anomaly_save(a, n, &e) < 0)
        log_err(LOG_WARNING, "profile", &e);
}

static void
on_lists(void *cookie, struct sandbox *s, const struct sandbox_lists *what)
{
    struct box *b = enter(cookie, s, NULL, 0);
    if (b != NULL)
        box_lists(b, (uint64_t)now_ns(CLOCK_BOOTTIME), what, s->jobs_n);
}

static void
on_gone(void *cookie, struct sandbox *s)
{
    struct anomaly *a = cookie;
    if (s->live && s->slot < BPF_SLOTS && a->block[s->slot] != NULL &&
        a->block[s->slot]->generation == s->generation)
        block_free(a, s->slot);
}

// Without memory the detectors do not watch the job, and telemetry reports that.
static void
on_job_begun(void *cookie, struct job *j, const struct job_spec *spec)
{
    const struct anomaly *a = cookie;
    struct anomaly_job *own = calloc(1, sizeof *own);
    struct job_view v;
    (void)spec;
    job_view(j, &v);
    *job_notes(j, a->observer) = own;
    if (own == NULL) {
        telemetry_unwatched(v.id);
        return;
    }
    list_init(&own->box.node);
    own->box.number = v.number;
    own->calls_of = a->ruled.version;
}

static void
on_job_gone(void *cookie, struct job *j)
{
    const struct anomaly *a = cookie;
    struct box_job *own = *job_notes(j, a->observer);
    if (own != NULL)
        box_job_end(own);
    free(own);
}

static void
on_live(void *cookie, struct sandbox *s)
{
    const struct anomaly *a = cookie;
    struct err e;
    if (s->live && enforce_watch(s, watch_flags(a, s->spec.template), &e) < 0)
        log_err(LOG_WARNING, "anomaly", &e);
}

static const struct telemetry_detectors detectors = {
    .wants_syscalls = wants_syscalls,
    .event = on_event,
    .report = on_report,
    .job_activity = on_job_activity,
    .job_counters = anomaly_ruled_calls,
    .activity = on_activity,
    .job_settled = on_job_settled,
    .published = anomaly_written,
};

struct anomaly *
anomaly_new(struct server *srv, const struct anomaly_settings *settings, const char *state_dir)
{
    struct anomaly *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->srv = srv;
    for (uint32_t i = 0; i < ANOMALY_RULES; i++)
        metrics_name_value(METRIC_BY_RULE, i, anomaly_rule_table[i].name);
    metrics_name_value(METRIC_BY_RULE, ANOMALY_RULES, "written");
    a->settings = settings;
    a->state_dir = state_dir;
    list_init(&a->waiters);
    list_init(&a->acting);
    list_init(&a->snaps);
    a->profiles.bpf = srv->bpf;
    a->profiles.sets_n = sandboxes_settings(srv->sandboxes)->templates_n;
    for (uint32_t i = 0; i < a->profiles.sets_n; i++)
        make_set(a, i);
    anomaly_ruled_write(a);
    const struct observer o = {
        .cookie = a,
        .live = on_live,
        .taken = on_live, // its template may have started to learn since
        .lists = on_lists,
        .gone = on_gone,
        .job_begun = on_job_begun,
        .job_gone = on_job_gone,
    };
    a->observer = observers_add(sandboxes_observers(srv->sandboxes), &o);
    telemetry_detect(srv->telemetry, &detectors, a);
    return a;
}

// ---- for the API

uint64_t
anomaly_last(const struct anomaly *a)
{
    return a->findings.last;
}

const struct finding *
anomaly_next(const struct anomaly *a, uint64_t after)
{
    return findings_next(&a->findings, after);
}

uint64_t
anomaly_forgotten(const struct anomaly *a, const char *tenant, uint64_t after)
{
    return findings_forgotten(&a->findings, tenant, after);
}

void
anomaly_wait(struct anomaly *a, struct anomaly_waiter *w)
{
    list_append(&a->waiters, &w->node);
}

void
anomaly_unwait(struct anomaly_waiter *w)
{
    list_remove(&w->node);
}

void
anomaly_end(struct anomaly *a)
{
    anomaly_soon(a);
}

const struct anomaly_config *
anomaly_policy(const struct anomaly *a, uint32_t template)
{
    assert(template <TEMPLATES_MAX);
    return &a->settings->of_template[template];
}

void
anomaly_changed(struct anomaly *a, uint32_t template)
{
    list_each(it, sandboxes_owned(a->srv->sandboxes))
    {
        struct sandbox *s = list_entry(it, struct sandbox, node);
        if (s->spec.template->number == template)
            on_live(a, s);
    }
    telemetry_want_for_detectors(a->srv->telemetry);
}

struct profiles *
anomaly_profiles(struct anomaly *a)
{
    return &a->profiles;
}

int
anomaly_save(struct anomaly *a, uint32_t template, struct err *e)
{
    a->saved_ns = (uint64_t)now_ns(CLOCK_BOOTTIME);
    int r = anomaly_store(a->state_dir, &a->profiles, template, e);
    if (r < 0)
        metrics_add(METRIC_PROFILE_UNSAVED, 1);
    return r;
}
