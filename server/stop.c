// SPDX-License-Identifier: Apache-2.0
// See broker.h. The end of the broker, after drain.c: everything is freed, so that LeakSanitizer judges each run of the
// tests. Where a handle does not close, the rest is left to the end of the process.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sysexits.h>
#include <unistd.h>
#include <uv.h>

#include "broker.h"
#include "drain.h"
#include "proto/auto.h"
#include "proto/leak.h"
#include "reload.h"
#include "server/access/access.h"
#include "server/access/approval.h"
#include "server/anomaly/anomaly.h"
#include "server/anomaly/silences.h"
#include "server/anomaly/tenant_rules.h"
#include "server/audit/audit.h"
#include "server/base/log.h"
#include "server/batch/batch.h"
#include "server/code/context.h"
#include "server/code/zygote.h"
#include "server/config/config.h"
#include "server/files/files.h"
#include "server/network/net.h"
#include "server/rpc/dispatch.h"
#include "server/rpc/rpc.h"
#include "server/rpc/tenants.h"
#include "server/sandbox/alive.h"
#include "server/sandbox/bpf.h"
#include "server/sandbox/forward.h"
#include "server/sandbox/job.h"
#include "server/sandbox/pool.h"
#include "server/sandbox/sandbox.h"
#include "server/sandbox/spawn.h"
#include "server/sleep/sleepers.h"
#include "server/snapshot/made.h"
#include "server/snapshot/snapshots.h"
#include "server/snapshot/transaction.h"
#include "server/state/state.h"
#include "server/store/store.h"
#include "server/telemetry/feed.h"
#include "server/telemetry/telemetry.h"
#include "server/vault/vault.h"
#include "server/volume/volumes.h"

enum {
    SPAWNER_GRACE_MS = 10 * 1000,
    HUNG_GRACE_MS = 1000, // for a sandbox or spawner that did not respond before
    WATCHDOG_S = 30,      // for the last steps; nng has been seen to hang there
    SETTLE_MS = 1000,     // for handles of the loop to close
};

// All sandboxes are removed or being removed; the spawner removes the remains when its socket closes. A spawner that
// hangs does so when it continues.
static void
stop_spawner(struct broker *b, bool answers)
{
    int pid = b->s.spawn != NULL ? (int)spawn_pid(b->s.spawn) : 0;
    bool clean = spawn_close(take_ptr(b->s.spawn), answers ? SPAWNER_GRACE_MS : HUNG_GRACE_MS);
    if (!clean && answers)
        log_event(LOG_WARNING, "spawner", "it did not end normally");
    if (!clean && kill(pid, 0) < 0 && errno == EPERM) { // the process exists, and belongs to root
        log_event(LOG_ERROR, "spawner",
                  "the spawner (pid %d) does not end and keeps the cgroup: no broker can use this "
                  "cgroup until it has ended (kill -9 %d)",
                  pid, pid);
        b->status = b->status != 0 ? b->status : EX_SOFTWARE;
    }
}

static bool
is_closed(const struct broker *b)
{
    return rpc_is_closed(b->s.rpc);
}

static bool
is_quiet(const struct broker *b)
{
    return store_is_quiet(b->s.store);
}

static bool
is_at_rest(const struct broker *b)
{
    return uv_loop_alive(&b->loop) == 0;
}

// Lets the loop finish closing handles. False: a handle does not close.
static bool
settle(struct broker *b, bool (*done)(const struct broker *b))
{
    for (int i = 0; i < SETTLE_MS && !done(b); i++) {
        (void)uv_run(&b->loop, UV_RUN_NOWAIT);
        if (!done(b))
            (void)poll(NULL, 0, 1); // nng's threads still report their ends
    }
    return done(b);
}

static void
stop_signals(struct broker *b)
{
    uv_signal_t *const all[] = {&b->term, &b->interrupt, &b->hangup};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i]->type == UV_SIGNAL)
            uv_close((uv_handle_t *)all[i], NULL);
}

// After the last call and the last job.
static void
stop_audit(struct broker *b)
{
    if (b->s.rpc != NULL)
        rpc_set_audit(b->s.rpc, NULL);
    audit_close(take_ptr(b->s.audit), b->status);
}

// Takes everything down, in the reverse order of the start.
static void
take_down(struct broker *b)
{
    struct server *s = &b->s;
    bool answers = spawn_answers(s->spawn);
    stop_signals(b);
    alive_stop(s->alive);
    feed_close(s->feed);
    rpc_close(s->rpc);
    sleepers_stop(s->sleepers);
    snapshots_stop();
    store_stop(s->store);
    if (s->rpc != NULL)
        rpc_set_state(s->rpc, NULL, NULL);
    state_close(take_ptr(s->state));
    approvals_free(take_ptr(s->approvals));
    access_free(take_ptr(s->access));
    bool closed = settle(b, is_closed);
    if (!drain_abandon(s) || !closed || !settle(b, is_quiet)) {
        anomaly_free(s->anomaly); // saves what was learned
        stop_audit(b);
        stop_spawner(b, answers);
        return;
    }
    drain_free(b->drain);
    reload_free(take_ptr(b->reload));
    alive_free(take_ptr(s->alive));
    batches_free(take_ptr(s->batches));
    zygotes_free(s->zygotes);
    transactions_free(take_ptr(s->transactions));
    made_all_free(take_ptr(s->made));
    pool_free(take_ptr(s->pool));
    files_free(s->files);
    contexts_free(take_ptr(s->contexts));
    forwards_free(s->forwards);
    jobs_free(s->jobs); // notifies observers
    stop_audit(b);
    anomaly_free(take_ptr(s->anomaly));
    rules_of_tenants_free(take_ptr(s->rules));
    silences_free(take_ptr(s->silences));
    telemetry_free(take_ptr(s->telemetry));
    net_free(take_ptr(s->net));
    sandboxes_free(s->sandboxes);
    sleepers_free(take_ptr(s->sleepers));
    store_free(take_ptr(s->store)); // sandboxes hold its layers
    vault_free(take_ptr(s->vault));
    volumes_free(take_ptr(s->volumes));
    rpc_free(s->rpc); // jobs are counted for its tenants
    (void)tenants_forget(&b->tenants);
    stop_spawner(b, answers);
    dispatch_free(s->dispatch);
    if (!settle(b, is_at_rest) || uv_loop_close(&b->loop) != 0)
        log_event(LOG_DEBUG, "stop", "a handle of the loop is left");
    bpf_close(&b->root.bpf);
    config_free(b->config);
}

_Noreturn void
stop_broker(struct broker *b)
{
    drain_watchdog(WATCHDOG_S);
    if (b->started)
        take_down(b);
    else
        stop_spawner(b, spawn_answers(b->s.spawn));
    log_event(LOG_INFO, "stopped", "status %d", b->status);
    b->s = (struct server){0}; // memory that only this refers to is leaked
    leak_judge();
    _exit(b->status);
}
