// SPDX-License-Identifier: Apache-2.0
// See anomaly.h: what comes in, what is kept of it, who is told. The profiles' files are in anomaly_files.c.
#include "anomaly.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "anomaly_files.h"
#include "anomaly_private.h"
#include "anomaly_sensitive.h"
#include "config.h"
#include "job.h"
#include "log.h"
#include "loop.h"
#include "net_policy.h"
#include "now.h"
#include "record.h"
#include "relay/relay.h"
#include "sandbox.h"
#include "server.h"
#include "telemetry.h"

enum { SAVE_EVERY_S = 10 };

static uint32_t
number_of(const struct anomaly *a, const struct config_template *t)
{
    return (uint32_t)(t - a->srv->config->template);
}

static void
make_sets(struct anomaly *a)
{
    const struct config *c = a->srv->config;
    struct profiles *p = &a->profiles;
    p->bpf = a->srv->bpf;
    p->sets_n = c->templates_n;
    for (uint32_t i = 0; i < c->templates_n; i++) {
        struct profile_set *s = &p->set[i];
        memcpy(s->template, c->template[i].name, sizeof s->template);
        s->wanted = c->template[i].anomalies.learn - 1;
        s->threshold = (uint32_t)c->template[i].anomalies.rule[RULE_UNSEEN_SEQUENCE].threshold;
        s->state = PROFILES_OFF;
        profiles_reset(p, i);
        s->changed = false;
    }
}

static void
write_sensitive(const struct server *srv)
{
    static struct sensitive_table table;
    const struct bpf *bpf = srv->bpf;
    if (bpf == NULL || bpf->fd[BPF_FD_SENSITIVE] < 0 || bpf->fd[BPF_FD_SENSITIVE_HINTS] < 0)
        return;
    uint32_t lost = anomaly_sensitive_fill(&table, &srv->config->sensitive);
    lost +=
        anomaly_sensitive_write(&table, bpf->fd[BPF_FD_SENSITIVE], bpf->fd[BPF_FD_SENSITIVE_HINTS]);
    if (lost > 0)
        log_event(LOG_WARNING, "anomaly", "%u sensitive paths are not watched", lost);
}

struct anomaly *
anomaly_new(struct server *srv)
{
    struct anomaly *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->srv = srv;
    list_init(&a->waiters);
    list_init(&a->acting);
    make_sets(a);
    write_sensitive(srv);
    for (uint32_t i = 0; i < a->profiles.sets_n && profiles_possible(&a->profiles); i++)
        anomaly_load(srv->config->state_dir, &a->profiles, i);
    return a;
}

void
anomaly_free(struct anomaly *a)
{
    if (a == NULL)
        return;
    struct err e;
    for (uint32_t i = 0; i < a->profiles.sets_n; i++)
        if (a->profiles.set[i].changed && anomaly_save(a, i, &e) < 0)
            log_err(LOG_WARNING, "profile", &e);
    loop_timer_stop(&a->soon);
    for (uint32_t i = 0; i < BPF_SLOTS; i++)
        free(a->block[i]);
    findings_clear(&a->findings);
    free(a);
}

void
anomaly_listen(struct anomaly *a,
               void (*fn)(void *cookie, const struct anomaly_finding *f, struct sandbox *s,
                          struct job *j),
               void *cookie)
{
    a->listener = fn;
    a->listener_cookie = cookie;
}

uint32_t
anomaly_watch(const struct anomaly *a, const struct config_template *t)
{
    const struct profile_set *s = &a->profiles.set[number_of(a, t)];
    if (s->state == PROFILES_OFF)
        return WATCH_EVENTS;
    if (s->state != PROFILES_FROZEN)
        return WATCH_EVENTS | WATCH_PROFILE;
    return WATCH_EVENTS | WATCH_PROFILE | WATCH_NEW | (s->own_files ? 0 : (uint32_t)WATCH_NEW_OWN);
}

bool
anomaly_wants_syscalls(const struct anomaly *a)
{
    for (uint32_t i = 0; i < a->profiles.sets_n; i++)
        if (a->profiles.set[i].state != PROFILES_OFF ||
            a->srv->config->template[i].anomalies.syscalls == 1)
            return true;
    return false;
}

