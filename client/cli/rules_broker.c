// SPDX-License-Identifier: Apache-2.0
// rules: the caller's own rules, which the broker keeps (RulesService). set, get, rm, enable, disable; ls and show without files.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/config_read.h"
#include "proto/plural.h"
#include "proto/quantity.h"
#include "cli.h"
#include "json.h"
#include "remote.h"
#include "rules.h"
#include "text.h"

enum { ANSWER_MAX = 8 * 1024 * 1024, FILE_MAX = 32 * 1024, NAME_MAX_BYTES = 41 };

// ---- a call

static int
fail(const struct ruling *r, int code, const char *text)
{
    struct stockade_error e = {.code = code};
    (void)snprintf(e.text, sizeof e.text, "%s", text);
    return cli_fail(r->c, "", &e);
}

// False: the failure was reported.
static bool
call(const struct ruling *r, const char *method, const ProtobufCMessage *request,
     const ProtobufCMessageDescriptor *response, struct arena *a, ProtobufCMessage **out, int *code)
{
    char path[64];
    struct stockade_error e;
    struct stockade *s = cli_open(r->c, r->o, code);
    if (s == NULL)
        return false;
    (void)snprintf(path, sizeof path, "/stockade.v1.RulesService/%s", method);
    const bool fine = remote_call(s, path, request, response, a, out, &e) == 0;
    if (!fine)
        *code = cli_fail(r->c, "", &e);
    stockade_close(s);
    return fine;
}

// ---- texts

static const char *
origin(const Stockade__V1__RuleState *m)
{
    return m->origin == STOCKADE__V1__RULE_ORIGIN__RULE_ORIGIN_TENANT     ? "own"
           : m->origin == STOCKADE__V1__RULE_ORIGIN__RULE_ORIGIN_TRIPWIRE ? "tripwire"
                                                                          : "host";
}

static const char *
state(const Stockade__V1__RuleState *m)
{
    return !m->enabled ? "off" : m->incomplete ? "incomplete" : "on";
}

static bool
add_row(struct table *t, const Stockade__V1__RuleState *m)
{
    char threshold[24], window[QUANTITY_TEXT], findings[24];
    (void)snprintf(threshold, sizeof threshold, "%" PRIu64, m->threshold);
    (void)snprintf(findings, sizeof findings, "%" PRIu64, m->findings);
    return table_row(
        t, (const char *const[]){m->id, state(m), cli_severity_name(m->severity), m->response,
                                 threshold, quantity_write(m->window_ms, quantity_time_ms, window),
                                 findings, origin(m), m->file});
}

static int
print_rules(Stockade__V1__RuleState *const *rules, size_t n)
{
    static const char *const head[] = {"RULE",   "STATE", "SEVERITY", "RESPONSE", "THRESHOLD",
                                       "WINDOW", "FOUND", "OF",       "FILE"};
    struct table *t = table_new(head, sizeof head / sizeof head[0]);
    for (size_t i = 0; i < n && t != NULL; i++)
        (void)add_row(t, rules[i]);
    if (t != NULL)
        table_print(t, stdout);
    table_free(t);
    return EXIT_OK;
}

static void
print_rule(const Stockade__V1__RuleState *m)
{
    char a[1100], b[QUANTITY_TEXT];
    (void)printf("rule         %s%s\n", m->id, m->enabled ? "" : " (disabled)");
    (void)printf("of           %s\n", origin(m));
    if (m->description[0] != '\0')
        (void)printf("description  %s\n", text_clean(m->description, a, sizeof a));
    (void)printf("severity     %s\n", cli_severity_name(m->severity));
    (void)printf("response     %s%s\n", text_clean(m->response, a, sizeof a),
                 m->snapshot_first ? ", after a snapshot" : "");
    (void)printf("threshold    %" PRIu64 " within %s\n", m->threshold,
                 quantity_write(m->window_ms, quantity_time_ms, b));
    for (size_t i = 0; i < m->n_tags; i++)
        (void)printf("%s %s\n", i == 0 ? "tags        " : "            ", m->tags[i]);
    (void)printf("decided by   %s", text_clean(m->decided_by, a, sizeof a));
    (void)printf(m->decided_why[0] != '\0' ? ": %s\n" : "%s\n",
                 text_clean(m->decided_why, a, sizeof a));
    (void)printf("cost         up to %" PRIu32 " %s for an event, %" PRIu64 " KiB of counts",
                 m->comparisons_max, plural(m->comparisons_max, "comparison", "comparisons"),
                 m->table_bytes >> 10);
    if (m->measured_ns > 0)
        (void)printf("; measured: %" PRIu64 " ns for an event", m->measured_ns);
    (void)putchar('\n');
    if (m->kernel_paths > 0)
        (void)printf("paths        the kernel reports %" PRIu32 " for this rule\n",
                     m->kernel_paths);
    if (m->kernel_destinations > 0)
        (void)printf("networks     the kernel finds and counts %" PRIu32 " for this rule\n",
                     m->kernel_destinations);
    if (m->kernel_calls > 0)
        (void)printf("calls        the kernel reports and counts %" PRIu32 " for this rule\n",
                     m->kernel_calls);
    (void)printf("compared     %" PRIu64 ", matched %" PRIu64 ", excepted %" PRIu64
                 ", findings %" PRIu64 "\n",
                 m->compared, m->matched, m->excepted, m->findings);
    if (m->missed + m->displaced > 0)
        (void)printf("missed       %" PRIu64 " lost %s, %" PRIu64 " %s given up\n", m->missed,
                     plural(m->missed, "event", "events"), m->displaced,
                     plural(m->displaced, "count", "counts"));
    if (m->incomplete)
        (void)printf("incomplete   its counts of this window may be too low\n");
    if (m->file[0] != '\0')
        (void)printf("file         %s:%" PRIu32 "\n", text_clean(m->file, a, sizeof a), m->line);
    if (m->definition[0] != '\0')
        (void)printf("\n%s", m->definition);
}

