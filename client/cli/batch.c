// SPDX-License-Identifier: Apache-2.0
// `stockade batch`: jobs from a file or a pipe, one per line, and a line of JSON for the result of each.
//
//   lines -> queue -> next()   stockade_batch()   on_result() -> a line
//
// A result is confirmed after its line was written, so a command that is killed loses none: with --key and --resume
// another one continues. A lost connection is made again; the batch goes on meanwhile.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/now.h"
#include "proto/plural.h"
#include "batch_input.h"
#include "cli.h"
#include "commands.h"
#include "json.h"

enum { PROGRESS_MS = 200, KEY_MAX = 128 };

static volatile sig_atomic_t interrupted;

static void
on_signal(int number)
{
    interrupted = number;
}

static uint64_t
now_ms(void)
{
    return (uint64_t)now_ns(CLOCK_MONOTONIC) / 1000000;
}

// ---- for the library

static int
next(void *cookie, uint64_t number, struct stockade_batch_job *job)
{
    struct batch *b = cookie;
    batch_split(b);
    if (b->code != EXIT_OK)
        return -1;
    if (number < b->front + b->queue_n) {
        *job = b->queue[number - b->front].job;
        return STOCKADE_BATCH_JOB;
    }
    return b->eof && b->line_n == 0 ? STOCKADE_BATCH_NO_MORE : STOCKADE_BATCH_LATER;
}

static int
on_result(void *cookie, const struct stockade_batch_result *of)
{
    struct batch *b = cookie;
    const struct stockade_result *r = of->result;
    json_t *o = json_object();
    (void)json_object_set_new(o, "number", json_integer((json_int_t)of->number));
    (void)json_object_set_new(o, "key", json_string(of->key));
    json_t *rest = json_of_result(r);
    (void)json_object_update(o, rest);
    json_decref(rest);
    (void)json_object_set_new(o, "process_id", json_string(of->process_id));
    for (int i = 0; i < 2; i++) {
        const struct stockade_bytes *out = &of->output[i];
        (void)json_set_bytes(o, i == 0 ? "stdout" : "stderr", out->n > 0 ? out->bytes : "", out->n);
    }
    (void)json_object_set_new(o, "output_missing_bytes",
                              json_integer((json_int_t)of->missing_bytes));
    b->code = json_put(o);
    b->state.results++;
    b->failed += r->outcome != STOCKADE_OUTCOME_EXITED || r->exit_code != 0;
    b->stopped |= r->outcome == STOCKADE_OUTCOME_CANCELLED &&
                  exit_code_of_cancelled(r->reason) == EXIT_WAITING;
    return b->code != EXIT_OK;
}

static void
show_progress(struct batch *b, bool last)
{
    const uint64_t now = now_ms();
    const struct stockade_batch_state *state = &b->state;
    if (isatty(STDERR_FILENO) == 0 || isatty(STDOUT_FILENO) != 0 ||
        (!last && now - b->shown_ms < PROGRESS_MS))
        return;
    b->shown_ms = now;
    double seconds = (double)(now - b->began_ms + 1) / 1000;
    (void)fprintf(stderr, "\r%llu of %llu%s %s, %llu failed, %.0f per second%s ",
                  (unsigned long long)state->results, (unsigned long long)state->accepted,
                  state->complete ? "" : " or more", plural(state->accepted, "result", "results"),
                  (unsigned long long)b->failed, (double)state->results / seconds,
                  state->lost ? " (connection lost)" : "");
    if (last)
        (void)fputc('\n', stderr);
}

// For the connection, and for the next lines.
static int
wait_for_more(void *cookie, const struct stockade_batch_state *state, int fd, int timeout_ms)
{
    struct batch *b = cookie;
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = b->in, .events = POLLIN}};
    b->state = *state;
    batch_drop_accepted(b);
    batch_split(b);
    show_progress(b, false);
    const nfds_t n = batch_wants_input(b) ? 2 : 1;
    const int ms = timeout_ms < PROGRESS_MS ? timeout_ms : PROGRESS_MS;
    if (interrupted == 0 && poll(p, n, ms) > 0 && n == 2 && p[1].revents != 0)
        batch_read_more(b);
    return interrupted != 0 || b->code != EXIT_OK;
}

// ---- the command

static int
judge(const struct batch *b)
{
    if (b->code != EXIT_OK)
        return b->code;
    if (b->stopped)
        return EXIT_WAITING;
    return b->failed != 0 ? EXIT_PROBLEM : EXIT_OK;
}

static int
work(struct batch *b)
{
    const struct options *of = b->o;
    struct stockade_batch_options o = STOCKADE_BATCH_OPTIONS_INIT;
    const struct stockade_batch_handlers h = {next, on_result, b};
    struct stockade_policy policy;
    struct stockade_error e;
    o.key = of->key;
    o.resume = of->resume;
    o.template_name = of->template_name;
    o.limits = of->limits;
    if (options_policy(of, &policy))
        o.policy = &policy;
    o.mounts = of->mounts;
    o.mounts_n = of->mounts_n;
    o.reset_files = of->reset != NULL && strcmp(of->reset, "files") == 0;
    o.warm = of->warm;
    o.parallel = (uint32_t)of->parallel;
    o.window = (uint32_t)of->window;
    o.deadline_ms = of->deadline_ms;
    o.wait = wait_for_more;
    const int r = stockade_batch(b->s, &o, &h, &e);
    show_progress(b, true);
    if (r < 0 && b->code == EXIT_OK && interrupted != 0)
        b->code = EXIT_SIGNAL + interrupted;
    else if (r < 0)
        batch_fail(b, &e);
    return judge(b);
}

static int
open_input(struct batch *b)
{
    const char *name = b->o->args[0];
    char why[256];
    b->in = strcmp(name, "-") == 0 ? STDIN_FILENO : open(name, O_RDONLY | O_CLOEXEC);
    if (b->in >= 0)
        return 0;
    (void)snprintf(why, sizeof why, "%.150s: %s", name, strerror(errno));
    return cli_usage(b->c, why, "");
}

static int
check_key(const struct batch *b)
{
    if (b->o->resume && b->o->key == NULL)
        return cli_usage(b->c, "--resume needs --key", "the key that the batch began with");
    return b->o->key != NULL && strlen(b->o->key) > KEY_MAX
               ? cli_usage(b->c, "--key is longer than 128 bytes", "")
               : 0;
}

static void
batch_free(struct batch *b)
{
    while (b->queue_n > 0)
        batch_drop_first(b);
    if (b->in > STDIN_FILENO)
        (void)close(b->in);
    stockade_close(b->s);
    free(b->line);
}

int
cli_batch(const struct command *c, const struct options *o)
{
    static struct batch b;
    struct sigaction action = {.sa_handler = on_signal};
    b = (struct batch){.c = c, .o = o, .in = -1, .began_ms = now_ms()};
    b.line = malloc(BATCH_LINE_MAX + 1);
    int code = b.line == NULL ? EXIT_PROBLEM : check_key(&b);
    if (code == 0)
        code = open_input(&b);
    if (code == 0) {
        batch_check_file(&b);
        code = b.code;
    }
    if (code == 0)
        b.s = cli_open(c, o, &code);
    if (b.s != NULL) {
        (void)sigaction(SIGINT, &action, NULL);
        (void)sigaction(SIGTERM, &action, NULL);
        code = work(&b);
    }
    batch_free(&b);
    return code;
}
