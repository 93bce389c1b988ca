// SPDX-License-Identifier: Apache-2.0
// rules: check, test and show files of detection rules, without the broker: check, test, ls, show. See rules_broker.c for the others.
#include "rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/plural.h"
#include "proto/quantity.h"
#include "cli.h"
#include "commands.h"
#include "json.h"
#include "text.h"

static const char *
word(const ProtobufCEnumDescriptor *type, int value, size_t prefix, char *out, size_t n)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(type, value);
    size_t i = 0;
    for (const char *p = v != NULL ? v->name + prefix : "?"; *p != '\0' && i + 1 < n; p++)
        out[i++] = (char)(*p >= 'A' && *p <= 'Z' ? *p - 'A' + 'a' : *p);
    out[i] = '\0';
    return out;
}

static const char *
severity_of(const struct detect_view *v, char *out, size_t n)
{
    return word(&stockade__v1__severity__descriptor, (int)v->rule->severity, strlen("SEVERITY_"),
                out, n);
}

static const char *
response_of(const struct detect_view *v, char *out, size_t n)
{
    const int response = v->rule->response != 0
                             ? (int)v->rule->response
                             : STOCKADE__V1__DETECTION_RESPONSE__DETECTION_RESPONSE_ALERT;
    return word(&stockade__v1__detection_response__descriptor, response,
                strlen("DETECTION_RESPONSE_"), out, n);
}

static const char *
decided_by(const struct detect_view *v)
{
    if (v->never)
        return "nobody";
    return v->tripwire ? "tripwire" : v->in_kernel ? "kernel" : "broker";
}

json_t *
rules_json(const struct detect_view *v)
{
    char severity[24], response[24];
    json_t *tags = json_array();
    for (size_t i = 0; i < v->rule->n_tags; i++)
        (void)json_array_append_new(tags, json_string(v->rule->tags[i]));
    return json_pack("{ss sb sb ss ss ss ss sI sI ss ss so ss si si sI si si}", "id", v->rule->id,
                     "enabled", v->enabled, "snapshot_first", v->rule->snapshot_first != 0,
                     "severity", severity_of(v, severity, sizeof severity), "response",
                     response_of(v, response, sizeof response), "description", v->rule->description,
                     "message", v->rule->message, "threshold", (json_int_t)v->threshold,
                     "window_ms", (json_int_t)v->window_ms, "decided_by", decided_by(v),
                     "decided_why", v->why, "tags", tags, "file", v->file, "line", (int)v->line,
                     "comparisons_max", (int)v->steps, "table_bytes", (json_int_t)v->table_bytes,
                     "kernel_destinations", (int)v->kernel_destinations, "kernel_calls",
                     (int)v->kernel_calls);
}

void
rules_print(const struct detect_view *v)
{
    char a[320], b[QUANTITY_TEXT];
    (void)printf("rule         %s%s\n", v->rule->id, v->enabled ? "" : " (disabled)");
    if (v->rule->description[0] != '\0')
        (void)printf("description  %s\n", text_clean(v->rule->description, a, sizeof a));
    (void)printf("severity     %s\n", severity_of(v, a, sizeof a));
    (void)printf("response     %s%s\n", response_of(v, a, sizeof a),
                 v->rule->snapshot_first ? ", after a snapshot" : "");
    (void)printf("threshold    %" PRIu64 " within %s\n", v->threshold,
                 quantity_write(v->window_ms, quantity_time_ms, b));
    if (v->rule->message[0] != '\0')
        (void)printf("message      %s\n", text_clean(v->rule->message, a, sizeof a));
    for (size_t i = 0; i < v->rule->n_tags; i++)
        (void)printf("%s %s\n", i == 0 ? "tags        " : "            ", v->rule->tags[i]);
    (void)printf("decided by   %s: %s\n", decided_by(v), v->why);
    if (v->kernel_destinations > 0)
        (void)printf("networks     the kernel finds and counts %u for this rule\n",
                     v->kernel_destinations);
    if (v->kernel_calls > 0)
        (void)printf("calls        the kernel reports and counts %u for this rule\n",
                     v->kernel_calls);
    (void)printf("cost         up to %u %s for an event, %zu KiB of counts\n", v->steps,
                 plural(v->steps, "comparison", "comparisons"), v->table_bytes >> 10);
    for (size_t i = 0; i < v->rule->n_exceptions; i++)
        (void)printf("exception    %s\n", text_clean(v->rule->exceptions[i]->reason, a, sizeof a));
    (void)printf("tests        %zu\n", v->rule->n_tests);
    (void)printf("file         %s:%u\n", text_clean(v->file, a, sizeof a), v->line);
}

