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
    if (s->state == SANDBOX_DELETING)
        sandbox_settle(s);
    else
        sandbox_tell(s, WAIT_LIMITS, reply->ok != 0 ? NULL : &reply->err);
}

int
sandbox_limit(struct sandbox *s, const struct limits *limits, struct sandbox_waiter *w,
              struct err *e)
{
    struct spawn_limits l;
    limits_to_spawn(limits, &l);
    if (sandbox_policy_limits(s, limits, e) < 0)
        return err_wrap(e, "set limits");
    int r = spawn_limit(s->all->srv->spawn, s->slot, s->generation, &l, on_limited, s, e);
    if (r < 0)
        return err_wrap(e, "set limits");
    s->pending++;
    w->what = WAIT_LIMITS;
    list_append(&s->waiters, &w->node);
    return 0;
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
        log_err(LOG_WARNING, "kill-job", &reply->err);
    sandbox_settle(s);
}

void
sandbox_kill_job(struct sandbox *s, uint32_t job)
{
    struct err e;
    if (s->state == SANDBOX_DELETING)
        return;
    if (spawn_kill_job(s->all->srv->spawn, s->slot, s->generation, job, on_job_killed, s, &e) < 0) {
        log_err(LOG_WARNING, "kill-job", &e); // the job's own patience ends the sandbox
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
