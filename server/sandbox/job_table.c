// SPDX-License-Identifier: Apache-2.0
// The table of jobs, and their followers. See job.h.
#include "job_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/metrics.h"
#include "server/rpc/rpc.h"
#include "sandbox.h"
#include "server/base/server.h"
#include "server/rpc/tenants.h"

static void
name_values(void)
{
    static const char *const outcomes[] = {
        [OUTCOME_EXITED] = "EXITED",       [OUTCOME_SIGNALED] = "SIGNALED",
        [OUTCOME_LIMIT] = "LIMIT",         [OUTCOME_REFUSED] = "REFUSED",
        [OUTCOME_FAILED] = "FAILED",       [OUTCOME_NOT_EXECUTED] = "NOT_EXECUTED",
        [OUTCOME_CANCELLED] = "CANCELLED",
    };
    static const char *const states[JOB_DONE] = {
        [JOB_STARTING] = "STARTING",
        [JOB_RUNNING] = "RUNNING",
        [JOB_DRAINING] = "DRAINING",
    };
    _Static_assert((int)JOB_DONE == (int)METRIC_VALUES_JOB_STATE,
                   "a value for each state of a job that has not ended");
    for (uint32_t i = 0; i < JOB_DONE; i++)
        metrics_name_value(METRIC_BY_JOB_STATE, i, states[i]);
    _Static_assert(sizeof outcomes / sizeof outcomes[0] == METRIC_VALUES_OUTCOME,
                   "a value for each outcome");
    _Static_assert((int)LIMITS_N <= (int)METRIC_VALUES_LIMIT, "a value for each limit");
    for (uint32_t i = 0; i < METRIC_VALUES_OUTCOME; i++)
        metrics_name_value(METRIC_BY_OUTCOME, i, outcomes[i]);
    for (uint32_t i = 0; i < LIMITS_N; i++)
        metrics_name_value(METRIC_BY_LIMIT, i, limit_table[i].name);
}

struct jobs *
jobs_new(struct server *srv)
{
    struct jobs *all = calloc(1, sizeof *all);
    if (all == NULL)
        return NULL;
    all->srv = srv;
    name_values();
    list_init(&all->list);
    sandboxes_set_jobs(srv->sandboxes, &job_sandbox_events);
    return all;
}

uint32_t
jobs_running(const struct jobs *all)
{
    return all->running;
}

struct observers *
job_observers(const struct job *j)
{
    return sandboxes_observers(j->all->srv->sandboxes);
}

void *
job_note(const struct job *j, unsigned n)
{
    assert(n < OBSERVERS_MAX);
    return j->notes[n];
}

void **
job_notes(struct job *j, unsigned n)
{
    assert(n < OBSERVERS_MAX);
    return &j->notes[n];
}

void
job_set_record(struct job *j, const struct Stockade__V1__Record *record)
{
    j->result.record = record;
}

void
job_set_oversized(struct job *j, uint64_t writes)
{
    j->used.oversized = writes;
    j->used.oversized_known = true;
}

void
job_set_no_file(struct job *j, uint64_t calls)
{
    j->used.no_file = calls;
}

struct job *
job_of_sandbox(struct list *node)
{
    return list_entry(node, struct job, of_sandbox);
}

static void
unkeep(struct job *j)
{
    if (!j->kept)
        return;
    j->kept = false;
    list_remove(&j->kept_node);
    tenant_release(j->tenant, LEDGER_KEPT, 1);
    loop_timer_stop(&j->timeout);
}

bool
job_take_bytes(void *job, size_t n)
{
    struct job *j = job;
    const struct rpc *r = j->all->srv->rpc;
    struct tenant *t = j->tenant;
    if (r == NULL) // NULL in tests
        return true;
    while (!rpc_tenant_take(r, t, n)) {
        if (list_empty(&t->kept))
            return false;
        struct job *oldest = list_entry(t->kept.next, struct job, kept_node);
        unkeep(oldest);
        (void)job_settle(oldest);
    }
    return true;
}

void
job_give_bytes(void *job, size_t n)
{
    const struct job *j = job;
    if (j->all->srv->rpc != NULL)
        tenant_give_bytes(j->tenant, n);
}