// ---- actions

static const char *
tenant_of(const struct ruling *r)
{
    return r->o->tenant != NULL ? r->o->tenant : "";
}

static int
list(const struct ruling *r, struct arena *a)
{
    Stockade__V1__RulesServiceListRequest q = STOCKADE__V1__RULES_SERVICE_LIST_REQUEST__INIT;
    ProtobufCMessage *out = NULL;
    int code = EXIT_OK;
    q.tenant = tenant_of(r);
    q.host = r->o->host;
    if (!call(r, "List", &q.base, &stockade__v1__rules_service_list_response__descriptor, a, &out,
              &code))
        return code;
    const Stockade__V1__RulesServiceListResponse *m =
        (const Stockade__V1__RulesServiceListResponse *)out;
    if (r->o->json)
        return json_put(json_of_message(out));
    for (size_t i = 0; i < m->n_files; i++)
        if (m->files[i]->error[0] != '\0') {
            char error[600];
            (void)fprintf(stderr, "stockade rules: file %s is not in force: %s\n",
                          m->files[i]->name, text_clean(m->files[i]->error, error, sizeof error));
        }
    if (m->skipped > 0)
        (void)fprintf(stderr,
                      "stockade rules: %" PRIu64
                      " events were not compared: the rules take too long\n",
                      m->skipped);
    return print_rules(m->rules, m->n_rules);
}

static int
show(const struct ruling *r, struct arena *a)
{
    Stockade__V1__RulesServiceListRequest q = STOCKADE__V1__RULES_SERVICE_LIST_REQUEST__INIT;
    ProtobufCMessage *out = NULL;
    char why[128];
    int code = EXIT_OK;
    q.tenant = tenant_of(r);
    q.host = true;
    if (!call(r, "List", &q.base, &stockade__v1__rules_service_list_response__descriptor, a, &out,
              &code))
        return code;
    const Stockade__V1__RulesServiceListResponse *m =
        (const Stockade__V1__RulesServiceListResponse *)out;
    for (size_t i = 0; i < m->n_rules; i++) {
        if (strcmp(m->rules[i]->id, r->id) != 0)
            continue;
        if (r->o->json)
            return json_put(json_of_message(&m->rules[i]->base));
        print_rule(m->rules[i]);
        return EXIT_OK;
    }
    (void)snprintf(why, sizeof why, "there is no rule %.64s", r->id);
    return fail(r, STOCKADE_NOT_FOUND, why);
}

static int
get(const struct ruling *r, struct arena *a)
{
    Stockade__V1__RulesServiceGetRequest q = STOCKADE__V1__RULES_SERVICE_GET_REQUEST__INIT;
    ProtobufCMessage *out = NULL;
    int code = EXIT_OK;
    q.name = r->id;
    q.tenant = tenant_of(r);
    if (!call(r, "Get", &q.base, &stockade__v1__rules_service_get_response__descriptor, a, &out,
              &code))
        return code;
    const Stockade__V1__RulesServiceGetResponse *m =
        (const Stockade__V1__RulesServiceGetResponse *)out;
    if (r->o->json)
        return json_put(json_of_message(out));
    (void)fputs(m->file != NULL ? m->file->text : "", stdout);
    return EXIT_OK;
}

