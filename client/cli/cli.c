// SPDX-License-Identifier: Apache-2.0
// The `stockade` command: finds the subcommand, reads its options, runs it.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "commands.h"

enum { SENTENCE_MAX = 256 };

// The text in place of the command if there is none.
static const struct command nothing = {.name = "", .usage = "[OPTION]... COMMAND ..."};

static int
no_command(const char *typed)
{
    char why[SENTENCE_MAX], hint[SENTENCE_MAX] = "";
    const char *near = command_nearest(typed);
    (void)snprintf(why, sizeof why, "there is no command '%.100s'", typed);
    if (near != NULL)
        (void)snprintf(hint, sizeof hint, "did you mean 'stockade %s'?", near);
    return cli_usage(&nothing, why, hint);
}

// Whether a line asks for JSON, even if it is wrong further on.
static bool
asks_for_json(int argc, char **argv)
{
    static const char *const names[] = {"-o", "--format", "--output"};
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "-ojson") == 0)
            return true;
        for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
            size_t n = strlen(names[k]);
            if (strncmp(argv[i], names[k], n) == 0 &&
                (strcmp(argv[i] + n, "=json") == 0 ||
                 (argv[i][n] == '\0' && i + 1 < argc && strcmp(argv[i + 1], "json") == 0)))
                return true;
        }
    }
    return false;
}

// The n-th required word of the usage, or "" if it is unknown.
static void
name_operand(const char *usage, int n, char *out, size_t out_n)
{
    out[0] = '\0';
    for (const char *p = usage; *p != '\0'; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        bool optional =
            p[0] == '[' && (p[len - 1] == ']' || (len > 4 && strncmp(p + len - 4, "]...", 4) == 0));
        if (!optional && n-- == 0)
            (void)snprintf(out, out_n, "%.*s", (int)strcspn(p, " ."), p);
        p += len;
    }
}

static int
wrong_count(const struct command *c, const struct options *o)
{
    char why[SENTENCE_MAX], operand[64];
    if (c->args_max >= 0 && o->args_n > c->args_max) {
        (void)snprintf(why, sizeof why, "unexpected argument '%.100s'", o->args[c->args_max]);
        return cli_usage(c, why, "");
    }
    name_operand(c->usage, o->args_n, operand, sizeof operand);
    (void)snprintf(why, sizeof why, "%s is missing", operand[0] != '\0' ? operand : "something");
    return cli_usage(c, why, "");
}

static int
run_command(const struct command *c, struct options *o, int argc, char **argv)
{
    struct problem p;
    bool json = o->json || asks_for_json(argc, argv);
    if (options_parse(o, c->options, c->rest, argc, argv, &p) < 0) {
        cli_errors_as_json(json);
        return cli_usage(c, p.why, p.hint);
    }
    cli_errors_as_json(o->json);
    if (o->help) {
        help_command(stdout, c);
        return EXIT_OK;
    }
    if (o->approval_wait_ms > APPROVAL_WAIT_MAX_MS)
        return cli_usage(c, "--wait-approval is at most 10m", "");
    if (o->args_n < c->args_min || (c->args_max >= 0 && o->args_n > c->args_max))
        return wrong_count(c, o);
    return c->run(c, o);
}

// If a standard descriptor was closed, a socket would take its number and be read as stdin or written to as output.
// Opens replacements instead: an empty input, and outputs that cannot be written, so that lost output is a failure.
static void
fill_stdio(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", O_RDONLY | O_CLOEXEC) != fd)
            _exit(EXIT_OURS);
}

// Flushes stdout before a successful end. A reader that closed it has what it needs.
static int
finish(int code)
{
    if (code != EXIT_OK || (fflush(stdout) == 0 && ferror(stdout) == 0) || errno == EPIPE)
        return code;
    (void)fprintf(stderr, "stockade: cannot write the output: %s\n", strerror(errno));
    return EXIT_PROBLEM;
}

int
main(int argc, char **argv)
{
    static struct options o;
    struct problem p;
    fill_stdio();
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        help_all(stderr);
        return EXIT_USAGE;
    }
    int parsed = options_parse(&o, options_main, true, argc - 1, argv + 1, &p);
    cli_errors_as_json(o.json);
    if (parsed < 0) {
        (void)cli_usage(&nothing, p.why, p.hint);
        return EXIT_USAGE;
    }
    if (o.version || o.help || o.args_n == 0) {
        if (o.version)
            (void)printf("stockade %s\n", stockade_version());
        else
            help_all(o.help ? stdout : stderr);
        return o.version || o.help ? finish(EXIT_OK) : EXIT_USAGE;
    }
    const struct command *c = command_find(o.args[0]);
    if (c == NULL)
        return no_command(o.args[0]);
    int code = run_command(c, &o, o.args_n - 1, argv + 2);
    options_free(&o);
    return finish(code);
}
