// SPDX-License-Identifier: Apache-2.0
// The metrics of the broker: as a table, as JSON, and in the text formats of Prometheus
// and OpenMetrics (client/exposition.h).
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/exposition.h"
#include "cli.h"
#include "commands.h"
#include "json.h"
#include "text.h"
#include "units.h"

enum { LABELS_MAX = 512, VALUE_MAX = 96, CLEAN_MAX = 256 };

static const char own[] = "stockade_";
static const double whole_max = 9007199254740992.0; // 2^53: up to there a double holds each integer

static bool
is_zero(const struct stockade_metric *m, const struct stockade_metric_sample *s)
{
    return m->type == STOCKADE_METRIC_HISTOGRAM ? s->count == 0 : s->value == 0;
}

// ---- a table

static char *
show_unit(const struct stockade_metric *m, double value, char *out, size_t n)
{
    if (strcmp(m->unit, "seconds") == 0 && value >= 0 && value < 1e9)
        return units_show_ns((uint64_t)(value * 1e9), out, n);
    if (strcmp(m->unit, "bytes") == 0 && value >= 0 && value < whole_max)
        return units_show_bytes((uint64_t)value, out, n);
    return exposition_number(value, out, n);
}

// The upper bound of the bucket that holds this part of the observations.
static void
show_quantile(const struct stockade_metric *m, const struct stockade_metric_sample *s, double part,
              char *out, size_t n)
{
    char bound[EXPOSITION_NUMBER_MAX];
    uint64_t seen = 0;
    size_t i = 0;
    while (i < s->buckets_n && (double)(seen + s->buckets[i]) < part * (double)s->count)
        seen += s->buckets[i++];
    if (i < m->bounds_n)
        (void)snprintf(out, n, "<= %s", show_unit(m, m->bounds[i], bound, sizeof bound));
    else if (m->bounds_n > 0)
        (void)snprintf(out, n, "> %s",
                       show_unit(m, m->bounds[m->bounds_n - 1], bound, sizeof bound));
    else
        (void)snprintf(out, n, "?");
}

static void
show_value(const struct stockade_metric *m, const struct stockade_metric_sample *s, char *out,
           size_t n)
{
    char half[VALUE_MAX / 3], slow[VALUE_MAX / 3];
    if (m->type != STOCKADE_METRIC_HISTOGRAM) {
        (void)show_unit(m, s->value, out, n);
        return;
    }
    show_quantile(m, s, 0.5, half, sizeof half);
    show_quantile(m, s, 0.99, slow, sizeof slow);
    if (s->count == 0)
        (void)snprintf(out, n, "0");
    else
        (void)snprintf(out, n, "%" PRIu64 ", p50 %s, p99 %s", s->count, half, slow);
}

static void
show_labels(const struct stockade_metric *m, const struct stockade_metric_sample *s, char *out,
            size_t n)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < s->labels_n && i < m->labels_n && at < n; i++) {
        int more =
            snprintf(out + at, n - at, "%s%s=%s", i > 0 ? " " : "", m->labels[i], s->labels[i]);
        at += more > 0 ? (size_t)more : 0;
    }
}

static void
print_table(const struct stockade_metrics *all, bool zeros)
{
    static const char *const head[] = {"METRIC", "LABELS", "VALUE"};
    struct table *t = table_new(head, sizeof head / sizeof head[0]);
    bool room = t != NULL;
    for (size_t i = 0; i < all->n; i++) {
        const struct stockade_metric *m = &all->items[i];
        for (size_t k = 0; room && k < m->samples_n; k++) {
            char labels[LABELS_MAX], value[VALUE_MAX];
            if (!zeros && is_zero(m, &m->samples[k]))
                continue;
            show_labels(m, &m->samples[k], labels, sizeof labels);
            show_value(m, &m->samples[k], value, sizeof value);
            room = table_row(t, (const char *[]){m->name, labels, value});
        }
    }
    if (t != NULL)
        table_print(t, stdout);
    table_free(t);
}

// ---- JSON

static json_t *
number(double value)
{
    bool whole = value == floor(value) && fabs(value) <= whole_max;
    return whole ? json_integer((json_int_t)value) : json_real(value);
}

