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
//                                                     listen (websockets: nng starts its threads)
//                                                     signals, pool
//                                                     READY, loop
//                                                     drain, remove every sandbox, end
#include <errno.h>
#include <fcntl.h>
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

#include "../proto/err.h"
#include "../proto/wire.h"
#include "alive.h"
#include "anomaly.h"
#include "api/api.h"
#include "bpf.h"
#include "check.h"
#include "config.h"
#include "dispatch.h"
#include "drain.h"
#include "feed.h"
#include "forward.h"
#include "job.h"
#include "log.h"
#include "loop.h"
#include "net.h"
#include "notify.h"
#include "options.h"
#include "pool.h"
#include "privilege.h"
#include "reload.h"
#include "rpc.h"
#include "sandbox.h"
#include "server.h"
#include "spawn.h"
#include "telemetry.h"
#include "transport.h"
#include "usage.h"

enum {
    SPAWNER_GRACE_MS = 10 * 1000,
    HUNG_GRACE_MS = 1000,          // for one that did not answer before
    STACK_BYTES = 8 * 1024 * 1024, // as Linux has it by itself
    WATCHDOG_S = 30,               // for the last steps; nng has been seen to hang there
};

struct broker {
    struct server s;
    struct config *config;
    struct identity who;
    struct spawn_features features;
    struct bpf bpf;
    uv_loop_t loop;
    uv_signal_t term, interrupt, hangup;
    int argc; // of main()
    char **argv;
    char bound[CONFIG_LISTEN_MAX][256];
    struct drain *drain;
    int status;
};

static const struct call_method *const services[] = {
    anomaly_methods, health_methods, process_methods,   reflection_methods,
    sandbox_methods, system_methods, telemetry_methods,
};

// Descriptors are what a broker with a thousand sandboxes runs out of first.
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
                       ? "at most %llu may be open, the quotas need %llu: what finds none "
                         "left is RESOURCE_EXHAUSTED (raise LimitNOFILE, or lower "
                         "quotas and rpc.connections)"
                       : "%llu may be open, %llu are needed at most",
                   (unsigned long long)l.rlim_cur, (unsigned long long)need);
}

// Nothing of whoever started us: with SIGCHLD ignored nobody could be waited for, here and in the spawner; with another
// umask files could come out unreadable; an unlimited stack, which jobs have from here, lays a process's memory out in
// the old way, with less chance in its addresses.
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

// A template that cannot be used is a feature that is absent, not a failed start.
static void
add_disabled(struct broker *b)
{
    for (uint32_t i = 0; i < b->config->templates_n; i++) {
        const struct config_template *t = &b->config->template[i];
        if (t->disabled[0] == '\0' || b->features.n >= SPAWN_FEATURES_MAX)
            continue;
        struct spawn_feature *f = &b->features.feature[b->features.n++];
        *f = (struct spawn_feature){.degraded = 1};
        (void)snprintf(f->name, sizeof f->name, "template %s", t->name);
        (void)snprintf(f->detail, sizeof f->detail, "disabled: %s", t->disabled);
    }
}

// The programs that load BPF and carry traffic. One that is not there is a feature that is absent, not a failed start.
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

// Without the maps the broker goes on as on a kernel without BPF.
static void
hold_bpf(struct broker *b, const int fds[BPF_FDS])
{
    struct err e;
    b->s.bpf = &b->bpf;
    if (bpf_open(&b->bpf, b->features.bpf, fds, &e) < 0)
        log_err(LOG_ERROR, "bpf", &e);
}

// Root's part: what only it can make, and the process that keeps it.
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
        r = spawn_start(spawner, config, &b->features, bpf_fds, &b->s.spawn, e);
    }
    free(config);
    if (r < 0)
        return err_wrap(e, "start");
    hold_bpf(b, bpf_fds);
    return 0;
}

// Line by line, for who looks for the reason.
static void
tell_bpf_log(const struct spawn_features *f)
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
tell_features(const struct broker *b)
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
    tell_bpf_log(f);
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
    b->s.rpc = rpc_new(&b->loop, b->s.dispatch, &b->config->rpc);
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

// The end: nothing is left that keeps the loop alive.
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

// Without the spawner there is no sandbox any more, and none can be made.
static void
on_spawner_gone(void *cookie)
{
    struct broker *b = cookie;
    log_event(LOG_ERROR, "spawner-gone", "the spawner has ended; every sandbox ends with it");
    b->status = EX_SOFTWARE;
    rpc_close(b->s.rpc);
    uv_stop(&b->loop);
}

