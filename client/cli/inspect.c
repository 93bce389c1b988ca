// SPDX-License-Identifier: Apache-2.0
// inspect: the record of a job, as text and as JSON; and the part of it that --bill shows.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/plural.h"
#include "audit_tail.h"
#include "cli.h"
#include "bill.h"
#include "commands.h"
#include "json.h"
#include "record.h"
#include "text.h"
#include "units.h"

enum { TEXT_MAX = 1200, UNIT_MAX = 32, WIDTH = 100, COLUMN = 12, CALLS_SHOWN = 12 };

// One line: a subject, and a wrapped text.
static void
line(FILE *to, const char *subject, const char *text)
{
    int n = fprintf(to, "%-*s", COLUMN - 1, subject) + fprintf(to, " ");
    text_wrap(to, text, n, COLUMN, WIDTH);
}

static bool
has_network(const struct stockade_network_use *n)
{
    return n != NULL && (n->out_bytes | n->in_bytes | n->connects_allowed | n->connects_denied |
                         n->queries) != 0;
}

static char *
network_text(const struct stockade_network_use *n, char *out, size_t out_n)
{
    char sent[UNIT_MAX], received[UNIT_MAX];
    if (!has_network(n)) {
        (void)snprintf(out, out_n, "none%s", n->shared ? " (whole sandbox)" : "");
        return out;
    }
    (void)snprintf(out, out_n,
                   "%s in %" PRIu64 " %s out, %s in %" PRIu64 " %s in; destinations: %" PRIu64
                   " allowed, %" PRIu64 " refused; names: %" PRIu64 "%s",
                   units_show_bytes(n->out_bytes, sent, sizeof sent), n->out_packets,
                   plural(n->out_packets, "packet", "packets"),
                   units_show_bytes(n->in_bytes, received, sizeof received), n->in_packets,
                   plural(n->in_packets, "packet", "packets"), n->connects_allowed,
                   n->connects_denied, n->queries, n->shared ? " (whole sandbox)" : "");
    return out;
}

static char *
witnesses_text(const struct stockade_witnesses *w, char *out, size_t out_n)
{
    char sent[UNIT_MAX], got[UNIT_MAX], out_of[UNIT_MAX], in_of[UNIT_MAX];
    static const char *const says[] = {"it is unknown whether kernel and relay agree",
                                       "kernel and relay agree",
                                       "kernel and relay contradict each other"};
    const uint32_t which = w->agreement <= STOCKADE_AGREEMENT_NO ? w->agreement : 0;
    (void)snprintf(
        out, out_n,
        "%s%s%s: connections %" PRIu64 " and %" PRIu64 ", sent %s and %s, received %s and %s",
        says[which], w->reason[0] != '\0' ? ", because " : "", w->reason, w->kernel.connections,
        w->relay.connections,
        units_show_bytes(w->kernel.tcp_sent_bytes + w->kernel.udp_sent_bytes, sent, sizeof sent),
        units_show_bytes(w->relay.tcp_out_bytes + w->relay.udp_out_bytes, out_of, sizeof out_of),
        units_show_bytes(w->kernel.tcp_received_bytes + w->kernel.udp_received_bytes, got,
                         sizeof got),
        units_show_bytes(w->relay.tcp_in_bytes + w->relay.udp_in_bytes, in_of, sizeof in_of));
    return out;
}

// The hint consists of options for `run`, or it is a sentence. A sandbox that exists gets them from `network`.
static void
hint_text(const char *hint, const char *sandbox, char *out, size_t n)
{
    out[0] = '\0';
    if (strncmp(hint, "--", 2) != 0)
        (void)snprintf(out, n, "%s%s", hint[0] != '\0' ? "; " : "", hint);
    else if (sandbox == NULL)
        (void)snprintf(out, n, "; to allow it: %s", hint);
    else
        (void)snprintf(out, n, "; to allow it: stockade network %s %s (replaces the whole policy)",
                       sandbox, hint);
}

static char *
denial_text(const struct stockade_denial *d, const char *sandbox, char *out, size_t n)
{
    char destination[400], comm[80], times[40] = "", hint[500];
    hint_text(d->hint, sandbox, hint, sizeof hint);
    if (d->count > 1)
        (void)snprintf(times, sizeof times, ", %" PRIu64 " times", d->count);
    (void)snprintf(out, n, "%s %s%s%s by %s: %s%s%s", d->operation,
                   text_clean(d->destination, destination, sizeof destination),
                   d->protocol[0] != '\0' ? "/" : "", d->protocol,
                   d->comm[0] != '\0' ? text_clean(d->comm, comm, sizeof comm) : "the job",
                   d->reason, times, hint);
    return out;
}