// ---- findings

static void
on_soon(void *cookie)
{
    struct anomaly *a = cookie;
    loop_timer_stop(&a->soon);
    // Those who wait again while they are told go to the end, behind this mark.
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

// CLOCK_REALTIME of an event.
static uint64_t
real_time_of(uint64_t event_ns)
{
    uint64_t now = (uint64_t)now_ns(CLOCK_BOOTTIME);
    uint64_t ago = event_ns != 0 && now > event_ns ? now - event_ns : 0;
    return (uint64_t)now_ns(CLOCK_REALTIME) - ago;
}

static void
ask_for(struct anomaly_block *b, const struct anomaly_finding *f)
{
    if (f->response < RESPONSE_THROTTLE)
        return;
    if (f->response > b->act) {
        (void)snprintf(b->why, sizeof b->why, "rule %s: %s", f->rule, f->text);
        b->act = f->response;
    }
    list_remove(&b->acting);
    list_append(&b->all->acting, &b->acting);
}

// The job that a finding is about. What cannot be told apart is that of the only job there is.
static struct job *
job_of(const struct anomaly *a, const struct box *box)
{
    if (box->job != NULL)
        return box->job->cookie;
    if (a->job == NULL && a->sandbox->jobs_n == 1)
        return job_of_sandbox(a->sandbox->jobs.next);
    return a->job;
}

// Those that fit.
static void
fill_labels(const struct sandbox_spec *spec, struct anomaly_finding *f)
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

static void
fill_finding(const struct anomaly_block *b, struct anomaly_finding *f, enum anomaly_rule rule,
             double score, const char *text)
{
    const struct anomaly *a = b->all;
    const struct anomaly_policy *p = &b->box.policy->rule[rule];
    const struct job *j = job_of(a, &b->box);
    *f = (struct anomaly_finding){
        .time_ns = real_time_of(a->event_ns),
        .event_ns = a->event_ns,
        .rule = anomaly_rule_table[rule].name,
        .severity = (enum severity)p->severity,
        .response = (enum anomaly_response)p->response,
        .score = score,
        .threshold = (double)p->threshold,
    };
    (void)snprintf(f->text, sizeof f->text, "%s", text);
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

static void
on_raise(void *cookie, enum box_voice voice, enum anomaly_rule rule, double score, const char *text)
{
    struct anomaly_block *b = cookie;
    struct anomaly *a = b->all;
    struct anomaly_finding f;
    fill_finding(b, &f, rule, score, text);
    if (voice == BOX_REPORT) {
        findings_add(&a->findings, &f);
        const struct log_about about = {
            .sandbox = f.sandbox_id, .job = f.process_id, .rule = f.rule, .tenant = f.tenant};
        log_event_about(f.response == RESPONSE_LOG ? LOG_INFO : LOG_WARNING, "anomaly", &about,
                        "%s %s in sandbox %s: %s", anomaly_severity_name(f.severity), f.rule,
                        f.sandbox_id, f.text);
    }
    if (a->listener != NULL && voice != BOX_ANSWER)
        a->listener(a->listener_cookie, &f, a->sandbox, job_of(a, &b->box));
    ask_for(b, &f);
    if (!list_empty(&a->acting) || !list_empty(&a->waiters))
        anomaly_soon(a);
}

// ---- what comes in

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

// NULL without memory, and for a sandbox that is nobody's.
static struct anomaly_block *
block_of(struct anomaly *a, struct sandbox *s)
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
    box_init(&b->box, &s->spec.template->anomalies, (uint32_t)s->spec.limits.v[LIMIT_CPU_MILLIS],
             on_raise, b);
    a->block[s->slot] = b;
    return b;
}

// A job enters its box with the first thing that is said about it. NULL: it is not watched.
static struct box_job *
box_job_of(struct box *box, struct job *j)
{
    struct box_job *own = j != NULL ? telemetry_box_job(j) : NULL;
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
    struct anomaly_block *b = block_of(a, s);
    a->sandbox = s;
    a->job = j;
    a->event_ns = event_ns;
    a->pid = 0;
    a->comm[0] = '\0';
    if (b == NULL)
        return NULL;
    box_enter(&b->box, box_job_of(&b->box, j));
    return &b->box;
}

void
anomaly_event(struct anomaly *a, struct sandbox *s, struct job *j, const struct event *event,
              const void *body)
{
    struct box *b = enter(a, s, j, event->time_ns);
    if (b == NULL)
        return;
    a->pid = event->pid;
    (void)record_text(event->comm, sizeof event->comm, a->comm, sizeof a->comm);
    enum box_exe exe = BOX_EXE_KNOWN;
    if (event->kind == EVENT_EXEC && event->size >= sizeof(struct watch_exec) && j != NULL)
        exe = profiles_exec(&a->profiles, number_of(a, s->spec.template), body);
    box_event(b, event, body, exe);
}

void
anomaly_relay(struct anomaly *a, struct sandbox *s, struct job *j,
              const struct relay_report *report)
{
    struct box *b = enter(a, s, j, report->time_ns);
    if (b == NULL)
        return;
    a->pid = report->user.pid;
    (void)record_text(report->user.comm, sizeof report->user.comm, a->comm, sizeof a->comm);
    box_relay(b, report);
}

void
anomaly_job_sums(struct anomaly *a, struct sandbox *s, struct job *j,
                 const struct anomaly_sums *sums)
{
    struct box *b = enter(a, s, j, 0);
    if (b != NULL && b->job != NULL)
        b->job->now = *sums;
}

void
anomaly_tick(struct anomaly *a, struct sandbox *s, const struct anomaly_sums *sums, uint64_t now_ns)
{
    struct box *b = enter(a, s, NULL, 0);
    if (b != NULL)
        box_tick(b, sums, now_ns);
}

void
anomaly_job_end(struct anomaly *a, struct sandbox *s, struct job *j)
{
    uint32_t n = number_of(a, s->spec.template);
    uint64_t now = (uint64_t)now_ns(CLOCK_BOOTTIME);
    struct err e;
    struct box *b = enter(a, s, j, 0);
    if (b != NULL)
        box_settled(b, now, s->jobs_n <= 1);
    if (b != NULL && b->job != NULL)
        box_job_end(b->job);
    bool frozen = profiles_run(&a->profiles, n);
    const struct profile_set *set = &a->profiles.set[n];
    if (frozen) {
        log_event(LOG_INFO, "profile", "template %s: version %u holds after %u runs", set->template,
                  set->version, set->runs);
        anomaly_changed(a, n);
    }
    if (!frozen && (!set->changed || now - a->saved_ns < SAVE_EVERY_S * 1000000000ULL))
        return;
    if (anomaly_save(a, n, &e) < 0)
        log_err(LOG_WARNING, "profile", &e);
}

void
anomaly_sandbox_end(struct anomaly *a, struct sandbox *s)
{
    if (s->slot < BPF_SLOTS && a->block[s->slot] != NULL &&
        a->block[s->slot]->generation == s->generation)
        block_free(a, s->slot);
}

// ---- for the API

uint64_t
anomaly_last(const struct anomaly *a)
{
    return a->findings.last;
}

const struct anomaly_finding *
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
anomaly_drain_begun(struct anomaly *a)
{
    anomaly_soon(a);
}

const struct anomaly_config *
anomaly_policy(const struct anomaly *a, uint32_t template)
{
    assert(template <a->srv->config->templates_n);
    return &a->srv->config->template[template].anomalies;
}

void
anomaly_sandbox_taken(struct anomaly *a, struct sandbox *s)
{
    struct err e;
    if (s->live && sandbox_policy_watch(s, anomaly_watch(a, s->spec.template), &e) < 0)
        log_err(LOG_WARNING, "anomaly", &e);
}

void
anomaly_changed(struct anomaly *a, uint32_t template)
{
    list_each(it, sandboxes_owned(a->srv->sandboxes))
    {
        struct sandbox *s = list_entry(it, struct sandbox, node);
        if (number_of(a, s->spec.template) == template)
            anomaly_sandbox_taken(a, s);
    }
    telemetry_want_for_anomaly(a->srv->telemetry);
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
    return anomaly_store(a->srv->config->state_dir, &a->profiles, template, e);
}
