// SPDX-License-Identifier: Apache-2.0
// stockade-exporter: see exporter.h.
//
//   options -> configuration -> account -> sockets, broker -> filter -> loop until SIGTERM or SIGINT
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "proto/confine.h"
#include "proto/container_of.h"
#include "proto/leak.h"
#include "proto/now.h"
#include "confine.h"
#include "exporter.h"

static const char usage[] =
    "stockade-exporter - metrics and events of a Stockade broker for monitoring systems\n"
    "\n"
    "Usage: stockade-exporter [OPTION]...\n"
    "\n"
    "  --config FILE    read this YAML file instead of " EXPORTER_CONFIG_DEFAULT "\n"
    "  --check-config   check the configuration and exit\n"
    "  --once           print the metrics once, as /metrics shows them, and exit\n"
    "  --version        print the version and exit\n"
    "  --help           print this text and exit\n";

struct options {
    const char *config;
    bool check, once;
};

static struct exporter exporter;
static uv_signal_t term, interrupt;

static void
report(const struct err *e)
{
    (void)fprintf(stderr, "stockade-exporter: %s\n", e->text);
    if (e->hint[0] != '\0')
        (void)fprintf(stderr, "  hint: %s\n", e->hint);
}

// Returns a status to exit with, or -1.
static int
read_options(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {
        {"config", required_argument, NULL, 'c'}, {"check-config", no_argument, NULL, 'k'},
        {"once", no_argument, NULL, 'o'},         {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},         {0},
    };
    int c = 0;
    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (c == 'c')
            o->config = optarg;
        else if (c == 'k')
            o->check = true;
        else if (c == 'o')
            o->once = true;
        else if (c == 'v' || c == 'h') {
            (void)fputs(c == 'h' ? usage : "stockade-exporter " STOCKADE_VERSION "\n", stdout);
            return fflush(stdout) == 0 ? 0 : EX_IOERR;
        } else
            return EX_USAGE;
    }
    if (optind == argc)
        return -1;
    (void)fprintf(stderr, "stockade-exporter: there are no operands; see --help\n");
    return EX_USAGE;
}

// ---- The loop

// Events come again when a sink was behind.
static bool
is_new(struct exporter *x, const struct stockade_event *event)
{
    if (event->sequence <= x->last_sequence && strcmp(event->instance, x->last_instance) == 0)
        return false;
    x->last_sequence = event->sequence;
    (void)snprintf(x->last_instance, sizeof x->last_instance, "%s", event->instance);
    return true;
}

static void
on_event(void *cookie, const struct stockade_event *event)
{
    struct exporter *x = cookie;
    sinks_event(&x->outputs.sinks, event);
    if (is_new(x, event))
        exemplars_event(&x->exemplars, event);
}

static void
on_gap(void *cookie, uint64_t to, uint64_t count, const char *reason)
{
    struct exporter *x = cookie;
    sinks_gap(&x->outputs.sinks, to, count, reason);
}

static bool
position(void *cookie, char instance[BROKER_INSTANCE], uint64_t *next)
{
    struct exporter *x = cookie;
    return sinks_position(&x->outputs.sinks, instance, next);
}

static void
on_rewind(void *cookie)
{
    struct exporter *x = cookie;
    broker_rewind(x->broker);
}

static int
open_outputs(struct exporter *x, struct err *e)
{
    x->outputs.sinks.on_rewind = on_rewind;
    x->outputs.sinks.cookie = x;
    return outputs_open(&x->outputs, &x->loop, x->config, e);
}

static void
close_all(struct exporter *x)
{
    interval_close(x);
    webhook_close(x->outputs.webhook);
    broker_close(x->broker); // answers requests that wait
    http_close(x->http);
    dashboard_close(&x->dashboard);
    outputs_close(&x->outputs);
    if (!uv_is_closing((uv_handle_t *)&term)) {
        uv_close((uv_handle_t *)&term, NULL);
        uv_close((uv_handle_t *)&interrupt, NULL);
    }
}

static void
on_signal(uv_signal_t *handle, int number)
{
    (void)number;
    close_all(handle->data);
}

static int
open_broker(struct exporter *x, bool events, struct err *e)
{
    static const char *const kinds[] = {"JOB_ENDED"};
    x->events = (struct broker_events){
        .on_event = on_event,
        .on_gap = on_gap,
        .kinds = kinds,
        .position = position,
        .kinds_n = x->outputs.n > 0 ? 0 : 1,
        .cookie = x,
    };
    x->broker = broker_new(&x->loop, x->config->broker, events ? &x->events : NULL, e);
    return x->broker != NULL ? 0 : err_errno(e);
}

