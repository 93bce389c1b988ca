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
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <uv.h>

#include "broker.h"
#include "check.h"
#include "drain.h"
#include "options.h"
#include "proto/auto.h"
#include "proto/err.h"
#include "proto/validate.h"
#include "reload.h"
#include "server/access/access.h"
#include "server/api/api.h"
#include "server/base/log.h"
#include "server/base/notify.h"
#include "server/rpc/dispatch.h"
#include "server/rpc/rpc.h"
#include "server/rpc/transport.h"
#include "server/state/state.h"
#include "server/telemetry/feed.h"
#include "server/telemetry/telemetry.h"
#include "server/vault/vault.h"
#include "start.h"

enum { STACK_BYTES = 8 * 1024 * 1024 }; // Linux's default

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
    b->config->rpc.helper_uid = (uint32_t)b->root.who.relay_uid;
    b->config->rpc.ids_first = b->config->id_base;
    b->config->rpc.ids_after =
        b->config->id_base + (b->config->id_slots + 1) * SPAWN_IDS_PER_SANDBOX;
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

static void
on_signal(uv_signal_t *handle, int number)
{
    const struct broker *b = handle->data;
    drain_signal(b->drain, number);
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
        r = core_make(b, e);
    if (r == 0)
        r = reload_first(b->reload, e);
    if (r == 0)
        r = listen_all(b, e);
    return r == 0 ? watch_signals(b, e) : r;
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
        stop_broker(&b);
    }
    log_event(LOG_INFO, "ready", "stockaded %s, %s", STOCKADE_VERSION,
              options.config_file != NULL ? options.config_file : "no configuration file");
    notify_systemd("READY=1");
    (void)uv_run(&b.loop, UV_RUN_DEFAULT);
    stop_broker(&b);
}
