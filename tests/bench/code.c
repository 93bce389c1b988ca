// SPDX-License-Identifier: Apache-2.0
// print(1) in python: plain, by bubblewrap, in a Jupyter kernel, and as a cell: in a context, and in a fresh sandbox, of a
// template without and with a warm python; and a sum in pandas. In turns, from the call to the end of the cell. Before a cell in
// a warm sandbox one is ready that nobody has used.
//
//   code ADDRESS ROUNDS GAP_MS [JUPYTER]      JUPYTER: the program jupyter_cell
//   code ADDRESS ROUNDS clients N [GAP_MS]    N clients at a time, each with a context of its own, so long after its last cell
//   code ADDRESS ROUNDS checkpoint MIB        checkpoints of a context that holds so much, 100 ms apart
//
// The templates: default, warm and pandas.
#include "bench.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/stockade.h"

enum { PLAIN, BWRAP, JUPYTER, CONTEXT, COLD, WARM, PLAIN_PANDAS, WARM_PANDAS, ROWS_N };
enum { CLIENTS_MAX = 64 };

#define PANDAS "import pandas; print(pandas.DataFrame({'a': [1, 2]})['a'].sum())"

static const char *const python[] = {"/usr/bin/python3", "-c", "print(1)", NULL};
static const char *const python_pandas[] = {"/usr/bin/python3", "-c", PANDAS, NULL};
static const char *bwrap_argv[64];

static void
build_bwrap(void)
{
    size_t at = 0;
    while (bench_bwrap_true[at + 1] != NULL) {
        bwrap_argv[at] = bench_bwrap_true[at];
        at++;
    }
    for (size_t i = 0; python[i] != NULL; i++)
        bwrap_argv[at++] = python[i];
}

// The kernel, with a line for each cell and a line back.
struct jupyter {
    pid_t pid;
    FILE *to, *from;
};

static void
read_line(struct jupyter *j)
{
    char line[64];
    if (fgets(line, sizeof line, j->from) == NULL)
        bench_die("the Jupyter kernel has ended");
}

static void
start_jupyter(struct jupyter *j, char *program)
{
    int in[2], out[2];
    posix_spawn_file_actions_t a;
    char *argv[] = {program, NULL};
    if (pipe(in) < 0 || pipe(out) < 0)
        bench_die("pipe failed");
    (void)posix_spawn_file_actions_init(&a);
    (void)posix_spawn_file_actions_adddup2(&a, in[0], 0);
    (void)posix_spawn_file_actions_adddup2(&a, out[1], 1);
    (void)posix_spawn_file_actions_addclose(&a, in[1]);
    (void)posix_spawn_file_actions_addclose(&a, out[0]);
    if (posix_spawn(&j->pid, program, &a, NULL, argv, environ) != 0)
        bench_die("cannot start %s", program);
    (void)posix_spawn_file_actions_destroy(&a);
    (void)close(in[0]);
    (void)close(out[1]);
    j->to = fdopen(in[1], "w");
    j->from = fdopen(out[0], "r");
    if (j->to == NULL || j->from == NULL)
        bench_die("no memory");
    read_line(j);
}

static double
run_jupyter(struct jupyter *j)
{
    double from = bench_now();
    (void)fputs("\n", j->to);
    (void)fflush(j->to);
    read_line(j);
    return bench_now() - from;
}

static double
run_cell(struct stockade *s, const char *context, const char *template, const char *code)
{
    struct stockade_code_options o = STOCKADE_CODE_OPTIONS_INIT;
    struct stockade_error e;
    const struct stockade_code_end *end = NULL;
    o.code = code;
    o.context = context;
    o.template_name = template;
    double from = bench_now();
    if (stockade_run_code(s, &o, NULL, &end, &e) < 0)
        bench_die("cell: %s", e.text);
    double us = bench_now() - from;
    if (end->status != STOCKADE_CODE_OK)
        bench_die("cell: status %u, %s", end->status, end->reason);
    stockade_free(end);
    return us;
}

