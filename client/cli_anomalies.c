// anomalies: what looked wrong, what looks wrong from now on (--follow), and which rules hold (--rules).
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli.h"
#include "cli_commands.h"
#include "cli_json.h"
#include "cli_sink.h"
#include "cli_text.h"
#include "cli_units.h"

enum { TEXT_MAX = 600, WAIT_MS = 20000 };

json_t *
json_of_finding(const struct stockade_finding *f)
{
    return json_pack("{sI so ss ss ss sf sf ss ss ss ss}", "sequence", (json_int_t)f->sequence,
                     "time", json_of_time(f->time_ms), "rule", f->rule, "severity",
                     cli_severity_name(f->severity), "text", f->text, "score", f->score,
                     "threshold", f->threshold, "response", f->response, "sandbox_id",
                     f->sandbox_id, "process_id", f->process_id, "template", f->template_name);
}

static void
print_finding(const struct stockade_finding *f)
{
    char text[TEXT_MAX], rule[72], when[32];
    time_t seconds = (time_t)(f->time_ms / 1000);
    struct tm tm;
    size_t n = 0;
    bool logged = strcmp(f->response, "log") == 0;
    if (localtime_r(&seconds, &tm) != NULL)
        n = strftime(when, sizeof when, "%H:%M:%S", &tm);
    when[n] = '\0';
    (void)printf("%s %-8s %-18s %.12s  %s%s%s%s\n", when, cli_severity_name(f->severity),
                 text_clean(f->rule, rule, sizeof rule), f->sandbox_id,
                 text_clean(f->text, text, sizeof text), logged ? "" : " (",
                 logged ? "" : f->response, logged ? "" : ")");
}

struct listing {
    const struct options *o;
    json_t *array; // NULL: each as it comes
};

static int
show(const struct command *c, struct listing *l, const struct stockade_findings *all)
{
    int code = EXIT_OK;
    if (all->forgotten > 0 && !l->o->json)
        (void)fprintf(stderr, "stockade anomalies: %" PRIu64 " older findings are no longer kept\n",
                      all->forgotten);
    for (size_t i = 0; i < all->n; i++) {
        const struct stockade_finding *f = &all->items[i];
        if (l->array != NULL)
            (void)json_array_append_new(l->array, json_of_finding(f));
        else if (!l->o->json)
            print_finding(f);
        else if ((code = json_put(json_of_finding(f))) != EXIT_OK)
            return code;
    }
    bool gone = l->o->follow && sink_is_gone(); // there may be nothing to say for long
    return gone ? EXIT_PIPE : cli_flush(c);
}

static int
list(const struct command *c, const struct options *o, struct stockade *s, const char *sandbox)
{
    struct stockade_findings_options ask = STOCKADE_FINDINGS_OPTIONS_INIT;
    struct stockade_error e;
    struct listing l = {.o = o, .array = o->json && !o->follow ? json_array() : NULL};
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
            code = cli_fail(c, "", &e);
            break;
        }
        code = show(c, &l, all);
        ask.after_sequence = all->last_sequence;
        more = all->more;
        stockade_free(all);
    }
    if (l.array != NULL && code == EXIT_OK)
        return json_put_list(l.array);
    json_decref(l.array);
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
    int code = EXIT_OK;
    if (o->json)
        code = json_put_list(json_incref(array));
    else if (t != NULL)
        table_print(t, stdout);
    table_free(t);
    json_decref(array);
    stockade_free(all);
    return code;
}

int
cli_anomalies(const struct command *c, const struct options *o)
{
    char id[33] = "";
    int code = EXIT_OK;
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
