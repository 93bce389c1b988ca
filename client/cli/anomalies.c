// SPDX-License-Identifier: Apache-2.0
// anomalies: lists findings, follows new ones (--follow), and lists the rules (--rules).
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/plural.h"
#include "cli.h"
#include "commands.h"
#include "handled.h"
#include "json.h"
#include "sink.h"
#include "stockade/v1/record.pb-c.h"
#include "text.h"
#include "units.h"

enum { TEXT_MAX = 600, WAIT_MS = 20000 };

// " [T1059.004 mine]".
static const char *
tags_of(const struct stockade_finding *f, char *out, size_t n)
{
    const Stockade__V1__Finding *m = f->message;
    char clean[128];
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < m->n_tags && used < n; i++)
        used += (size_t)snprintf(out + used, n - used, "%s%s", i == 0 ? " [" : " ",
                                 text_clean(m->tags[i], clean, sizeof clean));
    if (m->n_tags > 0 && used + 1 < n)
        (void)snprintf(out + used, n - used, "]");
    return out;
}

static void
print_finding(const struct stockade_finding *f)
{
    char text[TEXT_MAX], tags[TEXT_MAX], rule[72], when[32], box[CLI_SHORT_ID_SIZE];
    time_t seconds = (time_t)(f->time_ms / 1000);
    struct tm tm;
    size_t n = 0;
    const Stockade__V1__Finding *m = f->message;
    bool logged = strcmp(f->response, "log") == 0;
    if (localtime_r(&seconds, &tm) != NULL)
        n = strftime(when, sizeof when, "%H:%M:%S", &tm);
    when[n] = '\0';
    (void)printf("%s %-8s %-18s %s  %s%s%s%s%s%s%s #%" PRIu64 "\n", when,
                 cli_severity_name(f->severity), text_clean(f->rule, rule, sizeof rule),
                 cli_short_id(f->sandbox_id, box), text_clean(f->text, text, sizeof text),
                 logged ? "" : " (", logged ? "" : f->response, logged ? "" : ")",
                 tags_of(f, tags, sizeof tags), m->silence_id[0] != '\0' ? ", silenced" : "",
                 m->n_acknowledgements > 0 ? ", acknowledged" : "", f->sequence);
}

// Reports findings that were dropped before these.
static int
say_missing(const struct options *o, const struct stockade_findings_options *asked,
            const struct stockade_findings *all)
{
    bool restarted = asked->instance != NULL && strcmp(asked->instance, all->instance) != 0;
    uint64_t from = asked->after_sequence + 1;
    if (!restarted && all->forgotten == 0)
        return EXIT_OK;
    if (o->json)
        return json_put(restarted ? json_of_gap(from, 0, 0, "restarted")
                                  : json_of_gap(from, 0, all->forgotten, "forgotten"));
    if (restarted)
        (void)fprintf(stderr,
                      "stockade anomalies: the broker was restarted; findings from "
                      "%" PRIu64 " until the restart are missing\n",
                      from);
    else
        (void)fprintf(stderr, "stockade anomalies: %" PRIu64 " older %s no longer kept\n",
                      all->forgotten, plural(all->forgotten, "finding is", "findings are"));
    return EXIT_OK;
}

static int
show(const struct command *c, const struct options *o,
     const struct stockade_findings_options *asked, const struct stockade_findings *all)
{
    int code = say_missing(o, asked, all);
    for (size_t i = 0; i < all->n && code == EXIT_OK; i++) {
        if (o->json)
            code = json_put(json_of_finding(&all->items[i]));
        else
            print_finding(&all->items[i]);
    }
    if (code != EXIT_OK)
        return code;
    bool gone = o->follow && sink_is_gone(); // the next finding may take long
    return gone ? EXIT_PIPE : cli_flush(c);
}

// The position for the next page.
struct cursor {
    char instance[33];
    bool begun;
    unsigned failures;
};

static void
move_on(const struct command *c, struct stockade_findings_options *ask, struct cursor *at,
        const struct stockade_findings *all)
{
    (void)snprintf(at->instance, sizeof at->instance, "%s", all->instance);
    ask->after_sequence = all->last_sequence;
    ask->instance = at->instance[0] != '\0' ? at->instance : NULL;
    at->begun = true;
    if (at->failures > 0)
        cli_connection(c, NULL);
    at->failures = 0;
}