// Until a sandbox of the template is warm.
static void
wait_for_warm(struct stockade *s, const char *template)
{
    for (bool warm = false; !warm;) {
        const struct stockade_info *info = NULL;
        struct stockade_error e;
        bench_sleep_us(30e3);
        if (stockade_info(s, &info, &e) < 0)
            bench_die("info: %s", e.text);
        for (size_t i = 0; i < info->templates_n; i++)
            if (strcmp(info->templates[i].name, template) == 0)
                warm = info->templates[i].pool_warm == info->templates[i].pool_size;
        stockade_free(info);
    }
    bench_sleep_us(20e3);
}

static double
run_fresh(struct stockade *s, const char *template, const char *code)
{
    if (strcmp(template, "default") != 0)
        wait_for_warm(s, template);
    return run_cell(s, NULL, template, code);
}

static double
run_row(int row, struct stockade *s, const char *context, struct jupyter *j)
{
    switch (row) {
    case PLAIN:
        return bench_time(python);
    case BWRAP:
        return bench_time(bwrap_argv);
    case JUPYTER:
        return run_jupyter(j);
    case CONTEXT:
        return run_cell(s, context, NULL, "print(1)");
    case COLD:
        return run_fresh(s, "default", "print(1)");
    case WARM:
        return run_fresh(s, "warm", "print(1)");
    case PLAIN_PANDAS:
        return bench_time(python_pandas);
    default:
        return run_fresh(s, "pandas", PANDAS);
    }
}

static const struct stockade_sandbox *
make_sandbox(struct stockade *s, const struct stockade_context **context)
{
    const struct stockade_sandbox *box = NULL;
    struct stockade_create_options co = STOCKADE_CREATE_OPTIONS_INIT;
    struct stockade_context_options xo = STOCKADE_CONTEXT_OPTIONS_INIT;
    struct stockade_error e;
    if (stockade_create(s, &co, &box, &e) < 0)
        bench_die("create: %s", e.text);
    xo.sandbox = box->id;
    if (stockade_context_create(s, &xo, context, &e) < 0)
        bench_die("context: %s", e.text);
    return box;
}

// One of several clients: writes the times of its cells.
static void
be_client(const char *address, long rounds, long gap_ms, int fd)
{
    struct stockade_options options = STOCKADE_OPTIONS_INIT;
    struct stockade *s = NULL;
    struct stockade_error e;
    const struct stockade_context *context = NULL;
    options.address = address;
    if (stockade_open(&s, &options, &e) < 0)
        bench_die("%s", e.text);
    const struct stockade_sandbox *box = make_sandbox(s, &context);
    for (long i = -20; i < rounds; i++) {
        if (gap_ms > 0)
            bench_sleep_us((double)gap_ms * 1e3);
        double us = run_cell(s, context->id, NULL, "print(1)");
        if (i >= 0 && write(fd, &us, sizeof us) != sizeof us)
            bench_die("write failed");
    }
    (void)stockade_delete(s, box->id, NULL);
    stockade_free(context);
    stockade_free(box);
    stockade_close(s);
}

static void
run_clients(const char *address, long rounds, long n, long gap_ms)
{
    struct samples row = {.row = "stockade: a context"};
    char bench[64], more[64];
    int out[2];
    double us, from = bench_now();
    if (n < 1 || n > CLIENTS_MAX || pipe(out) < 0)
        bench_die("so many clients cannot be started");
    for (long i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid < 0)
            bench_die("fork failed");
        if (pid == 0) {
            be_client(address, rounds, gap_ms, out[1]);
            _exit(0);
        }
    }
    (void)close(out[1]);
    while (read(out[0], &us, sizeof us) == sizeof us)
        samples_add(&row, us);
    (void)close(out[0]);
    while (waitpid(-1, NULL, 0) > 0)
        continue;
    (void)snprintf(bench, sizeof bench, "code: print(1), %ld clients%s", n,
                   gap_ms > 0 ? ", spaced" : "");
    (void)snprintf(more, sizeof more, ",\"per_second\":%.0f",
                   (double)row.n / (bench_now() - from) * 1e6);
    samples_print(&row, bench, more);
}