void
record_print_for_bill(const struct stockade_record *r, const char *sandbox, FILE *to)
{
    enum { DENIALS_SHOWN = 5 };
    char text[TEXT_MAX];
    if (r == NULL)
        return;
    if (has_network(r->network))
        (void)fprintf(to, "  %-12s %s\n", "network", network_text(r->network, text, sizeof text));
    for (size_t i = 0; i < r->denials_n && i < DENIALS_SHOWN; i++)
        (void)fprintf(to, "  %-12s %s\n", "denied",
                      denial_text(&r->denials[i], sandbox, text, sizeof text));
    if (r->denials_n > DENIALS_SHOWN)
        (void)fprintf(to, "  %-12s and more: stockade inspect\n", "denied");
    for (size_t i = 0; i < r->findings_n && i < DENIALS_SHOWN; i++)
        (void)fprintf(to, "  %-12s %s: %s\n", "finding", r->findings[i].rule,
                      text_clean(r->findings[i].text, text, sizeof text));
}

static void
print_process(const struct stockade_job *j)
{
    char text[TEXT_MAX], clean[TEXT_MAX], wall[UNIT_MAX], cpu[UNIT_MAX], words[TEXT_MAX] = "";
    const struct stockade_process *p = &j->process;
    const struct stockade_result *r = p->result;
    size_t at = 0;
    (void)snprintf(text, sizeof text, "%s in sandbox %s, template %s, of %s", p->id, p->sandbox_id,
                   j->template_name[0] != '\0' ? j->template_name : "?", j->tenant);
    line(stdout, "process", text);
    for (size_t i = 0; i < p->args_n && at < sizeof words; i++)
        at += (size_t)snprintf(words + at, sizeof words - at, "%s%s", i > 0 ? " " : "", p->args[i]);
    (void)text_flat(words, text, sizeof text);
    line(stdout, "command", text_clean(text, clean, sizeof clean));
    if (r == NULL) {
        line(stdout, "result", "it runs");
        return;
    }
    bill_sentence(command_find("run"), r, words, sizeof words);
    if (words[0] == '\0')
        (void)snprintf(words, sizeof words, "exited with %u", r->exit_code);
    uint64_t ns = r->bill.cpu_user_ns.value + r->bill.cpu_system_ns.value;
    (void)snprintf(text, sizeof text, "%.800s; %s, CPU time %s", words,
                   units_show_ns(r->bill.wall_us.value * 1000, wall, sizeof wall),
                   units_show_ns(ns, cpu, sizeof cpu));
    line(stdout, "result", text);
}

static size_t
append_counts(char *out, size_t n, const struct stockade_count *c, size_t c_n)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < c_n && i < CALLS_SHOWN && at < n; i++)
        at += (size_t)snprintf(out + at, n - at, "%s%s %" PRIu64, i > 0 ? ", " : "", c[i].name,
                               c[i].count);
    if (c_n > CALLS_SHOWN && at < n)
        at += (size_t)snprintf(out + at, n - at, ", and %zu more %s", c_n - CALLS_SHOWN,
                               plural(c_n - CALLS_SHOWN, "kind", "kinds"));
    return at;
}

static void
print_syscalls(const struct stockade_record *r)
{
    char text[TEXT_MAX], calls[TEXT_MAX / 2], errors[TEXT_MAX / 4];
    if (r->syscalls == 0)
        return;
    (void)append_counts(calls, sizeof calls, r->by_number, r->by_number_n);
    (void)append_counts(errors, sizeof errors, r->by_error, r->by_error_n);
    (void)snprintf(text, sizeof text, "%" PRIu64 ", %" PRIu64 " failed%s%s%s: %s", r->syscalls,
                   r->syscalls_failed, errors[0] != '\0' ? " (" : "", errors,
                   errors[0] != '\0' ? ")" : "", calls);
    line(stdout, "syscalls", text);
}

static void
print_figures(const struct stockade_record *r)
{
    char text[TEXT_MAX];
    if (r->network != NULL)
        line(stdout, "network", network_text(r->network, text, sizeof text));
    if (r->witnesses != NULL)
        line(stdout, "witnesses", witnesses_text(r->witnesses, text, sizeof text));
    if ((r->execs | r->forks | r->exits) != 0) {
        (void)snprintf(text, sizeof text,
                       "%" PRIu64 " started, %" PRIu64 " %s executed, %" PRIu64 " ended, %" PRIu64
                       " of them by a signal; signals sent: %" PRIu64
                       "; killed for memory: %" PRIu64,
                       r->forks, r->execs, plural(r->execs, "program", "programs"), r->exits,
                       r->exits_by_signal, r->signals, r->oom_kills);
        line(stdout, "processes", text);
    }
    print_syscalls(r);
    if ((r->opens_write | r->opens_sensitive | r->unlinks | r->renames) != 0) {
        (void)snprintf(text, sizeof text,
                       "opened for writing: %" PRIu64 ", sensitive: %" PRIu64 ", removed: %" PRIu64
                       ", renamed: %" PRIu64,
                       r->opens_write, r->opens_sensitive, r->unlinks, r->renames);
        line(stdout, "files", text);
    }
    if ((r->io_urings | r->unnamed_execs) != 0) {
        (void)snprintf(text, sizeof text, "io_uring: %" PRIu64 ", unnamed executions: %" PRIu64,
                       r->io_urings, r->unnamed_execs);
        line(stdout, "unusual", text);
    }
}

