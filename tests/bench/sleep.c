// SPDX-License-Identifier: Apache-2.0
// A sandbox that falls asleep and wakes up, through libstockade, beside a job in the same sandbox while it is awake, in turns.
//
//   sleep ADDRESS MIB ROUNDS
//
// MIB: its files, 64 of them, which the page cache holds. Half of the times a job wakes it, so that the sum shows what waking adds.
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/stockade.h"

enum { SLEEP, WAKE, JOB, JOB_AWAKE, ROWS_N };

static double
start(struct stockade *s, const char *sandbox, const char *const *args)
{
    struct stockade_start_options o = STOCKADE_START_OPTIONS_INIT;
    struct stockade_error e;
    const struct stockade_result *r = NULL;
    o.sandbox = sandbox;
    o.command.args = args;
    double from = bench_now();
    if (stockade_start(s, &o, NULL, &r, &e) < 0)
        bench_die("start: %s", e.text);
    double us = bench_now() - from;
    if (r->outcome != STOCKADE_OUTCOME_EXITED || r->exit_code != 0)
        bench_die("start: outcome %u, %s", r->outcome, r->reason);
    stockade_free(r);
    return us;
}

static double
change(struct stockade *s, const char *sandbox, bool wake)
{
    struct stockade_error e;
    const struct stockade_sandbox *box = NULL;
    double from = bench_now();
    if ((wake ? stockade_wake(s, sandbox, &box, &e) : stockade_sleep(s, sandbox, false, &box, &e)) <
        0)
        bench_die("%s: %s", wake ? "wake" : "sleep", e.text);
    double us = bench_now() - from;
    stockade_free(box);
    return us;
}

static const struct stockade_sandbox *
make(struct stockade *s, int mib)
{
    char script[160];
    const char *const args[] = {"/bin/sh", "-c", script, NULL};
    struct stockade_create_options o = STOCKADE_CREATE_OPTIONS_INIT;
    struct stockade_error e;
    const struct stockade_sandbox *box = NULL;
    if (stockade_create(s, &o, &box, &e) < 0)
        bench_die("create: %s", e.text);
    (void)snprintf(script, sizeof script,
                   "i=0; while [ $i -lt 64 ]; do head -c %d /dev/urandom > $i; i=$((i+1)); done",
                   mib * (1 << 20) / 64);
    (void)start(s, box->id, args);
    return box;
}

int
main(int argc, char **argv)
{
    struct stockade_options options = STOCKADE_OPTIONS_INIT;
    struct stockade *s = NULL;
    struct stockade_error e;
    struct samples rows[ROWS_N] = {
        {.row = "sleep"}, {.row = "wake"}, {.row = "a job wakes it"}, {.row = "a job, awake"}};
    char bench[32];
    if (argc != 4)
        bench_die("usage: sleep ADDRESS MIB ROUNDS");
    const int mib = atoi(argv[2]);
    options.address = argv[1];
    if (stockade_open(&s, &options, &e) < 0)
        bench_die("%s", e.text);
    const struct stockade_sandbox *box = make(s, mib);
    (void)change(s, box->id, false); // writes its files
    (void)change(s, box->id, true);
    for (int i = 0; i < atoi(argv[3]); i++) {
        samples_add(&rows[SLEEP], change(s, box->id, false));
        bench_sleep_us(20000); // the pool has replaced its sandbox by then, as between two requests
        samples_add(&rows[WAKE], change(s, box->id, true));
        samples_add(&rows[JOB_AWAKE], start(s, box->id, bench_true));
        (void)change(s, box->id, false);
        bench_sleep_us(20000);
        samples_add(&rows[JOB], start(s, box->id, bench_true));
    }
    if (stockade_delete(s, box->id, &e) < 0)
        bench_die("delete: %s", e.text);
    stockade_free(box);
    stockade_close(s);
    (void)snprintf(bench, sizeof bench, mib < 1024 ? "sleep %d MiB" : "sleep %d GiB",
                   mib < 1024 ? mib : mib / 1024);
    for (int i = 0; i < ROWS_N; i++)
        samples_print(&rows[i], bench, "");
    return 0;
}
