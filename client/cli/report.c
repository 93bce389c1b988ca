// SPDX-License-Identifier: Apache-2.0
// Failures, as text and as an exit code (cli.h).
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "json.h"
#include "text.h"

enum {
    LINE_MAX_BYTES = 1200,
    FOLLOW_KEEPALIVE_MS = 6000, // the broker accepts a PING every 5 s
};

// Whether a rule or a limit of the broker refused the call, whatever its code: a retry does not help.
static bool
is_refusal(const struct stockade_error *e)
{
    static const char *const reasons[] = {
        "LIMIT_ABOVE_MAXIMUM",     "ABOVE_MAXIMUM",        "NETWORK_MODE_NOT_ENFORCED",
        "NETWORK_POLICY_TOO_WIDE", "SYSCALLS_NOT_COUNTED",
    };
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (strcmp(reasons[i], e->reason) == 0)
            return true;
    return false;
}

static const char *const limit_options[][2] = {
    {"memory_bytes", "memory"},
    {"cpu_millis", "cpus"},
    {"cpu_time_ms", "cpu-time"},
    {"wall_ms", "timeout"},
    {"pids", "pids"},
    {"files", "files"},
    {"disk_bytes", "disk"},
    {"file_size_bytes", "file-size"},
    {"inodes", "inodes"},
    {"output_bytes", "output"},
};

const char *
cli_option_of_limit(const char *limit)
{
    for (size_t i = 0; i < sizeof limit_options / sizeof limit_options[0]; i++)
        if (strcmp(limit_options[i][0], limit) == 0)
            return limit_options[i][1];
    return NULL;
}

// Request fields that an option sets, by path, and the hint for the command if the broker's hint names methods.
struct field_row {
    const char *field, *option, *hint;
};

static const struct field_row *
row_of_field(const char *field)
{
    static const struct field_row rows[] = {
        {"template", "template", "'stockade template ls' lists them"},
        {"network", "network", NULL},
        {"network.mode", "network", NULL},
        {"network.outbound", "allow", NULL},
        {"network.inbound", "allow-inbound", NULL},
        {"network.egress_bytes_max", "egress-bytes", NULL},
        {"network.ingress_bytes_max", "ingress-bytes", NULL},
        {"network.egress_rate", "egress-rate", NULL},
        {"network.ingress_rate", "ingress-rate", NULL},
        {"network.queries_per_minute", "dns-queries", NULL},
        {"name", "name", NULL},
        {"ttl_ms", "ttl", NULL},
        {"timeout_ms", "timeout", NULL},
        {"deadline_ms", "deadline", NULL},
        {"sleep_after_ms", "sleep-after", NULL},
        {"copy_bytes_max", "copy-max", NULL},
        {"copy_ms_max", "copy-time", NULL},
        {"ratio_max", "ratio", NULL},
        {"count", "count", NULL},
        {"parallel", "parallel", NULL},
        {"window", "window", NULL},
        {"key", "key", NULL},
        {"language", "language", NULL},
        {"context_id", "context", NULL},
        {"snapshot", "snapshot", NULL},
        {"inodes", "inodes", NULL},
        {"volumes", "volume", NULL},
        {"glob", "glob", NULL},
        {"depth", "depth", NULL},
        {"options.mode", "mode", NULL},
        {"workdir", "workdir", NULL},
        {"env", "env", NULL},
        {"scopes", "scopes", NULL},
        {"methods", "methods", NULL},
        {"not_before_ms", "not-before", NULL},
        {"grant.pattern", "pattern", NULL},
        {"grant.ttl_ms", "for", NULL},
        {"bytes", "size", NULL},
        {"metadata", "label", NULL},
        {"command.workdir", "workdir", NULL},
        {"command.env", "env", NULL},
        {"count_syscalls", "syscalls", NULL},
        {"rule", "rule", NULL},
        {"reason", "reason", NULL},
        {"comm", "comm", NULL},
        {"tenant", "tenant", NULL},
        {"from_sequence", "from", "--from 1 shows all events that the broker keeps"},
        {"authorization", "token-file", "'stockade help key' describes keys"},
        {"learn", "learn", NULL},
    };
    size_t n = strcspn(field, "["); // the index in a list, which the text contains
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strlen(rows[i].field) == n && strncmp(rows[i].field, field, n) == 0)
            return &rows[i];
    return NULL;
}