// The context changes one object of sixteen before each, so that the fork before it has not all pages to itself.
static void
run_checkpoints(const char *address, long rounds, long mib)
{
    struct samples row = {.row = "stockade: checkpoint of a context"};
    struct stockade_options options = STOCKADE_OPTIONS_INIT;
    struct stockade *s = NULL;
    struct stockade_error e;
    const struct stockade_context *context = NULL;
    char code[160], bench[64];
    options.address = address;
    if (stockade_open(&s, &options, &e) < 0)
        bench_die("%s", e.text);
    const struct stockade_sandbox *box = make_sandbox(s, &context);
    (void)snprintf(code, sizeof code, "x = [bytearray(b'x' * 4000) for _ in range(%ld)]",
                   mib * 256);
    (void)run_cell(s, context->id, NULL, code);
    for (long i = -2; i < rounds; i++) {
        const struct stockade_checkpoint *made = NULL;
        (void)run_cell(s, context->id, NULL, "for i in range(0, len(x), 16): x[i][0] ^= 1");
        bench_sleep_us(100e3);
        double from = bench_now();
        if (stockade_context_checkpoint(s, context->id, "bench", &made, &e) < 0)
            bench_die("checkpoint: %s", e.text);
        if (i >= 0)
            samples_add(&row, bench_now() - from);
        stockade_free(made);
        if (stockade_checkpoint_delete(s, box->id, "bench", &e) < 0)
            bench_die("delete: %s", e.text);
    }
    (void)snprintf(bench, sizeof bench, "code: a checkpoint, %ld MiB", mib);
    samples_print(&row, bench, "");
    (void)stockade_delete(s, box->id, NULL);
    stockade_free(context);
    stockade_free(box);
    stockade_close(s);
}

int
main(int argc, char **argv)
{
    if (argc < 4)
        bench_die("usage: code ADDRESS ROUNDS GAP_MS [JUPYTER]");
    if (argc >= 5 && strcmp(argv[3], "clients") == 0) {
        run_clients(argv[1], strtol(argv[2], NULL, 10), strtol(argv[4], NULL, 10),
                    argc > 5 ? strtol(argv[5], NULL, 10) : 0);
        return 0;
    }
    if (argc == 5 && strcmp(argv[3], "checkpoint") == 0) {
        run_checkpoints(argv[1], strtol(argv[2], NULL, 10), strtol(argv[4], NULL, 10));
        return 0;
    }
    struct stockade_options options = STOCKADE_OPTIONS_INIT;
    struct stockade *s = NULL;
    struct stockade_error e;
    struct jupyter j = {0};
    options.address = argv[1];
    if (stockade_open(&s, &options, &e) < 0)
        bench_die("%s", e.text);
    build_bwrap();
    if (argc > 4)
        start_jupyter(&j, argv[4]);
    const struct stockade_context *context = NULL;
    const struct stockade_sandbox *box = make_sandbox(s, &context);
    struct samples rows[ROWS_N] = {{.row = "plain python3 -c"},
                                   {.row = "bubblewrap + python3 -c"},
                                   {.row = "Jupyter kernel"},
                                   {.row = "stockade: a context"},
                                   {.row = "stockade: a fresh sandbox"},
                                   {.row = "stockade: a fresh sandbox, warm"},
                                   {.row = "plain python3 -c, pandas"},
                                   {.row = "stockade: a fresh sandbox, warm pandas"}};
    long rounds = strtol(argv[2], NULL, 10), gap_ms = strtol(argv[3], NULL, 10);
    for (long i = -3; i < rounds; i++)
        for (int row = 0; row < ROWS_N; row++) {
            if (row == JUPYTER && j.to == NULL)
                continue;
            if (gap_ms > 0)
                bench_sleep_us((double)gap_ms * 1e3);
            double us = run_row(row, s, context->id, &j);
            if (i >= 0)
                samples_add(&rows[row], us);
        }
    for (int row = 0; row < ROWS_N; row++)
        if (rows[row].n > 0)
            samples_print(&rows[row], gap_ms > 0 ? "code: print(1), spaced" : "code: print(1)", "");
    (void)stockade_delete(s, box->id, NULL);
    stockade_free(context);
    stockade_free(box);
    stockade_close(s);
    if (j.to != NULL) {
        (void)fclose(j.to);
        (void)waitpid(j.pid, NULL, 0);
        (void)fclose(j.from);
    }
    return 0;
}
