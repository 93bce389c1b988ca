// SPDX-License-Identifier: Apache-2.0
// See broker.h. The order of the parts is that of their needs: who observes sandboxes comes before the first one.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sysexits.h>
#include <uv.h>

#include "broker.h"
#include "drain.h"
#include "proto/auto.h"
#include "proto/err.h"
#include "reload.h"
#include "server/access/access.h"
#include "server/access/approval.h"
#include "server/anomaly/anomaly.h"
#include "server/anomaly/silences.h"
#include "server/anomaly/tenant_rules.h"
#include "server/api/convert.h"
#include "server/api/sleep.h"
#include "server/audit/audit.h"
#include "server/base/log.h"
#include "server/batch/batch.h"
#include "server/code/context.h"
#include "server/code/zygote.h"
#include "server/config/config.h"
#include "server/files/files.h"
#include "server/network/enforce.h"
#include "server/network/net.h"
#include "server/rpc/dispatch.h"
#include "server/rpc/rpc.h"
#include "server/sandbox/alive.h"
#include "server/sandbox/forward.h"
#include "server/sandbox/job.h"
#include "server/sandbox/pool.h"
#include "server/sandbox/sandbox.h"
#include "server/sandbox/spawn.h"
#include "server/sleep/sleepers.h"
#include "server/snapshot/made.h"
#include "server/snapshot/noted.h"
#include "server/snapshot/snapshots.h"
#include "server/snapshot/transaction.h"
#include "server/state/state.h"
#include "server/store/store.h"
#include "server/telemetry/feed.h"
#include "server/telemetry/telemetry.h"
#include "server/vault/vault.h"
#include "server/volume/volumes.h"

// The end: no handle keeps the loop alive any more.
static void
on_over(void *cookie)
{
    struct broker *b = cookie;
    alive_stop(b->s.alive);
    feed_close(b->s.feed);
    rpc_close(b->s.rpc);
    uv_stop(&b->loop);
}

// Without the spawner no sandbox exists any more, and none can be created.
static void
on_spawner_gone(void *cookie)
{
    struct broker *b = cookie;
    log_event(LOG_ERROR, "spawner-gone", "the spawner has ended; every sandbox ends with it");
    b->status = EX_SOFTWARE;
    rpc_close(b->s.rpc);
    uv_stop(&b->loop);
}

// Every call that waits for the spawner fails; running jobs continue.
static void
on_spawner_silent(void *cookie, bool hangs)
{
    struct broker *b = cookie;
    if (hangs)
        log_event(
            LOG_ERROR, "spawner-hangs",
            "the spawner (pid %d) does not respond: no sandbox can be created, changed or removed "
            "until it does; if it does not continue, stop the broker and run kill -9 %d",
            (int)spawn_pid(b->s.spawn), (int)spawn_pid(b->s.spawn));
    else
        log_event(LOG_WARNING, "spawner-answers", "the spawner responds again");
    if (hangs)
        sandboxes_spawner_hangs(b->s.sandboxes);
    pool_spawner(b->s.pool, hangs);
    telemetry_spawner(b->s.telemetry, hangs);
    alive_look(b->s.alive);
}

// A database that cannot be used ends the start: without it nobody knows which keys were revoked.
static int
open_state(struct broker *b, struct err *e)
{
    char folder[SPAWN_PATH_MAX + 16];
    (void)snprintf(folder, sizeof folder, "%s/state", b->config->state_dir);
    return state_open(folder, &b->s.state, e);
}

// A log that cannot be used ends the start, too: nothing may happen without a trace.
static int
open_audit(struct broker *b, struct err *e)
{
    const struct audit_settings *s = &b->config->audit;
    char folder[SPAWN_PATH_MAX + 16];
    if (!s->enabled)
        return 0;
    (void)snprintf(folder, sizeof folder, "%s%s",
                   s->folder[0] != '\0' ? s->folder : b->config->state_dir,
                   s->folder[0] != '\0' ? "" : "/audit");
    (void)signal(
        SIGXFSZ,
        SIG_IGN); // RLIMIT_FSIZE is a full disk like any other; the spawner has been started
    int r = audit_open(s, folder, s->key, &b->s.audit, e);
    return r == 0 ? audit_start(b->s.audit, &b->loop, e) : r;
}

