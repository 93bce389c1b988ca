// SPDX-License-Identifier: Apache-2.0
// One job in a fresh sandbox, from the call to the result: /usr/bin/true by plain posix_spawn, by bubblewrap, and by
// the broker through libstockade, taking turns.
//
//   one_shot ADDRESS ROUNDS GAP_MS [PYTHON]
//
// GAP_MS 0: back to back, which is faster for all of them (caches, and RCU is active, which helps programs that
// migrate processes between cgroups). Real requests have gaps. With PYTHON: python3 -c 'print(1)' instead.
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/stockade.h"

enum { PLAIN, BWRAP, BWRAP_LIMITS, STOCKADE, STOCKADE_LIMITS, ROWS_N };

static const char *const python[] = {"/usr/bin/python3", "-c", "print(1)", NULL};
static const char *const truth[] = {"/usr/bin/true", NULL};
static const char *bwrap_argv[64];
static const char *plain_argv[8];

// bubblewrap has no limits; its users run it in a cgroup, for example with systemd-run. prlimit is the cheapest way.
static const char *limited_argv[72];

static void
build_commands(bool use_python)
{
    const char *const *command = use_python ? python : truth;
    size_t n = 0;
    for (; command[n] != NULL; n++)
        plain_argv[n] = command[n];
    size_t at = 0;
    while (bench_bwrap_true[at + 1] != NULL) {
        bwrap_argv[at] = bench_bwrap_true[at];
        at++;
    }
    for (size_t i = 0; i < n; i++)
        bwrap_argv[at++] = plain_argv[i];
    limited_argv[0] = "/usr/bin/prlimit";
    limited_argv[1] = "--nproc=4096";
    limited_argv[2] = "--nofile=1024";
    for (size_t i = 0; i < at; i++)
        limited_argv[3 + i] = bwrap_argv[i];
}

static double
run_in_stockade(struct stockade *s, const char *const *args, bool limits)
{
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    o.command.args = args;
    if (limits) {
        o.limits.memory_bytes = 256UL << 20;
        o.limits.pids = 64;
        o.limits.cpu_millis = 1000;
        o.limits.wall_ms = 10000;
    }
    struct stockade_error e;
    const struct stockade_result *r = NULL;
    double from = bench_now();
    if (stockade_run(s, &o, NULL, &r, &e) < 0)
        bench_die("run: %s", e.text);
    double us = bench_now() - from;
    if (r->outcome != STOCKADE_OUTCOME_EXITED || r->exit_code != 0)
        bench_die("run: outcome %u, %s", r->outcome, r->reason);
    stockade_free(r);
    return us;
}

static double
run_row(int row, struct stockade *s, const char *const *args)
{
    switch (row) {
    case PLAIN:
        return bench_time(plain_argv);
    case BWRAP:
        return bench_time(bwrap_argv);
    case BWRAP_LIMITS:
        return bench_time(limited_argv);
    case STOCKADE:
        return run_in_stockade(s, args, false);
    default:
        return run_in_stockade(s, args, true);
    }
}

int
main(int argc, char **argv)
{
    if (argc < 4)
        bench_die("usage: one_shot ADDRESS ROUNDS GAP_MS [PYTHON]");
    bool use_python = argc > 4;
    build_commands(use_python);
    struct stockade_options options = STOCKADE_OPTIONS_INIT;
    options.address = argv[1];
    struct stockade *s = NULL;
    struct stockade_error e;
    if (stockade_open(&s, &options, &e) < 0)
        bench_die("%s", e.text);
    struct samples rows[ROWS_N] = {{.row = "plain exec"},
                                   {.row = "bubblewrap"},
                                   {.row = "bubblewrap + rlimits"},
                                   {.row = "stockade"},
                                   {.row = "stockade + limits asked for"}};
    long rounds = strtol(argv[2], NULL, 10), gap_ms = strtol(argv[3], NULL, 10);
    for (long i = -3; i < rounds; i++) {
        for (int row = 0; row < ROWS_N; row++) {
            if (gap_ms > 0)
                bench_sleep_us((double)gap_ms * 1e3);
            double us = run_row(row, s, use_python ? python : truth);
            if (i >= 0)
                samples_add(&rows[row], us);
        }
    }
    char name[64];
    (void)snprintf(name, sizeof name, "one-shot %s, %s", use_python ? "python3" : "true",
                   gap_ms > 0 ? "spaced" : "back to back");
    for (int row = 0; row < ROWS_N; row++)
        samples_print(&rows[row], name, "");
    stockade_close(s);
    return 0;
}
