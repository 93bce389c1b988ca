// SPDX-License-Identifier: Apache-2.0
// Processes: ps and logs.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/now.h"
#include "proto/plural.h"
#include "cli.h"
#include "bill.h"
#include "commands.h"
#include "feed.h"
#include "json.h"
#include "pages.h"
#include "sink.h"
#include "text.h"
#include "units.h"

enum { COMMAND_SHORT = 48, COMMAND_MAX = 500, SENTENCE_MAX = 1024 };

// ---- ps

static void
join_args(const struct stockade_process *p, size_t most, char *out, size_t n)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < p->args_n && at < n; i++) {
        int more = snprintf(out + at, n - at, "%s%s", i == 0 ? "" : " ", p->args[i]);
        at += more > 0 ? (size_t)more : 0;
    }
    if (most + 4 < n && strlen(out) > most)
        memcpy(out + most, "...", 4);
}

static void
show_status(const struct stockade_process *p, char *out, size_t n)
{
    static const char *const words[] = {
        [STOCKADE_OUTCOME_LIMIT] = "limit",
        [STOCKADE_OUTCOME_REFUSED] = "refused",
        [STOCKADE_OUTCOME_FAILED] = "failed",
        [STOCKADE_OUTCOME_NOT_EXECUTED] = "not executed",
        [STOCKADE_OUTCOME_CANCELLED] = "cancelled",
    };
    const struct stockade_result *r = p->result;
    char limit[32];
    if (r == NULL)
        (void)snprintf(out, n, "running");
    else if (r->outcome == STOCKADE_OUTCOME_EXITED)
        (void)snprintf(out, n, "exited %u", r->exit_code);
    else if (r->outcome == STOCKADE_OUTCOME_SIGNALED)
        (void)snprintf(out, n, "signal %u", r->signal);
    else if (r->outcome == STOCKADE_OUTCOME_LIMIT && r->limits_n > 0)
        (void)snprintf(out, n, "limit %.20s",
                       bill_limit_name(r->limits[0].name, limit, sizeof limit));
    else
        (void)snprintf(out, n, "%s",
                       r->outcome < sizeof words / sizeof words[0] && words[r->outcome] != NULL
                           ? words[r->outcome]
                           : "ended");
}

struct listing {
    const struct options *o;
    struct table *table;
    json_t *array;
    int64_t now;
};

static bool
list_one(void *cookie, const struct stockade_process *p)
{
    const struct listing *l = cookie;
    if (l->array != NULL)
        return json_array_append_new(l->array, json_of_process(p)) == 0;
    if (l->o->quiet)
        return puts(p->id) >= 0;
    const bool whole = l->o->no_trunc;
    char id[CLI_SHORT_ID_SIZE], box[CLI_SHORT_ID_SIZE], pid[16] = "-", age[16], status[40],
                                                        command[COMMAND_MAX];
    if (p->pid != 0)
        (void)snprintf(pid, sizeof pid, "%u", p->pid);
    show_status(p, status, sizeof status);
    join_args(p, l->o->no_trunc ? COMMAND_MAX : COMMAND_SHORT, command, sizeof command);
    const char *since = p->started_ms == 0
                            ? "-" // it never ran
                            : units_show_age(l->now - p->started_ms, age, sizeof age);
    return table_row(l->table,
                     (const char *[]){whole ? p->id : cli_short_id(p->id, id),
                                      whole ? p->sandbox_id : cli_short_id(p->sandbox_id, box), pid,
                                      since, status, p->terminal ? "yes" : "-", command});
}

int
cli_ps(const struct command *c, const struct options *o)
{
    static const char *const head[] = {"PROCESS", "SANDBOX",  "PID",    "AGE",
                                       "STATUS",  "TERMINAL", "COMMAND"};
    struct stockade_error e;
    char sandbox[65] = "";
    int code = 0;
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    struct listing l = {.o = o, .now = now_wall_ms()};
    l.table = table_new(head, sizeof head / sizeof head[0]);
    l.array = o->json ? json_array() : NULL;
    if (o->args_n > 0 && !cli_find_sandbox(s, c, o->args[0], sandbox, &code))
        ; // the failure was reported
    else if (l.table == NULL || pages_processes(s, sandbox, list_one, &l, &e) < 0)
        code = l.table == NULL ? EXIT_PROBLEM : cli_fail_sandbox(s, c, sandbox, &e);
    code = json_end_listing(o, l.table, l.array, code);
    stockade_close(s);
    return code;
}

// ---- logs

struct log {
    struct stockade *s;
    bool json, follow;
    uint64_t until; // offset at which to stop, without --follow
    struct sink sink;
};

static void
log_json(struct log *l, uint64_t offset, const char *kind, const void *bytes, size_t n,
         uint64_t gone)
{
    json_t *o = json_object();
    (void)json_object_set_new(o, "offset", json_integer((json_int_t)offset));
    (void)json_object_set_new(o, "stream", json_string(kind));
    if (bytes != NULL)
        (void)json_set_bytes(o, "data", bytes, n);
    else
        (void)json_object_set_new(o, "gone_bytes", json_integer((json_int_t)gone));
    int code = json_put(o);
    if (code != EXIT_OK)
        sink_lost(&l->sink, code == EXIT_PIPE ? EPIPE : 0); // otherwise the failure was reported
}

