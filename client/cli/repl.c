// SPDX-License-Identifier: Apache-2.0
// `stockade repl`: cells typed at a prompt, in one context.
//
//   main thread     reads lines, runs cells, shows them
//   second thread   waits for signals: SIGINT interrupts the cell; SIGTERM and SIGHUP end the command. It also prolongs the
//                   life of a sandbox that was made for this, which ends soon after a command that was killed.
//
// With --sandbox the context is a new one there, with --context an existing one; otherwise the sandbox is new, too, and is
// removed at the end.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cell.h"
#include "commands.h"
#include "line.h"
#include "policy.h"
#include "repl_text.h"
#include "tty.h"

enum { TTL_MS = 10 * 60 * 1000, PROLONG_S = 120, CELL_BYTES_MAX = 1024 * 1024 };

struct repl {
    struct cell cell;
    const struct options *options;
    struct history history;
    bool shows_prompt;
    const char *language;
    char context[CLI_ID_SIZE], sandbox[65];
    atomic_bool owns_sandbox, owns_context;
    pthread_t thread;
    sigset_t signals;
    atomic_bool running; // a cell
    atomic_bool over;
};

// ---- the end, and signals

static void
close_context(struct repl *r)
{
    if (r->owns_sandbox)
        (void)stockade_delete(r->cell.s, r->sandbox, NULL);
    else if (r->owns_context)
        (void)stockade_context_delete(r->cell.s, r->context, NULL);
}

// The main thread may wait for a key, so this thread ends the process.
static _Noreturn void
end_now(struct repl *r, int number)
{
    tty_restore();
    close_context(r);
    _exit(EXIT_SIGNAL + number);
}

static void *
wait_for_signals(void *cookie)
{
    struct repl *r = cookie;
    const struct timespec soon = {.tv_sec = PROLONG_S};
    while (!r->over) {
        int number = sigtimedwait(&r->signals, NULL, &soon);
        if (number < 0 && errno == EAGAIN && r->owns_sandbox)
            (void)stockade_update(r->cell.s, r->sandbox, TTL_MS, NULL, 0, NULL, NULL);
        if (number == SIGTERM || number == SIGHUP)
            end_now(r, number);
        if (number == SIGINT && r->running)
            (void)stockade_context_interrupt(r->cell.s, r->context, NULL);
    }
    return NULL;
}

static int
begin_signals(struct repl *r)
{
    (void)sigemptyset(&r->signals);
    (void)sigaddset(&r->signals, SIGINT);
    (void)sigaddset(&r->signals, SIGTERM);
    (void)sigaddset(&r->signals, SIGHUP);
    (void)sigaddset(&r->signals, SIGUSR1); // its own: the end
    (void)pthread_sigmask(SIG_BLOCK, &r->signals, NULL);
    return pthread_create(&r->thread, NULL, wait_for_signals, r);
}

static void
end_signals(struct repl *r)
{
    r->over = true;
    (void)pthread_kill(r->thread, SIGUSR1);
    (void)pthread_join(r->thread, NULL);
}

// ---- its context

static int
make_sandbox(struct repl *r, struct stockade_error *e)
{
    const struct options *o = r->options;
    const struct stockade_sandbox *box = NULL;
    struct stockade_create_options co = STOCKADE_CREATE_OPTIONS_INIT;
    struct stockade_policy policy;
    co.template_name = o->template_name;
    co.limits = o->limits;
    co.limits.wall_ms = 0;
    co.ttl_ms = TTL_MS;
    if (options_policy(o, &policy))
        co.policy = &policy;
    if (stockade_create(r->cell.s, &co, &box, e) < 0)
        return -1;
    (void)snprintf(r->sandbox, sizeof r->sandbox, "%s", box->id);
    r->owns_sandbox = true;
    stockade_free(box);
    return 0;
}

static int
make_context(struct repl *r, struct stockade_error *e)
{
    const struct options *o = r->options;
    const struct stockade_context *context = NULL;
    struct stockade_context_options co = STOCKADE_CONTEXT_OPTIONS_INIT;
    co.sandbox = r->sandbox;
    co.language = o->language;
    co.env = o->env;
    co.env_n = o->env_n;
    if (stockade_context_create(r->cell.s, &co, &context, e) < 0)
        return -1;
    (void)snprintf(r->context, sizeof r->context, "%s", context->id);
    r->owns_context = true;
    stockade_free(context);
    return 0;
}

