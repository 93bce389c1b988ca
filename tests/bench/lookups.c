// SPDX-License-Identifier: Apache-2.0
// The cost of a job's file lookups: `find` over two folders of /usr, and the start of Python, by plain posix_spawn,
// by bubblewrap, in a sandbox that stays (where they were looked up before) and in a new one, alternating.
//
//   lookups ADDRESS ROUNDS
//
// Each row has the time that the caller waits, and the processor time: that of the job from its bill, and that of
// bubblewrap including its sandbox. The order of the rows changes with each round, because each row warms caches for
// the next.
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "client/stockade.h"

enum { PLAIN, BWRAP, KEPT, FRESH, ROWS_N, WORDS_MAX = 64 };

// Without output, which only a job would send through a pipe and a broker.
static const char *const find[] = {"/usr/bin/find", "/usr/share/doc", "/usr/lib/python3",
                                   "-fprint",       "/dev/null",      NULL};
static const char *const python[] = {"/usr/bin/python3", "-c", "pass", NULL};
static const char *const names[ROWS_N] = {"plain exec", "bubblewrap", "stockade, kept",
                                          "stockade, fresh"};

struct peer {
    struct stockade *s;
    const char *sandbox;
    const char *const *args;
    const char *bwrap[WORDS_MAX];
};

static double
children_cpu(void)
{
    struct rusage r;
    (void)getrusage(RUSAGE_CHILDREN, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e6 +
           (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static double
run_child(const char *const argv[])
{
    double before = children_cpu();
    if (bench_spawn(argv) != 0)
        bench_die("%s failed", argv[0]);
    while (wait(NULL) > 0) // bubblewrap's first process outlives it, and includes the command's use
        ;
    return children_cpu() - before;
}

static double
run_job(const struct peer *p, bool fresh)
{
    struct stockade_run_options run = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_start_options start = STOCKADE_START_OPTIONS_INIT;
    struct stockade_error e;
    const struct stockade_result *r = NULL;
    run.command.args = start.command.args = p->args;
    start.sandbox = p->sandbox;
    int rc =
        fresh ? stockade_run(p->s, &run, NULL, &r, &e) : stockade_start(p->s, &start, NULL, &r, &e);
    if (rc < 0)
        bench_die("%s: %s", p->args[0], e.text);
    if (r->outcome != STOCKADE_OUTCOME_EXITED || r->exit_code != 0)
        bench_die("%s: outcome %u, %s", p->args[0], r->outcome, r->reason);
    double cpu = (double)(r->bill.cpu_user_ns.value + r->bill.cpu_system_ns.value) / 1e3;
    stockade_free(r);
    return cpu;
}

static double
run_row(const struct peer *p, int row)
{
    switch (row) {
    case PLAIN:
        return run_child(p->args);
    case BWRAP:
        return run_child(p->bwrap);
    default:
        return run_job(p, row == FRESH);
    }
}

static void
build_bwrap(struct peer *p)
{
    size_t n = 0;
    while (bench_bwrap_true[n + 1] != NULL) {
        p->bwrap[n] = bench_bwrap_true[n];
        n++;
    }
    for (size_t i = 0; p->args[i] != NULL; i++)
        p->bwrap[n++] = p->args[i];
}

static void
measure(struct peer *p, const char *const *args, const char *bench, long rounds)
{
    struct samples wall[ROWS_N] = {0}, cpu[ROWS_N] = {0};
    p->args = args;
    build_bwrap(p);
    for (long i = -2; i < rounds; i++) {
        for (int k = 0; k < ROWS_N; k++) {
            int row = (int)((k + i + 2) % ROWS_N);
            bench_sleep_us(20e3); // so that the end of the last sandbox is not in this row's time
            double from = bench_now();
            double used = run_row(p, row);
            if (i < 0)
                continue;
            samples_add(&wall[row], bench_now() - from);
            samples_add(&cpu[row], used);
        }
    }
    for (int row = 0; row < ROWS_N; row++) {
        char more[96];
        samples_sort(&cpu[row]);
        (void)snprintf(more, sizeof more, ", \"cpu_us\": %.0f, \"cpu_least_us\": %.0f",
                       samples_at(&cpu[row], 0.5), samples_at(&cpu[row], 0));
        free(cpu[row].us);
        wall[row].row = names[row];
        samples_print(&wall[row], bench, more);
    }
}

int
main(int argc, char **argv)
{
    if (argc < 3)
        bench_die("usage: lookups ADDRESS ROUNDS");
    struct stockade_options options = STOCKADE_OPTIONS_INIT;
    struct stockade_create_options create = STOCKADE_CREATE_OPTIONS_INIT;
    struct stockade_error e;
    const struct stockade_sandbox *kept = NULL;
    struct peer p = {0};
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    options.address = argv[1];
    if (stockade_open(&p.s, &options, &e) < 0 || stockade_create(p.s, &create, &kept, &e) < 0)
        bench_die("%s", e.text);
    p.sandbox = kept->id;
    long rounds = strtol(argv[2], NULL, 10);
    measure(&p, find, "lookups, find", rounds);
    measure(&p, python, "lookups, python3 -c pass", rounds);
    if (stockade_delete(p.s, p.sandbox, &e) < 0)
        bench_die("%s", e.text);
    stockade_free(kept);
    stockade_close(p.s);
    return 0;
}