static int
answer_rule(const struct ruling *r, const ProtobufCMessage *out, const Stockade__V1__RuleState *m)
{
    if (r->o->json)
        return json_put(json_of_message(out));
    if (m != NULL)
        (void)printf("%s is %s\n", m->id, m->enabled ? "on" : "off");
    return EXIT_OK;
}

static int
enable(const struct ruling *r, struct arena *a)
{
    Stockade__V1__RulesServiceEnableRequest q = STOCKADE__V1__RULES_SERVICE_ENABLE_REQUEST__INIT;
    ProtobufCMessage *out = NULL;
    int code = EXIT_OK;
    q.rule = r->id;
    q.tenant = tenant_of(r);
    if (!call(r, "Enable", &q.base, &stockade__v1__rules_service_enable_response__descriptor, a,
              &out, &code))
        return code;
    return answer_rule(r, out, ((const Stockade__V1__RulesServiceEnableResponse *)out)->rule);
}

static int
disable(const struct ruling *r, struct arena *a)
{
    Stockade__V1__RulesServiceDisableRequest q = STOCKADE__V1__RULES_SERVICE_DISABLE_REQUEST__INIT;
    ProtobufCMessage *out = NULL;
    int code = EXIT_OK;
    q.rule = r->id;
    q.tenant = tenant_of(r);
    if (!call(r, "Disable", &q.base, &stockade__v1__rules_service_disable_response__descriptor, a,
              &out, &code))
        return code;
    return answer_rule(r, out, ((const Stockade__V1__RulesServiceDisableResponse *)out)->rule);
}

static int
delete_file(const struct ruling *r, struct arena *a)
{
    Stockade__V1__RulesServiceDeleteRequest q = STOCKADE__V1__RULES_SERVICE_DELETE_REQUEST__INIT;
    int code = EXIT_OK;
    q.name = r->id;
    q.tenant = tenant_of(r);
    if (!call(r, "Delete", &q.base, &stockade__v1__rules_service_delete_response__descriptor, a,
              NULL, &code))
        return code;
    return r->o->json ? json_put(json_object()) : EXIT_OK;
}

// "shells" of "/x/shells.yaml".
static void
name_of(const char *path, char out[NAME_MAX_BYTES])
{
    static const char *const ends[] = {".yaml", ".yml", ".json"};
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    size_t n = strlen(base);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t end = strlen(ends[i]);
        if (n > end && strcmp(base + n - end, ends[i]) == 0) {
            n -= end;
            break;
        }
    }
    (void)snprintf(out, NAME_MAX_BYTES, "%.*s", (int)n, base);
}

static int
set_one(const struct ruling *r, struct arena *a, const char *path)
{
    Stockade__V1__RulesServiceSetRequest q = STOCKADE__V1__RULES_SERVICE_SET_REQUEST__INIT;
    ProtobufCMessage *out = NULL;
    char name[NAME_MAX_BYTES], *bytes = NULL;
    size_t n = 0;
    struct err e;
    int code = EXIT_OK;
    if (config_file_up_to(path, FILE_MAX, &bytes, &n, &e) < 0)
        return fail(r, e.code, e.text);
    char *text = arena_copy(a, bytes, n); // with an end
    free(bytes);
    if (text == NULL)
        return fail(r, STOCKADE_RESOURCE_EXHAUSTED, "out of memory");
    name_of(path, name);
    q.name = r->o->name != NULL ? r->o->name : name;
    q.text = text;
    if (strlen(text) != n)
        code = fail(r, STOCKADE_INVALID_ARGUMENT, "the file contains a zero byte");
    else
        (void)call(r, "Set", &q.base, &stockade__v1__rules_service_set_response__descriptor, a,
                   &out, &code);
    if (out == NULL)
        return code;
    const Stockade__V1__RulesServiceSetResponse *m =
        (const Stockade__V1__RulesServiceSetResponse *)out;
    return r->o->json ? json_put(json_of_message(out)) : print_rules(m->rules, m->n_rules);
}

static int
set(const struct ruling *r, struct arena *a)
{
    int code = EXIT_OK;
    for (int i = 0; i < r->paths_n && code == EXIT_OK; i++)
        code = set_one(r, a, r->paths[i]);
    return code;
}

static const struct {
    const char *name;
    int (*run)(const struct ruling *r, struct arena *a);
} all[] = {
    {"ls", list},        {"show", show},     {"get", get},         {"set", set},
    {"rm", delete_file}, {"enable", enable}, {"disable", disable},
};

int
rules_of_broker(const struct ruling *r)
{
    struct arena *auto_arena a = arena_new(ANSWER_MAX);
    if (a == NULL)
        return fail(r, STOCKADE_RESOURCE_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].name, r->action) == 0)
            return all[i].run(r, a);
    return EXIT_PROBLEM;
}
