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
#include "server/sandbox/alive.h"
#include "server/anomaly/anomaly.h"
#include "server/api/api.h"
#include "server/sandbox/bpf.h"
#include "check.h"
#include "server/config/config.h"
#include "server/rpc/dispatch.h"
#include "drain.h"
#include "server/telemetry/feed.h"
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
#include "server/rpc/rpc.h"
#include "server/sandbox/sandbox.h"
#include "server/base/server.h"
#include "server/sandbox/spawn.h"
#include "server/telemetry/telemetry.h"
#include "server/rpc/tenants.h"
#include "server/rpc/transport.h"
#include "server/sandbox/usage.h"

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
    struct identity who;
    struct spawn_features features;
    struct bpf bpf;
    uv_loop_t loop;
    uv_signal_t term, interrupt, hangup;
    int argc; // of main()
    char **argv;
    const char *config_file; // NULL: none
    struct reload *reload;
    char bound[CONFIG_LISTEN_MAX][256];
    struct drain *drain;
    bool started; // there is a loop
    int status;
};

static const struct call_method *const services[] = {
    anomaly_methods,    health_methods,  metrics_methods, process_methods,
    reflection_methods, sandbox_methods, system_methods,  telemetry_methods,
};

// A broker with a thousand sandboxes runs out of descriptors first.
static void
raise_files(struct broker *b)
{
    rlim_t need = config_files_needed(b->config);
    struct rlimit l = {0, 0};
    (void)getrlimit(RLIMIT_NOFILE, &l);
    l.rlim_cur = l.rlim_max;
    if (l.rlim_max < need) {
        const struct rlimit more = {need, need};
        if (setrlimit(RLIMIT_NOFILE, &more) == 0)
            l = more;
    }
    (void)setrlimit(RLIMIT_NOFILE, &l);
    usage_allow(l.rlim_cur > need ? l.rlim_cur - need : 0);
    if (b->features.n >= SPAWN_FEATURES_MAX)
        return;
    struct spawn_feature *f = &b->features.feature[b->features.n++];
    *f = (struct spawn_feature){.available = l.rlim_cur >= need, .degraded = l.rlim_cur < need};
    (void)snprintf(f->name, sizeof f->name, "broker-descriptors");
    (void)snprintf(f->detail, sizeof f->detail,
                   f->degraded != 0
                       ? "at most %llu files may be open, but the quotas need %llu: calls fail "
                         "with RESOURCE_EXHAUSTED when none is left (raise LimitNOFILE, or "
                         "lower quotas and rpc.connections)"
                       : "%llu files may be open, at most %llu are needed",
                   (unsigned long long)l.rlim_cur, (unsigned long long)need);
}

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

// The programs that load BPF and forward traffic. A missing one is a missing feature, not a failed start.
static void
add_bpf(const struct broker *b, struct spawn_config *config)
{
    struct err e;
    if (!b->config->bpf_enabled)
        return;
    if (privilege_program("stockade-loader", config->loader_path, SPAWN_PATH_MAX, &e) < 0) {
        config->loader_path[0] = '\0';
        log_err(LOG_WARNING, "bpf", &e);
    }
    if (privilege_program("stockade-relay", config->relay_path, SPAWN_PATH_MAX, &e) < 0) {
        config->relay_path[0] = '\0';
        log_err(LOG_WARNING, "bpf", &e);
    }
    config->relay_uid = b->who.relay_uid;
    config->relay_gid = b->who.relay_gid;
}

// The path that the reader will open each time. Its folder is resolved now; the file itself may be a link that
// changes.
static int
absolute(const char *file, char out[SPAWN_PATH_MAX], struct err *e)
{
    const char *slash = strrchr(file, '/');
    char folder[SPAWN_PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - file) + 1 : 1,
                   slash != NULL ? file : ".");
    char *auto_free real = realpath(folder, NULL);
    if (real == NULL)
        return err_sys(e, errno, "find the folder of %s", file);
    int n = snprintf(out, SPAWN_PATH_MAX, "%s/%s", strcmp(real, "/") == 0 ? "" : real,
                     slash != NULL ? slash + 1 : file);
    return n < SPAWN_PATH_MAX ? 0
                              : err_set(e, ERR_INVALID_ARGUMENT, "%s: its path is too long", file);
}

static int
add_reader(const struct broker *b, struct spawn_config *config, struct err *e)
{
    int r = privilege_program("stockade-reader", config->reader_path, SPAWN_PATH_MAX, e);
    if (r == 0 && b->config_file != NULL)
        r = absolute(b->config_file, config->config_file, e);
    return r;
}

// Without the maps the broker continues as on a kernel without BPF.
static void
hold_bpf(struct broker *b, const int fds[BPF_FDS])
{
    struct err e;
    b->s.bpf = &b->bpf;
    if (bpf_open(&b->bpf, b->features.bpf, fds, &e) < 0)
        log_err(LOG_ERROR, "bpf", &e);
}

