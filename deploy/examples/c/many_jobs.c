// SPDX-License-Identifier: Apache-2.0
// Runs a program many times at once, in one thread: a poll loop that could serve other descriptors as well.
//
//   cc -o many_jobs many_jobs.c $(pkg-config --cflags --libs stockade)
//   ./many_jobs 200 32 python3 -c 'import random; print(random.random())'
//
// 200 is how many jobs there are in total, 32 how many run at the same time.
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include <stockade.h>

struct jobs {
    struct stockade *s;
    const char *const *args;
    int left, failed; // to be begun; that failed
};

static int
on_output(void *cookie, int stream, const void *bytes, size_t n, uint64_t offset)
{
    (void)cookie, (void)offset;
    (void)fwrite(bytes, 1, n, stream == STOCKADE_STDERR ? stderr : stdout);
    return 0;
}

static void begin_next(struct jobs *jobs);

// A job has ended: here is its result, or why there is none. Another one takes its place.
static void
on_end(void *cookie, const struct stockade_end *end)
{
    struct jobs *jobs = cookie;
    if (end->error != NULL)
        fprintf(stderr, "%s\n", end->error->text);
    if (end->error != NULL || end->result->exit_code != 0)
        jobs->failed++;
    begin_next(jobs);
}

static void
begin_next(struct jobs *jobs)
{
    struct stockade_error e;
    struct stockade_run_options o = STOCKADE_RUN_OPTIONS_INIT;
    struct stockade_handlers h = {.on_output = on_output};
    struct stockade_async a = STOCKADE_ASYNC_INIT;
    o.command.args = jobs->args;
    a.on_end = on_end;
    a.cookie = jobs;
    if (jobs->left == 0)
        return;
    jobs->left--;
    if (stockade_begin_run(jobs->s, &o, &h, &a, NULL, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        jobs->failed += 1 + jobs->left;
        jobs->left = 0;
    }
}

int
main(int argc, char **argv)
{
    struct stockade_error e;
    struct jobs jobs = {.left = argc > 3 ? atoi(argv[1]) : 0};
    if (jobs.left < 1) {
        fprintf(stderr, "usage: many_jobs COUNT AT_ONCE PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    jobs.args = (const char *const *)(argv + 3);
    if (stockade_open(&jobs.s, NULL, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    struct pollfd p = {.fd = stockade_fd(jobs.s, &e), .events = POLLIN};
    for (int i = 0; i < atoi(argv[2]); i++)
        begin_next(&jobs);
    int open = 0;
    while ((open = stockade_pump(jobs.s, 0, &e)) > 0)
        if (poll(&p, 1, -1) < 0 && errno != EINTR)
            break;
    if (open != 0)
        fprintf(stderr, "%s\n", open < 0 ? e.text : "poll failed");
    stockade_close(jobs.s);
    return open != 0 || jobs.failed > 0;
}
