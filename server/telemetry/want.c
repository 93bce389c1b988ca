// SPDX-License-Identifier: Apache-2.0
// See telemetry.h: the syscall tracepoint, attached while it is needed. It costs every process of the host 30 to 80
// ns per call, and attaching it takes milliseconds, so it stays attached a little longer than it is needed.
//
//   OFF --want--> COMES --spawner: attached--> ON --unwanted for TELEMETRY_LINGER_MS--> GOES --detached--> OFF
//                   '--spawner: failed--> OFF, broken: not tried again until it is not needed any more
#include "private.h"

#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/sandbox/spawn.h"

static void step(struct telemetry *t);

static bool
can(const struct telemetry *t)
{
    return t->srv->bpf != NULL && (t->srv->bpf->has & BPF_HAS_SYSCALLS) != 0 &&
           t->settings->syscalls != SYSCALLS_OFF;
}

int
telemetry_check_syscalls(const struct telemetry *t, struct err *e)
{
    if (t != NULL && can(t) && !t->broken)
        return 0;
    bool off = t != NULL && t->settings->syscalls == SYSCALLS_OFF;
    int r = err_set(e, ERR_FAILED_PRECONDITION, "this broker does not count system calls");
    err_detail(e, "SYSCALLS_NOT_COUNTED", "count_syscalls",
               off ? "its configuration has telemetry.syscalls: off"
                   : "its host does not permit the tracepoint (see `stockade info`)");
    return r;
}

bool
telemetry_watches(const struct telemetry *t, bool asked)
{
    return t != NULL && can(t) && (asked || telemetry_detectors_want(t));
}

static void
wake_waiters(struct telemetry *t)
{
    while (!list_empty(&t->waiters)) {
        struct telemetry_waiter *w = list_entry(t->waiters.next, struct telemetry_waiter, node);
        list_remove(&w->node);
        w->done(w->cookie);
    }
}

static void ask(struct telemetry *t, bool on);

static void
on_linger_over(void *cookie)
{
    struct telemetry *t = cookie;
    if (t->wanted == 0 && t->watching == WATCH_IS_ON)
        ask(t, false);
}

static void
linger(struct telemetry *t)
{
    (void)loop_timer_start(t->srv->loop, &t->linger, TELEMETRY_LINGER_MS, on_linger_over, t);
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_watched(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct telemetry *t = cookie;
    bool on = t->watching == WATCH_COMES;
    (void)fds;
    if (reply->ok == 0) {
        metrics_add(METRIC_WATCH_FAILED, 1);
        log_err(LOG_WARNING, "syscalls", &reply->err);
    }
    t->broken = on && reply->ok == 0;
    t->watching = on && reply->ok != 0 ? WATCH_IS_ON : WATCH_IS_OFF;
    if (!on)
        step(t);
    else if (t->watching == WATCH_IS_ON && t->wanted == 0)
        linger(t);
    t->detached += !on;
    if (t->watching == WATCH_IS_ON || t->watching == WATCH_IS_OFF)
        wake_waiters(t);
}

static void
ask(struct telemetry *t, bool on)
{
    struct err e;
    if (spawn_watch(t->srv->spawn, on, on_watched, t, &e) == 0) {
        t->watching = on ? WATCH_COMES : WATCH_GOES;
        return;
    }
    metrics_add(METRIC_WATCH_FAILED, 1);
    log_err(LOG_WARNING, "syscalls", &e);
    // otherwise it is tried again when the spawner responds
    t->broken = on && e.code != ERR_UNAVAILABLE;
}

// Attaches or detaches it, as needed.
static void
step(struct telemetry *t)
{
    if (t->wanted > 0 && t->watching == WATCH_IS_OFF && can(t) && !t->broken)
        ask(t, true);
    if (t->watching == WATCH_IS_OFF || !can(t))
        wake_waiters(t);
}

void
telemetry_want(struct telemetry *t)
{
    if (t == NULL)
        return;
    t->wanted++;
    step(t);
}

void
telemetry_unwant(struct telemetry *t)
{
    if (t == NULL || --t->wanted > 0)
        return;
    t->broken = false;
    if (t->watching == WATCH_IS_ON)
        linger(t);
}

void
telemetry_spawner(struct telemetry *t, bool hangs)
{
    if (t == NULL)
        return;
    if (hangs)
        wake_waiters(t); // they continue without counted system calls
    else
        step(t);
}

bool
telemetry_wait(struct telemetry *t, struct telemetry_waiter *w)
{
    list_init(&w->node);
    if (t == NULL || t->watching == WATCH_IS_ON || t->watching == WATCH_IS_OFF ||
        !spawn_answers(t->srv->spawn))
        return true;
    list_append(&t->waiters, &w->node);
    return false;
}

void
telemetry_unwait(struct telemetry_waiter *w)
{
    list_remove(&w->node);
}
