// SPDX-License-Identifier: Apache-2.0
// Sandboxes per second: N clients at once, each running /usr/bin/true in a fresh sandbox, one after the other.
//
//   rate ADDRESS CLIENTS SECONDS [ROW]      (also bubblewrap, plain exec, and plain exec in namespaces of its own)
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stockade.h"

struct worker {
    pthread_t thread;
    const char *address; // of the broker; NULL: `spawn` starts `argv`
    int (*spawn)(const char *const argv[]);
    const char *const *argv;
    struct samples samples;
};

static atomic_bool over;

static void
one_run(struct stockade *s)
{
    static const char *const args[] = {"/usr/bin/true", NULL};
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_error e;
    const struct stockade_result *r = NULL;
    o.command.args = args;
    if (stockade_run(s, &o, NULL, &r, &e) < 0)
        bench_die("run: %s", e.text);
    if (r->outcome != STOCKADE_OUTCOME_EXITED)
        bench_die("run: outcome %u %s", r->outcome, r->reason);
    stockade_free(r);
}

static void *
work(void *cookie)
{
    struct worker *w = cookie;
    struct stockade *s = NULL;
    struct stockade_options options = STOCKADE_OPTIONS_INIT;
    struct stockade_error e;
    options.address = w->address;
    if (w->address != NULL && stockade_open(&s, &options, &e) < 0)
        bench_die("%s", e.text);
    while (!atomic_load(&over)) {
        double from = bench_now();
        if (w->address != NULL)
            one_run(s);
        else if (w->spawn(w->argv) != 0)
            bench_die("%s failed", w->argv[0]);
        samples_add(&w->samples, bench_now() - from);
    }
    stockade_close(s);
    return NULL;
}

static void
measure(const char *row, const struct worker *like, long clients, long seconds)
{
    struct worker *workers = calloc((size_t)clients, sizeof *workers);
    if (workers == NULL)
        bench_die("out of memory");
    atomic_store(&over, false);
    double from = bench_now();
    for (long i = 0; i < clients; i++) {
        workers[i] = *like;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            bench_die("no thread");
    }
    bench_sleep_us((double)seconds * 1e6);
    atomic_store(&over, true);
    struct samples all = {.row = row};
    for (long i = 0; i < clients; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        for (size_t k = 0; k < workers[i].samples.n; k++)
            samples_add(&all, workers[i].samples.us[k]);
        free(workers[i].samples.us);
    }
    char more[64], name[64];
    (void)snprintf(more, sizeof more, ", \"per_second\": %.0f",
                   (double)all.n / ((bench_now() - from) / 1e6));
    (void)snprintf(name, sizeof name, "sandboxes per second, %ld clients", clients);
    samples_print(&all, name, more);
    free(workers);
}

int
main(int argc, char **argv)
{
    if (argc < 4)
        bench_die("usage: rate ADDRESS CLIENTS SECONDS");
    long clients = strtol(argv[2], NULL, 10), seconds = strtol(argv[3], NULL, 10);
    if (clients < 1 || clients > 1024 || seconds < 1)
        bench_die("clients 1 to 1024, seconds from 1 on");
    const struct {
        const char *row;
        struct worker worker;
    } rows[] = {
        {"plain exec", {.spawn = bench_spawn, .argv = bench_true}},
        {"the namespaces alone", {.spawn = bench_spawn_in_namespaces, .argv = bench_true}},
        {"bubblewrap", {.spawn = bench_spawn, .argv = bench_bwrap_true}},
        {"stockade", {.address = argv[1]}},
    };
    for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
        size_t k = i % (sizeof rows / sizeof rows[0]);
        if (argc < 5 || strcmp(argv[4], rows[k].row) == 0)
            measure(rows[k].row, &rows[k].worker, clients, seconds);
    }
    return 0;
}
