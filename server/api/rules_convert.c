// SPDX-License-Identifier: Apache-2.0
// See rules_convert.h.
#include "rules_convert.h"

#include <string.h>

#include "proto/now.h"
#include "proto/wire.h"
#include "server/anomaly/rules.h"
#include "server/anomaly/settings.h"
#include "server/anomaly/tenant_rules.h"
#include "server/base/syscall_names.h"
#include "server/telemetry/finding.h"

enum { DEFINITION_MAX = 131072 }; // as in the schema

const char *
rules_response_name(const Stockade__V1__DetectionRule *r)
{
    const char *name =
        finding_response_name(r->response != 0 ? (uint32_t)r->response : (uint32_t)RESPONSE_ALERT);
    return name != NULL ? name : "";
}

Stockade__V1__RuleFile *
rules_convert_file(struct arena *a, const struct tenant_rules *t, const struct rule_file *f,
                   bool text)
{
    Stockade__V1__RuleFile *m = wire_make(a, &stockade__v1__rule_file__descriptor);
    if (m == NULL)
        return NULL;
    m->name = f->name;
    m->text = text ? f->text : "";
    m->tenant = t->tenant;
    m->error = f->error;
    m->create_time =
        wire_make_time(a, f->created_ms / 1000, (int32_t)(f->created_ms % 1000) * 1000000);
    m->update_time =
        wire_make_time(a, f->updated_ms / 1000, (int32_t)(f->updated_ms % 1000) * 1000000);
    m->disabled = arena_alloc(a, (f->off_n + 1) * sizeof(void *));
    for (uint32_t i = 0; m->disabled != NULL && i < f->off_n; i++)
        m->disabled[m->n_disabled++] = f->off[i];
    return m->create_time != NULL && m->update_time != NULL && m->disabled != NULL ? m : NULL;
}

// Texts of a rule live as long as the rules, which may be freed before the answer is sent.
static bool
copy_texts(struct arena *a, const Stockade__V1__DetectionRule *from, Stockade__V1__RuleState *m)
{
    m->id = arena_copy(a, from->id, strlen(from->id));
    m->description = arena_copy(a, from->description, strlen(from->description));
    m->tags = arena_alloc(a, (from->n_tags + 1) * sizeof(void *));
    m->n_tags = 0;
    for (size_t i = 0; m->tags != NULL && i < from->n_tags; i++) {
        m->tags[i] = arena_copy(a, from->tags[i], strlen(from->tags[i]));
        if (m->tags[m->n_tags++] == NULL)
            return false;
    }
    return m->id != NULL && m->description != NULL && m->tags != NULL;
}

static bool
add_definition(struct arena *a, const struct detect *d, uint32_t i, Stockade__V1__RuleState *m)
{
    const size_t n = detect_definition(d, i, NULL, 0);
    if (n > DEFINITION_MAX)
        return true; // stays empty
    char *text = arena_alloc(a, n + 1);
    if (text != NULL)
        (void)detect_definition(d, i, text, n + 1);
    m->definition = text;
    return text != NULL;
}

static bool
add_counts(struct arena *a, const struct detect_view *v, Stockade__V1__RuleState *m)
{
    m->file = arena_copy(a, v->file, strlen(v->file));
    m->line = v->line;
    m->tests = (uint32_t)v->rule->n_tests;
    m->compared = v->looked_at;
    m->matched = v->matched;
    m->excepted = v->excepted;
    m->findings = v->findings;
    m->displaced = v->displaced;
    m->missed = v->missed;
    m->incomplete = v->enabled && (uint64_t)now_ns(CLOCK_BOOTTIME) < v->incomplete_ns;
    m->measured_ns = v->measured_ns;
    return m->file != NULL;
}

static void
note_call(void *cookie, const char *name)
{
    bool *missing = cookie;
    *missing = *missing && syscall_number(name) < 0 && !detect_reports_call(name);
}

// The kernel would report the calls of the rule, but this host has none of them.
static bool
needs_other_host(const struct detect *d, uint32_t i)
{
    bool missing = true;
    return detect_rule_calls(d, i, note_call, &missing) > 0 && missing;
}

