// SPDX-License-Identifier: Apache-2.0
// See sleepers.h: which sandboxes are asleep, and the calls that wait for them. Observers may not change sandboxes, so what follows
// from an end of a sandbox is done a moment later (`soon`).
#include "sleepers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/auto.h"
#include "proto/now.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/base/server.h"
#include "server/base/stopping.h"
#include "server/rpc/call.h"
#include "server/rpc/tenants.h"
#include "server/sandbox/job.h"
#include "server/sandbox/observers.h"
#include "server/sandbox/sandbox.h"
#include "sleepers_private.h"

enum { SOON_MS = 1 };

// ---- the index

struct sleeper *
sleeper_by_id(const struct sleepers *all, const char *id)
{
    struct idnode *n = idtable_find(&all->table, id);
    return n != NULL ? list_entry(n, struct sleeper, id) : NULL;
}

struct sandbox *
sleepers_box(const struct sleepers *all, const char *tenant, const char *id)
{
    struct err ignored;
    struct sandbox *s = sandbox_find(all->srv->sandboxes, tenant, id, &ignored);
    return s == NULL || s->state == SANDBOX_DELETING ? NULL : s;
}

void
sleeper_check_left(struct sleeper *sl)
{
    struct err ignored;
    const struct sandbox *s =
        sandbox_find(sl->all->srv->sandboxes, sl->tenant, sl->id.id, &ignored);
    sl->leaving = s != NULL && strcmp(s->id.id, sl->id.id) == 0;
}

struct sleeper *
sleeper_add(struct sleepers *all, const char *id, uint64_t order)
{
    struct sleeper *sl = sleeper_by_id(all, id);
    if (sl != NULL || (sl = calloc(1, sizeof *sl)) == NULL)
        return sl;
    sl->all = all;
    sl->order = order;
    list_init(&sl->waiting);
    (void)snprintf(sl->id.id, sizeof sl->id.id, "%s", id);
    idtable_add(&all->table, &sl->id);
    struct list *at = &all->list;
    while (at->prev != &all->list && list_entry(at->prev, struct sleeper, node)->order > order)
        at = at->prev;
    list_append(at, &sl->node); // before it
    metrics_move(METRIC_SLEEPING, 0, 1);
    return sl;
}

void
sleeper_set_record(struct sleeper *sl, struct stored *r)
{
    struct err e;
    struct stored *before = sl->record;
    sl->record = r;
    if (before != NULL && store_drop(sl->all->srv->store, before, NULL, NULL, &e) < 0)
        log_err(LOG_WARNING, "sleep", &e);
}

void
sleeper_remove(struct sleeper *sl)
{
    struct err gone;
    (void)err_set(&gone, ERR_ABORTED, "the sandbox was deleted meanwhile");
    wake_abandon(sl, &gone);
    sleeper_set_record(sl, NULL);
    sleeper_move(sl, SLEEPER_AWAKE);
    metrics_move(METRIC_SLEEPING, 1, -1);
    list_remove(&sl->node);
    idtable_remove(&sl->all->table, &sl->id);
    free(sl);
}

void
sleeper_move(struct sleeper *sl, enum sleeper_state to)
{
    metrics_move(METRIC_SLEEPING, sl->state == SLEEPER_AWAKE, -1);
    metrics_move(METRIC_SLEEPING, to == SLEEPER_AWAKE, 1);
    sl->state = to;
}

static bool
is_absent(const struct sleeper *sl, const char *tenant)
{
    return sl->state != SLEEPER_AWAKE && strcmp(sl->tenant, tenant) == 0;
}

// Names are unique, but an id may be the name of another sandbox.
static struct sleeper *
find(const struct sleepers *all, const char *tenant, const char *name)
{
    struct sleeper *sl = sleeper_by_id(all, name);
    if (sl != NULL && is_absent(sl, tenant))
        return sl;
    for (struct list *it = all->list.next; it != &all->list; it = it->next) {
        sl = list_entry(it, struct sleeper, node);
        if (is_absent(sl, tenant) && sl->name[0] != '\0' && strcmp(sl->name, name) == 0)
            return sl;
    }
    return NULL;
}

const struct sleeper *
sleepers_find(const struct sleepers *all, const char *tenant, const char *name)
{
    return find(all, tenant, name);
}

