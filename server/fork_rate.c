// SPDX-License-Identifier: Apache-2.0
// See fork_rate.h.
#include "fork_rate.h"

#include "config.h"
#include "log.h"
#include "sandbox_private.h"
#include "server.h"
#include "spawn.h"

// The burst is what the rate allows in BURST_S. Held until PART_S of the rate is free again; what came in one look counts
// for MOST_S at most, so that nothing is held for long.
static const double BURST_S = 2;
static const double PART_S = 0.05;
static const double MOST_S = 1;

bool
fork_rate_add(struct fork_rate *f, double per_second, uint64_t began, uint64_t now_ns)
{
    double drained = per_second * (double)(now_ns - f->looked_ns) / 1e9;
    double burst = per_second * BURST_S;
    double most = burst + per_second * MOST_S;
    f->looked_ns = now_ns;
    f->level = f->level > drained ? f->level - drained : 0;
    f->level += (double)began;
    f->level = f->level < most ? f->level : most;
    return f->level > (f->held ? burst - per_second * PART_S : burst);
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_held(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct sandbox *s = cookie;
    (void)fds;
    s->pending--;
    s->forks.asked = false;
    if (reply->ok == 0 && s->state != SANDBOX_DELETING) {
        log_err(LOG_WARNING, "fork-rate", &reply->err);
        s->forks.held = false;
    }
    sandbox_settle(s);
}

static void
hold(struct sandbox *s, bool held)
{
    struct err e;
    struct fork_rate *f = &s->forks;
    if (spawn_hold(s->all->srv->spawn, s->slot, s->generation, held, on_held, s, &e) < 0) {
        log_err(LOG_WARNING, "fork-rate", &e);
        return;
    }
    s->pending++;
    f->asked = true;
    f->held = held;
    if (!held || f->told)
        return;
    f->told = true;
    log_event(LOG_WARNING, "fork-rate",
              "sandbox %s begins more than %u processes and threads per second: it is held back",
              s->id.id, s->all->srv->config->quotas.forks_per_second);
}

void
fork_rate_look(struct sandbox *s, uint64_t began, uint64_t now_ns)
{
    struct fork_rate *f = &s->forks;
    uint32_t rate = s->all->srv->config->quotas.forks_per_second;
    if (rate == 0)
        return;
    bool over = fork_rate_add(f, rate, began, now_ns);
    bool live = s->live && s->state == SANDBOX_RUNNING;
    if (!f->asked && over != f->held && (live || f->held) && s->state != SANDBOX_DELETING)
        hold(s, over);
}
