// SPDX-License-Identifier: Apache-2.0
// stockade.v1.MetricsService: the table of server/base/metrics.h as messages.
#include "api.h"

#include <string.h>

#include "server/base/metrics.h"
#include "convert.h"
#include "metrics_sample.h"
#include "stockade/v1/metrics_service.pb-c.h"

static const double ns_per_second = 1e9;

enum { REPLY_ARENA_MAX = 2 * 1024 * 1024 };

// Nanoseconds become seconds.
static double
in_unit(const struct metric_row *row, double value)
{
    return row->unit == METRIC_SECONDS ? value / ns_per_second : value;
}

// The number of labels of a metric.
static uint32_t
labels_n(const struct metric_row *row)
{
    return (row->label[0] != METRIC_BY_NONE ? 1U : 0) + (row->label[1] != METRIC_BY_NONE ? 1U : 0);
}

// A sample with its labels, added to the metric. NULL: the arena is full.
static Stockade__V1__MetricSample *
add_sample(struct arena *a, const struct metric_row *row, const uint32_t at[2],
           Stockade__V1__Metric *m)
{
    Stockade__V1__MetricSample *s = wire_make(a, &stockade__v1__metric_sample__descriptor);
    if (s == NULL)
        return NULL;
    s->labels = arena_alloc(a, sizeof(char *) * 2);
    if (s->labels == NULL)
        return NULL;
    for (uint32_t i = 0; i < labels_n(row); i++)
        s->labels[s->n_labels++] = metrics_label_value(row->label[i], at[i]);
    m->samples[m->n_samples++] = s;
    return s;
}

static bool
add_histogram(struct arena *a, enum metric metric, const uint32_t at[2], Stockade__V1__Metric *m)
{
    const struct metric_row *row = metrics_row(metric);
    struct metric_histogram h;
    metrics_histogram(metric, at[0], &h);
    if (h.count == 0 && labels_n(row) > 0)
        return true;
    Stockade__V1__MetricSample *s = add_sample(a, row, at, m);
    if (s == NULL)
        return false;
    s->count = h.count;
    s->sum = in_unit(row, (double)h.sum_ns);
    s->buckets = arena_alloc(a, sizeof h.bucket);
    if (s->buckets == NULL)
        return false;
    memcpy(s->buckets, h.bucket, sizeof h.bucket);
    s->n_buckets = METRIC_BUCKETS;
    return true;
}

// Most combinations of a method and a code, or a tenant and an outcome, never happen.
static bool
is_sparse(const struct metric_row *row)
{
    return labels_n(row) > 1 &&
           (row->label[0] == METRIC_BY_METHOD || row->label[0] == METRIC_BY_TENANT);
}

static bool
add_number(struct arena *a, enum metric metric, const uint32_t at[2], Stockade__V1__Metric *m)
{
    const struct metric_row *row = metrics_row(metric);
    uint64_t value = metrics_value(metric, at[0], at[1]);
    if (value == 0 && is_sparse(row))
        return true;
    Stockade__V1__MetricSample *s = add_sample(a, row, at, m);
    if (s == NULL)
        return false;
    s->value = in_unit(row, row->type == METRIC_GAUGE ? (double)(int64_t)value : (double)value);
    return true;
}

// A sample for each combination of label values that is in use.
static bool
add_samples(struct arena *a, enum metric metric, Stockade__V1__Metric *m)
{
    const struct metric_row *row = metrics_row(metric);
    uint32_t n[2] = {metrics_label_values(row->label[0]), metrics_label_values(row->label[1])};
    uint32_t at[2];
    bool whole = true;
    m->samples = arena_alloc(a, sizeof(void *) * n[0] * n[1]);
    if (m->samples == NULL)
        return false;
    for (at[0] = 0; at[0] < n[0] && whole; at[0]++)
        for (at[1] = 0; at[1] < n[1] && whole; at[1]++)
            if (metrics_label_value(row->label[0], at[0]) != NULL &&
                metrics_label_value(row->label[1], at[1]) != NULL)
                whole = row->type == METRIC_HISTOGRAM ? add_histogram(a, metric, at, m)
                                                      : add_number(a, metric, at, m);
    return whole;
}

static bool
add_bounds(struct arena *a, Stockade__V1__Metric *m)
{
    m->bounds = arena_alloc(a, sizeof *m->bounds * METRIC_BUCKETS);
    for (uint32_t i = 0; m->bounds != NULL && i + 1 < METRIC_BUCKETS; i++)
        m->bounds[m->n_bounds++] = (double)metrics_bound_ns(i) / ns_per_second;
    return m->bounds != NULL;
}

// NULL: the arena is full.
static Stockade__V1__Metric *
convert_metric(struct arena *a, enum metric metric)
{
    static const char *const units[] = {
        [METRIC_NUMBER] = "", [METRIC_SECONDS] = "seconds", [METRIC_BYTES] = "bytes"};
    const struct metric_row *row = metrics_row(metric);
    Stockade__V1__Metric *m = wire_make(a, &stockade__v1__metric__descriptor);
    if (m == NULL)
        return NULL;
    m->name = row->name;
    m->type = (Stockade__V1__MetricType)(row->type + 1);
    m->unit = units[row->unit];
    m->help = row->help;
    m->labels = arena_alloc(a, sizeof(char *) * 2);
    if (m->labels == NULL)
        return NULL;
    for (; m->n_labels < labels_n(row); m->n_labels++)
        m->labels[m->n_labels] = metrics_label(row->label[m->n_labels]);
    if (row->type == METRIC_HISTOGRAM && !add_bounds(a, m))
        return NULL;
    return add_samples(a, metric, m) ? m : NULL;
}

static void
get(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__MetricsServiceGetRequest *m =
        (const Stockade__V1__MetricsServiceGetRequest *)req;
    Stockade__V1__MetricsServiceGetResponse response =
        STOCKADE__V1__METRICS_SERVICE_GET_RESPONSE__INIT;
    struct arena *auto_arena a = arena_new(REPLY_ARENA_MAX);
    Stockade__V1__Metric *metrics[METRICS_N];
    response.metrics = metrics;
    metrics_sample(s);
    for (uint32_t i = 0; a != NULL && i < METRICS_N; i++) {
        if (strncmp(metrics_row((enum metric)i)->name, m->prefix, strlen(m->prefix)) != 0)
            continue;
        metrics[response.n_metrics] = convert_metric(a, (enum metric)i);
        if (metrics[response.n_metrics] == NULL) {
            convert_no_memory(c);
            return;
        }
        response.n_metrics++;
    }
    if (a == NULL)
        convert_no_memory(c);
    else
        call_reply(c, &response.base);
}

const struct call_method metrics_methods[] = {
    {"/stockade.v1.MetricsService/Get", &stockade__v1__metrics_service_get_request__descriptor,
     &stockade__v1__metrics_service_get_response__descriptor, get},
    {0},
};