bool
rules_next(const struct detect *d, uint32_t *i, struct detect_view *v)
{
    for (; detect_view(d, *i, v); ++*i)
        if (strcmp(v->file, detect_tripwire_file().name) != 0)
            return true;
    return false;
}

static int
check(const struct ruling *r, const struct detect *d)
{
    struct detect_view v;
    size_t bytes = 0, tests = 0, rules = 0;
    char a[320];
    for (uint32_t i = 0; rules_next(d, &i, &v); i++) {
        bytes += v.table_bytes;
        tests += v.rule->n_tests;
        rules++;
        if (v.never)
            (void)fprintf(stderr, "%s:%u: warning: %s: %s\n", text_clean(v.file, a, sizeof a),
                          v.line, v.rule->id, v.why);
    }
    if (r->o->json)
        return json_put(json_pack("{si si sI}", "rules", (int)rules, "tests", (int)tests,
                                  "table_bytes", (json_int_t)bytes));
    (void)printf("%zu %s, %zu %s passed, %zu KiB of counts\n", rules,
                 plural(rules, "rule", "rules"), tests, plural(tests, "test", "tests"),
                 bytes >> 10);
    return EXIT_OK;
}

static int
list(const struct ruling *r, const struct detect *d)
{
    struct detect_view v;
    char severity[24], response[24], window[QUANTITY_TEXT];
    json_t *all = r->o->json ? json_array() : NULL;
    if (all == NULL)
        (void)printf("%-32s %-9s %-13s %9s %7s %-8s %s\n", "RULE", "SEVERITY", "RESPONSE",
                     "THRESHOLD", "WINDOW", "BY", "STATE");
    for (uint32_t i = 0; rules_next(d, &i, &v); i++) {
        if (all != NULL)
            (void)json_array_append_new(all, rules_json(&v));
        else
            (void)printf("%-32s %-9s %-13s %9" PRIu64 " %7s %-8s %s\n", v.rule->id,
                         severity_of(&v, severity, sizeof severity),
                         response_of(&v, response, sizeof response), v.threshold,
                         quantity_write(v.window_ms, quantity_time_ms, window), decided_by(&v),
                         v.enabled ? "on" : "off");
    }
    return all != NULL ? json_put_list(all) : EXIT_OK;
}

static char *
rules_definition(const struct detect *d, uint32_t i)
{
    const size_t n = detect_definition(d, i, NULL, 0);
    char *text = malloc(n + 1);
    if (text != NULL)
        (void)detect_definition(d, i, text, n + 1);
    return text;
}

static int
show(const struct ruling *r, const struct detect *d)
{
    struct detect_view v;
    const int i = detect_find(d, r->id);
    if (i < 0 || !detect_view(d, (uint32_t)i, &v)) {
        struct stockade_error e = {.code = STOCKADE_NOT_FOUND};
        (void)snprintf(e.text, sizeof e.text, "these files have no rule %.40s", r->id);
        return cli_fail(r->c, "", &e);
    }
    if (r->o->json)
        return json_put(rules_json(&v));
    rules_print(&v);
    char *text = rules_definition(d, (uint32_t)i);
    (void)printf("\n%s", text != NULL ? text : "");
    free(text);
    return EXIT_OK;
}