static json_t *
text(const char *from)
{
    char clean[CLEAN_MAX];
    return json_string(text_clean(from, clean, sizeof clean));
}

static json_t *
json_of_sample(const struct stockade_metric *m, const struct stockade_metric_sample *s)
{
    json_t *o = json_object();
    json_t *labels = json_object();
    for (size_t i = 0; i < s->labels_n && i < m->labels_n; i++)
        (void)json_object_set_new(labels, m->labels[i], text(s->labels[i]));
    (void)json_object_set_new(o, "labels", labels);
    if (m->type != STOCKADE_METRIC_HISTOGRAM) {
        (void)json_object_set_new(o, "value", number(s->value));
        return o;
    }
    json_t *buckets = json_array();
    for (size_t i = 0; i < s->buckets_n; i++)
        (void)json_array_append_new(buckets, json_integer((json_int_t)s->buckets[i]));
    (void)json_object_set_new(o, "count", json_integer((json_int_t)s->count));
    (void)json_object_set_new(o, "sum", number(s->sum));
    (void)json_object_set_new(o, "buckets", buckets);
    return o;
}

static json_t *
json_of_metric(const struct stockade_metric *m)
{
    json_t *o = json_object();
    json_t *samples = json_array();
    for (size_t i = 0; i < m->samples_n; i++)
        (void)json_array_append_new(samples, json_of_sample(m, &m->samples[i]));
    (void)json_object_set_new(o, "name", text(m->name));
    (void)json_object_set_new(o, "type", json_string(exposition_type(m->type)));
    (void)json_object_set_new(o, "unit", text(m->unit));
    (void)json_object_set_new(o, "help", text(m->help));
    if (m->type == STOCKADE_METRIC_HISTOGRAM) {
        json_t *bounds = json_array();
        for (size_t i = 0; i < m->bounds_n; i++)
            (void)json_array_append_new(bounds, number(m->bounds[i]));
        (void)json_object_set_new(o, "bounds", bounds);
    }
    (void)json_object_set_new(o, "samples", samples);
    return o;
}

static int
print_json(const struct stockade_metrics *all)
{
    json_t *list = json_array();
    for (size_t i = 0; i < all->n; i++)
        (void)json_array_append_new(list, json_of_metric(&all->items[i]));
    return json_put_list(list);
}

// ---- Prometheus

static void
print_text(const struct stockade_metrics *all, enum exposition form)
{
    const struct exposition_options o = {.form = form};
    exposition_write(stdout, all, &o);
    exposition_end(stdout, form);
}

// A prefix of no metric is a mistake; metrics that are all 0 are not.
static int
no_metric(const struct command *c, const char *typed)
{
    struct stockade_error e = {.code = STOCKADE_NOT_FOUND, .reason = "NO_METRIC"};
    (void)snprintf(e.text, sizeof e.text, "no metric begins with \"%.100s\"", typed);
    (void)snprintf(e.hint, sizeof e.hint, "'stockade metrics --all' lists them");
    return cli_fail(c, "", &e);
}

int
cli_metrics(const struct command *c, const struct options *o)
{
    struct stockade_error e;
    const struct stockade_metrics *all = NULL;
    char prefix[128] = "";
    int code = 0;
    if (o->args_n > 0)
        (void)snprintf(prefix, sizeof prefix, "%s%s",
                       strncmp(o->args[0], own, strlen(own)) == 0 ? "" : own, o->args[0]);
    struct stockade *s = cli_open(c, o, &code);
    if (s == NULL)
        return code;
    if (stockade_metrics(s, prefix, &all, &e) < 0)
        code = cli_fail(c, "", &e);
    else if (all->n == 0 && o->args_n > 0)
        code = no_metric(c, o->args[0]);
    else if (o->json)
        code = print_json(all);
    else if (o->prometheus)
        print_text(all, EXPOSITION_TEXT);
    else if (o->openmetrics)
        print_text(all, EXPOSITION_OPENMETRICS);
    else
        print_table(all, o->all);
    stockade_free(all);
    stockade_close(s);
    return code;
}