const char *
sleepers_id(const struct sleepers *all, const char *tenant, const char *name, struct err *e)
{
    const struct sleeper *sl = find(all, tenant, name);
    const struct sandbox *s =
        sl != NULL ? NULL : sandbox_find(all->srv->sandboxes, tenant, name, e);
    if (sl != NULL)
        return sl->id.id;
    return s != NULL ? s->id.id : NULL;
}

const struct sleeper *
sleepers_of(const struct sleepers *all, const struct sandbox *s)
{
    const struct sleeper *sl = all == NULL ? NULL : sleeper_by_id(all, s->id.id);
    return sl != NULL && strcmp(sl->tenant, s->tenant->name) == 0 ? sl : NULL;
}

const struct sleeper *
sleepers_next(const struct sleepers *all, const char *tenant, uint64_t after)
{
    for (const struct list *it = all->list.next; it != &all->list; it = it->next) {
        const struct sleeper *sl = list_entry((struct list *)(uintptr_t)it, struct sleeper, node);
        if (sl->order > after && is_absent(sl, tenant))
            return sl;
    }
    return NULL;
}

static bool
has_name(void *cookie, const char *tenant, const char *name)
{
    const struct sleeper *sl = find(cookie, tenant, name);
    return sl != NULL && strcmp(sl->name, name) == 0;
}

// ---- calls that wait

static void
on_parked_cancel(void *cookie, enum call_cancel why)
{
    struct parked *p = cookie;
    (void)why;
    list_remove(&p->node);
    free(p);
}

struct parked *
park(struct list *to, struct call *c)
{
    struct parked *p = malloc(sizeof *p);
    if (p == NULL)
        return NULL;
    p->call = c;
    list_append(to, &p->node);
    call_watch(c, on_parked_cancel, NULL, p);
    return p;
}

void
unpark(struct list *of, const struct err *e)
{
    struct list now;
    list_init(&now);
    while (!list_empty(of)) {
        struct list *it = of->next;
        list_remove(it);
        list_append(&now, it);
    }
    while (!list_empty(&now)) { // one that goes on may cancel others
        struct parked *p = list_entry(now.next, struct parked, node);
        struct call *c = p->call;
        list_remove(&p->node);
        free(p);
        dispatch_go_on(c, e);
    }
}

static int
wait_for(struct list *of, struct call *c, struct err *e)
{
    return park(of, c) != NULL ? 1 : err_sys(e, ENOMEM, "wait for a sandbox");
}

int
sleepers_gate(void *cookie, struct call *c, const char *name, struct err *e)
{
    struct sleepers *all = cookie;
    struct list *waiting = NULL;
    struct sleeper *sl = find(all, call_tenant(c), name);
    if (sl != NULL) {
        int r = wait_for(&sl->waiting, c, e);
        sleepers_look_soon(all);
        return r;
    }
    struct sandbox *s = sleepers_box(all, call_tenant(c), name);
    if (s == NULL || s->nap == NULL)
        return 0;
    nap_used(s);
    return s->nap->fall == NULL || fall_cancel(s->nap->fall, &waiting) ? 0
                                                                       : wait_for(waiting, c, e);
}

static void
on_soon(void *cookie)
{
    struct sleepers *all = cookie;
    loop_timer_stop(&all->soon);
    for (bool more = true; more;) { // one that begins may end, and change the list
        more = false;
        for (struct list *it = all->list.next; it != &all->list && !more; it = it->next) {
            struct sleeper *sl = list_entry(it, struct sleeper, node);
            more = sl->state == SLEEPER_ASLEEP && !sl->leaving && !list_empty(&sl->waiting);
            if (more)
                wake_begin(sl);
        }
    }
}

void
sleepers_look_soon(struct sleepers *all)
{
    if (all->soon == NULL && !all->stopped)
        (void)loop_timer_start(all->srv->loop, &all->soon, 0, on_soon, all);
}

// ---- the end of one

static void
on_forgotten(void *cookie, struct stored *r, const struct err *e)
{
    struct sleep_waiter *w = cookie;
    (void)r;
    if (w->done != NULL)
        w->done(w->cookie, NULL, e);
    else if (e != NULL)
        log_err(LOG_WARNING, "sleep", e);
    free(w);
}