void
job_share_begin(struct job *j)
{
    j->share = (struct output_share){job_take_bytes, job_give_bytes, j};
    output_charge(j->output, &j->share);
}

bool
job_settle(struct job *j)
{
    if (j->state != JOB_DONE || j->kept || j->walking > 0 || !list_empty(&j->followers))
        return true;
    OBSERVERS_NOTIFY(job_observers(j), job_gone, j);
    idtable_remove(&j->all->table, &j->id);
    list_remove(&j->all_node);
    output_free(j->output);
    for (size_t i = 0; i < j->shown_n; i++)
        free(j->shown[i]);
    tenant_drop(j->tenant);
    free(j);
    return false;
}

void
jobs_free(struct jobs *all)
{
    if (all == NULL)
        return;
    list_each(it, &all->list)
    {
        struct job *j = list_entry(it, struct job, all_node);
        unkeep(j);
        (void)job_settle(j);
    }
    free(all);
}

static void
on_kept_enough(void *cookie)
{
    struct job *j = cookie;
    unkeep(j);
    (void)job_settle(j);
}

static void
drop_oldest_kept(struct tenant *t, uint64_t most)
{
    while (tenant_held(t, LEDGER_KEPT) > most) {
        struct job *j = list_entry(t->kept.next, struct job, kept_node);
        unkeep(j);
        (void)job_settle(j);
    }
}

void
job_keep(struct job *j)
{
    const struct sandbox_settings *c = sandboxes_settings(j->all->srv->sandboxes);
    assert(j->state == JOB_DONE);
    j->walking++;
    struct err ignored; // a job that cannot be kept is forgotten, as if it were above the quota
    const uint64_t most = tenant_quota(j->tenant, QUOTA_KEPT_JOBS);
    if (!j->unkept && most > 0 && c->keep_finished_ms > 0 &&
        tenant_charge(j->tenant, LEDGER_KEPT, 1, UINT64_MAX, &ignored) == 0) {
        j->kept = true;
        list_append(&j->tenant->kept, &j->kept_node);
        (void)loop_timer_start(j->all->srv->loop, &j->timeout, c->keep_finished_ms, on_kept_enough,
                               j);
        drop_oldest_kept(j->tenant, most);
    }
    j->walking--;
    (void)job_notify_followers(j);
}

struct job *
job_find_beginning(struct jobs *all, const char *tenant, const char *beginning, uint32_t *several)
{
    struct job *found = NULL;
    size_t n = strlen(beginning);
    list_each(it, &all->list)
    {
        struct job *j = list_entry(it, struct job, all_node);
        if (n == 0 || j->state == JOB_DONE || !id_begins(j->id.id, beginning) ||
            (tenant != NULL && strcmp(j->tenant->name, tenant) != 0))
            continue;
        found = j;
        ++*several;
    }
    return found;
}

struct job *
job_find(struct jobs *all, const char *tenant, const char *id, struct err *e)
{
    struct idnode *n = idtable_find(&all->table, id);
    struct job *j = n != NULL ? list_entry(n, struct job, id) : NULL;
    if (j != NULL && strcmp(j->tenant->name, tenant) == 0)
        return j;
    (void)id_not_found("process", sandboxes_settings(all->srv->sandboxes)->node, id, e);
    return NULL;
}

const char *
job_tenant(const struct job *j)
{
    return j->tenant->name;
}

const char *
job_template(const struct job *j)
{
    return j->sandbox != NULL ? j->sandbox->spec.template->name : "";
}

void
job_follow(struct job *j, struct job_follower *f, uint64_t offset, bool no_timeout)
{
    f->job = j;
    f->started_reported = false;
    f->reader = (struct output_reader){.offset = offset, .no_timeout = no_timeout};
    list_init(&f->reader.node);
    if (!f->no_output)
        output_join(j->output, &f->reader, uv_hrtime());
    list_append(&j->followers, &f->node);
}