// Every caller who waits for it is told; what runs goes on.
static void
on_spawner_silent(void *cookie, bool hangs)
{
    struct broker *b = cookie;
    if (hangs)
        log_event(
            LOG_ERROR, "spawner-hangs",
            "the spawner (pid %d) does not answer: no sandbox can be made, changed or removed "
            "until it does; if it never does, stop the broker and kill -9 %d",
            (int)spawn_pid(b->s.spawn), (int)spawn_pid(b->s.spawn));
    else
        log_event(LOG_WARNING, "spawner-answers", "the spawner answers again");
    if (hangs)
        sandboxes_spawner_hangs(b->s.sandboxes);
    pool_spawner(b->s.pool, hangs);
    telemetry_spawner(b->s.telemetry, hangs);
    alive_look(b->s.alive);
}

// The flags are read again as well: they win over the file as they did at the start.
static void
on_hangup(uv_signal_t *handle, int number)
{
    struct broker *b = handle->data;
    struct options options;
    struct config *next = NULL;
    struct err e;
    (void)number;
    notify_systemd("RELOADING=1");
    int r = options_read(b->argc, b->argv, &options, &next, &e);
    if (r == 0)
        r = reload_apply(b->config, next, &e);
    config_free(next);
    if (r < 0) {
        (void)err_wrap(&e, "nothing has changed");
        log_err(LOG_ERROR, "reload-refused", &e);
    } else {
        pool_reloaded(b->s.pool);
        log_event(LOG_INFO, "reloaded", "%s: templates, limits, quotas and rules",
                  options.config_file != NULL ? options.config_file : "no configuration file");
    }
    notify_systemd("READY=1");
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
    b->s.features = &b->features;
    b->s.started_ns = uv_hrtime();
    b->s.sandboxes = sandboxes_new(&b->s);
    b->s.jobs = jobs_new(&b->s);
    b->s.forwards = forwards_new(&b->s);
    b->s.anomaly = anomaly_new(&b->s);
    if (b->s.sandboxes == NULL || b->s.jobs == NULL || b->s.forwards == NULL ||
        b->s.anomaly == NULL)
        return err_sys(e, ENOMEM, "start");
    int r = spawn_attach(b->s.spawn, &b->loop, on_spawner_gone, b, e);
    if (r < 0)
        return r;
    b->s.net = net_new(&b->s, e);
    if (b->s.net == NULL)
        return err_errno(e);
    b->s.telemetry = telemetry_new(&b->s);
    if (b->s.telemetry == NULL)
        return err_sys(e, ENOMEM, "start");
    b->s.pool = pool_new(&b->s, b->s.sandboxes);
    b->s.alive = alive_new(&b->s);
    b->drain = drain_new(&b->s, on_over, b);
    if (b->s.pool == NULL || b->s.alive == NULL || b->drain == NULL)
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
    add_disabled(b);
    r = privilege_drop(&b->who, e);
    if (r < 0)
        return r;
    tell_features(b);
    if (uv_loop_init(&b->loop) < 0)
        return err_sys(e, ENOMEM, "start the loop");
    r = add_services(b, e);
    if (r == 0)
        r = make_core(b, e);
    if (r == 0)
        r = listen_all(b, e);
    return r == 0 ? watch_signals(b, e) : r;
}

// Sandboxes are gone or going; the spawner removes what is left when its socket ends. One that hangs does so when it
// continues.
static void
stop(struct broker *b)
{
    drain_watchdog(WATCHDOG_S);
    anomaly_free(b->s.anomaly);
    bool answers = spawn_answers(b->s.spawn);
    int pid = b->s.spawn != NULL ? (int)spawn_pid(b->s.spawn) : 0;
    bool clean = spawn_close(b->s.spawn, answers ? SPAWNER_GRACE_MS : HUNG_GRACE_MS);
    if (!clean && answers)
        log_event(LOG_WARNING, "spawner", "it did not end as it should");
    if (!clean && kill(pid, 0) < 0 && errno == EPERM) { // still there, and root's
        log_event(LOG_ERROR, "spawner",
                  "the spawner (pid %d) does not end and keeps the cgroup: no broker can be "
                  "started with it until it has gone (kill -9 %d)",
                  pid, pid);
        b->status = b->status != 0 ? b->status : EX_SOFTWARE;
    }
    log_event(LOG_INFO, "stopped", "status %d", b->status);
    _exit(b->status);
}

// Started without stdin, stdout or stderr, the log would be written to whatever is opened first, such as the spawner's
// socket.
static void
occupy_stdio(void)
{
    int fd = -1;
    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        (void)close(fd);
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
        return EX_USAGE;
    }
    if (options.exit_now)
        return 0;
    if (options.check_only)
        return check_config(options.config_file, b.config);
    b.argc = argc;
    b.argv = argv;
    config_look(b.config);
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
