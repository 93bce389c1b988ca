// SPDX-License-Identifier: Apache-2.0
// Sandboxes that stay: the cost of making one while few or many exist, and the memory of an idle one.
//
//   density ADDRESS ALIVE          makes ALIVE sandboxes with measurements, then three tenths as many bubblewraps
//
// Memory: the decrease of MemAvailable (/proc/meminfo) per sandbox, including the kernel's part.
#include "bench.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/stockade.h"

extern char **environ; // NOLINT(readability-redundant-declaration): POSIX leaves it to the program

static double
available_kib(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    double kib = 0;
    while (f != NULL && kib == 0 && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, "MemAvailable:", 13) == 0)
            kib = strtod(line + 13, NULL);
    if (f == NULL || kib == 0)
        bench_die("no MemAvailable");
    (void)fclose(f);
    return kib;
}

static double
create(struct stockade *s, char id[64])
{
    struct stockade_create_options o = STOCKADE_CREATE_OPTIONS_INIT;
    struct stockade_error e;
    const struct stockade_sandbox *made = NULL;
    o.ttl_ms = 3600000;
    double from = bench_now();
    if (stockade_create(s, &o, &made, &e) < 0)
        bench_die("create: %s", e.text);
    double us = bench_now() - from;
    (void)snprintf(id, 64, "%s", made->id);
    stockade_free(made);
    return us;
}

static void delete (struct stockade *s, const char *id)
{
    struct stockade_error e;
    if (stockade_delete(s, id, &e) < 0)
        bench_die("delete: %s", e.text);
}

// p50 of create, at intervals that let the pool fill up; the measured sandboxes are deleted.
static void
measure_create(struct stockade *s, const char *row)
{
    struct samples samples = {.row = row};
    for (int i = 0; i < 60; i++) {
        char id[64];
        bench_sleep_us(20000);
        samples_add(&samples, create(s, id));
        delete (s, id);
    }
    samples_print(&samples, "create", "");
}

static void
weigh_stockade(struct stockade *s, long alive)
{
    char(*ids)[64] = calloc((size_t)alive, sizeof *ids);
    if (ids == NULL)
        bench_die("out of memory");
    measure_create(s, "stockade, 1 alive");
    struct samples making = {.row = "stockade"};
    bench_sleep_us(2e6);
    double before = available_kib(), from = bench_now();
    for (long i = 0; i < alive; i++)
        samples_add(&making, create(s, ids[i]));
    double made_s = (bench_now() - from) / 1e6;
    bench_sleep_us(2e6);
    char more[128];
    (void)snprintf(more, sizeof more, ", \"alive\": %ld, \"kib_each\": %.0f, \"seconds\": %.2f",
                   alive, (before - available_kib()) / (double)alive, made_s);
    samples_print(&making, "idle sandboxes", more);
    char row[64];
    (void)snprintf(row, sizeof row, "stockade, %ld alive", alive);
    measure_create(s, row);
    for (long i = 0; i < alive; i++)
        delete (s, ids[i]);
    free(ids);
}

static void
weigh_bwrap(long alive)
{
    const char *argv[64];
    size_t n = 0;
    while (bench_bwrap_true[n + 1] != NULL) {
        argv[n] = bench_bwrap_true[n];
        n++;
    }
    argv[n++] = "/usr/bin/sleep";
    argv[n++] = "3600";
    argv[n] = NULL;
    pid_t *pids = calloc((size_t)alive, sizeof *pids);
    if (pids == NULL)
        bench_die("out of memory");
    struct samples making = {.row = "bubblewrap"};
    double before = available_kib();
    for (long i = 0; i < alive; i++) {
        double from = bench_now();
        if (posix_spawn(&pids[i], argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ) !=
            0)
            bench_die("bwrap");
        samples_add(&making, bench_now() - from);
    }
    bench_sleep_us(3e6);
    char more[128];
    (void)snprintf(more, sizeof more, ", \"alive\": %ld, \"kib_each\": %.0f", alive,
                   (before - available_kib()) / (double)alive);
    samples_print(&making, "idle sandboxes", more);
    for (long i = 0; i < alive; i++) {
        (void)kill(pids[i], SIGKILL);
        (void)waitpid(pids[i], NULL, 0);
    }
    free(pids);
}

int
main(int argc, char **argv)
{
    if (argc < 3)
        bench_die("usage: density ADDRESS ALIVE");
    long alive = strtol(argv[2], NULL, 10);
    if (alive < 10 || alive > 4000)
        bench_die("10 to 4000");
    struct stockade_options options = STOCKADE_OPTIONS_INIT;
    options.address = argv[1];
    struct stockade *s = NULL;
    struct stockade_error e;
    if (stockade_open(&s, &options, &e) < 0)
        bench_die("%s", e.text);
    weigh_stockade(s, alive);
    stockade_close(s);
    bench_sleep_us(5e6); // deleted sandboxes are still being freed
    weigh_bwrap(alive * 3 / 10);
    return 0;
}