static int
open_http(struct exporter *x, struct err *e)
{
    const struct prometheus_settings *p = &x->config->prometheus;
    const struct http_settings settings = {
        .listen = p->listen,
        .connections = p->connections,
        .timeout_ms = p->timeout_ms,
        .on_request = scrape_request,
        .on_gone = scrape_gone,
        .cookie = x,
    };
    if (p->listen[0] == '\0')
        return 0;
    x->http = http_new(&x->loop, &settings, e);
    if (x->http == NULL)
        return err_errno(e);
    (void)fprintf(stderr, "stockade-exporter: listening on http://%s/metrics\n",
                  http_address(x->http));
    return 0;
}

static int
watch_signals(struct exporter *x, struct err *e)
{
    int r = uv_signal_init(&x->loop, &term);
    if (r == 0)
        r = uv_signal_init(&x->loop, &interrupt);
    if (r == 0)
        r = uv_signal_start(&term, on_signal, SIGTERM);
    if (r == 0)
        r = uv_signal_start(&interrupt, on_signal, SIGINT);
    term.data = interrupt.data = x;
    return r < 0 ? err_sys(e, r, "watch signals") : 0;
}

// ---- --once

struct once {
    struct broker_waiter waiter;
    bool answered, written;
};

static void
on_metrics(struct broker_waiter *w, const struct stockade_metrics *metrics)
{
    struct once *o = container_of(w, struct once, waiter);
    o->answered = metrics != NULL;
    if (metrics != NULL)
        o->written = scrape_write(&exporter, metrics, EXPOSITION_TEXT, stdout);
    close_all(&exporter);
}

static int
run_once(struct exporter *x)
{
    struct once o = {.waiter = {.done = on_metrics}};
    broker_fetch(x->broker, &o.waiter);
    (void)uv_run(&x->loop, UV_RUN_DEFAULT);
    if (!o.answered)
        (void)fprintf(stderr, "stockade-exporter: the broker does not answer, or refuses; its "
                              "metrics.reader must be this account\n");
    return !o.answered ? EX_UNAVAILABLE : o.written ? 0 : EX_IOERR;
}

// ---- main

static int
start(struct exporter *x, bool once, struct err *e)
{
    int r = uv_loop_init(&x->loop);
    if (r < 0)
        return err_sys(e, r, "start the loop");
    r = watch_signals(x, e);
    if (r == 0)
        r = once ? 0 : open_outputs(x, e);
    if (r == 0)
        r = open_broker(x, !once && (x->outputs.n > 0 || x->config->prometheus.exemplars), e);
    if (r == 0 && x->outputs.webhook != NULL)
        webhook_begin(x->outputs.webhook, &x->loop, broker_handle(x->broker), outputs_approval,
                      &x->outputs);
    if (r == 0 && !once)
        r = interval_begin(x, e);
    if (r == 0 && !once)
        r = open_http(x, e);
    if (r == 0 && !once)
        r = dashboard_open(&x->dashboard, &x->loop, &x->config->dashboard, x->config->broker, e);
    return r == 0 ? confine_filter(true, e) : r;
}

int
main(int argc, char **argv)
{
    static struct exporter_config config;
    struct options o = {0};
    struct err e = {0};
    int status = read_options(argc, argv, &o);
    if (status >= 0)
        return status;
    exporter_config_default(&config);
    if (exporter_config_read(&config, o.config, &e) < 0) {
        report(&e);
        return EX_CONFIG;
    }
    if (o.check)
        return 0;
    exporter.config = &config;
    exporter.started_s = (double)now_ns(CLOCK_REALTIME) / 1e9;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); // a write beyond RLIMIT_FSIZE fails
    if (confine_account(&e) < 0 || start(&exporter, o.once, &e) < 0) {
        report(&e);
        return EX_UNAVAILABLE;
    }
    status = o.once ? run_once(&exporter) : 0;
    (void)uv_run(&exporter.loop, UV_RUN_DEFAULT);
    http_free(exporter.http);
    dashboard_free(&exporter.dashboard);
    broker_free(exporter.broker);
    outputs_free(&exporter.outputs);
    (void)uv_loop_close(&exporter.loop);
    exporter.http = NULL;
    exporter.broker = NULL;
    leak_judge();
    return status;
}