void
job_unfollow(struct job_follower *f)
{
    struct job *j = f->job;
    if (j == NULL)
        return;
    f->job = NULL;
    if (j->walk == &f->node)
        j->walk = f->node.next;
    list_remove(&f->node);
    output_leave(&f->reader);
    job_io_reader_moved(j);
    (void)job_settle(j);
}

static void
notify_once(struct job *j)
{
    for (struct list *it = j->followers.next; it != &j->followers; it = j->walk) {
        j->walk = it->next;
        struct job_follower *f = list_entry(it, struct job_follower, node);
        f->wake(f->cookie);
    }
    j->walk = NULL;
}

// A follower, and others, may unfollow inside its wake(), which may also call this function again.
bool
job_notify_followers(struct job *j)
{
    j->walk_again = true;
    if (j->walking > 0)
        return true;
    j->walking++;
    while (j->walk_again) {
        j->walk_again = false;
        notify_once(j);
    }
    j->walking--;
    return job_settle(j);
}

struct job_event
job_next(struct job_follower *f)
{
    const struct job *j = f->job;
    struct job_event ev = {.kind = JOB_NOTHING};
    bool ran = j->used.started_ns != 0;
    if (ran && !f->started_reported && !f->no_output) {
        ev.kind = JOB_STARTED;
        return ev;
    }
    if (!f->no_output)
        ev.chunk = output_peek(j->output, &f->reader);
    if (ev.chunk.kind != OUTPUT_NONE)
        ev.kind = JOB_OUTPUT;
    else if (j->state == JOB_DONE)
        ev.kind = JOB_ENDED;
    return ev;
}

void
job_taken(struct job_follower *f, const struct job_event *ev)
{
    struct job *j = f->job;
    if (ev->kind == JOB_STARTED)
        f->started_reported = true;
    if (ev->kind != JOB_OUTPUT)
        return;
    output_advance(j->output, &f->reader, &ev->chunk, uv_hrtime());
    job_io_reader_moved(j);
}

const char *
job_id(const struct job *j)
{
    return j->id.id;
}

uint32_t
job_number(const struct job *j)
{
    return j->number;
}

bool
job_has_started(const struct job *j)
{
    return j->state != JOB_STARTING;
}

struct sandbox *
job_sandbox(const struct job *j)
{
    return j->sandbox;
}

const struct limits *
job_limits(const struct job *j)
{
    return &j->limits;
}

uint64_t
job_output_bytes(const struct job *j)
{
    return output_total(j->output);
}

const struct job_result *
job_result(const struct job *j)
{
    return &j->result;
}

const struct cgstat *
job_stat_after(const struct job *j)
{
    return &j->used.after;
}

const char *
job_traceparent(const struct job *j)
{
    return j->traceparent;
}

void
job_times(const struct job *j, uint64_t *exec_us, uint64_t *collect_us)
{
    const struct bill_input *u = &j->used;
    const uint64_t now = uv_hrtime();
    *exec_us = u->started_ns != 0 && u->ended_ns > u->started_ns
                   ? (u->ended_ns - u->started_ns) / 1000
                   : 0;
    *collect_us = u->ended_ns != 0 && now > u->ended_ns ? (now - u->ended_ns) / 1000 : 0;
}

void
job_view(const struct job *j, struct job_view *out)
{
    *out = (struct job_view){
        .id = j->id.id,
        .sandbox_id = j->sandbox_id,
        .order = j->order,
        .number = j->number,
        .pid = j->pid,
        .started_ms = j->started_ms,
        .terminal = j->terminal,
        .output_bytes = output_total(j->output),
        .args = (const char *const *)j->shown,
        .args_n = j->shown_n,
        .result = j->state == JOB_DONE ? &j->result : NULL,
    };
}

void
jobs_each(struct jobs *all, const char *tenant, const char *sandbox_id, uint64_t after,
          bool (*fn)(void *cookie, struct job *j), void *cookie)
{
    list_each(it, &all->list)
    {
        struct job *j = list_entry(it, struct job, all_node);
        if (j->order <= after || strcmp(j->tenant->name, tenant) != 0)
            continue;
        if (sandbox_id != NULL && strcmp(j->sandbox_id, sandbox_id) != 0)
            continue;
        if (!fn(cookie, j))
            return;
    }
}
