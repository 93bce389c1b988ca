// SPDX-License-Identifier: Apache-2.0
// `stockade run` and `stockade exec`: a job with the command's stdin, stdout, stderr and exit code.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/plural.h"
#include "cli.h"
#include "bill.h"
#include "commands.h"
#include "feed.h"
#include "json.h"
#include "policies.h"
#include "simulations.h"
#include "sink.h"
#include "text.h"
#include "transactions.h"
#include "tty.h"

enum { STDIN_AHEAD_MAX = 1024 * 1024, SENTENCE_MAX = 1024 };

// A running job.
struct job {
    const struct command *command;
    const struct options *options;
    struct stockade *s;
    struct feed *feed;
    struct sink sink;
    char process_id[CLI_ID_SIZE];
    char sandbox_id[CLI_ID_SIZE];
    char target[65];         // exec: the sandbox's id or name
    const char *const *args; // of the process in it
    uint32_t pid;
    char *input; // bytes read ahead
    size_t input_n;
    bool input_open;     // more input follows
    char narrowed[4097]; // text of --policy
    struct stockade_pair pair;
    struct simulating simulating;
};

// ---- events while it runs

static int
on_started(void *cookie, const char *process_id, const char *sandbox_id, uint32_t pid)
{
    struct job *j = cookie;
    (void)snprintf(j->process_id, sizeof j->process_id, "%s", process_id);
    (void)snprintf(j->sandbox_id, sizeof j->sandbox_id, "%s", sandbox_id);
    j->pid = pid;
    if (j->feed != NULL)
        feed_started(j->feed, j->process_id);
    return 0;
}

static int
on_output(void *cookie, int stream, const void *bytes, size_t n, uint64_t offset)
{
    (void)offset;
    return sink_output(&((struct job *)cookie)->sink, stream, bytes, n);
}

static int
on_gap(void *cookie, uint64_t offset, uint64_t n, bool limit)
{
    (void)offset;
    return sink_gap(&((struct job *)cookie)->sink, n, limit);
}

// ---- before it runs

// A device that is open for writing only, as nohup(1) leaves stdin, is no input unless -i asks for it.
static bool
sends_input(const struct options *o, const struct stat *st)
{
    int flags = fcntl(STDIN_FILENO, F_GETFL);
    bool write_only = flags >= 0 && (flags & O_ACCMODE) == O_WRONLY;
    bool quiet = S_ISCHR(st->st_mode) && (write_only || isatty(STDIN_FILENO));
    return !o->no_stdin && !o->detach && (o->interactive || !quiet);
}

static int
read_file(struct job *j)
{
    j->input = malloc(STDIN_AHEAD_MAX);
    if (j->input == NULL)
        return -ENOMEM;
    while (j->input_open && j->input_n < STDIN_AHEAD_MAX) {
        ssize_t n = read(STDIN_FILENO, j->input + j->input_n, STDIN_AHEAD_MAX - j->input_n);
        if (n < 0 && errno != EINTR)
            return -errno;
        j->input_open = n != 0;
        j->input_n += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

// A file can be sent with the request; a pipe or a terminal is sent as data arrives. 0, or the negative errno of stdin.
static int
read_ahead(struct job *j)
{
    struct stat st;
    if (fstat(STDIN_FILENO, &st) < 0 || !sends_input(j->options, &st))
        return 0;
    j->input_open = true;
    bool whole = S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISCHR(st.st_mode);
    return whole && !isatty(STDIN_FILENO) ? read_file(j) : 0;
}

static void
fill_command(struct stockade_command *to, const struct job *j, const char *const *args)
{
    const struct options *o = j->options;
    *to = (struct stockade_command){
        .args = args,
        .env = o->env,
        .env_n = o->env_n,
        .workdir = o->workdir,
        .stdin_bytes = j->input,
        .stdin_n = j->input_n,
        .stdin_open = j->input_open,
    };
    if (o->terminal)
        tty_size(&to->rows, &to->columns);
}

// Programs that read commands from stdin by default.
static bool
reads_stdin(const char *program)
{
    static const char *const names[] = {"sh",  "bash",   "dash",    "zsh",     "fish",
                                        "ksh", "python", "python3", "ipython", "node",
                                        "irb", "lua",    "sqlite3", "psql"};
    const char *slash = strrchr(program, '/');
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], slash != NULL ? slash + 1 : program) == 0)
            return true;
    return false;
}