Stockade__V1__RuleState *
rules_convert_rule(struct arena *a, const struct rules_shown *shown, uint32_t i)
{
    struct detect_view v;
    Stockade__V1__RuleState *m = wire_make(a, &stockade__v1__rule_state__descriptor);
    if (m == NULL || !detect_view(shown->rules, i, &v) || !copy_texts(a, v.rule, m))
        return NULL;
    const bool host = shown->tenant[0] == '\0';
    m->origin = host ? STOCKADE__V1__RULE_ORIGIN__RULE_ORIGIN_HOST
                     : STOCKADE__V1__RULE_ORIGIN__RULE_ORIGIN_TENANT;
    m->tenant = arena_copy(a, shown->tenant, strlen(shown->tenant));
    m->enabled = v.enabled;
    m->severity = v.rule->severity;
    m->response = rules_response_name(v.rule);
    m->threshold = v.threshold;
    m->window_ms = v.window_ms;
    m->snapshot_first = v.rule->snapshot_first;
    m->kernel_paths = host ? v.kernel_paths : 0; // the kernel watches for the host
    m->kernel_destinations = v.kernel_destinations;
    m->kernel_calls = v.kernel_calls;
    const bool in_kernel = v.in_kernel && (host || v.kernel_paths == 0);
    const bool never = v.never || needs_other_host(shown->rules, i);
    m->decided_by = never ? "nobody" : in_kernel ? "kernel" : "broker";
    m->decided_why = v.why;
    if (never && !v.never)
        m->decided_why = "this host has no system call that it names: it finds nothing";
    else if (v.needs_calls && !v.never && shown->unwatched)
        m->decided_why =
            "system calls are not watched (anomalies.syscalls, telemetry.syscalls): it "
            "finds something only while a job or a subscriber requests them";
    else if (v.in_kernel && !in_kernel)
        m->decided_why = "rules of tenants add no paths: the kernel reports sensitive paths, and "
                         "the broker compares them";
    m->comparisons_max = v.steps;
    m->table_bytes = v.table_bytes;
    if (shown->whole && !(add_counts(a, &v, m) && add_definition(a, shown->rules, i, m)))
        return NULL;
    return m->tenant != NULL ? m : NULL;
}

bool
rules_convert(struct arena *a, const struct rules_shown *shown, Stockade__V1__RuleState ***out,
              size_t *n)
{
    struct detect_view v;
    Stockade__V1__RuleState **all =
        arena_alloc(a, (*n + detect_count(shown->rules) + 1) * sizeof(void *));
    if (all == NULL)
        return false;
    if (*n > 0)
        memcpy(all, *out, *n * sizeof(void *));
    for (uint32_t i = 0; detect_view(shown->rules, i, &v); i++) {
        if (v.tripwire || (shown->file != NULL && strcmp(v.file, shown->file) != 0))
            continue;
        all[*n] = rules_convert_rule(a, shown, i);
        if (all[(*n)++] == NULL)
            return false;
    }
    *out = all;
    return true;
}

// ---- the host's

static bool
split_tags(struct arena *a, const char *tags, Stockade__V1__RuleState *m)
{
    char *rest = NULL;
    char *text = arena_copy(a, tags, strlen(tags));
    m->tags = arena_alloc(a, FINDING_TAGS_MAX * sizeof(void *));
    if (text == NULL || m->tags == NULL)
        return false;
    for (char *t = strtok_r(text, " ", &rest); t != NULL && m->n_tags < FINDING_TAGS_MAX;
         t = strtok_r(NULL, " ", &rest))
        m->tags[m->n_tags++] = t;
    return true;
}

// What the files say of a tripwire; its settings are those in force.
static bool
add_conditions(struct arena *a, const struct detect *rules, const char *id, bool whole,
               Stockade__V1__RuleState *m)
{
    struct detect_view v;
    const int i = detect_find(rules, id);
    if (i < 0 || !detect_view(rules, (uint32_t)i, &v))
        return true;
    m->comparisons_max = v.steps;
    m->table_bytes = v.table_bytes;
    return add_definition(a, rules, (uint32_t)i, m) && copy_texts(a, v.rule, m) &&
           (!whole || add_counts(a, &v, m));
}

static Stockade__V1__RuleState *
convert_tripwire(struct arena *a, const struct anomaly_settings *settings, int rule, bool whole)
{
    const struct anomaly_rule_row *row = &anomaly_rule_table[rule];
    const struct anomaly_policy *p = &settings->host.rule[rule];
    Stockade__V1__RuleState *m = wire_make(a, &stockade__v1__rule_state__descriptor);
    if (m == NULL || !split_tags(a, row->tags, m))
        return NULL;
    m->id = row->name;
    m->origin = STOCKADE__V1__RULE_ORIGIN__RULE_ORIGIN_TRIPWIRE;
    m->description = row->meaning;
    m->enabled = p->enabled == 1;
    m->severity = (Stockade__V1__Severity)p->severity;
    m->response = finding_response_name(p->response);
    m->threshold = p->threshold;
    m->window_ms = p->window_ms;
    m->snapshot_first = p->snapshot == 1;
    m->decided_by = "tripwire";
    return add_conditions(a, settings->rules, row->name, whole, m) ? m : NULL;
}

bool
rules_convert_host(struct arena *a, const struct anomaly_settings *settings,
                   const struct rules_shown *shown, Stockade__V1__RuleState ***out, size_t *n)
{
    const struct rules_shown host = {settings->rules, "", NULL, shown->whole, shown->unwatched};
    if (!rules_convert(a, &host, out, n))
        return false;
    Stockade__V1__RuleState **all = arena_alloc(a, (*n + ANOMALY_RULES) * sizeof(void *));
    if (all == NULL)
        return false;
    memcpy(all, *out, *n * sizeof(void *));
    for (int i = 0; i < ANOMALY_RULES; i++) {
        all[*n] = convert_tripwire(a, settings, i, shown->whole);
        if (all[(*n)++] == NULL)
            return false;
    }
    *out = all;
    return true;
}