int
sleeper_forget(struct sleeper *sl, struct sleep_waiter *w, struct err *e)
{
    struct stored *r = sl->record;
    int rc = store_drop(sl->all->srv->store, r, on_forgotten, w, e);
    if (rc < 0)
        return rc;
    sl->record = NULL;
    sleeper_remove(sl);
    return 0;
}

int
sleepers_forget(struct sleepers *all, const char *tenant, const char *name, sleep_done *done,
                void *cookie, struct sleep_waiter **out, struct err *e)
{
    struct sleeper *sl = find(all, tenant, name);
    struct sandbox *s = sl != NULL ? NULL : sleepers_box(all, tenant, name);
    if (s != NULL)
        sl = sleeper_by_id(all, s->id.id);
    struct fall *f = s != NULL && s->nap != NULL ? s->nap->fall : NULL;
    if (sl == NULL && f == NULL)
        return 1;
    struct sleep_waiter *w = calloc(1, sizeof *w);
    if (w == NULL)
        return err_sys(e, ENOMEM, "delete a sandbox");
    *w = (struct sleep_waiter){.done = done, .cookie = cookie};
    list_init(&w->node);
    *out = w;
    if (f != NULL) {
        fall_doom(f, w);
        return 0;
    }
    int r = sleeper_forget(sl, w, e);
    if (r < 0)
        free(w);
    return r;
}

void
sleep_unwait(struct sleep_waiter *w)
{
    w->done = NULL;
}

// ---- with the sandboxes

static void
on_taken(void *cookie, struct sandbox *s)
{
    if (s->spec.sleep_after_ms != 0 && nap_of(cookie, s) != NULL)
        idle_tick_start(cookie);
}

// It was lost, and not given up.
static bool
is_lost(const struct err *why)
{
    return why->code != ERR_CANCELLED || stopping_is(why);
}

static void
fall_back(struct sleeper *sl)
{
    sleeper_move(sl, SLEEPER_ASLEEP);
    sl->leaving = true;
    sl->facts.wake_ms = 0;
    sl->facts.fell_back = true;
    metrics_add(METRIC_SLEEPERS_FELL_BACK, 1);
    log_event_about(LOG_WARNING, "sleep",
                    &(struct log_about){.sandbox = sl->id.id, .tenant = sl->tenant},
                    "%s was lost: its files are those of when it fell asleep", sl->id.id);
    idle_tick_start(sl->all);
}

static void
on_deleting(void *cookie, struct sandbox *s, const struct err *why)
{
    struct sleepers *all = cookie;
    struct sleeper *sl = s->tenant == NULL ? NULL : sleeper_by_id(all, s->id.id);
    if (s->falls_asleep || s->tenant == NULL)
        return;
    if (s->nap != NULL && s->nap->fall != NULL && !is_lost(why))
        fall_doom(s->nap->fall, NULL);
    if (sl == NULL || sl->state != SLEEPER_AWAKE)
        return;
    if (is_lost(why))
        fall_back(sl);
    else
        sleeper_remove(sl);
}

static void
on_gone(void *cookie, struct sandbox *s)
{
    struct sleepers *all = cookie;
    struct sleeper *sl = s->tenant == NULL ? NULL : sleeper_by_id(all, s->id.id);
    nap_free(s);
    if (sl == NULL || !sl->leaving)
        return;
    sl->leaving = false;
    sleepers_look_soon(all);
}

static void
on_job(void *cookie, struct job *j)
{
    (void)cookie;
    if (job_sandbox(j) != NULL)
        nap_used(job_sandbox(j));
}

static void
on_job_begun(void *cookie, struct job *j, const struct job_spec *spec)
{
    (void)spec;
    on_job(cookie, j);
}

// ---- the start

