// SPDX-License-Identifier: Apache-2.0
// `stockade help` and --help: the tables of commands.c as text.
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "commands.h"
#include "text.h"

enum { WIDTH = 80, OPTION_COLUMN = 26, COMMAND_COLUMN = 14 };

// Kinds and severities are listed behind the help.
static const char *
help_with_choices(const struct option_row *r, char *out, size_t n)
{
    if (r->kind != OPTION_EVENT_KIND && r->kind != OPTION_SEVERITY)
        return r->help;
    int at = snprintf(out, n, "%s", r->help);
    for (size_t i = 0; r->choices[i] != NULL && at < (int)n; i++)
        at += snprintf(out + at, n - (size_t)at, "%s %s", i > 0 ? "," : "", r->choices[i]);
    return out;
}

static void
help_option(FILE *to, const struct option_row *r)
{
    char left[64], help[1024];
    char letter[6] = "    ";
    if (r->letter != 0)
        (void)snprintf(letter, sizeof letter, "-%c, ", r->letter);
    int n = snprintf(left, sizeof left, "  %s--%s%s%s", letter, r->name,
                     r->value != NULL ? " " : "", r->value != NULL ? r->value : "");
    (void)fputs(left, to);
    if (n + 2 > OPTION_COLUMN) {
        (void)fputc('\n', to);
        n = 0;
    }
    text_wrap(to, help_with_choices(r, help, sizeof help), n, OPTION_COLUMN, WIDTH);
}

void
help_command(FILE *to, const struct command *c)
{
    (void)fprintf(to, "usage: stockade %s %s\n\n", c->name, c->usage);
    (void)fprintf(to, "%c%s.\n", c->summary[0] - 'a' + 'A', c->summary + 1);
    if (c->details != NULL) {
        (void)fputc('\n', to);
        text_wrap(to, c->details, 0, 0, WIDTH);
    }
    (void)fprintf(to, "\noptions:\n");
    for (const struct option_row *const *g = c->options; *g != NULL; g++)
        for (const struct option_row *r = *g; r->name != NULL; r++)
            help_option(to, r);
}

void
help_all(FILE *to)
{
    (void)fprintf(to, "usage: stockade [--address ADDRESS] COMMAND ...\n\n"
                      "Runs code in sandboxes.\n\ncommands:\n");
    for (const struct command *c = commands; c->name != NULL; c++) {
        int n = fprintf(to, "  %s", c->name);
        text_wrap(to, c->summary, n, COMMAND_COLUMN, WIDTH);
    }
    (void)fprintf(to, "\nRun 'stockade COMMAND --help' for details.\n"
                      "Example: stockade run --memory 256M --timeout 5s -- python3 -c "
                      "'print(6 * 7)'\n");
}

int
cli_help_command(const struct command *c, const struct options *o)
{
    if (o->args_n == 0) {
        help_all(stdout);
        return EXIT_OK;
    }
    const struct command *wanted = command_find(o->args[0]);
    if (wanted == NULL) {
        char why[128], hint[128] = "";
        const char *near = command_nearest(o->args[0]);
        (void)snprintf(why, sizeof why, "there is no command '%.60s'", o->args[0]);
        if (near != NULL)
            (void)snprintf(hint, sizeof hint, "did you mean '%s'?", near);
        return cli_usage(c, why, hint);
    }
    help_command(stdout, wanted);
    return EXIT_OK;
}
