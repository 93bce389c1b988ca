// SPDX-License-Identifier: Apache-2.0
// See drain.h.
#include "drain.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>
#include <uv.h>

#include "proto/plural.h"
#include "proto/quantity.h"
#include "server/sandbox/alive.h"
#include "server/access/approval.h"
#include "server/anomaly/anomaly.h"
#include "server/audit/audit.h"
#include "server/batch/batch.h"
#include "server/code/context.h"
#include "server/config/config.h"
#include "server/sandbox/job.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/notify.h"
#include "server/sandbox/pool.h"
#include "server/rpc/rpc.h"
#include "server/sandbox/sandbox.h"
#include "server/base/server.h"
#include "server/sandbox/spawn.h"
#include "server/telemetry/telemetry.h"

#define MS UINT64_C(1000000)

enum {
    LOOK_MS = 20,
    STEADY_MS = 5000, // if no sandbox was removed for this long, none will be
    HUNG_MS = 500,    // the same while the spawner hangs
    ABANDON_MS = 1000,
    WATCHERS_MS = 500, // for calls that only watch, to receive the last events
    WATCHDOG_S = 30,   // since the last look
};

struct drain {
    struct server *srv;
    struct loop_timer *look;
    uint64_t until_ns;
    bool calls_over; // no call is open any more
    bool destroying, over;
    struct loop_timer *end;
    uint64_t end_ns; // when calls that still watch are cut
    bool quiet;      // none is left
    uint32_t left;   // sandboxes, and since when so many
    uint64_t left_ns;
    void (*on_over)(void *cookie);
    void *cookie;
};

static void
on_watchdog(int number)
{
    static const char text[] = "stockaded: the shutdown took too long; the process exits now\n";
    (void)number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(EX_SOFTWARE);
}

void
drain_watchdog(unsigned seconds)
{
    (void)signal(SIGALRM, on_watchdog);
    (void)alarm(seconds);
}

struct drain *
drain_new(struct server *srv, void (*over)(void *cookie), void *cookie)
{
    struct drain *d = calloc(1, sizeof *d);
    if (d != NULL)
        *d = (struct drain){.srv = srv, .on_over = over, .cookie = cookie};
    return d;
}

void
drain_free(struct drain *d)
{
    if (d == NULL)
        return;
    loop_timer_stop(&d->look);
    loop_timer_stop(&d->end);
    free(d);
}

// Ends when no call is open any more, and one turn later, so that the last answers are written.
static void
on_end_look(void *cookie)
{
    struct drain *d = cookie;
    struct rpc_stats now;
    rpc_stats(d->srv->rpc, &now);
    bool over = d->quiet || uv_hrtime() >= d->end_ns;
    d->quiet = now.open_calls == 0;
    if (over || loop_timer_start(d->srv->loop, &d->end, 1, on_end_look, d) < 0)
        d->on_over(d->cookie);
}

// Calls that only watch get the events of the shutdown, and end.
static void
on_all_destroyed(void *cookie)
{
    struct drain *d = cookie;
    struct server *srv = d->srv;
    if (d->over)
        return;
    d->over = true;
    loop_timer_stop(&d->look);
    srv->drained = true;
    telemetry_end(srv->telemetry);
    if (srv->anomaly != NULL)
        anomaly_end(srv->anomaly);
    audit_readers_end(srv->audit);
    d->end_ns = uv_hrtime() + WATCHERS_MS * MS;
    if (loop_timer_start(srv->loop, &d->end, 1, on_end_look, d) < 0)
        d->on_over(d->cookie);
}

static void
destroy_all(struct drain *d)
{
    if (d->destroying)
        return;
    d->destroying = true;
    d->left = sandboxes_count(d->srv->sandboxes);
    d->left_ns = uv_hrtime();
    sandboxes_destroy_all(d->srv->sandboxes, on_all_destroyed, d);
}

// Gives up: the remaining sandboxes cannot be removed.
static void
look_at_rest(struct drain *d)
{
    uint64_t now = uv_hrtime();
    uint32_t left = sandboxes_count(d->srv->sandboxes);
    uint64_t timeout_ms = spawn_answers(d->srv->spawn) ? STEADY_MS : HUNG_MS;
    if (left != d->left) {
        d->left = left;
        d->left_ns = now;
    }
    if (now - d->left_ns < timeout_ms * MS)
        return;
    log_event(LOG_ERROR, "stop",
              "%u %s could not be removed: jobs are killed, and the next start removes the remains",
              left, plural(left, "sandbox", "sandboxes"));
    on_all_destroyed(d);
}

// An interpreter without a cell has nothing to finish.
static bool
jobs_have_ended(const struct server *srv)
{
    return jobs_running(srv->jobs) <= contexts_at_rest(srv->contexts);
}

static void
on_look(void *cookie)
{
    struct drain *d = cookie;
    bool time_is_up = uv_hrtime() >= d->until_ns;
    (void)alarm(WATCHDOG_S);
    if (time_is_up || (d->calls_over && jobs_have_ended(d->srv)))
        destroy_all(d);
    if (d->destroying && !d->over)
        look_at_rest(d);
    if (!d->over)
        (void)loop_timer_start(d->srv->loop, &d->look, LOOK_MS, on_look, d);
}

bool
drain_abandon(struct server *srv)
{
    if (srv->sandboxes == NULL || sandboxes_count(srv->sandboxes) == 0)
        return true;
    if (srv->pool != NULL)
        pool_stop(srv->pool);
    spawn_abandon(srv->spawn);
    sandboxes_destroy_all(srv->sandboxes, NULL, NULL);
    for (int i = 0; i < ABANDON_MS && sandboxes_count(srv->sandboxes) > 0; i++) {
        (void)uv_run(srv->loop, UV_RUN_NOWAIT); // the relay still replies
        (void)poll(NULL, 0, 1);
    }
    return sandboxes_count(srv->sandboxes) == 0;
}

static void
on_calls_over(void *cookie)
{
    struct drain *d = cookie;
    d->calls_over = true;
}

void
drain_signal(struct drain *d, int number)
{
    struct server *srv = d->srv;
    uint64_t ms = srv->config->drain_ms;
    char left[QUANTITY_TEXT];
    if (srv->draining) {
        log_event(LOG_INFO, "stop", "second signal (%s): exiting without a wait",
                  strsignal(number));
        d->until_ns = 0;
        destroy_all(d);
        return;
    }
    drain_watchdog(WATCHDOG_S);
    log_event(LOG_INFO, "drain", "%s: running jobs have %s to end", strsignal(number),
              quantity_write(ms, quantity_time_ms, left));
    notify_systemd("STOPPING=1");
    srv->draining = true;
    alive_look(srv->alive);
    batches_drain(srv->batches);
    if (srv->approvals != NULL)
        approvals_end(srv->approvals); // a call that waits for people must not delay the end
    pool_stop(srv->pool);
    d->until_ns = uv_hrtime() + ms * MS;
    rpc_drain(srv->rpc, (uint32_t)ms, on_calls_over, d);
    on_look(d);
}