// A shell that ends at once prints no reason.
static void
hint_at_terminal(const struct job *j)
{
    const struct options *o = j->options;
    bool exec = j->target[0] != '\0';
    if (o->interactive || o->no_stdin || o->detach || j->args[1] != NULL ||
        !reads_stdin(*j->args) || !isatty(STDIN_FILENO))
        return;
    (void)fprintf(stderr,
                  "stockade %s: %s gets no input from this terminal\n"
                  "  hint: stockade %s -it%s%s %s\n",
                  j->command->name, *j->args, j->command->name, exec ? " " : "",
                  exec ? o->args[0] : "", *j->args);
}

// ---- after it has ended

// Number of missing bytes of output. The gap of the limit counts what was cut by then; the bill has the total.
static uint64_t
gone_bytes(const struct job *j, const struct stockade_result *r)
{
    uint64_t cut = r->bill.output_cut_bytes.value;
    return j->sink.gap_bytes > cut ? j->sink.gap_bytes : cut;
}

// Also counts bytes that arrived but did not fit into the JSON.
static uint64_t
missing_bytes(const struct job *j, const struct stockade_result *r)
{
    return gone_bytes(j, r) + j->sink.streams[0].cut + j->sink.streams[1].cut;
}

static int
put_json(struct job *j, const struct stockade_result *r)
{
    json_t *o = json_of_result(r);
    struct capture *out = &j->sink.streams[0], *err = &j->sink.streams[1];
    (void)json_object_set_new(o, "process_id", json_string(j->process_id));
    (void)json_object_set_new(o, "sandbox_id", json_string(j->sandbox_id));
    int rc = json_set_bytes(o, "stdout", out->bytes != NULL ? out->bytes : "", out->n);
    rc |= json_set_bytes(o, "stderr", err->bytes != NULL ? err->bytes : "", err->n);
    json_int_t missing = (json_int_t)missing_bytes(j, r);
    rc |= json_object_set_new(o, "output_missing_bytes", json_integer(missing));
    if (r->transaction != NULL)
        rc |= json_object_set_new(o, "transaction", transaction_json(r->transaction));
    if (r->simulation != NULL)
        rc |= json_object_set_new(o, "simulation", simulation_json(r->simulation));
    if (rc != 0) {
        json_decref(o);
        o = NULL;
    }
    return json_put(o);
}

static void
report(const struct job *j, const struct stockade_result *r)
{
    char sentence[SENTENCE_MAX];
    bill_sentence(j->command, r, sentence, sizeof sentence);
    if (sentence[0] != '\0' && r->outcome != STOCKADE_OUTCOME_SIGNALED && !j->options->bill)
        (void)fprintf(stderr, "stockade %s: %s\n", j->command->name, sentence);
    if (!j->options->bill && r->outcome != STOCKADE_OUTCOME_LIMIT &&
        bill_limits_met(j->command, r, sentence, sizeof sentence)[0] != '\0')
        (void)fprintf(stderr, "stockade %s: %s\n", j->command->name, sentence);
    if (exit_code_of_result(r) == EXIT_NOT_FOUND && r->outcome == STOCKADE_OUTCOME_NOT_EXECUTED &&
        strchr(*j->args, ' ') != NULL && j->args[1] == NULL)
        (void)fprintf(
            stderr,
            "  hint: this is a single word; to run a shell command line, use: sh -c '...'\n");
    if (j->options->workdir != NULL && r->outcome == STOCKADE_OUTCOME_NOT_EXECUTED &&
        strncmp(r->reason, "enter ", 6) == 0)
        (void)fprintf(stderr, "  option: --workdir\n");
    if (j->options->bill)
        bill_print(j->command, j->target[0] != '\0' ? j->options->args[0] : NULL, r, stderr);
}