static const char *
option_of_field(const char *field)
{
    if (strncmp(field, "limits.", 7) == 0)
        return cli_option_of_limit(field + 7);
    const struct field_row *row = row_of_field(field);
    return row != NULL ? row->option : NULL;
}

int
exit_code_of_error(const struct stockade_error *e, bool passes_exit_code)
{
    if (is_refusal(e))
        return EXIT_REFUSED;
    if (strcmp(e->reason, "APPROVAL_PENDING") == 0)
        return EXIT_WAITING;
    switch (e->code) {
    case STOCKADE_PERMISSION_DENIED:
    case STOCKADE_UNAUTHENTICATED:
        return EXIT_REFUSED;
    case STOCKADE_UNAVAILABLE:
    case STOCKADE_RESOURCE_EXHAUSTED:
        return EXIT_WAITING;
    case STOCKADE_DEADLINE_EXCEEDED:
        return passes_exit_code ? EXIT_TIME : EXIT_PROBLEM;
    default:
        break;
    }
    bool wrong_option = e->code == STOCKADE_INVALID_ARGUMENT && option_of_field(e->subject) != NULL;
    return passes_exit_code ? EXIT_OURS : wrong_option ? EXIT_USAGE : EXIT_PROBLEM;
}

static bool
is_time_limit(const struct stockade_result *r)
{
    return r->limits_n > 0 && (strcmp(r->limits[0].name, "wall_ms") == 0 ||
                               strcmp(r->limits[0].name, "cpu_time_ms") == 0);
}

// 128+n, as in a shell; a number beyond all signals would wrap to another code.
static int
of_signal(uint32_t signal)
{
    return EXIT_SIGNAL + (int)(signal >= 1 && signal <= 64 ? signal : SIGKILL);
}

int
exit_code_of_cancelled(const char *reason)
{
    return strstr(reason, "the broker is stopping") != NULL ? EXIT_WAITING : of_signal(SIGKILL);
}

int
exit_code_of_result(const struct stockade_result *r)
{
    switch (r->outcome) {
    case STOCKADE_OUTCOME_EXITED:
        return (int)(r->exit_code & 0xff);
    case STOCKADE_OUTCOME_SIGNALED:
        return of_signal(r->signal);
    case STOCKADE_OUTCOME_LIMIT:
        return is_time_limit(r) ? EXIT_TIME : of_signal(r->signal);
    case STOCKADE_OUTCOME_REFUSED:
        return EXIT_REFUSED;
    case STOCKADE_OUTCOME_NOT_EXECUTED:
        return r->exit_code == EXIT_NOT_EXECUTABLE ? EXIT_NOT_EXECUTABLE : EXIT_NOT_FOUND;
    case STOCKADE_OUTCOME_CANCELLED:
        return exit_code_of_cancelled(r->reason);
    default:
        return EXIT_OURS;
    }
}

static const char *
name_of(const char *const *names, size_t n, uint32_t number)
{
    return number < n ? names[number] : "UNKNOWN"; // of a newer broker
}

const char *
cli_outcome_name(uint32_t outcome)
{
    static const char *const names[] = {"UNKNOWN", "EXITED", "SIGNALED",     "LIMIT",
                                        "REFUSED", "FAILED", "NOT_EXECUTED", "CANCELLED"};
    return name_of(names, sizeof names / sizeof names[0], outcome);
}

const char *
cli_state_name(uint32_t state)
{
    static const char *const names[] = {"UNKNOWN", "RUNNING", "PAUSED", "DELETING", "ASLEEP"};
    return name_of(names, sizeof names / sizeof names[0], state);
}

static const char *const networks[] = {"template", "none", "allowlist", "open", "off"};

const char *
cli_network_name(uint32_t network)
{
    return network < sizeof networks / sizeof networks[0] ? networks[network] : "unknown";
}