static int
test(const struct ruling *r, struct detect *d)
{
    struct detect_view v;
    if (r->o->kept)
        return rules_over_kept(r, d);
    if (r->o->json)
        return check(r, d);
    for (uint32_t i = 0; rules_next(d, &i, &v); i++)
        for (size_t k = 0; k < v.rule->n_tests; k++) {
            char name[320];
            (void)printf("passed  %s: %s\n", v.rule->id,
                         text_clean(v.rule->tests[k]->name, name, sizeof name));
        }
    return check(r, d);
}

// Which words an action takes: an id or a name, then files. Without files, ls and show ask the broker.
static const struct act {
    const char *name;
    bool named; // its first word is a rule, or a file of the broker
    int files_min, files_max;
    bool remote; // if there are no files, or in any case
    const char *needs;
} acts[] = {
    {"check", false, 1, -1, false, "FILE"}, {"test", false, 1, -1, false, "FILE"},
    {"ls", false, 0, -1, true, ""},         {"show", true, 0, -1, true, "RULE"},
    {"set", false, 1, -1, true, "FILE"},    {"get", true, 0, 0, true, "NAME"},
    {"rm", true, 0, 0, true, "NAME"},       {"enable", true, 0, 0, true, "RULE"},
    {"disable", true, 0, 0, true, "RULE"},
};

static const char hint[] =
    "the actions are check FILE..., test FILE..., ls [FILE...], show RULE "
    "[FILE...], set FILE..., get NAME, rm NAME, enable RULE and disable RULE";

static int
wrong_options(const struct ruling *r, bool remote)
{
    const struct options *o = r->o;
    const bool sets = strcmp(r->action, "set") == 0;
    if (o->kept && strcmp(r->action, "test") != 0)
        return cli_usage(r->c, "only test takes --kept", "rules test --kept FILE");
    if (o->name != NULL && (!sets || r->paths_n != 1))
        return cli_usage(r->c, "--name needs the action set and one file", hint);
    if (o->tenant != NULL && (!remote || sets))
        return cli_usage(r->c, "--tenant needs rules that the broker keeps, and not the action set",
                         hint);
    if (o->host && (!remote || strcmp(r->action, "ls") != 0))
        return cli_usage(r->c, "--host needs the action ls, without files", hint);
    return EXIT_OK;
}

static int
over_files(const struct ruling *r)
{
    int code = EXIT_OK;
    struct detect *d = rules_read(r, &code);
    if (d == NULL)
        return code;
    code = strcmp(r->action, "check") == 0  ? check(r, d)
           : strcmp(r->action, "ls") == 0   ? list(r, d)
           : strcmp(r->action, "show") == 0 ? show(r, d)
                                            : test(r, d);
    detect_free(d);
    return code;
}

int
cli_rules(const struct command *c, const struct options *o)
{
    struct ruling r = {.c = c, .o = o, .action = o->args[0]};
    const struct act *a = NULL;
    char why[64];
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
        if (strcmp(r.action, acts[i].name) == 0)
            a = &acts[i];
    if (a == NULL)
        return cli_usage(c, "there is no such action", hint);
    const int words = a->named ? 2 : 1; // the action with it
    r.id = a->named && o->args_n > 1 ? o->args[1] : NULL;
    r.paths = o->args + words;
    r.paths_n = o->args_n - words;
    (void)snprintf(why, sizeof why, "%s needs a %s", a->name, a->needs);
    if (r.paths_n < a->files_min)
        return cli_usage(c, why, hint);
    if (a->files_max >= 0 && r.paths_n > a->files_max)
        return cli_usage(c, "unexpected argument", hint);
    const bool remote = a->remote && (r.paths_n == 0 || strcmp(a->name, "set") == 0);
    const int code = wrong_options(&r, remote);
    if (code != EXIT_OK)
        return code;
    return remote ? rules_of_broker(&r) : over_files(&r);
}
