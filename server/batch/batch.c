// SPDX-License-Identifier: Apache-2.0
// See batch.h: what a caller does with a batch. job.c has the life of one job, lane.c the sandboxes that jobs share.
#include "private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/base/stopping.h"
#include "stockade/v1/process_service.pb-c.h"

static struct batch_job *
job_of(struct list *node)
{
    return list_entry(node, struct batch_job, node);
}

struct batches *
batches_new(struct server *srv, const struct limits *held)
{
    struct batches *all = calloc(1, sizeof *all);
    if (all == NULL)
        return NULL;
    all->srv = srv;
    all->held = held;
    all->snippets_fd = -1;
    list_init(&all->list);
    return all;
}

// ---- the end of a batch

static void
free_jobs(struct list *l)
{
    while (!list_empty(l))
        batch_job_free(job_of(l->next));
}

static void
batch_free(struct batch *b)
{
    free_jobs(&b->queued);
    free_jobs(&b->running);
    free_jobs(&b->done);
    batch_lanes_end(b);
    loop_timer_stop(&b->soon); // last: the end of the others may have started it
    loop_timer_stop(&b->retry);
    loop_timer_stop(&b->deadline);
    loop_timer_stop(&b->keep);
    if (b->wants) {
        telemetry_unwait(&b->waiter);
        telemetry_unwant(b->all->srv->telemetry);
    }
    list_remove(&b->node);
    sandbox_spec_clear(&b->box);
    tenant_drop(b->tenant);
    metrics_move(METRIC_BATCHES, 0, -1);
    free(b);
}

void
batches_free(struct batches *all)
{
    if (all == NULL)
        return;
    list_each(it, &all->list)
    {
        struct batch *b = list_entry(it, struct batch, node);
        if (b->follower != NULL)
            b->follower->batch = NULL;
        batch_free(b);
    }
    if (all->snippets_fd >= 0)
        (void)close(all->snippets_fd);
    free(all);
}

static void
cancel_queued(struct batch *b, const char *why)
{
    while (!list_empty(&b->queued))
        batch_job_cancel(job_of(b->queued.next), why);
}

static void
cancel_all(struct batch *b, const char *why)
{
    cancel_queued(b, why);
    list_each(it, &b->running) batch_job_cancel(job_of(it), why);
}

void
batches_drain(struct batches *all)
{
    list_each(it, &all->list)
    {
        struct batch *b = list_entry(it, struct batch, node);
        b->over = true;
        cancel_queued(b, STOPPING_TEXT);
        batch_soon(b);
    }
}

// All jobs have ended, and the caller has all results.
static bool
is_complete(const struct batch *b)
{
    return (b->last || b->over) && b->confirmed == b->accepted;
}

static void
on_soon(void *cookie)
{
    struct batch *b = cookie;
    loop_timer_stop(&b->soon);
    batch_start_jobs(b);
    if (b->follower != NULL)
        b->follower->wake(b->follower->cookie); // it may free the batch
    else if (is_complete(b))
        batch_free(b);
}

void
batch_soon(struct batch *b)
{
    // without memory for a timer there is none for the next event either; the next one tries again
    if (b->soon == NULL)
        (void)loop_timer_start(b->all->srv->loop, &b->soon, 0, on_soon, b);
}

static void
on_deadline(void *cookie)
{
    struct batch *b = cookie;
    loop_timer_stop(&b->deadline);
    b->over = true;
    cancel_all(b, "the deadline of the batch has expired");
    batch_soon(b);
}

static void
on_kept_enough(void *cookie)
{
    batch_free(cookie);
}

// ---- its begin

static void
on_watched(void *cookie)
{
    struct batch *b = cookie;
    b->waits = false;
    batch_soon(b);
}

// Has the system calls of its jobs watched, if the template or a rule needs it.
static void
watch(struct batch *b)
{
    struct telemetry *t = b->all->srv->telemetry;
    b->wants = t != NULL && telemetry_watches(t, b->box.template->count_syscalls);
    if (!b->wants)
        return;
    list_init(&b->waiter.node);
    b->waiter.done = on_watched;
    b->waiter.cookie = b;
    telemetry_want(t);
    b->waits = !telemetry_wait(t, &b->waiter);
}

static struct batch *
find(struct batches *all, const char *tenant, const char *key, unsigned *of_tenant)
{
    *of_tenant = 0;
    list_each(it, &all->list)
    {
        struct batch *b = list_entry(it, struct batch, node);
        if (strcmp(b->tenant->name, tenant) != 0)
            continue;
        ++*of_tenant;
        if (strcmp(b->key, key) == 0)
            return b;
    }
    return NULL;
}