static int
log_output(void *cookie, int stream, const void *bytes, size_t n, uint64_t offset)
{
    struct log *l = cookie;
    if (!l->follow && offset >= l->until)
        return 1;
    if (!l->follow && n > l->until - offset)
        n = (size_t)(l->until - offset);
    if (l->json)
        log_json(l, offset, stream == STOCKADE_STDERR ? "stderr" : "stdout", n > 0 ? bytes : "", n,
                 0);
    else
        (void)sink_output(&l->sink, stream, bytes, n);
    return l->sink.broken || (!l->follow && offset + n >= l->until) ? 1 : 0;
}

static int
log_gap(void *cookie, uint64_t offset, uint64_t n, bool limit)
{
    struct log *l = cookie;
    (void)sink_gap(&l->sink, n, limit);
    if (l->json)
        log_json(l, offset, "gap", NULL, 0, n);
    return l->sink.broken || (!l->follow && offset + n >= l->until) ? 1 : 0;
}

// The length of the output so far, and whether the process has ended.
struct end {
    const char *id;
    bool found, over;
    uint64_t until;
};

static bool
look_for_end(void *cookie, const struct stockade_process *p)
{
    struct end *end = cookie;
    if (strcmp(p->id, end->id) != 0)
        return true;
    end->found = true;
    end->until = p->output_bytes;
    end->over = p->result != NULL;
    return false;
}

// False: the broker does not list it any more.
static bool
find_end(struct stockade *s, const char *id, uint64_t *until, bool *over, struct stockade_error *e)
{
    struct end end = {.id = id};
    if (pages_processes(s, NULL, look_for_end, &end, e) < 0)
        return false;
    *until = end.until;
    *over = end.over;
    if (end.found)
        return true;
    *e = (struct stockade_error){.code = STOCKADE_NOT_FOUND, .text = "there is no such process"};
    (void)snprintf(e->hint, sizeof e->hint,
                   "ended processes are kept for 30 s; 'stockade ps' lists processes");
    return false;
}

// A process that did not exit by itself, for example because its sandbox was removed, may have more to write.
static void
report_end(const struct command *c, const struct log *l, const struct stockade_result *r)
{
    char text[SENTENCE_MAX];
    if (l->follow && bill_sentence(c, r, text, sizeof text)[0] != '\0')
        (void)fprintf(stderr, "stockade logs: the process has ended: %s\n", text);
}

// Attaches until the process ends, a signal arrives, or the reader closes the output. Stops the feed; *signal: the
// first signal, or 0.
static int
read_log(const struct command *c, struct log *l, struct feed *feed, const char *id, uint64_t since,
         int *signal, struct stockade_error *e)
{
    const struct stockade_result *r = NULL;
    const struct stockade_handlers h = {.on_output = log_output, .on_gap = log_gap, .cookie = l};
    int rc = stockade_attach(l->s, id, since, &h, &r, e);
    *signal = feed_stop(feed).signal;
    if (rc == 0 && r != NULL)
        report_end(c, l, r);
    stockade_free(r);
    if (rc < 0 && !l->sink.broken && sink_is_gone())
        sink_lost(&l->sink, EPIPE);
    return rc;
}

static void
report_gap(const struct log *l)
{
    if (l->sink.gap_bytes > 0 && !l->json)
        (void)fprintf(
            stderr, "stockade logs: %llu %s of output %s discarded%s\n",
            (unsigned long long)l->sink.gap_bytes, plural(l->sink.gap_bytes, "byte", "bytes"),
            plural(l->sink.gap_bytes, "was", "were"), l->sink.limit ? " (the limit output)" : "");
}

static int
show_log(const struct command *c, const struct options *o, struct log *l, const char *id)
{
    struct stockade_error e;
    bool over = false;
    int signal = 0;
    if (!o->follow && !find_end(l->s, id, &l->until, &over, &e))
        return cli_fail(c, o->args[0], &e);
    l->follow = o->follow || over;
    if (!l->follow && l->until <= o->since)
        return EXIT_OK;
    const struct feed_options feeding = {.s = l->s, .outlet = true};
    feed_block_signals();
    struct feed *feed = feed_start(&feeding);
    if (feed == NULL)
        return EXIT_PROBLEM;
    int rc = read_log(c, l, feed, id, o->since, &signal, &e);
    report_gap(l);
    if (rc == 0 || (e.code == STOCKADE_CANCELLED && signal == 0))
        return l->sink.broken ? sink_broken(&l->sink, c, EXIT_PROBLEM) : EXIT_OK;
    return e.code == STOCKADE_CANCELLED ? EXIT_SIGNAL + signal : cli_fail(c, o->args[0], &e);
}

int
cli_logs(const struct command *c, const struct options *o)
{
    char id[CLI_ID_SIZE];
    int code = 0;
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    struct log l = {.s = s, .json = o->json};
    if (cli_find_process(s, c, o->args[0], id, &code))
        code = show_log(c, o, &l, id);
    stockade_close(s);
    return code;
}
