// SPDX-License-Identifier: Apache-2.0
// See sandbox.h: what the spawner is asked to change in a sandbox that lives, and who waits for that. Each request counts
// in `pending`, so that a sandbox which is deleted meanwhile stays until the answer is there.
#include "guest_link.h"
#include "job.h"
#include "log.h"
#include "net_policy.h"
#include "sandbox_private.h"
#include "server.h"
#include "spawn.h"
#include "telemetry.h"

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_limited(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    (void)fds;
    s->pending--;
    s->limits_pending--;
    if (s->state == SANDBOX_DELETING)
        sandbox_settle(s);
    else
        sandbox_tell(s, WAIT_LIMITS, reply->ok != 0 ? NULL : &reply->err);
}

// Has it a small share, or will it when the spawner has done what it was asked?
static bool
computes_then(const struct sandbox *s)
{
    return s->share.computes != s->share.asked;
}

static void
to_spawn(const struct limits *limits, bool computes, struct spawn_limits *out)
{
    limits_to_spawn(limits, out);
    if (computes && out->cpu_weight > 1)
        out->cpu_weight = (out->cpu_weight + SANDBOX_SHARE_PART - 1) / SANDBOX_SHARE_PART;
}

int
sandbox_limit(struct sandbox *s, const struct limits *limits, struct sandbox_waiter *w,
              struct err *e)
{
    struct spawn_limits l;
    to_spawn(limits, computes_then(s), &l);
    if (sandbox_policy_limits(s, limits, e) < 0)
        return err_wrap(e, "set limits");
    int r = spawn_limit(s->all->srv->spawn, s->slot, s->generation, &l, on_limited, s, e);
    if (r < 0)
        return err_wrap(e, "set limits");
    s->pending++;
    s->limits_pending++;
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
    s->pending--;
    s->share.asked = false;
    if (reply->ok != 0)
        s->share.computes = !s->share.computes;
    else
        log_err(LOG_WARNING, "cpu-share", &reply->err);
    sandbox_settle(s);
}

void
sandbox_share(struct sandbox *s, uint64_t cpu_ns, uint64_t now_ns)
{
    const int64_t most_ns = SANDBOX_SHARE_MS * INT64_C(1000000);
    int64_t used_ns = cpu_ns > s->share.cpu_ns ? (int64_t)(cpu_ns - s->share.cpu_ns) : 0;
    if (s->share.at_ns != 0)
        used_ns -= (int64_t)((now_ns - s->share.at_ns) / SANDBOX_SHARE_REST);
    s->share.at_ns = now_ns;
    s->share.cpu_ns = cpu_ns;
    used_ns += s->share.used_ns;
    s->share.used_ns = used_ns < 0 ? 0 : used_ns > most_ns ? most_ns : used_ns;
    bool changes =
        s->share.computes ? s->share.used_ns <= most_ns / 2 : s->share.used_ns == most_ns;
    // limits that are on their way would be overwritten
    if (!changes || s->share.asked || s->limits_pending > 0 || s->state != SANDBOX_RUNNING)
        return;
    struct spawn_limits l;
    struct err e;
    to_spawn(&s->spec.limits, !s->share.computes, &l);
    if (spawn_limit(s->all->srv->spawn, s->slot, s->generation, &l, on_shared, s, &e) < 0)
        return; // the spawner hangs, or has no room: looked at again
    s->pending++;
    s->share.asked = true;
}

// The spawner's word on a freeze or a thaw.
static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_frozen(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    (void)fds;
    s->pending--;
    if (s->state == SANDBOX_DELETING) {
        sandbox_settle(s);
        return;
    }
    bool pausing = s->state == SANDBOX_PAUSING;
    bool now_paused = pausing == (reply->ok != 0);
    if (reply->ok != 0)
        telemetry_sandbox_paused(s->all->srv->telemetry, s, now_paused);
    sandbox_move(s, now_paused ? SANDBOX_PAUSED : SANDBOX_RUNNING);
    list_each(it, &s->jobs)
    {
        if (now_paused)
            job_pause(job_of_sandbox(it));
        else
            job_resume(job_of_sandbox(it));
    }
    sandbox_tell(s, WAIT_STATE, reply->ok != 0 ? NULL : &reply->err);
}

static int
freeze(struct sandbox *s, bool frozen, struct sandbox_waiter *w, struct err *e)
{
    int r = spawn_freeze(s->all->srv->spawn, s->slot, s->generation, frozen, on_frozen, s, e);
    if (r < 0)
        return err_wrap(e, frozen ? "pause" : "resume");
    s->pending++;
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
    s->pending--;
    s->kills_pending--;
    if (reply->ok == 0)
        log_err_about(LOG_WARNING, "kill-job", &(struct log_about){.sandbox = s->id.id},
                      &reply->err);
    sandbox_settle(s);
}

void
sandbox_kill_job(struct sandbox *s, uint32_t job)
{
    struct err e;
    if (s->state == SANDBOX_DELETING)
        return;
    if (spawn_kill_job(s->all->srv->spawn, s->slot, s->generation, job, on_job_killed, s, &e) < 0) {
        log_err_about(LOG_WARNING, "kill-job", &(struct log_about){.sandbox = s->id.id},
                      &e); // the job's own patience ends the sandbox
        return;
    }
    s->pending++;
    s->kills_pending++;
}

bool
sandbox_kills_done(const struct sandbox *s)
{
    return s->kills_pending == 0;
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
    if (s->state == SANDBOX_DELETING)
        sandbox_settle(s);
    else
        sandbox_tell(s, WAIT_NETWORK, e);
}
