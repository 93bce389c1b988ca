// SPDX-License-Identifier: Apache-2.0
// stockaded, the broker: reads requests from its clients and runs jobs in sandboxes for them.
//
//   root                                              no privilege
//   ----                                              ------------
//   flags, configuration
//   block signals (nng's threads inherit that)
//   folders, lock
//   spawner: forked and executed, keeps root
//   ------------ privileges are given up ------------>
//                                                     self-tests: the schema's rules, a handler per method
//                                                     the configuration once more, through the reader: roots (reload.c)
//                                                     listen (websockets: nng starts its threads)
//                                                     signals, pool
//                                                     READY, loop
//                                                     drain, remove every sandbox, end
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <uv.h>

#include "proto/auto.h"
#include "proto/err.h"
#include "proto/leak.h"
#include "proto/validate.h"
#include "proto/wire.h"
#include "server/access/access.h"
#include "server/access/approval.h"
#include "server/sandbox/alive.h"
#include "server/anomaly/anomaly.h"
#include "server/anomaly/silences.h"
#include "server/anomaly/tenant_rules.h"
#include "server/audit/audit.h"
#include "server/api/api.h"
#include "server/api/convert.h"
#include "server/api/sleep.h"
#include "server/batch/batch.h"
#include "server/sandbox/bpf.h"
#include "check.h"
#include "server/code/context.h"
#include "server/code/zygote.h"
#include "server/config/config.h"
#include "server/rpc/dispatch.h"
#include "drain.h"
#include "server/telemetry/feed.h"
#include "server/files/files.h"
#include "server/sandbox/forward.h"
#include "server/sandbox/job.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/network/enforce.h"
#include "server/network/net.h"
#include "server/base/notify.h"
#include "options.h"
#include "server/sandbox/pool.h"
#include "privilege.h"
#include "reload.h"
#include "start.h"
#include "server/rpc/rpc.h"
#include "server/sandbox/sandbox.h"
#include "server/base/server.h"
#include "server/sandbox/spawn.h"
#include "server/sleep/sleepers.h"
#include "server/snapshot/made.h"
#include "server/snapshot/noted.h"
#include "server/snapshot/snapshots.h"
#include "server/snapshot/transaction.h"
#include "server/state/state.h"
#include "server/store/store.h"
#include "server/telemetry/telemetry.h"
#include "server/rpc/tenants.h"
#include "server/rpc/transport.h"
#include "server/sandbox/usage.h"
#include "server/vault/vault.h"
#include "server/volume/volumes.h"

enum {
    SPAWNER_GRACE_MS = 10 * 1000,
    HUNG_GRACE_MS = 1000,          // for a sandbox or spawner that did not respond before
    STACK_BYTES = 8 * 1024 * 1024, // Linux's default
    WATCHDOG_S = 30,               // for the last steps; nng has been seen to hang there
    SETTLE_MS = 1000,              // for handles of the loop to close
};

struct broker {
    struct server s;
    struct tenants tenants;
    struct config *config;
    struct start root; // what was made as root
    uint8_t *master;   // of encryption, until the data keys are read
    uv_loop_t loop;
    uv_signal_t term, interrupt, hangup;
    int argc; // of main()
    char **argv;
    struct reload *reload;
    char bound[CONFIG_LISTEN_MAX][256];
    struct drain *drain;
    bool started; // there is a loop
    struct keys_earlier *earlier;
    int status;
};

static const struct call_method *const services[] = {
    admin_methods,   encryption_methods,  anomaly_methods,    approval_methods,  audit_methods,
    code_methods,    file_methods,        health_methods,     key_methods,       metrics_methods,
    policy_methods,  process_methods,     reflection_methods, rules_methods,     sandbox_methods,
    silence_methods, snapshot_methods,    system_methods,     telemetry_methods, template_methods,
    token_methods,   transaction_methods, volume_methods};

// Resets what the process inherited: with SIGCHLD ignored, wait(2) does not work here and in the spawner; with another
// umask, files could become unreadable; with an unlimited stack, which jobs inherit, the kernel uses the legacy memory
// layout with less randomness.
static void
forget_inherited(void)
{
    const struct rlimit stack = {STACK_BYTES, RLIM_INFINITY};
    sigset_t all;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGCHLD, SIG_DFL);
    (void)umask(022);
    (void)setrlimit(RLIMIT_STACK, &stack);
}

static int
add_services(struct broker *b, struct err *e)
{
    int r = validate_init(e);
    if (r < 0)
        return r;
    b->s.dispatch = dispatch_new(&b->s);
    if (b->s.dispatch == NULL)
        return err_sys(e, ENOMEM, "make the table of methods");
    for (size_t i = 0; i < sizeof services / sizeof services[0] && r == 0; i++)
        r = dispatch_add(b->s.dispatch, services[i], e);
    return r == 0 ? dispatch_complete(b->s.dispatch, e) : r;
}

static int
open_feed(struct broker *b, struct err *e)
{
    char bound[TRANSPORT_BOUND_BYTES];
    const char *address = b->config->telemetry.feed;
    if (address[0] == '\0')
        return 0;
    int r = feed_open(&b->loop, telemetry_events(b->s.telemetry), address, bound, &b->s.feed, e);
    if (r < 0)
        return err_wrap(e, "open the feed");
    log_event(LOG_INFO, "feed", "%s", bound);
    return 0;
}