// The part of the start that needs root, and the process that stays root.
static int
start_spawner(struct broker *b, struct err *e)
{
    int bpf_fds[BPF_FDS];
    char spawner[SPAWN_PATH_MAX];
    char guest[SPAWN_PATH_MAX];
    struct spawn_config *config = calloc(1, sizeof *config);
    if (config == NULL)
        return err_sys(e, ENOMEM, "start the spawner");
    int r = privilege_check_root(e);
    if (r == 0)
        r = privilege_identity(b->config, &b->who, e);
    if (r == 0)
        r = privilege_prepare(b->config, &b->who, e);
    if (r == 0)
        r = privilege_program("stockade-spawner", spawner, sizeof spawner, e);
    if (r == 0)
        r = privilege_program("stockade-guest", guest, sizeof guest, e);
    if (r == 0) {
        config_to_spawn(b->config, guest, b->who.uid, b->who.gid, config);
        add_bpf(b, config);
        r = add_reader(b, config, e);
    }
    if (r == 0)
        r = spawn_start(spawner, config, &b->features, bpf_fds, &b->s.spawn, e);
    free(config);
    if (r < 0)
        return r;
    hold_bpf(b, bpf_fds);
    return 0;
}

// Logs each missing feature on its own line, with the reason.
static void
log_bpf(const struct spawn_features *f)
{
    const char *line = f->bpf_log;
    const char *end = line + strnlen(line, sizeof f->bpf_log);
    while (line < end) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        int n = (int)((stop != NULL ? stop : end) - line);
        log_event(LOG_DEBUG, "bpf-log", "%.*s", n, line);
        line += n + 1;
    }
}

static void
log_features(const struct broker *b)
{
    const struct spawn_features *f = &b->features;
    log_event(LOG_INFO, "spawner", "pid %d, cgroup %s (%s)", (int)spawn_pid(b->s.spawn), f->cgroup,
              f->hybrid != 0 ? "hybrid" : "v2");
    if (f->leftovers_cleared > 0)
        log_event(LOG_WARNING, "leftovers", "%u sandboxes of an earlier run were removed",
                  f->leftovers_cleared);
    for (uint32_t i = 0; i < f->n && i < SPAWN_FEATURES_MAX; i++)
        log_event(f->feature[i].degraded != 0 ? LOG_WARNING : LOG_DEBUG, "feature", "%s: %s: %s",
                  f->feature[i].name, f->feature[i].available != 0 ? "yes" : "no",
                  f->feature[i].detail);
    log_bpf(f);
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
    b->s.rpc = rpc_new(&b->loop, b->s.dispatch, &b->config->rpc, &b->tenants);
    if (b->s.rpc == NULL)
        return err_sys(e, ENOMEM, "listen");
    for (uint32_t i = 0; i < b->config->listen_n; i++) {
        int r = rpc_listen(b->s.rpc, b->config->listen[i], b->config->socket_mode,
                           (int)b->who.socket_gid, b->bound[i], sizeof b->bound[i], e);
        if (r < 0)
            return r;
        b->s.listeners_n = i + 1;
        log_event(LOG_INFO, "listening", "%s", b->bound[i]);
    }
    b->s.listeners = (const char(*)[256])b->bound;
    return open_feed(b, e);
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

static int
make_core(struct broker *b, struct err *e)
{
    b->s.loop = &b->loop;
    b->s.config = b->config;
    b->s.tenants = &b->tenants;
    b->s.features = &b->features;
    b->s.started_ns = uv_hrtime();
    b->s.sandboxes = sandboxes_new(&b->s, &b->config->sandbox);
    b->s.jobs = jobs_new(&b->s);
    b->s.forwards = forwards_new(&b->s);
    if (b->s.sandboxes == NULL || b->s.jobs == NULL || b->s.forwards == NULL)
        return err_sys(e, ENOMEM, "start");
    int r = spawn_attach(b->s.spawn, &b->loop, on_spawner_gone, b, e);
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
    b->s.pool = pool_new(&b->s, b->s.sandboxes);
    b->s.alive = alive_new(&b->s, b->config->state_dir);
    b->drain = drain_new(&b->s, on_over, b);
    b->reload = reload_new(&b->s, b->config, &b->features, b->argc, b->argv);
    if (b->s.pool == NULL || b->s.alive == NULL || b->drain == NULL || b->reload == NULL)
        return err_sys(e, ENOMEM, "start");
    spawn_on_silent(b->s.spawn, on_spawner_silent, b);
    return 0;
}

static int
start(struct broker *b, struct err *e)
{
    int r = start_spawner(b, e);
    if (r < 0)
        return r;
    raise_files(b);
    r = privilege_drop(&b->who, e);
    if (r < 0)
        return r;
    log_features(b);
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
    bool closed = settle(b, is_closed);
    if (!drain_abandon(s) || !closed) {
        anomaly_free(s->anomaly); // saves what was learned
        stop_spawner(b, answers);
        return;
    }
    drain_free(b->drain);
    reload_free(take_ptr(b->reload));
    alive_free(take_ptr(s->alive));
    pool_free(s->pool);
    forwards_free(s->forwards);
    jobs_free(s->jobs); // notifies observers
    anomaly_free(take_ptr(s->anomaly));
    telemetry_free(take_ptr(s->telemetry));
    net_free(take_ptr(s->net));
    sandboxes_free(s->sandboxes);
    rpc_free(s->rpc); // jobs are counted for its tenants
    (void)tenants_forget(&b->tenants);
    stop_spawner(b, answers);
    dispatch_free(s->dispatch);
    if (!settle(b, is_at_rest) || uv_loop_close(&b->loop) != 0)
        log_event(LOG_DEBUG, "stop", "a handle of the loop is left");
    bpf_close(&b->bpf);
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
    b.config_file = options.config_file;
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