static void
print_lists(const struct stockade_record *r)
{
    char text[TEXT_MAX];
    for (size_t i = 0; i < r->denials_n; i++)
        line(stdout, "denied", denial_text(&r->denials[i], NULL, text, sizeof text));
    for (size_t i = 0; i < r->executed_n; i++) {
        const struct stockade_execution *x = &r->executed[i];
        char path[TEXT_MAX - 100];
        (void)snprintf(text, sizeof text, "%s%s, %" PRIu64 " %s, arguments %s",
                       text_clean(x->path, path, sizeof path),
                       x->unnamed ? " (memfd or deleted)" : "", x->count,
                       plural(x->count, "time", "times"), x->args_hash);
        line(stdout, "executed", text);
    }
    for (size_t i = 0; i < r->findings_n; i++) {
        const struct stockade_finding *f = &r->findings[i];
        char sentence[TEXT_MAX - 200];
        (void)snprintf(text, sizeof text, "%s: %s: %s (%s)", cli_severity_name(f->severity),
                       f->rule, text_clean(f->text, sentence, sizeof sentence), f->response);
        line(stdout, "finding", text);
    }
    if (r->cut)
        line(stdout, "cut", "the lists are incomplete; the totals above include everything");
}

static const char *
clock_text(int64_t ms, char *out, size_t n)
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    size_t at = localtime_r(&seconds, &tm) != NULL ? strftime(out, n, "%H:%M:%S", &tm) : 0;
    (void)snprintf(out + at, n - at, ".%03d", (int)(ms % 1000));
    return out;
}

// Whether the record is complete, the time that it covers, and the active hooks.
static void
print_completeness(const struct stockade_record *r)
{
    char text[TEXT_MAX], from[UNIT_MAX], to[UNIT_MAX];
    size_t at = 0;
    (void)snprintf(text, sizeof text, "%scomplete, from %s to %s", r->complete ? "" : "not ",
                   clock_text(r->start_ms, from, sizeof from),
                   clock_text(r->end_ms, to, sizeof to));
    line(stdout, "record", text);
    text[0] = '\0';
    for (size_t i = 0; i < r->hooks_n && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i > 0 ? ", " : "", r->hooks[i]);
    if (r->hooks_n > 0)
        line(stdout, "seen by", text);
    for (size_t i = 0; i < r->lost_n; i++) {
        (void)snprintf(text, sizeof text, "%" PRIu64 " %s of the class %s", r->lost[i].events,
                       plural(r->lost[i].events, "event", "events"), r->lost[i].class_name);
        line(stdout, "lost", text);
    }
    for (size_t i = 0; i < r->missing_n; i++)
        line(stdout, "missing", text_clean(r->missing[i], text, sizeof text));
}

static json_t *
json_of_job(const struct stockade_job *j)
{
    json_t *o = json_of_process(&j->process);
    (void)json_object_set_new(o, "tenant", json_string(j->tenant));
    (void)json_object_set_new(o, "template", json_string(j->template_name));
    (void)json_object_set_new(o, "record", json_of_record(&j->record));
    return o;
}

int
cli_inspect(const struct command *c, const struct options *o)
{
    struct stockade_error e;
    const struct stockade_job *j = NULL;
    int code = EXIT_OK;
    const char *typed = o->args_n > 0 ? o->args[0] : NULL; // NULL: the last job
    if (typed != NULL && !cli_names_process(c, typed, &code))
        return code;
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    if (stockade_inspect(s, typed, &j, &e) < 0) {
        code = cli_fail(c, typed != NULL ? typed : "", &e);
    } else if (o->prove) {
        code = audit_prove(c, o, s, j->process.id);
    } else if (o->json) {
        code = json_put(json_of_job(j));
    } else {
        print_process(j);
        print_figures(&j->record);
        print_lists(&j->record);
        print_completeness(&j->record);
        code = cli_flush(c);
    }
    stockade_free(j);
    stockade_close(s);
    return code;
}