// Reports cut output, which makes the command fail unless the caller accepts it.
static int
judge_output(const struct job *j, const struct stockade_result *r, int code)
{
    uint64_t missing = missing_bytes(j, r);
    if (missing == 0)
        return code;
    const char *why = "were discarded because they were not read in time";
    if (j->sink.limit)
        why = "were cut by the limit output; --output raises it";
    else if (gone_bytes(j, r) == 0)
        why = "exceed what -o json holds (64 MiB of each stream); omit -o json to get all output";
    (void)fprintf(stderr, "stockade %s: %llu %s of output %s\n", j->command->name,
                  (unsigned long long)missing, plural(missing, "byte", "bytes"), why);
    bool ok = j->options->output_cut != NULL && strcmp(j->options->output_cut, "ok") == 0;
    return code == EXIT_OK && !ok ? EXIT_CUT : code;
}

static int
failed(struct job *j, struct stockade_error *e, int signal)
{
    if (e->code == STOCKADE_CANCELLED && signal != 0) {
        if (j->options->json)
            (void)json_put_error(e);
        return EXIT_SIGNAL + signal;
    }
    return j->target[0] != '\0' ? cli_fail_sandbox(j->s, j->command, j->options->args[0], e)
                                : cli_fail(j->command, "", e);
}

// stdin could not be read: what the job got is not the whole input.
static int
no_input(const struct job *j, int sys)
{
    struct stockade_error e = {.code = STOCKADE_INVALID_ARGUMENT};
    const char *why = sys == EBADF ? "it is not open for reading" : strerror(sys);
    (void)snprintf(e.text, sizeof e.text, "cannot read stdin: %s", why);
    if (sys == EBADF || sys == EISDIR)
        (void)snprintf(e.hint, sizeof e.hint, "use -n, or </dev/null, if the job needs no input");
    return cli_fail(j->command, "", &e);
}

static int
detached(const struct job *j)
{
    int code = EXIT_OK;
    if (j->options->json) {
        json_t *o = json_object();
        (void)json_object_set_new(o, "process_id", json_string(j->process_id));
        (void)json_object_set_new(o, "sandbox_id", json_string(j->sandbox_id));
        (void)json_object_set_new(o, "pid", json_integer(j->pid));
        code = json_put(o);
    } else {
        (void)printf("%s\n", j->process_id);
        code = cli_flush(j->command);
    }
    if (code == EXIT_OK)
        return code;
    (void)fprintf(stderr,
                  "stockade exec: process %s runs in sandbox %s\n"
                  "  hint: stockade exec %s sh -c 'kill %u' ends it\n",
                  j->process_id, j->options->args[0], j->options->args[0], j->pid);
    return code == EXIT_PIPE ? code : EXIT_OURS;
}

// ---- both commands

typedef int call_fn(struct job *j, const struct stockade_handlers *h,
                    const struct stockade_result **out, struct stockade_error *e);

