// SPDX-License-Identifier: Apache-2.0
// See sandbox.h: how sandboxes start and end. change.c has changes of existing ones, table.c what callers ask about
// them.
#include "sandbox.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "guest_link.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "proto/now.h"
#include "proto/plural.h"
#include "private.h"
#include "simulation.h"
#include "server/base/server.h"
#include "server/base/stopping.h"
#include "spawn.h"

enum { READY_MS = 60 * 1000, RETRY_MS = 1000, REST_MS = 1000, DESTROY_AGAIN_MS = 100 };

#define TO(state) (1u << SANDBOX_##state)

// The permitted changes of state, as drawn in sandbox.h.
static const unsigned moves[SANDBOX_STATES_N] = {
    [SANDBOX_CREATING] = TO(READY) | TO(DELETING),
    [SANDBOX_READY] = TO(RUNNING) | TO(DELETING),
    [SANDBOX_RUNNING] = TO(PAUSING) | TO(SWAPPING) | TO(COPYING) | TO(DELETING),
    [SANDBOX_SWAPPING] = TO(RUNNING) | TO(DELETING),
    [SANDBOX_COPYING] = TO(RUNNING) | TO(DELETING),
    [SANDBOX_PAUSING] = TO(PAUSED) | TO(RUNNING) | TO(DELETING),
    [SANDBOX_PAUSED] = TO(RESUMING) | TO(DELETING),
    [SANDBOX_RESUMING] = TO(RUNNING) | TO(PAUSED) | TO(DELETING),
};

static void
count(const struct sandbox *s, int by)
{
    metrics_move_by(METRIC_SANDBOXES, s->state, s->spec.template->number, by);
}

void
sandbox_move(struct sandbox *s, enum sandbox_state to)
{
    assert((moves[s->state] >> to & 1) != 0);
    observers_assert_idle(&s->all->observers);
    count(s, -1);
    s->state = to;
    count(s, 1);
}

static bool
runs_any(const struct sandbox *s)
{
    return !list_empty(&s->jobs) || !list_empty(&s->agents);
}

// During the calls the waiters are in a separate list: a callback may remove others from it, and may add new waiters,
// which are not called for this event.
static void
notify(struct sandbox *s, enum sandbox_wait what, const struct err *e)
{
    struct list notified;
    list_init(&notified);
    list_each(it, &s->waiters)
    {
        if (list_entry(it, struct sandbox_waiter, node)->what != what)
            continue;
        list_remove(it);
        list_append(&notified, it);
    }
    while (!list_empty(&notified)) {
        struct sandbox_waiter *w = list_entry(notified.next, struct sandbox_waiter, node);
        list_remove(&w->node);
        w->done(w->cookie, what == WAIT_DELETE ? NULL : s, e);
    }
}

void
sandbox_notify(struct sandbox *s, enum sandbox_wait what, const struct err *e)
{
    sandbox_hold(s); // a callback may destroy it
    notify(s, what, e);
    sandbox_let_go(s);
}

void
sandbox_settle(struct sandbox *s)
{
    if (s->state != SANDBOX_DELETING || s->pending > 0 || (s->live && !s->destroyed))
        return;
    OBSERVERS_NOTIFY(&s->all->observers, gone, s);
    s->all->networks->forget(s);
    if (s->all->mounters != NULL)
        s->all->mounters->forget(s);
    cgstat_drop(&s->dirs);
    spawn_close_fds(s->dirs.fd);
    loop_timer_stop(&s->ttl);
    loop_timer_stop(&s->wait_timer);
    struct tenant *t = s->tenant;
    const struct limits reserved = s->reserved;
    const struct sandbox_maker *maker = s->maker;
    void *maker_cookie = s->maker_cookie;
    const bool leaving = s->leaving;
    struct sandboxes *all = s->all;
    struct err e;
    (void)err_set(
        &e, ERR_INTERNAL,
        "sandbox %s was killed, but could not be removed completely; see the broker's log",
        s->id.id);
    notify(s, WAIT_DELETE, s->destroy_failed ? &e : NULL);
    count(s, -1);
    lists_forget(s);
    sandbox_table_remove(s);
    sandbox_spec_clear(&s->spec);
    simulation_unref(s->simulation);
    free(s);
    if (t != NULL && leaving)
        sandbox_left(t, &reserved);
    else if (t != NULL)
        sandbox_release(t, &reserved);
    if (t != NULL && maker->left != NULL)
        maker->left(maker_cookie);
    sandbox_table_settle(all);
}