static int
listen_all(struct broker *b, struct err *e)
{
    b->config->rpc.reader_uid = (uint32_t)b->root.who.reader_uid;
    b->s.rpc = rpc_new(&b->loop, b->s.dispatch, &b->config->rpc, &b->tenants);
    if (b->s.rpc == NULL)
        return err_sys(e, ENOMEM, "listen");
    rpc_set_principals(b->s.rpc, &b->config->access.principals);
    rpc_set_audit(b->s.rpc, b->s.audit);
    rpc_set_state(b->s.rpc, b->s.state, take_ptr(b->earlier));
    dispatch_set_credentials(b->s.dispatch, access_check, b->s.access);
    rpc_set_refused(b->s.rpc, access_handshake_refused, b->s.access);
    access_set_events(b->s.access, telemetry_events(b->s.telemetry));
    dispatch_set_authority(b->s.dispatch, authority_decide, &b->s);
    approval_gate_open(&b->s);
    access_begin(b->s.access, &b->loop, b->s.spawn);
    dispatch_set_anonymous(b->s.dispatch, &b->config->access.anonymous);
    int r = rpc_use_certificates(b->s.rpc, &b->config->tls, e);
    for (uint32_t i = 0; i < b->config->listen_n && r == 0; i++) {
        r = rpc_listen(b->s.rpc, b->config->listen[i], b->config->socket_mode,
                       (int)b->root.who.socket_gid, b->bound[i], sizeof b->bound[i], e);
        if (r < 0)
            break;
        b->s.listeners_n = i + 1;
        log_event(LOG_INFO, "listening", "%s", b->bound[i]);
    }
    b->s.listeners = (const char(*)[256])b->bound;
    return r < 0 ? r : open_feed(b, e);
}

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

static void
on_signal(uv_signal_t *handle, int number)
{
    const struct broker *b = handle->data;
    drain_signal(b->drain, number);
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

static void
on_hangup(uv_signal_t *handle, int number)
{
    const struct broker *b = handle->data;
    (void)number;
    reload_again(b->reload);
}

static int
watch_signals(struct broker *b, struct err *e)
{
    int r = uv_signal_init(&b->loop, &b->term);
    if (r == 0)
        r = uv_signal_init(&b->loop, &b->interrupt);
    if (r == 0)
        r = uv_signal_init(&b->loop, &b->hangup);
    if (r == 0)
        r = uv_signal_start(&b->term, on_signal, SIGTERM);
    if (r == 0)
        r = uv_signal_start(&b->interrupt, on_signal, SIGINT);
    if (r == 0)
        r = uv_signal_start(&b->hangup, on_hangup, SIGHUP);
    if (r < 0)
        return err_sys(e, r, "watch signals");
    b->term.data = b->interrupt.data = b->hangup.data = b;
    sigset_t ours;
    (void)sigemptyset(&ours);
    (void)sigaddset(&ours, SIGTERM);
    (void)sigaddset(&ours, SIGINT);
    (void)sigaddset(&ours, SIGHUP);
    (void)sigaddset(&ours, SIGALRM);
    (void)sigaddset(&ours, SIGABRT); // systemd's watchdog
    (void)pthread_sigmask(SIG_UNBLOCK, &ours, NULL);
    return 0;
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
    r = r == 0 ? state_start(b->s.state, &b->loop, e) : r;
    return r == 0 ? vault_start(b->s.vault, e) : r;
}

static int
make_core(struct broker *b, struct err *e)
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

static int
start(struct broker *b, struct err *e)
{
    b->root.config = b->config;
    int r = vault_read_master(&b->config->vault, &b->master, e);
    if (r == 0)
        r = start_as_root(&b->root, e);
    b->s.spawn = take_ptr(b->root.spawn);
    if (r < 0)
        return r;
    b->s.bpf = &b->root.bpf;
    if (uv_loop_init(&b->loop) < 0)
        return err_sys(e, ENOMEM, "start the loop");
    b->started = true;
    r = add_services(b, e);
    if (r == 0)
        r = make_core(b, e);
    if (r == 0)
        r = reload_first(b->reload, e);
    if (r == 0)
        r = listen_all(b, e);
    return r == 0 ? watch_signals(b, e) : r;
}

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
    pool_free(s->pool);
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

static _Noreturn void
stop(struct broker *b)
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

// If the broker was started without stdin, stdout or stderr, the log would be written to the first file that is opened,
// such as the spawner's socket.
static void
occupy_stdio(void)
{
    static const int flags[] = {O_RDWR, O_RDONLY,
                                O_RDWR}; // output that nobody can read is an error
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", flags[fd] | O_CLOEXEC) != fd)
            _exit(EX_OSERR);
}

int
main(int argc, char **argv)
{
    static struct broker b;
    struct options options;
    struct err e;
    occupy_stdio();
    if (options_read(argc, argv, &options, &b.config, &e) < 0) {
        (void)fprintf(stderr, "stockaded: %s\n", e.text);
        return options.status;
    }
    if (options.exit_now)
        return options_end_output(0);
    if (options.check_only)
        return options_end_output(check_config(options.config_file, b.config));
    b.argc = argc;
    b.argv = argv;
    b.root.config_file = options.config_file;
    b.config->limits_held = b.config->limits_max;
    if (sodium_init() < 0)
        return EX_OSERR;
    log_setup(STDERR_FILENO, (enum log_level)b.config->log_level, b.config->log_json);
    forget_inherited();
    if (start(&b, &e) < 0) {
        log_err(LOG_ERROR, "start", &e);
        if (e.hint[0] != '\0')
            log_event(LOG_ERROR, "start", "%s", e.hint);
        b.status = EX_UNAVAILABLE;
        stop(&b);
    }
    log_event(LOG_INFO, "ready", "stockaded %s, %s", STOCKADE_VERSION,
              options.config_file != NULL ? options.config_file : "no configuration file");
    notify_systemd("READY=1");
    (void)uv_run(&b.loop, UV_RUN_DEFAULT);
    stop(&b);
}