static int
run_with_feed(struct job *j, call_fn *call)
{
    const struct options *o = j->options;
    struct stockade_handlers h = {
        .on_started = on_started, .on_output = on_output, .on_gap = on_gap, .cookie = j};
    struct feed_options feeding = {
        .s = j->s,
        .input = j->input_open,
        .terminal = o->terminal,
        .signals = !o->detach,
        .kills = j->target[0] != '\0' && !o->detach,
    };
    const struct stockade_result *r = NULL;
    struct stockade_error e;
    j->feed = feed_start(&feeding);
    if (j->feed == NULL)
        return EXIT_OURS;
    if (o->terminal && j->input_open)
        (void)tty_raw();
    int rc = call(j, &h, &r, &e);
    tty_restore();
    struct feed_end end = feed_stop(j->feed);
    if (end.input_error != 0) {
        stockade_free(r);
        return no_input(j, end.input_error);
    }
    if (j->sink.broken) {
        if (feeding.kills)
            (void)stockade_signal(j->s, j->process_id, SIGKILL, true, NULL);
        stockade_free(r);
        return sink_broken(&j->sink, j->command, EXIT_OURS);
    }
    if (rc < 0)
        return failed(j, &e, end.signal);
    if (r == NULL)
        return detached(j);
    int code = exit_code_of_result(r), put = EXIT_OK;
    if (o->learn_file != NULL &&
        policies_learn_job(j->command, o, j->s, j->process_id) != EXIT_OK) {
        stockade_free(r);
        return EXIT_OURS;
    }
    if (end.cancelled && code == EXIT_SIGNAL + SIGKILL) // its end was faster than that of the call
        code = EXIT_SIGNAL + end.signal;
    if (!o->json && r->transaction != NULL)
        transaction_report(r->transaction);
    if (!o->json && r->simulation != NULL)
        simulation_report(j->command, r->simulation);
    if (!o->json)
        report(j, r);
    else if ((put = put_json(j, r)) != EXIT_OK)
        code = put == EXIT_PIPE ? put : EXIT_OURS;
    code = judge_output(j, r, code);
    stockade_free(r);
    return o->bill && ferror(stderr) != 0 ? EXIT_OURS : code; // the bill could not be written
}

static void
warn_of_unset(const struct command *c, const struct options *o)
{
    for (size_t i = 0; i < o->unset_n; i++)
        (void)fprintf(stderr, "stockade %s: --env %s: this variable is not set here\n", c->name,
                      o->unset[i]);
}

static int
run_job(const struct command *c, const struct options *o, const char *const *args, call_fn *call)
{
    struct job j = {.command = c, .options = o, .args = args, .sink = {.capturing = o->json}};
    int code = EXIT_OURS, unread = 0;
    if (o->interactive && o->terminal && !o->no_stdin && !o->detach && !isatty(STDIN_FILENO))
        return cli_usage(c, "-it needs a terminal, but stdin is not a terminal",
                         "omit -t to send stdin unchanged; omit -i to give the job a terminal");
    const int bad = simulating_read(&j.simulating, c, o);
    j.s = bad == EXIT_OK ? cli_open(c, o, &code) : NULL;
    if (j.s == NULL) {
        simulating_free(&j.simulating);
        return bad != EXIT_OK ? bad : code;
    }
    feed_block_signals();
    if (c->operand == OPERAND_SANDBOX && !cli_find_sandbox(j.s, c, o->args[0], j.target, &code))
        ; // the failure was reported
    else if ((unread = read_ahead(&j)) < 0)
        code = no_input(&j, -unread);
    else {
        warn_of_unset(c, o);
        hint_at_terminal(&j);
        code = run_with_feed(&j, call);
    }
    stockade_close(j.s);
    sink_free(&j.sink);
    simulating_free(&j.simulating);
    free(j.input);
    return code;
}

// The policy of --policy, as metadata of the call. False: it cannot be read, and the call fails with *e.
static bool
narrow(struct job *j, struct stockade_call_options *call, struct stockade_error *e)
{
    const char *path = j->options->policy_file;
    const struct stockade_call_options usual = STOCKADE_CALL_OPTIONS_INIT;
    *call = usual;
    if (path == NULL)
        return true;
    int auto_close fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, j->narrowed, sizeof j->narrowed) : -1;
    *e = (struct stockade_error){.code = STOCKADE_INVALID_ARGUMENT};
    if (n < 0)
        (void)snprintf(e->text, sizeof e->text, "read %.200s: %s", path, strerror(errno));
    else if ((size_t)n == sizeof j->narrowed)
        (void)snprintf(e->text, sizeof e->text, "%.200s: larger than %zu bytes", path,
                       sizeof j->narrowed - 1);
    if (n < 0 || (size_t)n == sizeof j->narrowed)
        return false;
    j->narrowed[n] = '\0';
    j->pair = (struct stockade_pair){"policy", j->narrowed};
    call->metadata = &j->pair;
    call->metadata_n = 1;
    return true;
}

