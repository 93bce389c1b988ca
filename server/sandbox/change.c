// SPDX-License-Identifier: Apache-2.0
// See sandbox.h: changes that the spawner makes to an existing sandbox, and their waiters. Each request increases
// `pending`, so a sandbox that is deleted in the meantime stays until the reply arrives.
#include "mounts.h"
#include "forward.h"
#include "guest_link.h"
#include "job_private.h"
#include "server/base/log.h"
#include "private.h"
#include "simulation.h"
#include "server/base/server.h"
#include "spawn.h"

static const uint64_t DENIED_NS = 100000000;

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_limited(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    (void)fds;
    s->limits_pending = false;
    if (reply->ok != 0 && s->state != SANDBOX_DELETING) {
        s->spec.limits = s->limits_wanted;
        OBSERVERS_NOTIFY(&s->all->observers, changed, s, SANDBOX_LIMITS);
    }
    sandbox_notify(s, WAIT_LIMITS, reply->ok != 0 ? NULL : &reply->err);
    sandbox_let_go(s);
}

int
sandbox_limit(struct sandbox *s, const struct limits *limits, struct sandbox_waiter *w,
              struct err *e)
{
    struct spawn_limits l;
    observers_assert_idle(&s->all->observers);
    if (s->limits_pending)
        return err_set(e, ERR_FAILED_PRECONDITION, "sandbox %s is being given other limits",
                       s->id.id);
    share_limits(limits, share_computes_then(&s->share), &l);
    if (s->all->networks->limit(s, limits, e) < 0)
        return err_wrap(e, "set limits");
    int r = spawn_limit(s->all->srv->spawn, s->slot, s->generation, &l, on_limited, s, e);
    if (r < 0)
        return err_wrap(e, "set limits");
    sandbox_hold(s);
    s->limits_pending = true;
    s->limits_wanted = *limits;
    w->what = WAIT_LIMITS;
    list_append(&s->waiters, &w->node);
    return 0;
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_shared(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    (void)fds;
    s->share.asked = false;
    if (reply->ok != 0)
        s->share.computes = !s->share.computes;
    else
        log_err(LOG_WARNING, "cpu-share", &reply->err);
    sandbox_let_go(s);
}

// Would overwrite limits that are being changed. If the spawner hangs or has no room, the next check tries again.
void
sandbox_share(struct sandbox *s, uint64_t cpu_ns, uint64_t now_ns)
{
    struct spawn_limits l;
    struct err e;
    if (!share_add(&s->share, s->tenant, cpu_ns, now_ns) || s->share.asked || s->limits_pending ||
        s->state != SANDBOX_RUNNING)
        return;
    share_limits(&s->spec.limits, !s->share.computes, &l);
    if (spawn_limit(s->all->srv->spawn, s->slot, s->generation, &l, on_shared, s, &e) < 0)
        return;
    sandbox_hold(s);
    s->share.asked = true;
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_held(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    (void)fds;
    s->forks.asked = false;
    if (reply->ok == 0 && s->state != SANDBOX_DELETING) {
        log_err(LOG_WARNING, "fork-rate", &reply->err);
        s->forks.held = false;
    }
    sandbox_let_go(s);
}

static void
hold_forks(struct sandbox *s, bool held)
{
    struct err e;
    struct fork_rate *f = &s->forks;
    if (spawn_hold(s->all->srv->spawn, s->slot, s->generation, held, on_held, s, &e) < 0) {
        log_err(LOG_WARNING, "fork-rate", &e);
        return;
    }
    sandbox_hold(s);
    f->asked = true;
    f->held = held;
    if (!held || f->logged)
        return;
    f->logged = true;
    log_event(
        LOG_WARNING, "fork-rate",
        "sandbox %s starts more than %u processes and threads per second: it is stopped until it "
        "is within the limit",
        s->id.id, s->all->settings->quotas.forks_per_second);
}

// Forks that the limit of processes refused since the last call. Only a sandbox that uses much CPU can cause many,
// and reading the counters takes up to three system calls, so they are read every DENIED_NS.
static uint64_t
newly_denied(struct sandbox *s, uint64_t now_ns)
{
    struct fork_rate *f = &s->forks;
    if (!s->share.computes || now_ns - f->denied_ns < DENIED_NS)
        return 0;
    uint64_t before = f->denied;
    f->denied = cgstat_pids_denied(&s->dirs, 0);
    list_each(it, &s->jobs) f->denied += cgstat_pids_denied(&s->dirs, job_of_sandbox(it)->number);
    f->denied_ns = now_ns;
    return f->denied > before ? f->denied - before : 0;
}

void
sandbox_forked(struct sandbox *s, uint64_t began, uint64_t now_ns)
{
    struct fork_rate *f = &s->forks;
    uint32_t rate = s->all->settings->quotas.forks_per_second;
    if (rate == 0)
        return;
    bool over = fork_rate_add(f, rate, began + newly_denied(s, now_ns), now_ns);
    bool live = s->live && s->state == SANDBOX_RUNNING;
    if (!f->asked && over != f->held && (live || f->held) && s->state != SANDBOX_DELETING)
        hold_forks(s, over);
}

// The spawner's reply to a freeze or a thaw.
static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_frozen(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    (void)fds;
    if (s->state == SANDBOX_DELETING) {
        sandbox_let_go(s);
        return;
    }
    bool pausing = s->state == SANDBOX_PAUSING;
    bool now_paused = pausing == (reply->ok != 0);
    sandbox_move(s, now_paused ? SANDBOX_PAUSED : SANDBOX_RUNNING);
    if (!list_empty(&s->jobs))
        s->all->jobs->paused(s, now_paused);
    if (reply->ok != 0)
        OBSERVERS_NOTIFY(&s->all->observers, changed, s,
                         now_paused ? SANDBOX_PAUSED_NOW : SANDBOX_RESUMED_NOW);
    sandbox_notify(s, WAIT_STATE, reply->ok != 0 ? NULL : &reply->err);
    sandbox_let_go(s);
}

static int
freeze(struct sandbox *s, bool frozen, struct sandbox_waiter *w, struct err *e)
{
    int r = spawn_freeze(s->all->srv->spawn, s->slot, s->generation, frozen, on_frozen, s, e);
    if (r < 0)
        return err_wrap(e, frozen ? "pause" : "resume");
    sandbox_hold(s);
    sandbox_move(s, frozen ? SANDBOX_PAUSING : SANDBOX_RESUMING);
    w->what = WAIT_STATE;
    list_append(&s->waiters, &w->node);
    return 0;
}

int
sandbox_pause(struct sandbox *s, struct sandbox_waiter *w, struct err *e)
{
    int r = sandbox_check_running(s, e);
    return r < 0 ? r : freeze(s, true, w, e);
}

int
sandbox_resume(struct sandbox *s, struct sandbox_waiter *w, struct err *e)
{
    if (s->state != SANDBOX_PAUSED)
        return err_set(e, ERR_FAILED_PRECONDITION, "sandbox %s is not paused", s->id.id);
    return freeze(s, false, w, e);
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_job_killed(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    (void)fds;
    s->kills_pending--;
    if (reply->ok == 0)
        log_err_about(LOG_WARNING, "kill-job", &(struct log_about){.sandbox = s->id.id},
                      &reply->err);
    sandbox_let_go(s);
}

void
sandbox_kill_job(struct sandbox *s, uint32_t job)
{
    struct err e;
    if (s->state == SANDBOX_DELETING)
        return;
    if (spawn_kill_job(s->all->srv->spawn, s->slot, s->generation, job, on_job_killed, s, &e) < 0) {
        log_err_about(LOG_WARNING, "kill-job", &(struct log_about){.sandbox = s->id.id},
                      &e); // the job's own timeout ends the sandbox
        return;
    }
    sandbox_hold(s);
    s->kills_pending++;
}

bool
sandbox_kills_done(const struct sandbox *s)
{
    return s->kills_pending == 0;
}

bool
sandbox_network_is_off(const struct sandbox *s)
{
    return s->net.in_force != NULL && s->net.in_force->mode == NET_OFF;
}

bool
sandbox_starts_off(struct sandbox *s)
{
    const bool off = sandbox_network_is_off(s);
    s->sockets |= !off;
    return off;
}

// Jobs have a filter of system calls for the mode off, which cannot be removed, and their sockets outlive a change.
static int
check_off(const struct sandbox *s, const struct network *n, struct err *e)
{
    if (s->state == SANDBOX_READY || sandbox_network_is_off(s) == (n->mode == NET_OFF))
        return 0;
    int r = err_set(e, ERR_FAILED_PRECONDITION,
                    "network.mode: a sandbox is created with the mode off, and keeps it");
    err_detail(e, "NETWORK_OFF_STAYS", "network.mode", "create another sandbox");
    return r;
}

int
sandbox_network(struct sandbox *s, struct network *n, struct sandbox_waiter *w, struct err *e)
{
    observers_assert_idle(&s->all->observers);
    int r = check_off(s, n, e);
    if (r < 0)
        return r;
    return s->all->networks->change(s, n, w, e);
}

bool
sandbox_settle_traffic(struct sandbox *s, struct sandbox_settler *w)
{
    return s->all->networks->settle(s, w);
}

void
sandbox_network_changed(struct sandbox *s, bool other)
{
    if (other)
        OBSERVERS_NOTIFY(&s->all->observers, changed, s, SANDBOX_NETWORK);
    forwards_check(s->all->srv->forwards, s);
}

void
sandbox_hold(struct sandbox *s)
{
    s->pending++;
}

void
sandbox_let_go(struct sandbox *s)
{
    s->pending--;
    sandbox_settle(s);
}

void
sandbox_network_wait(struct sandbox *s, struct sandbox_waiter *w)
{
    w->what = WAIT_NETWORK;
    list_append(&s->waiters, &w->node);
}

void
sandbox_network_done(struct sandbox *s, const struct err *e)
{
    sandbox_notify(s, WAIT_NETWORK, e);
}

void
sandbox_simulate(struct sandbox *s, struct simulation *m)
{
    assert(m == NULL ||
           (s->state == SANDBOX_READY && s->simulation == NULL && s->net.in_force == NULL));
    s->simulation = m != NULL ? simulation_ref(m) : s->simulation;
}

int
sandbox_mount(struct sandbox *s, struct mounts *m, struct sandbox_waiter *w, struct err *e)
{
    if (m == NULL)
        return 1;
    if (s->all->mounters == NULL)
        return err_set(e, ERR_FAILED_PRECONDITION, "there are no volumes here");
    w->what = WAIT_MOUNTS;
    list_append(&s->waiters, &w->node);
    int r = s->all->mounters->mount(s, m, e);
    if (r < 0)
        sandbox_unwait(w);
    return r;
}

void
sandbox_mounted(struct sandbox *s, const struct err *e)
{
    sandbox_notify(s, WAIT_MOUNTS, e);
}