// Closes the disk before the spawner removes the sandbox, so that its memory is released there and then.
static void
close_disk(struct sandbox *s)
{
    int *fd = &s->dirs.fd[SPAWN_FD_DISK];
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

static void send_destroy(struct sandbox *s);

static void
on_destroy_again(void *cookie)
{
    struct sandbox *s = cookie;
    sandbox_hold(s);
    send_destroy(s);
    sandbox_let_go(s);
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_destroyed(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    (void)fds;
    s->destroyed = true;
    if (reply->ok == 0) {
        log_err_about(LOG_ERROR, "destroy", &(struct log_about){.sandbox = s->id.id}, &reply->err);
        metrics_add(METRIC_SANDBOXES_LEFT, 1);
        s->destroy_failed = true;
    }
    sandbox_let_go(s);
}

static void
on_spawner_ended(void *cookie)
{
    struct sandbox *s = cookie;
    loop_timer_stop(&s->wait_timer);
    s->destroyed = true;
    sandbox_settle(s);
}

// For each sandbox that became live, exactly one DESTROY is sent. Without a spawner nothing is left of it; it is freed in a later turn of
// the loop also then, because callers of sandbox_destroy() use the sandbox, the lists that it is in, and its jobs, after it.
static void
send_destroy(struct sandbox *s)
{
    struct err e;
    if (!s->live || s->destroy_sent || s->network_closing)
        return;
    close_disk(s);
    int r =
        spawn_destroy(s->all->srv->spawn, s->slot, s->generation, !s->sockets, on_destroyed, s, &e);
    if (r == 0) {
        s->destroy_sent = true;
        sandbox_hold(s);
    } else if (e.code == ERR_RESOURCE_EXHAUSTED) {
        (void)loop_timer_start(s->all->srv->loop, &s->wait_timer, DESTROY_AGAIN_MS,
                               on_destroy_again, s);
    } else {
        s->destroy_sent = true;
        s->destroyed =
            loop_timer_start(s->all->srv->loop, &s->wait_timer, 0, on_spawner_ended, s) < 0;
    }
}

static void
on_network_closed(void *cookie)
{
    struct sandbox *s = cookie;
    s->network_closing = false;
    send_destroy(s);
    sandbox_let_go(s);
}

// The relay first: as soon as the spawner has the slot back, another sandbox may get it.
static void
close_network(struct sandbox *s)
{
    if (!s->live || !s->all->networks->close(s, on_network_closed, s))
        return;
    s->network_closing = true;
    sandbox_hold(s);
}

struct err
sandbox_gone_err(const struct err *why)
{
    struct err e = *why;
    if (e.code == ERR_CANCELLED)
        e.code = stopping_is(why) ? ERR_UNAVAILABLE : ERR_ABORTED;
    return e;
}

// Calls wait for a change that will not come.
static void
end_waiters(struct sandbox *s, const struct err *why)
{
    const struct err e = sandbox_gone_err(why);
    notify(s, WAIT_STATE, &e);
    notify(s, WAIT_LIMITS, &e);
    notify(s, WAIT_NETWORK, &e);
    notify(s, WAIT_SWAP, &e);
}

void
sandbox_destroy(struct sandbox *s, const struct err *why, struct sandbox_waiter *w)
{
    if (w != NULL) {
        w->what = WAIT_DELETE;
        list_append(&s->waiters, &w->node);
    }
    if (s->state == SANDBOX_DELETING)
        return;
    enum sandbox_state before = s->state;
    sandbox_move(s, SANDBOX_DELETING);
    sandbox_hold(s);
    s->leaving = s->tenant != NULL && sandbox_leave(s->tenant, &s->reserved);
    if (pace_end(&s->young) && s->maker->young_ended != NULL)
        s->maker->young_ended(s->maker_cookie);
    loop_timer_stop(&s->ttl);
    loop_timer_stop(&s->wait_timer);
    if (runs_any(s))
        s->all->jobs->gone(s, why);
    OBSERVERS_NOTIFY(&s->all->observers, deleting, s, why);
    end_waiters(s, why);
    guest_link_free(s->link);
    s->link = NULL;
    close_network(s);
    sandbox_copy_stop(s);
    unseal_stop(s);
    send_destroy(s);
    if (before == SANDBOX_READY)
        s->maker->lost(s->maker_cookie, s);
    if (before == SANDBOX_CREATING) {
        metrics_add(METRIC_BIRTHS_FAILED, 1);
        s->maker->created(s->maker_cookie, NULL, why);
    }
    sandbox_let_go(s);
}

static void
guest_failed(struct sandbox *s, const struct err *why)
{
    struct err e = *why;
    (void)err_wrap(&e, "sandbox %s", s->id.id);
    const struct log_about about = {.sandbox = s->id.id,
                                    .tenant = s->tenant != NULL ? s->tenant->name : NULL};
    log_err_about(s->tenant != NULL ? LOG_ERROR : LOG_WARNING, "sandbox-lost", &about, &e);
    metrics_add(METRIC_SANDBOXES_LOST, 1);
    sandbox_destroy(s, &e, NULL);
}

static void
guest_violation(struct sandbox *s, const char *what)
{
    struct err e;
    (void)err_set(&e, ERR_INTERNAL, "the guest broke the protocol: %s", what);
    guest_failed(s, &e);
}

static void
on_guest_ready(void *cookie)
{
    struct sandbox *s = cookie;
    if (s->state != SANDBOX_CREATING) {
        guest_violation(s, "it reported Ready twice");
        return;
    }
    loop_timer_stop(&s->wait_timer);
    cgstat_read_early(&s->dirs, &s->fresh);
    sandbox_move(s, SANDBOX_READY);
    metrics_add(METRIC_BIRTHS, 1);
    metrics_observe(METRIC_BIRTH_TIME, 0, uv_hrtime() - s->begun_ns);
    s->maker->created(s->maker_cookie, s, NULL);
}

static void
on_guest_started(void *cookie, uint32_t job, uint32_t pid, int terminal)
{
    struct sandbox *s = cookie;
    if (!runs_any(s) && terminal >= 0)
        (void)close(terminal);
    if (!runs_any(s) || !s->all->jobs->started(s, job, pid, terminal))
        guest_violation(s, "it started a job that was not requested");
}

static void
on_guest_failed(void *cookie, uint32_t job, uint32_t exit_code, int sys, const char *text)
{
    struct sandbox *s = cookie;
    if (!runs_any(s) || !s->all->jobs->failed(s, job, exit_code, sys, text))
        guest_violation(s, "it reported a failure of a job that was not requested");
}

static void
on_guest_exited(void *cookie, uint32_t job, uint32_t status, const struct bill_rusage *usage)
{
    struct sandbox *s = cookie;
    if (!runs_any(s) || !s->all->jobs->exited(s, job, status, usage))
        guest_violation(s, "it reported the end of a job that does not run");
}

static void
on_guest_gone(void *cookie, const struct err *why)
{
    guest_failed(cookie, why);
}

static const struct guest_events guest_events = {
    .ready = on_guest_ready,
    .started = on_guest_started,
    .failed = on_guest_failed,
    .exited = on_guest_exited,
    .gone = on_guest_gone,
};

static void
on_no_ready(void *cookie)
{
    struct err e;
    (void)err_set(&e, ERR_INTERNAL, "its guest was not ready within %d ms", READY_MS);
    guest_failed(cookie, &e);
}

static void
adopt(struct sandbox *s, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    s->live = true;
    s->slot = reply->slot;
    s->generation = reply->generation;
    memcpy(s->dirs.fd, fds, sizeof s->dirs.fd);
    s->dirs.fd[SPAWN_FD_GUEST] = -1;
    if (s->state == SANDBOX_DELETING) {
        if (fds[SPAWN_FD_GUEST] >= 0)
            (void)close(fds[SPAWN_FD_GUEST]);
        send_destroy(s);
        return;
    }
    struct err e;
    if (fds[SPAWN_FD_GUEST] < 0) {
        (void)err_sys(&e, EMFILE, "create a sandbox");
        sandbox_destroy(s, &e, NULL);
        return;
    }
    if (s->all->networks->born(s, &e) < 0) {
        (void)close(fds[SPAWN_FD_GUEST]);
        guest_failed(s, &e);
        return;
    }
    OBSERVERS_NOTIFY(&s->all->observers, live, s);
    s->link = guest_link_new(s->all->srv->loop, fds[SPAWN_FD_GUEST], &guest_events, s, &e);
    if (s->link == NULL)
        guest_failed(s, &e);
    else
        (void)loop_timer_start(s->all->srv->loop, &s->wait_timer, READY_MS, on_no_ready, s);
}

static void
on_created(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    if (reply->ok != 0)
        adopt(s, reply, fds);
    else if (s->state != SANDBOX_DELETING)
        sandbox_destroy(s, &reply->err, NULL);
    sandbox_let_go(s);
}

int
sandbox_create(struct sandboxes *all, const struct template *t, const struct limits *limits,
               const struct sandbox_maker *maker, void *cookie, struct err *e)
{
    const uint32_t most = all->settings->quotas.sandboxes;
    if (all->table.n >= most) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%u %s", most,
                        plural(most, "sandbox already exists", "sandboxes already exist"));
        err_detail(e, "QUOTA_SANDBOXES_IN_ALL", "quotas.sandboxes",
                   "try again later, or raise quotas.sandboxes and reload the configuration");
        e->retry_ms = RETRY_MS;
        return r;
    }
    struct sandbox *s = calloc(1, sizeof *s);
    if (s == NULL)
        return err_sys(e, ENOMEM, "create a sandbox");
    s->all = all;
    s->spec.template = t;
    s->spec.limits = *limits;
    s->root = t->root;
    s->warm_version = t->warm_version;
    s->maker = maker;
    s->maker_cookie = cookie;
    list_init(&s->node);
    list_init(&s->pool_node);
    list_init(&s->jobs);
    list_init(&s->agents);
    list_init(&s->waiters);
    for (size_t i = 0; i < SPAWN_FDS_MAX; i++)
        s->dirs.fd[i] = -1;
    id_make(all->settings->node, s->id_bytes, s->id.id);
    struct spawn_limits l;
    limits_to_spawn(limits, &l);
    int r = spawn_create(all->srv->spawn, s->id_bytes, s->root, &l, on_created, s, e);
    if (r < 0) {
        free(s);
        return err_wrap(e, "create a sandbox");
    }
    sandbox_hold(s);
    idtable_add(&all->table, &s->id);
    s->begun_ns = uv_hrtime();
    count(s, 1);
    return 0;
}