static int
call_run(struct job *j, const struct stockade_handlers *h, const struct stockade_result **out,
         struct stockade_error *e)
{
    const struct options *o = j->options;
    struct stockade_run_options ro = STOCKADE_RUN_OPTIONS_INIT;
    ro.template_name = o->template_name;
    ro.name = o->name;
    ro.limits = o->limits;
    struct stockade_policy policy;
    if (options_policy(o, &policy))
        ro.policy = &policy;
    ro.labels = o->labels;
    ro.labels_n = o->labels_n;
    ro.mounts = o->mounts;
    ro.mounts_n = o->mounts_n;
    ro.count_syscalls = o->syscalls;
    ro.simulate = simulating_options(&j->simulating, o);
    fill_command(&ro.command, j, j->args);
    struct stockade_call_options call;
    if (!narrow(j, &call, e))
        return -EINVAL;
    ro.call = &call;
    return stockade_run(j->s, &ro, h, out, e);
}

int
cli_run(const struct command *c, const struct options *o)
{
    return run_job(c, o, o->args, call_run);
}

static int
call_start(struct job *j, const struct stockade_handlers *h, const struct stockade_result **out,
           struct stockade_error *e)
{
    const struct options *o = j->options;
    struct stockade_start_options so = STOCKADE_START_OPTIONS_INIT;
    so.sandbox = j->target;
    so.limits = o->limits;
    so.detach = o->detach;
    so.count_syscalls = o->syscalls;
    so.transaction = o->transaction == NULL     ? STOCKADE_TRANSACTION_NONE
                     : o->transaction[0] == 'a' ? STOCKADE_TRANSACTION_ASK
                                                : STOCKADE_TRANSACTION_ON_SUCCESS;
    so.simulate = simulating_options(&j->simulating, o);
    so.foreground = o->simulate || (!o->detach && !o->terminal && !o->interactive);
    fill_command(&so.command, j, j->args);
    struct stockade_call_options call;
    if (!narrow(j, &call, e))
        return -EINVAL;
    so.call = &call;
    return stockade_start(j->s, &so, h, out, e);
}

int
cli_exec(const struct command *c, const struct options *o)
{
    bool ended = strcmp(o->args[1], "--") == 0;
    if (ended && o->args_n < 3)
        return cli_usage(c, "COMMAND is missing", "");
    if (!ended && o->args[1][0] == '-') {
        char why[SENTENCE_MAX];
        (void)snprintf(why, sizeof why, "%.100s comes after the sandbox", o->args[1]);
        return cli_usage(
            c, why, "options come before the sandbox; a command that starts with '-' needs --");
    }
    if (o->simulate && (o->detach || o->transaction != NULL))
        return cli_usage(c,
                         o->detach ? "-d and --simulate exclude each other"
                                   : "--transaction and --simulate exclude each other",
                         "a simulation ends with the command, and changes nothing");
    if (o->detach && o->learn_file != NULL)
        return cli_usage(
            c, "-d and --learn exclude each other",
            "-d does not wait for the end of the process; 'stockade policy learn' does the same later");
    if (o->detach && (o->bill || o->output_cut != NULL))
        return cli_usage(
            c,
            o->bill ? "-d and --bill exclude each other" : "-d and --output-cut exclude each other",
            "-d does not wait for the end of the process; 'stockade inspect' shows what it did");
    if (o->detach && o->interactive)
        return cli_usage(c, "-d and -i exclude each other",
                         "a detached process has no input; omit -d to send it stdin");
    return run_job(c, o, o->args + (ended ? 2 : 1), call_start);
}