// An exit code.
static int
open_context(struct repl *r)
{
    const struct options *o = r->options;
    struct stockade_error e;
    int code = EXIT_OK;
    if (o->context != NULL) {
        (void)snprintf(r->context, sizeof r->context, "%s", o->context);
        return EXIT_OK;
    }
    if (o->sandbox != NULL &&
        !cli_find_sandbox(r->cell.s, r->cell.command, o->sandbox, r->sandbox, &code))
        return code;
    if ((o->sandbox == NULL && make_sandbox(r, &e) < 0) || make_context(r, &e) < 0)
        return cli_fail(r->cell.command, "", &e);
    return EXIT_OK;
}

// ---- cells

// Appends a line to a cell, which is *owned* by the caller.
static char *
join(char *cell, const char *line)
{
    const size_t n = cell != NULL ? strlen(cell) + 1 : 0, more = strlen(line);
    if (n + more > CELL_BYTES_MAX) {
        (void)fprintf(stderr, "stockade repl: a cell has at most 1 MiB\n");
        free(cell);
        return NULL;
    }
    char *grown = realloc(cell, n + more + 1);
    if (grown == NULL) {
        free(cell);
        return NULL;
    }
    if (n > 0)
        grown[n - 1] = '\n';
    memcpy(grown + n, line, more + 1);
    return grown;
}

// The next cell, *owned* by the caller; NULL with the reason why there is none. The end of stdin ends a cell, too.
static char *
read_cell(struct repl *r, enum line_end *end)
{
    char *cell = NULL;
    for (;;) {
        char *line = NULL;
        const char *prompt = cell == NULL ? ">>> " : "... ";
        *end = line_read(prompt, &r->history, &line);
        if (*end == LINE_ENDED && cell != NULL)
            return cell;
        if (*end != LINE_ENTERED) {
            free(cell);
            return NULL;
        }
        if (cell == NULL && line[strspn(line, " \t")] == '\0') {
            free(line);
            continue;
        }
        cell = join(cell, line);
        free(line);
        if (cell == NULL || repl_is_whole(r->language, cell))
            return cell;
    }
}

// Runs a cell. An exit code; *fatal: no further cell can run.
static int
run_cell(struct repl *r, const char *text, bool *fatal)
{
    struct stockade_code_options co = STOCKADE_CODE_OPTIONS_INIT;
    const struct stockade_code_end *end = NULL;
    struct stockade_error e;
    co.code = text;
    co.context = r->context;
    co.timeout_ms = r->options->limits.wall_ms;
    r->running = true;
    int rc = cell_run(&r->cell, &co, &end, &e);
    r->running = false;
    if (r->cell.sink.broken) {
        *fatal = true;
        return sink_broken(&r->cell.sink, r->cell.command, EXIT_OURS);
    }
    if (rc < 0) {
        *fatal = e.code != STOCKADE_INVALID_ARGUMENT;
        return cli_fail(r->cell.command, "", &e);
    }
    if (!r->cell.at_line_start && r->shows_prompt)
        (void)printf("\n");
    int code = cell_judge(&r->cell, end);
    if (r->cell.capturing && cell_put_json(&r->cell, end) != EXIT_OK) {
        *fatal = true;
        code = EXIT_OURS;
    }
    stockade_free(end);
    return code;
}

static int
serve(struct repl *r)
{
    bool fatal = false;
    int code = EXIT_OK;
    while (!fatal) {
        enum line_end end;
        char *cell = read_cell(r, &end);
        if (cell == NULL && (end == LINE_INTERRUPTED || end == LINE_ENTERED))
            continue;
        if (cell == NULL)
            break;
        if (r->shows_prompt)
            history_add(&r->history, cell);
        code = run_cell(r, cell, &fatal);
        free(cell);
    }
    return r->shows_prompt && !fatal ? EXIT_OK : code;
}

int
cli_repl(const struct command *c, const struct options *o)
{
    static struct repl r;
    int code = EXIT_OURS;
    if (o->context != NULL && o->sandbox != NULL)
        return cli_usage(c, "--context and --sandbox exclude each other", "");
    code = cell_check_folder(c, o->pictures);
    if (code != EXIT_OK)
        return code;
    r = (struct repl){.cell = {.command = c, .options = o}, .options = o};
    r.language = o->language != NULL ? o->language : "python";
    r.shows_prompt = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    r.cell.s = cli_open(c, o, &code);
    if (r.cell.s == NULL)
        return code;
    cell_begin(&r.cell, o->pictures != NULL ? o->pictures : ".");
    if (begin_signals(&r) == 0) {
        code = open_context(&r);
        if (r.shows_prompt)
            history_open(&r.history);
        if (code == EXIT_OK)
            code = serve(&r);
        history_close(&r.history);
        end_signals(&r);
        close_context(&r);
    }
    stockade_close(r.cell.s);
    cell_free(&r.cell);
    return code;
}