int
cli_network_number(const char *name)
{
    for (int i = 0; name != NULL && i < 5; i++)
        if (strcmp(networks[i], name) == 0)
            return i;
    return STOCKADE_NETWORK_TEMPLATE;
}

static const char *const severities[] = {"?", "info", "notice", "warning", "critical"};

const char *
cli_severity_name(uint32_t severity)
{
    return severities[severity <= STOCKADE_SEVERITY_CRITICAL ? severity : 0];
}

uint32_t
cli_severity_number(const char *name)
{
    for (uint32_t i = 1; name != NULL && i <= STOCKADE_SEVERITY_CRITICAL; i++)
        if (strcmp(severities[i], name) == 0)
            return i;
    return 0;
}

// "limits.memory_bytes: 1 is below ..." as "--memory: 1 is below ...". False: it does not begin with the field.
static bool
put_option(const char *text, const char *field, const char *option, char *out, size_t n)
{
    size_t length = strlen(field);
    bool begins = option != NULL && strncmp(text, field, length) == 0 && text[length] == ':';
    (void)snprintf(out, n, "%s%s%s", begins ? "--" : "", begins ? option : "",
                   begins ? text + length : text);
    return begins;
}

// A fact of a refusal, unless `known` says it already.
static void
put_fact(const char *name, const char *value, const char *known)
{
    char text[LINE_MAX_BYTES];
    text_clean(value, text, sizeof text);
    if (text[0] != '\0' && strstr(known, text) == NULL)
        (void)fprintf(stderr, "  %s: %s\n", name, text);
}

// Names an option only to a command that has it. Of the network another command has it, which the hint names.
static const char *
option_for(const struct command *c, const char *field)
{
    const char *option = option_of_field(field);
    if (option == NULL || strncmp(field, "network", 7) == 0 ||
        options_long(c->options, option, strlen(option)) != NULL)
        return option;
    return NULL;
}

static bool errors_as_json;
static struct stockade_error *held;

void
cli_errors_as_json(bool on)
{
    errors_as_json = on;
}

void
cli_hold_error(struct stockade_error *e)
{
    held = e;
}

static int
fail(const struct command *c, const char *what, const struct stockade_error *e, const char *option)
{
    int code = exit_code_of_error(e, c->passes_exit_code);
    if (held != NULL) {
        *held = *e;
        return code;
    }
    if (errors_as_json)
        (void)json_put_error(e);
    char text[LINE_MAX_BYTES], subject[LINE_MAX_BYTES], hint[LINE_MAX_BYTES],
        line[LINE_MAX_BYTES + 64];
    text_clean(e->text, text, sizeof text);
    text_clean(e->subject, subject, sizeof subject);
    text_clean(e->hint, hint, sizeof hint);
    bool named = put_option(text, subject, option, line, sizeof line);
    (void)fprintf(stderr, "stockade %s: %s%s%s\n", c->name, what, what[0] != '\0' ? ": " : "",
                  line);
    const struct field_row *row = row_of_field(subject);
    if (row != NULL && row->hint != NULL)
        (void)snprintf(hint, sizeof hint, "%s", row->hint);
    if (option != NULL && !named)
        (void)fprintf(stderr, "  option: --%s\n", option);
    else if (e->rule[0] == '\0' && option == NULL && subject[0] != '\0' &&
             strstr(text, subject) == NULL &&
             (code == EXIT_REFUSED || e->code == STOCKADE_RESOURCE_EXHAUSTED))
        (void)fprintf(stderr, "  refused by: %s\n", subject);
    put_fact("rule", e->rule, text);
    put_fact("allowed", e->allowed, hint);
    if (hint[0] != '\0') // it knows better than the usual delay
        (void)fprintf(stderr, "  hint: %s\n", hint);
    else if (e->retry_ms >= STOCKADE_RETRY_MS_MAX)
        (void)fprintf(stderr, "  try again in 1 h or later\n");
    else if (e->retry_ms != 0 && e->retry_ms % 1000 == 0)
        (void)fprintf(stderr, "  try again in %u s\n", e->retry_ms / 1000);
    else if (e->retry_ms != 0)
        (void)fprintf(stderr, "  try again in %u ms\n", e->retry_ms);
    return code;
}

