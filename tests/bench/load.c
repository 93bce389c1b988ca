// SPDX-License-Identifier: Apache-2.0
// Many jobs at once through libstockade, each verified: for flow tests that check the host before and after.
//
//   stockade-load ADDRESS JOBS CLIENTS             one-shot jobs that echo a token; exit 0 when every answer was right
//   stockade-load ADDRESS JOBS CLIENTS sleep       jobs that never end: prints "running" once all have started
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/stockade.h"

struct answer {
    char text[128];
    size_t n;
};

static const char *address;
static atomic_long jobs_left, jobs_wrong, jobs_started;
static bool sleep_for_ever;

static int
take_output(void *cookie, int stream, const void *bytes, size_t n, uint64_t offset)
{
    struct answer *a = cookie;
    (void)stream;
    if (offset != a->n || a->n + n >= sizeof a->text)
        return 1;
    memcpy(a->text + a->n, bytes, n);
    a->n += n;
    return 0;
}

static int
count_start(void *cookie, const char *process, const char *sandbox, uint32_t pid)
{
    (void)cookie;
    (void)process;
    (void)sandbox;
    (void)pid;
    (void)atomic_fetch_add(&jobs_started, 1);
    return 0;
}

static bool
one_job(struct stockade *s, long number)
{
    char script[96], wanted[64];
    (void)snprintf(script, sizeof script, "echo job-%ld; echo more >&2; exit %ld", number,
                   number % 100);
    int wanted_n = snprintf(wanted, sizeof wanted, "job-%ld\n", number);
    const char *args[] = {"/bin/sh", "-c", sleep_for_ever ? "sleep 1000" : script, NULL};
    struct answer answer = {.n = 0};
    struct stockade_handlers h = {
        .on_started = count_start, .on_output = take_output, .cookie = &answer};
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    o.command.args = args;
    struct stockade_error e;
    const struct stockade_result *r = NULL;
    if (stockade_run(s, &o, &h, &r, &e) < 0) {
        (void)fprintf(stderr, "job %ld: %s\n", number, e.text);
        return false;
    }
    bool right = r->outcome == STOCKADE_OUTCOME_EXITED &&
                 r->exit_code == (uint32_t)(number % 100) && answer.n == (size_t)wanted_n + 5 &&
                 memmem(answer.text, answer.n, wanted, (size_t)wanted_n) != NULL;
    if (!right)
        (void)fprintf(stderr, "job %ld: outcome %u, exit %u, reason '%s', output '%.*s'\n", number,
                      r->outcome, r->exit_code, r->reason, (int)answer.n, answer.text);
    stockade_free(r);
    return right;
}

static void *
work(void *unused)
{
    struct stockade_options options = STOCKADE_OPTIONS_INIT;
    struct stockade *s = NULL;
    struct stockade_error e;
    options.address = address;
    if (stockade_open(&s, &options, &e) < 0) {
        (void)fprintf(stderr, "%s\n", e.text);
        (void)atomic_fetch_add(&jobs_wrong, 1);
        return unused;
    }
    for (long number; (number = atomic_fetch_sub(&jobs_left, 1)) > 0;)
        if (!one_job(s, number))
            (void)atomic_fetch_add(&jobs_wrong, 1);
    stockade_close(s);
    return unused;
}

int
main(int argc, char **argv)
{
    enum { CLIENTS_MAX = 512 };
    static pthread_t threads[CLIENTS_MAX];
    long jobs = argc > 3 ? strtol(argv[2], NULL, 10) : 0,
         clients = argc > 3 ? strtol(argv[3], NULL, 10) : 0;
    if (jobs < 1 || clients < 1 || clients > CLIENTS_MAX) {
        (void)fprintf(stderr, "usage: stockade-load ADDRESS JOBS CLIENTS [sleep]\n");
        return 2;
    }
    address = argv[1];
    sleep_for_ever = argc > 4;
    atomic_store(&jobs_left, jobs);
    for (long i = 0; i < clients; i++)
        if (pthread_create(&threads[i], NULL, work, NULL) != 0)
            return 2;
    while (sleep_for_ever && atomic_load(&jobs_started) < jobs && atomic_load(&jobs_wrong) == 0)
        (void)usleep(10000);
    if (sleep_for_ever) {
        printf("running\n");
        (void)fflush(stdout);
    }
    for (long i = 0; i < clients; i++)
        (void)pthread_join(threads[i], NULL);
    printf("%ld jobs, %ld wrong\n", jobs, atomic_load(&jobs_wrong));
    return atomic_load(&jobs_wrong) != 0;
}