static void
on_ttl(void *cookie)
{
    struct sandbox *s = cookie;
    struct err e;
    (void)err_set(&e, ERR_CANCELLED, "the time to live of its sandbox has ended");
    const struct log_about about = {.sandbox = s->id.id, .tenant = s->tenant->name};
    log_event_about(LOG_INFO, "sandbox-expired", &about, "%s", s->id.id);
    sandbox_destroy(s, &e, NULL);
}

void
sandbox_set_ttl(struct sandbox *s, uint64_t ttl_ms)
{
    s->spec.ttl_ms = ttl_ms;
    s->expires_ms = ttl_ms > 0 ? now_wall_ms() + (int64_t)ttl_ms : 0;
    if (ttl_ms > 0)
        (void)loop_timer_start(s->all->srv->loop, &s->ttl, ttl_ms, on_ttl, s);
    else
        loop_timer_stop(&s->ttl);
}

void
sandbox_fall_asleep(struct sandbox *s, const struct err *why, struct sandbox_waiter *w)
{
    s->falls_asleep = s->state != SANDBOX_DELETING;
    sandbox_destroy(s, why, w);
}

// Its cgroup keeps the id that it was born with, which nobody has seen.
static void
become(struct sandbox *s, const struct sandbox_identity *was)
{
    idtable_remove(&s->all->table, &s->id);
    memcpy(s->id.id, was->id, sizeof s->id.id);
    idtable_add(&s->all->table, &s->id);
    memcpy(s->spec.name, was->name, sizeof s->spec.name);
    s->spec.was = NULL;
    s->woken = true;
    s->order = was->order;
    s->created_ms = was->created_ms;
    struct list *after = &s->all->owned;
    while (after->prev != &s->all->owned &&
           list_entry(after->prev, struct sandbox, node)->order > s->order)
        after = after->prev;
    list_append(after, &s->node); // before it
    if (was->expires_ms == 0)
        return;
    const uint64_t ttl_ms = s->spec.ttl_ms;
    const int64_t left_ms = was->expires_ms - now_wall_ms();
    uint64_t ms = left_ms > 1 ? (uint64_t)left_ms : 1;
    if (ttl_ms > 0 && ms > ttl_ms) // the host's clock was set back
        ms = ttl_ms;
    sandbox_set_ttl(s, ms);
    s->spec.ttl_ms = ttl_ms;
}

