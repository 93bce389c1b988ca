// SPDX-License-Identifier: Apache-2.0
// See config.h: detection rules, and what they say about the tripwires of the broker.
//
//   default --> rules that ship --> rules of the host --> anomalies of the configuration --> those of a template
//
// A setting of the configuration that differs from the default counts before a rule's.
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "proto/detect.h"
#include "server/telemetry/finding.h"

static int
wrong(const struct detect_view *v, const char *what, uint64_t min, uint64_t max, struct err *e)
{
    return err_set(e, ERR_INVALID_ARGUMENT, "%s:%u: tripwire %s: %s must be from %llu to %llu",
                   v->file, v->line, v->rule->id, what, (unsigned long long)min,
                   (unsigned long long)max);
}

static int
read_parameter(struct config *c, const struct detect_view *v, int rule,
               const Stockade__V1__DetectionParameter *m, struct err *e)
{
    for (int i = 0; i < ANOMALY_PARAMETERS; i++) {
        const struct anomaly_parameter_row *row = &anomaly_parameter_table[i];
        if (row->rule != (enum anomaly_rule)rule || strcmp(row->name, m->name) != 0)
            continue;
        if (m->value < row->min || m->value > row->max)
            return wrong(v, row->name, row->min, row->max, e);
        c->anomaly.host.parameter[i] = m->value;
        for (uint32_t t = 0; t < c->sandbox.templates_n; t++)
            c->anomaly.of_template[t].parameter[i] = m->value;
        return 0;
    }
    return err_set(e, ERR_INVALID_ARGUMENT, "%s:%u: the condition of tripwire %s has no %s",
                   v->file, v->line, v->rule->id, m->name);
}

// What the broker's own code decides must be what the file says.
static int
check_condition(struct config *c, const struct detect_view *v, int rule, struct err *e)
{
    const struct anomaly_rule_row *row = &anomaly_rule_table[rule];
    const Stockade__V1__DetectionBuiltin *b = v->rule->builtin;
    const char *builtin = b != NULL ? b->condition : NULL;
    const char *counter = row->counter != NULL ? row->counter : "";
    if ((builtin == NULL) != (row->builtin == NULL) ||
        (builtin != NULL && strcmp(builtin, row->builtin) != 0))
        return err_set(e, ERR_INVALID_ARGUMENT, "%s:%u: tripwire %s needs %s%s", v->file, v->line,
                       v->rule->id, row->builtin != NULL ? "the built-in condition " : "a match",
                       row->builtin != NULL ? row->builtin : "");
    if (strcmp(v->rule->counter, counter) != 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s:%u: the counter of tripwire %s is \"%s\"",
                       v->file, v->line, v->rule->id, counter);
    for (size_t i = 0; b != NULL && i < b->n_parameters; i++) {
        const int r = read_parameter(c, v, rule, b->parameters[i], e);
        if (r < 0)
            return r;
    }
    return 0;
}

// The tripwire's settings; 0: not set.
static int
read_tripwire(const struct detect_view *v, int rule, struct anomaly_policy *out, struct err *e)
{
    const struct anomaly_rule_row *row = &anomaly_rule_table[rule];
    const Stockade__V1__DetectionAggregate *a = v->rule->aggregate;
    *out =
        (struct anomaly_policy){.enabled = v->rule->disabled ? 2 : 1,
                                .severity = v->rule->severity,
                                .response = v->rule->response,
                                .snapshot = v->rule->snapshot_first ? 1 : 2,
                                .threshold = a != NULL ? a->threshold : 0,
                                .window_ms = a != NULL && a->window[0] != '\0' ? v->window_ms : 0};
    if (out->threshold != 0 &&
        (out->threshold < row->threshold_min || out->threshold > row->threshold_max))
        return wrong(v, "threshold", row->threshold_min, row->threshold_max, e);
    if (out->window_ms != 0 &&
        (out->window_ms < row->window_min_ms || out->window_ms > row->window_max_ms))
        return wrong(v, "window in ms", row->window_min_ms, row->window_max_ms, e);
    return 0;
}

// Replaces what is as it was.
static void
set(struct anomaly_policy *now, const struct anomaly_policy *before,
    const struct anomaly_policy *by)
{
    if (by->enabled != 0 && now->enabled == before->enabled)
        now->enabled = by->enabled;
    if (by->severity != 0 && now->severity == before->severity)
        now->severity = by->severity;
    if (by->response != 0 && now->response == before->response)
        now->response = by->response;
    if (by->snapshot != 0 && now->snapshot == before->snapshot)
        now->snapshot = by->snapshot;
    if (by->threshold != 0 && now->threshold == before->threshold)
        now->threshold = by->threshold;
    if (by->window_ms != 0 && now->window_ms == before->window_ms)
        now->window_ms = by->window_ms;
}

static void
apply(struct config *c, int rule, const struct anomaly_policy *by)
{
    struct anomaly_policy *host = &c->anomaly.host.rule[rule];
    const struct anomaly_policy before = *host;
    set(host, &anomaly_rule_table[rule].usual, by);
    for (uint32_t i = 0; i < c->sandbox.templates_n; i++)
        set(&c->anomaly.of_template[i].rule[rule], &before, host);
}

int
config_use_rules(struct config *c, struct detect *rules, struct err *e)
{
    struct anomaly_policy all[ANOMALY_RULES] = {{0}}, one;
    struct detect_view v;
    for (uint32_t i = 0; detect_view(rules, i, &v); i++) {
        const int rule = anomaly_rule_find(v.rule->id);
        if ((rule >= 0) != v.tripwire)
            return err_set(e, ERR_INVALID_ARGUMENT,
                           v.tripwire ? "%s:%u: there is no tripwire %s"
                                      : "%s:%u: %s is the name of a tripwire",
                           v.file, v.line, v.rule->id);
        int r = v.tripwire ? read_tripwire(&v, rule, &one, e) : 0;
        if (r == 0 && v.tripwire)
            r = check_condition(c, &v, rule, e);
        if (r < 0)
            return r;
        if (v.tripwire)
            all[rule] = one;
    }
    const int rc = anomaly_sensitive_check_rules(rules, e);
    if (rc < 0)
        return rc;
    for (int i = 0; i < ANOMALY_RULES; i++)
        apply(c, i, &all[i]);
    return 0;
}

int
config_read_rules(struct config *c, const Stockade__V1__PolicyFiles *files, struct err *e)
{
    struct detect_file file[DETECT_FILES_MAX + 1];
    struct detect *d = NULL;
    uint8_t seed[16];
    const size_t n = files->n_rules < DETECT_FILES_MAX ? files->n_rules : DETECT_FILES_MAX;
    randombytes_buf(seed, sizeof seed);
    file[0] = detect_tripwire_file();
    for (size_t i = 0; i < n; i++)
        file[i + 1] = (struct detect_file){files->rules[i]->name, files->rules[i]->text,
                                           strlen(files->rules[i]->text)};
    int r = detect_read(file, n + 1, &detect_bounds_host, seed, &d, e);
    if (r == 0)
        r = config_use_rules(c, d, e);
    if (r < 0) {
        detect_free(d);
        return r;
    }
    c->anomaly.rules = d;
    return 0;
}