static int
check_new(struct batches *all, const char *tenant, const char *key, struct err *e)
{
    unsigned n = 0;
    if (find(all, tenant, key, &n) != NULL) {
        int r = err_set(e, ERR_ALREADY_EXISTS, "there is a batch with the key %s", key);
        err_detail(e, "BATCH_EXISTS", "key", "resume it, or use another key");
        return r;
    }
    if (n < BATCHES_OF_TENANT)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%s already has %u batches", tenant, n);
    err_detail(e, "BATCHES", tenant, "wait for one of them to end");
    err_rule(e, "batches", "as many batches as are open");
    return r;
}

int
batch_open(struct batches *all, const char *tenant, struct batch_spec *spec, struct batch **out,
           struct err *e)
{
    int r = check_new(all, tenant, spec->key, e);
    if (r < 0)
        return r;
    struct batch *b = calloc(1, sizeof *b);
    if (b == NULL)
        return err_sys(e, ENOMEM, "begin a batch");
    b->all = all;
    b->parallel = spec->parallel;
    b->window = spec->window;
    b->keep_ms = spec->keep_ms;
    memcpy(b->key, spec->key, sizeof b->key);
    memcpy(b->template, spec->box.template->name, sizeof b->template);
    list_init(&b->queued);
    list_init(&b->running);
    list_init(&b->done);
    list_init(&b->lanes);
    b->recycles = spec->recycles;
    b->warm = spec->warm;
    b->next = &b->done;
    b->tenant = tenant_hold(all->srv->tenants, tenant);
    if (b->tenant == NULL ||
        (spec->deadline_ms != 0 &&
         loop_timer_start(all->srv->loop, &b->deadline, spec->deadline_ms, on_deadline, b) < 0)) {
        tenant_drop(b->tenant);
        free(b);
        return err_sys(e, ENOMEM, "begin a batch");
    }
    b->box = spec->box;
    spec->box = (struct sandbox_spec){0};
    list_append(&all->list, &b->node);
    metrics_move(METRIC_BATCHES, 0, 1);
    watch(b);
    *out = b;
    return 0;
}

struct batch *
batch_find(struct batches *all, const char *tenant, const char *key, struct err *e)
{
    unsigned n = 0;
    struct batch *b = find(all, tenant, key, &n);
    if (b != NULL)
        return b;
    (void)err_set(e, ERR_NOT_FOUND, "there is no batch with the key %s", key);
    err_detail(e, "BATCH_UNKNOWN", "key",
               "it has ended, was not resumed in time, or the broker was restarted");
    return NULL;
}

void
batch_view(const struct batch *b, struct batch_view *out)
{
    *out = (struct batch_view){b->key,     b->template, &b->box.limits, b->box.network, b->accepted,
                               b->results, b->window,   b->parallel,    b->last};
}

// ---- jobs

static int
check_more(const struct batch *b, struct err *e)
{
    int r = 0;
    if (b->all->srv->draining) {
        r = err_set(e, ERR_UNAVAILABLE, "the broker is shutting down");
        err_detail(e, "DRAINING", NULL, "jobs that run still end");
    } else if (b->over) {
        r = err_set(e, ERR_DEADLINE_EXCEEDED, "the deadline of the batch has expired");
    } else if (b->last) {
        r = err_field(e, "jobs", "the batch already has its last job");
    }
    return r;
}

static int
out_of_memory(const struct batch *b, struct err *e)
{
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "open requests of %s use too much memory",
                    b->tenant->name);
    err_detail(e, "BYTES_PER_UID", b->tenant->name, "wait for one of them to end");
    err_rule(e, "rpc.bytes_per_uid", "smaller requests");
    return r;
}

int
batch_add(struct batch *b, uint64_t first, Stockade__V1__BatchJob *const *jobs, size_t n, bool last,
          struct err *e)
{
    if (first > b->accepted)
        return err_set(e, ERR_OUT_OF_RANGE, "job %llu comes next, not %llu",
                       (unsigned long long)b->accepted, (unsigned long long)first);
    size_t from = b->accepted - first < n ? (size_t)(b->accepted - first) : n;
    int r = from < n ? check_more(b, e) : 0;
    for (size_t i = from; r == 0 && i < n; i++) {
        r = batch_job_check(b, jobs[i], e);
        if (r < 0)
            (void)err_wrap(e, "job %" PRIu64, first + i);
    }
    if (r < 0)
        return r;
    size_t i = from;
    for (; i < n && b->accepted - b->confirmed < b->window; i++) {
        struct batch_job *j = batch_job_new(b, jobs[i]);
        if (j == NULL)
            break;
        j->number = b->accepted++;
        list_append(&b->queued, &j->node);
    }
    if (i == from && i < n && b->accepted == b->confirmed)
        return out_of_memory(b, e);
    if (last && first + n == b->accepted)
        b->last = true;
    batch_soon(b);
    return 0;
}