static int
make_store(struct broker *b, struct err *e)
{
    b->s.store = store_new(&b->s, b->config->state_dir, e);
    if (b->s.store == NULL)
        log_err(LOG_ERROR, "store", e); // all else works
    if (b->s.made != NULL)
        made_load(b->s.made);
    b->s.sleepers =
        sleepers_new(&b->s, &(struct sleep_settings){&b->config->limits_held, convert_sandbox});
    if (b->s.sleepers == NULL)
        return err_sys(e, ENOMEM, "start");
    dispatch_set_gate(b->s.dispatch, sleep_gate, &b->s);
    return 0;
}

static int
make_state(struct broker *b, struct err *e)
{
    int r = open_state(b, e);
    r = r == 0 ? vault_open(b->s.state, take_ptr(b->master), &b->s.vault, e) : r;
    r = r == 0 ? access_new(b->s.state, &b->config->access, &b->s.access, e) : r;
    r = r == 0 ? approvals_new(b->s.access, b->s.state, &b->loop, &b->s.approvals, e) : r;
    r = r == 0 ? silences_new(b->s.state, &b->s.silences, e) : r;
    r = r == 0 ? rpc_read_keys(b->s.state, &b->earlier, e) : r;
    r = r == 0 ? rules_of_tenants_new(b->s.state, &b->s.rules, e) : r;
    return r == 0 ? state_start(b->s.state, &b->loop, e) : r;
}

int
core_make(struct broker *b, struct err *e)
{
    b->s.loop = &b->loop;
    b->s.config = b->config;
    b->s.tenants = &b->tenants;
    b->tenants.quotas = &b->config->tenant_quotas;
    b->s.features = &b->root.features;
    b->s.started_ns = uv_hrtime();
    b->s.sandboxes = sandboxes_new(&b->s, &b->config->sandbox);
    b->s.jobs = jobs_new(&b->s);
    b->s.forwards = forwards_new(&b->s);
    b->s.files = files_new(&b->s, take_fd(&b->root.files_fd));
    if (b->s.sandboxes == NULL || b->s.jobs == NULL || b->s.forwards == NULL || b->s.files == NULL)
        return err_sys(e, ENOMEM, "start");
    int r = spawn_attach(b->s.spawn, &b->loop, on_spawner_gone, b, e);
    r = r == 0 ? make_state(b, e) : r;
    r = r == 0 ? open_audit(b, e) : r;
    if (r < 0)
        return r;
    sandboxes_set_networks(b->s.sandboxes, &enforce_networks);
    b->s.net = net_new(&b->s, &b->config->network, &enforce_events, e);
    if (b->s.net == NULL)
        return err_errno(e);
    b->s.telemetry = telemetry_new(&b->s, &b->config->telemetry);
    if (b->s.telemetry != NULL) // it must observe first: server/sandbox/observers.h
        b->s.anomaly = anomaly_new(&b->s, &b->config->anomaly, b->config->state_dir);
    if (b->s.anomaly == NULL)
        return err_sys(e, ENOMEM, "start");
    snapshots_observe(b->s.sandboxes);
    noted_observe(b->s.sandboxes);
    b->s.made = made_all_new(&b->s);
    b->s.transactions = transactions_new(&b->s);
    b->s.volumes = volumes_new(&b->s, b->config->state_dir);
    if (b->s.volumes == NULL)
        return err_sys(e, ENOMEM, "start");
    sandboxes_set_mounters(b->s.sandboxes, &volume_mounters);
    volumes_sweep(b->s.volumes);
    if (make_store(b, e) < 0)
        return err_errno(e);
    b->s.contexts = contexts_new(&b->s);
    b->s.pool = pool_new(&b->s, b->s.sandboxes);
    if (b->s.pool != NULL)
        b->s.zygotes = zygotes_new(&b->s);
    b->s.batches = batches_new(&b->s, &b->config->limits_held);
    b->s.alive = alive_new(&b->s, b->config->state_dir);
    b->drain = drain_new(&b->s, on_over, b);
    b->reload = reload_new(&b->s, b->config, &b->root.features, b->argc, b->argv);
    if (b->s.contexts == NULL || b->s.zygotes == NULL || b->s.made == NULL ||
        b->s.transactions == NULL || b->s.batches == NULL || b->s.alive == NULL ||
        b->drain == NULL || b->reload == NULL)
        return err_sys(e, ENOMEM, "start");
    spawn_on_silent(b->s.spawn, on_spawner_silent, b);
    return 0;
}