// A follower survives a restart of the broker: it retries, less often with each failure, up to once a second.
static bool
waits_for_broker(const struct command *c, const struct options *o, struct cursor *at,
                 const struct stockade_error *e)
{
    enum { FIRST_MS = 50, DOUBLED_MAX = 4 };
    if (!o->follow || !at->begun || e->code != STOCKADE_UNAVAILABLE || sink_is_gone())
        return false;
    if (at->failures == 0)
        cli_connection(c, e);
    unsigned doubled = at->failures < DOUBLED_MAX ? at->failures : DOUBLED_MAX;
    const struct timespec pause = {.tv_nsec = (FIRST_MS << doubled) * 1000000L};
    at->failures++;
    (void)nanosleep(&pause, NULL);
    return true;
}

static int
list(const struct command *c, const struct options *o, struct stockade *s, const char *sandbox)
{
    struct stockade_findings_options ask = STOCKADE_FINDINGS_OPTIONS_INIT;
    struct stockade_error e;
    struct cursor at = {0};
    int code = EXIT_OK;
    bool more = true;
    ask.sandbox_id = sandbox;
    ask.rule = o->rule;
    ask.severity = cli_severity_number(o->severity);
    ask.tenant = o->tenant;
    ask.page_size = 1000;
    while (code == EXIT_OK && (more || o->follow)) {
        const struct stockade_findings *all = NULL;
        ask.wait_ms = o->follow ? WAIT_MS : 0;
        if (stockade_findings(s, &ask, &all, &e) < 0) {
            if (waits_for_broker(c, o, &at, &e))
                continue;
            return cli_fail(c, "", &e);
        }
        code = show(c, o, &ask, all);
        move_on(c, &ask, &at, all);
        more = all->more;
        stockade_free(all);
    }
    return code;
}

// ---- rules

static int
list_rules(const struct command *c, const struct options *o, struct stockade *s)
{
    static const char *const head[] = {"RULE",   "ON",       "SEVERITY", "THRESHOLD",
                                       "WINDOW", "RESPONSE", "COUNTS"};
    struct stockade_error e;
    const struct stockade_rules *all = NULL;
    if (stockade_rules(s, o->template_name, &all, &e) < 0)
        return cli_fail(c, o->template_name != NULL ? o->template_name : "", &e);
    json_t *array = json_array();
    struct table *t = table_new(head, sizeof head / sizeof head[0]);
    for (size_t i = 0; i < all->n && t != NULL; i++) {
        const struct stockade_rule *r = &all->items[i];
        char threshold[24], window[24];
        (void)snprintf(threshold, sizeof threshold, "%" PRIu64, r->threshold);
        (void)snprintf(window, sizeof window, "%gs", (double)r->window_ms / 1000);
        (void)table_row(t, (const char *[]){r->name, r->enabled ? "yes" : "no",
                                            cli_severity_name(r->severity), threshold, window,
                                            r->response, r->meaning});
        (void)json_array_append_new(
            array, json_pack("{ss ss sb ss sI sI ss}", "name", r->name, "meaning", r->meaning,
                             "enabled", (int)r->enabled, "severity", cli_severity_name(r->severity),
                             "threshold", (json_int_t)r->threshold, "window_ms",
                             (json_int_t)r->window_ms, "response", r->response));
    }
    stockade_free(all);
    return json_end_listing(o, t, array, EXIT_OK);
}

// An option that selects findings; NULL: none was given.
static const char *
option_of_findings(const struct options *o)
{
    return o->follow             ? "follow"
           : o->sandbox != NULL  ? "sandbox"
           : o->rule != NULL     ? "rule"
           : o->severity != NULL ? "severity"
           : o->tenant != NULL   ? "tenant"
                                 : NULL;
}

int
cli_anomalies(const struct command *c, const struct options *o)
{
    char id[CLI_ID_SIZE] = "";
    int code = EXIT_OK;
    if (o->args_n > 0 && strcmp(o->args[0], "ls") != 0)
        return handled_action(c, o);
    if (o->args_n > 1)
        return cli_usage(c, "unexpected argument", "");
    const char *other = handled_option(o);
    if (other != NULL)
        return cli_usage(c, other, "anomalies silence RULE --for TIME --reason TEXT");
    if (!o->rules && o->template_name != NULL)
        return cli_usage(c, "--template needs --rules", "");
    const char *idle = o->rules ? option_of_findings(o) : NULL;
    if (idle != NULL) {
        char why[64];
        (void)snprintf(why, sizeof why, "--rules and --%s exclude each other", idle);
        return cli_usage(c, why, "--template is the only option for --rules");
    }
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    if (o->rules)
        code = list_rules(c, o, s);
    else if (o->sandbox == NULL || cli_find_sandbox_id(s, c, o->sandbox, id, &code))
        code = list(c, o, s, o->sandbox != NULL ? id : NULL);
    stockade_close(s);
    return code;
}