int
batch_received(struct batch *b, uint64_t sequence, struct err *e)
{
    const uint64_t sent = b->next == &b->done ? b->results : job_of(b->next)->sequence - 1;
    if (sequence > sent)
        return err_set(e, ERR_OUT_OF_RANGE, "result %llu was not sent yet; the last one is %llu",
                       (unsigned long long)sequence, (unsigned long long)sent);
    while (b->confirmed < sequence) {
        struct batch_job *j = job_of(b->done.next);
        b->unread -= j->output_bytes;
        b->confirmed = j->sequence;
        batch_job_free(j);
    }
    batch_soon(b);
    return 0;
}

// ---- the follower

static void
drop_follower(struct batch *b)
{
    struct batch_follower *f = b->follower;
    struct err e;
    if (f == NULL)
        return;
    (void)err_set(&e, ERR_ABORTED, "another call follows this batch now");
    err_detail(&e, "BATCH_RESUMED", "key", NULL);
    b->follower = NULL;
    f->batch = NULL;
    f->dropped(f->cookie, &e);
}

// The job's output and result will be sent from the beginning again.
static void
start_over(struct batch_job *j)
{
    struct job *of = j->follower.job;
    if (of == NULL)
        return;
    struct job_follower keeps = {.no_output = true, .wake = j->follower.wake};
    job_follow(of, &keeps, 0, true); // otherwise the job may be freed in between
    job_unfollow(&j->follower);
    job_follow(of, &j->follower, 0, true);
    job_unfollow(&keeps);
    j->lost_bytes = 0;
}

int
batch_follow(struct batch *b, struct batch_follower *f, uint64_t received, struct err *e)
{
    int r = received > b->confirmed ? batch_received(b, received, e) : 0;
    if (r < 0)
        return r;
    drop_follower(b);
    list_each(it, &b->done) start_over(job_of(it));
    b->next = b->done.next;
    loop_timer_stop(&b->keep);
    b->follower = f;
    f->batch = b;
    batch_soon(b);
    return 0;
}

void
batch_unfollow(struct batch_follower *f)
{
    struct batch *b = f->batch;
    if (b == NULL)
        return;
    f->batch = NULL;
    b->follower = NULL;
    if (loop_timer_start(b->all->srv->loop, &b->keep, b->keep_ms, on_kept_enough, b) < 0)
        batch_free(b);
    else
        batch_soon(b);
}

void
batch_cancel(struct batch_follower *f, const char *why)
{
    struct batch *b = f->batch;
    if (b == NULL)
        return;
    f->batch = NULL;
    b->follower = NULL;
    cancel_all(b, why);
    batch_free(b);
}

static struct batch_event
event_of(const struct batch_job *j)
{
    static const struct job_result unknown = {.outcome = OUTCOME_FAILED,
                                              .reason = "it was not started: out of memory"};
    struct batch_event ev = {.kind = BATCH_FINISHED,
                             .number = j->number,
                             .sequence = j->sequence,
                             .job_key = j->key,
                             .process_id = "",
                             .result = j->own != NULL ? j->own : &unknown,
                             .lost_bytes = j->lost_bytes};
    struct job_view v;
    if (j->follower.job == NULL)
        return ev;
    job_view(j->follower.job, &v);
    ev.process_id = v.id;
    ev.result = v.result;
    return ev;
}

struct batch_event
batch_next(const struct batch_follower *f)
{
    struct batch *b = f->batch;
    if (b->next == &b->done)
        return (struct batch_event){.kind = is_complete(b) ? BATCH_ENDED : BATCH_NOTHING,
                                    .sequence = b->results};
    struct batch_job *j = job_of(b->next);
    struct batch_event ev = event_of(j);
    while (j->follower.job != NULL) {
        struct job_event of = job_next(&j->follower);
        if (of.kind == JOB_ENDED || of.kind == JOB_NOTHING)
            break;
        if (of.kind == JOB_OUTPUT && of.chunk.kind == OUTPUT_DATA) {
            ev.kind = BATCH_OUTPUT;
            ev.chunk = of.chunk;
            break;
        }
        if (of.kind == JOB_OUTPUT && of.chunk.kind == OUTPUT_GAP)
            j->lost_bytes = ev.lost_bytes = ev.lost_bytes + of.chunk.missing;
        job_taken(&j->follower, &of);
    }
    return ev;
}

void
batch_taken(struct batch_follower *f, const struct batch_event *ev)
{
    struct batch *b = f->batch;
    if (ev->kind == BATCH_ENDED) {
        f->batch = NULL;
        b->follower = NULL;
        batch_free(b);
    } else if (ev->kind == BATCH_FINISHED) {
        b->next = b->next->next;
    } else if (ev->kind == BATCH_OUTPUT) {
        const struct job_event of = {.kind = JOB_OUTPUT, .chunk = ev->chunk};
        job_taken(&job_of(b->next)->follower, &of);
    }
}