static struct sleeper *
add_stored(struct sleepers *all, struct stored *r, const Stockade__Sleeper__Sleeper *m)
{
    struct sleeper *sl = sleeper_add(all, r->sandbox, sandbox_next_order(all->srv->sandboxes));
    if (sl == NULL)
        return NULL;
    const Stockade__V1__Sleep *last = m->sandbox->last_sleep;
    const Google__Protobuf__Timestamp *t = last->sleep_time;
    sleeper_set_record(sl, r); // an older one is removed
    sl->created_ms = m->created_ms;
    sl->expires_ms = m->expires_ms;
    sl->facts = (struct sleep_facts){.sleep_ms = t == NULL ? r->created_ms
                                                           : t->seconds * 1000 + t->nanos / 1000000,
                                     .idle = last->idle,
                                     .fell_back = m->awake,
                                     .processes = last->processes_ended,
                                     .contexts = last->contexts_ended,
                                     .operations = last->operations_ended,
                                     .connections = last->connections_closed};
    (void)snprintf(sl->tenant, sizeof sl->tenant, "%s", r->tenant->name);
    (void)snprintf(sl->name, sizeof sl->name, "%s", m->sandbox->name);
    (void)snprintf(sl->template, sizeof sl->template, "%s", m->template_);
    return sl;
}

// Oldest first, which is not the order of their records.
static void
sort(struct sleepers *all)
{
    for (struct list *it = all->list.next, *next = NULL; it != &all->list; it = next) {
        struct sleeper *sl = list_entry(it, struct sleeper, node);
        struct list *at = it;
        next = it->next;
        while (at->prev != &all->list &&
               list_entry(at->prev, struct sleeper, node)->created_ms > sl->created_ms)
            at = at->prev;
        if (at == it)
            continue;
        list_remove(it);
        list_append(at, it);
    }
    list_each(it, &all->list) list_entry(it, struct sleeper, node)->order =
        sandbox_next_order(all->srv->sandboxes);
}

// The youngest record of a sandbox counts: a crash may have left the one before.
// Nobody can wake it up any more, or see what it was.
static void
remove_unreadable(const struct sleepers *all, struct stored *r)
{
    struct err e;
    log_event(LOG_WARNING, "sleep",
              "sandbox %s of %s, which is asleep, is removed: its data key was forgotten", r->id,
              r->tenant->name);
    if (store_drop(all->srv->store, r, NULL, NULL, &e) < 0)
        log_err(LOG_WARNING, "sleep", &e);
}

static void
load(struct sleepers *all)
{
    struct err e;
    list_each(it, store_records(all->srv->store))
    {
        struct arena *auto_arena a = NULL;
        Stockade__Sleeper__Sleeper *m = NULL;
        struct stored *r = list_entry(it, struct stored, node);
        if (r->kind != STORE_SLEEPER || r->dropped)
            continue;
        if (r->unreadable) {
            remove_unreadable(all, r);
            continue;
        }
        int rc = describe_read(r, &a, &m, &e);
        if (rc == 0 && add_stored(all, r, m) == NULL)
            rc = err_sys(&e, ENOMEM, "list a sandbox that is asleep");
        if (rc < 0)
            log_err(LOG_ERROR, "sleep", &e);
    }
    sort(all);
    if (!list_empty(&all->list))
        idle_tick_start(all);
}

struct sleepers *
sleepers_new(struct server *srv, const struct sleep_settings *settings)
{
    struct sleepers *all = calloc(1, sizeof *all);
    if (all == NULL)
        return NULL;
    const struct observer o = {
        .cookie = all,
        .taken = on_taken,
        .deleting = on_deleting,
        .gone = on_gone,
        .job_begun = on_job_begun,
        .job_ended = on_job,
    };
    all->srv = srv;
    all->settings = *settings;
    list_init(&all->list);
    list_init(&all->naps);
    metrics_name_value(METRIC_BY_SLEEP, 0, "ASLEEP");
    metrics_name_value(METRIC_BY_SLEEP, 1, "AWAKE");
    (void)observers_add(sandboxes_observers(srv->sandboxes), &o);
    sandboxes_set_absent(srv->sandboxes, has_name, all);
    if (srv->store != NULL)
        load(all);
    return all;
}

void
sleepers_stop(struct sleepers *all)
{
    struct err e;
    if (all == NULL)
        return;
    all->stopped = true;
    loop_timer_stop(&all->tick);
    loop_timer_stop(&all->soon);
    (void)stopping_say(&e, ERR_UNAVAILABLE);
    list_each(it, &all->list) wake_abandon(list_entry(it, struct sleeper, node), &e);
}

void
sleepers_free(struct sleepers *all)
{
    if (all == NULL)
        return;
    sleepers_stop(all);
    list_each(it, &all->list) free(list_entry(it, struct sleeper, node)); // their records stay
    free(all);
}