uint64_t
sandbox_next_order(struct sandboxes *all)
{
    return ++all->taken;
}

static void
begin_life(struct sandbox *s)
{
    s->order = sandbox_next_order(s->all);
    s->created_ms = now_wall_ms();
    list_append(&s->all->owned, &s->node);
    if (s->spec.ttl_ms > 0)
        sandbox_set_ttl(s, s->spec.ttl_ms);
}

void
sandbox_take(struct sandbox *s, struct tenant *t, struct sandbox_spec *spec)
{
    sandbox_move(s, SANDBOX_RUNNING);
    s->tenant = t;
    s->spec = *spec;
    s->reserved = spec->limits;
    s->spec.network = NULL;
    network_unref(spec->network); // s->net.in_force is the policy in use
    spec->network = NULL;
    spec->image = NULL;
    spec->mounts = NULL;
    spec->simulation = NULL;
    spec->labels = NULL;
    spec->labels_n = 0;
    if (spec->was != NULL)
        become(s, spec->was);
    else
        begin_life(s);
    if (s->spec.template->user_root)
        lists_watch(s); // its jobs can change folders of the root
    OBSERVERS_NOTIFY(&s->all->observers, taken, s);
}

static void
on_rest(void *cookie)
{
    struct sandbox *s = cookie;
    struct err e;
    loop_timer_stop(&s->wait_timer);
    if (s->jobs_begun == 0 && guest_link_remove(s->link, 1, &e) < 0)
        log_err_about(LOG_WARNING, "remove-job", &(struct log_about){.sandbox = s->id.id}, &e);
}

void
sandbox_rest_soon(struct sandbox *s)
{
    (void)loop_timer_start(s->all->srv->loop, &s->wait_timer, REST_MS, on_rest, s);
}
