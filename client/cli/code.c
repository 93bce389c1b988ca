// SPDX-License-Identifier: Apache-2.0
// `stockade code`: one cell, from the command line, a file or stdin.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cell.h"
#include "bill.h"
#include "commands.h"
#include "feed.h"
#include "simulations.h"

enum { CODE_BYTES_MAX = 1024 * 1024 };

static int
unreadable(const struct command *c, const char *file, const char *why)
{
    struct stockade_error e = {.code = STOCKADE_INVALID_ARGUMENT};
    (void)snprintf(e.text, sizeof e.text, "cannot read %.200s: %s", file, why);
    return cli_fail(c, "", &e);
}

// Why a file cannot be read into text; NULL: it was.
static const char *
read_into(char *text, const char *file)
{
    bool from_stdin = strcmp(file, "-") == 0;
    FILE *f = from_stdin ? stdin : fopen(file, "re");
    if (f == NULL)
        return strerror(errno);
    size_t n = fread(text, 1, CODE_BYTES_MAX + 1, f);
    const char *why = ferror(f) != 0 ? strerror(errno) : NULL;
    if (!from_stdin)
        (void)fclose(f);
    text[n] = '\0';
    if (why == NULL && n > CODE_BYTES_MAX)
        why = "it is larger than 1 MiB";
    if (why == NULL && strlen(text) != n)
        why = "it contains NUL";
    return why;
}

static void
print_bill(const struct cell *cell, const struct stockade_code_end *end)
{
    struct stockade_result r = {
        .outcome = STOCKADE_OUTCOME_EXITED, .reason = "", .bill = end->bill};
    r.exit_code = end->status == STOCKADE_CODE_OK ? 0 : 1;
    bill_print(cell->command, cell->sandbox_id, &r, stderr);
}

static int
run(struct cell *cell, const struct stockade_code_options *co)
{
    const struct stockade_code_end *end = NULL;
    struct stockade_error e;
    const struct feed_options feeding = {.s = cell->s};
    struct feed *feed = feed_start(&feeding);
    if (feed == NULL)
        return EXIT_OURS;
    int rc = cell_run(cell, co, &end, &e);
    struct feed_end fed = feed_stop(feed);
    if (cell->sink.broken)
        return sink_broken(&cell->sink, cell->command, EXIT_OURS);
    if (rc < 0 && e.code == STOCKADE_CANCELLED && fed.signal != 0)
        return EXIT_SIGNAL + fed.signal;
    if (rc < 0)
        return cell->options->sandbox != NULL
                   ? cli_fail_sandbox(cell->s, cell->command, cell->options->sandbox, &e)
                   : cli_fail(cell->command, "", &e);
    int code = cell_judge(cell, end);
    if (!cell->capturing && end->simulation != NULL)
        simulation_report(cell->command, end->simulation);
    if (cell->capturing && cell_put_json(cell, end) != EXIT_OK)
        code = EXIT_OURS;
    if (cell->options->bill)
        print_bill(cell, end);
    stockade_free(end);
    return code;
}

static int
run_text(const struct command *c, const struct options *o, const char *text, const char *language)
{
    int code = EXIT_OURS;
    struct cell cell = {.command = c, .options = o};
    struct stockade_code_options co = STOCKADE_CODE_OPTIONS_INIT;
    struct stockade_policy policy;
    char sandbox[65] = "";
    struct simulating simulating = {0};
    const int bad = simulating_read(&simulating, c, o);
    cell.s = bad == EXIT_OK ? cli_open(c, o, &code) : NULL;
    if (cell.s == NULL) {
        simulating_free(&simulating);
        return bad != EXIT_OK ? bad : code;
    }
    feed_block_signals();
    cell_begin(&cell, o->pictures);
    co.code = text;
    co.context = o->context;
    co.language = language;
    co.timeout_ms = o->limits.wall_ms;
    co.template_name = o->template_name;
    co.limits = o->limits;
    co.limits.wall_ms = 0;
    co.env = o->env;
    co.env_n = o->env_n;
    if (options_policy(o, &policy))
        co.policy = &policy;
    co.mounts = o->mounts;
    co.mounts_n = o->mounts_n;
    co.simulate = simulating_options(&simulating, o);
    bool found = o->sandbox == NULL || cli_find_sandbox(cell.s, c, o->sandbox, sandbox, &code);
    if (o->sandbox != NULL)
        co.sandbox = sandbox;
    if (found)
        code = run(&cell, &co);
    stockade_close(cell.s);
    cell_free(&cell);
    simulating_free(&simulating);
    return code;
}

int
cli_code(const struct command *c, const struct options *o)
{
    const char *file = o->args_n > 0 ? o->args[0] : "-", *language = o->language;
    if (o->code != NULL && o->args_n > 0)
        return cli_usage(c, "-c and FILE exclude each other", "");
    int bad = cell_check_folder(c, o->pictures);
    if (bad != EXIT_OK)
        return bad;
    if (language == NULL && o->context == NULL && o->code == NULL)
        language = cell_language_of(file);
    if (o->code != NULL)
        return run_text(c, o, o->code, language);
    static char text[CODE_BYTES_MAX + 2];
    const char *why = read_into(text, file);
    if (why != NULL)
        return unreadable(c, strcmp(file, "-") == 0 ? "stdin" : file, why);
    return run_text(c, o, text, language);
}