int
cli_fail(const struct command *c, const char *what, const struct stockade_error *e)
{
    return fail(c, what, e, option_for(c, e->subject));
}

int
cli_fail_operand(const struct command *c, const char *what, const struct stockade_error *e)
{
    const int code = fail(c, what, e, NULL);
    const bool wrong = e->code == STOCKADE_INVALID_ARGUMENT && e->subject[0] != '\0';
    return wrong && code == EXIT_PROBLEM ? EXIT_USAGE : code;
}

int
cli_usage(const struct command *c, const char *why, const char *hint)
{
    const char *space = c->name[0] != '\0' ? " " : ""; // no blank before a missing command
    if (errors_as_json) {
        struct stockade_error e = {.code = STOCKADE_INVALID_ARGUMENT, .reason = "USAGE"};
        (void)snprintf(e.text, sizeof e.text, "%s", why);
        (void)snprintf(e.hint, sizeof e.hint, "%s", hint);
        (void)json_put_error(&e);
    }
    (void)fprintf(stderr, "stockade%s%s: %s\n", space, c->name, why);
    if (hint[0] != '\0')
        (void)fprintf(stderr, "  hint: %s\n", hint);
    (void)fprintf(stderr, "  usage: stockade%s%s %s\n  run 'stockade%s%s --help' for details\n",
                  space, c->name, c->usage, space, c->name);
    return c->passes_exit_code ? EXIT_OURS : EXIT_USAGE;
}

void
cli_connection(const struct command *c, const struct stockade_error *lost)
{
    char text[LINE_MAX_BYTES];
    if (lost != NULL)
        (void)fprintf(stderr,
                      "stockade %s: the connection to the broker is lost: %s; trying again\n",
                      c->name, text_clean(lost->text, text, sizeof text));
    else
        (void)fprintf(stderr, "stockade %s: connected to the broker again\n", c->name);
}

int
cli_flush(const struct command *c)
{
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return EXIT_OK;
    if (errno == EPIPE)
        return EXIT_PIPE;
    (void)fprintf(stderr, "stockade %s: cannot write the output: %s\n", c->name, strerror(errno));
    return EXIT_PROBLEM;
}

const char *
cli_read_token(const char *path, char out[CLI_TOKEN_BYTES_MAX])
{
    FILE *f = fopen(path, "re");
    const bool is_read = f != NULL && fgets(out, CLI_TOKEN_BYTES_MAX, f) != NULL;
    const int why = f == NULL || ferror(f) ? errno : 0;
    if (f != NULL)
        (void)fclose(f);
    if (is_read)
        out[strcspn(out, "\r\n")] = '\0';
    if (is_read && out[0] != '\0')
        return NULL;
    return why != 0 ? strerror(why) : "it is empty";
}

struct stockade *
cli_open(const struct command *c, const struct options *o, int *code)
{
    struct stockade_options so = STOCKADE_OPTIONS_INIT;
    struct stockade_error e;
    struct stockade *s = NULL;
    char token[CLI_TOKEN_BYTES_MAX];
    so.address = o->address;
    so.ca_file = o->ca_file;
    const char *why = o->token_file != NULL ? cli_read_token(o->token_file, token) : NULL;
    if (why != NULL) {
        e = (struct stockade_error){.code = STOCKADE_FAILED_PRECONDITION};
        (void)snprintf(e.text, sizeof e.text, "read the token in %s: %s", o->token_file, why);
        *code = cli_fail(c, "", &e);
        return NULL;
    }
    if (o->token_file != NULL)
        so.token = token;
    so.approval = o->approval;
    so.approval_wait_ms = (uint32_t)o->approval_wait_ms;
    if (o->follow)
        so.keepalive_ms = FOLLOW_KEEPALIVE_MS;
    if (stockade_open(&s, &so, &e) < 0)
        *code = cli_fail(c, "", &e);
    return s;
}
