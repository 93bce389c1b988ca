// SPDX-License-Identifier: Apache-2.0
// See otlp.h: the metrics of the broker and of the exporter. Counters and histograms are cumulative. Names are those of the text
// for Prometheus without "_total", which receivers append; units are those of UCUM.
#include <errno.h>
#include <string.h>

#include "proto/wire.h"
#include "opentelemetry/proto/common/v1/common.pb-c.h"
#include "opentelemetry/proto/metrics/v1/metrics.pb-c.h"
#include "otlp.h"

// What all points of one request share.
struct times {
    uint64_t start_ns, now_ns;
};

static const char *
unit_of(const char *unit)
{
    return strcmp(unit, "seconds") == 0 ? "s" : strcmp(unit, "bytes") == 0 ? "By" : "1";
}

static const char *
name_of(struct arena *a, const char *name)
{
    static const char end[] = "_total";
    size_t n = strlen(name), cut = sizeof end - 1;
    if (n > cut && strcmp(name + n - cut, end) == 0)
        n -= cut;
    return arena_copy(a, name, n);
}

static struct otlp_attributes
labels_of(struct arena *arena, const struct stockade_metric *m,
          const struct stockade_metric_sample *s)
{
    struct otlp_attributes a = {.arena = arena};
    for (size_t i = 0; i < m->labels_n && i < s->labels_n; i++)
        otlp_add_text(&a, m->labels[i], s->labels[i]);
    return a;
}

// False: the arena is full, as for the functions below.
static bool
numbers(struct arena *arena, const struct stockade_metric *m, const struct times *t,
        Opentelemetry__Proto__Metrics__V1__NumberDataPoint **points)
{
    for (size_t i = 0; i < m->samples_n; i++) {
        Opentelemetry__Proto__Metrics__V1__NumberDataPoint *p =
            wire_make(arena, &opentelemetry__proto__metrics__v1__number_data_point__descriptor);
        struct otlp_attributes a = labels_of(arena, m, &m->samples[i]);
        if (p == NULL || a.failed)
            return false;
        p->attributes = a.item;
        p->n_attributes = a.n;
        p->start_time_unix_nano = m->type == STOCKADE_METRIC_GAUGE ? 0 : t->start_ns;
        p->time_unix_nano = t->now_ns;
        p->value_case = OPENTELEMETRY__PROTO__METRICS__V1__NUMBER_DATA_POINT__VALUE_AS_DOUBLE;
        p->as_double = m->samples[i].value;
        points[i] = p;
    }
    return true;
}

static bool
add_numbers(struct arena *arena, const struct stockade_metric *m, const struct times *t,
            Opentelemetry__Proto__Metrics__V1__Metric *to)
{
    Opentelemetry__Proto__Metrics__V1__NumberDataPoint **points =
        arena_alloc(arena, (m->samples_n + 1) * sizeof(void *));
    if (points == NULL || !numbers(arena, m, t, points))
        return false;
    if (m->type == STOCKADE_METRIC_GAUGE) {
        to->gauge = wire_make(arena, &opentelemetry__proto__metrics__v1__gauge__descriptor);
        if (to->gauge == NULL)
            return false;
        to->data_case = OPENTELEMETRY__PROTO__METRICS__V1__METRIC__DATA_GAUGE;
        to->gauge->data_points = points;
        to->gauge->n_data_points = m->samples_n;
        return true;
    }
    to->sum = wire_make(arena, &opentelemetry__proto__metrics__v1__sum__descriptor);
    if (to->sum == NULL)
        return false;
    to->data_case = OPENTELEMETRY__PROTO__METRICS__V1__METRIC__DATA_SUM;
    to->sum->data_points = points;
    to->sum->n_data_points = m->samples_n;
    to->sum->is_monotonic = true;
    to->sum->aggregation_temporality =
        OPENTELEMETRY__PROTO__METRICS__V1__AGGREGATION_TEMPORALITY__AGGREGATION_TEMPORALITY_CUMULATIVE;
    return true;
}

// The point borrows bounds and buckets.
static Opentelemetry__Proto__Metrics__V1__HistogramDataPoint *
histogram_point(struct arena *arena, const struct stockade_metric *m,
                const struct stockade_metric_sample *s, const struct times *t)
{
    Opentelemetry__Proto__Metrics__V1__HistogramDataPoint *p =
        wire_make(arena, &opentelemetry__proto__metrics__v1__histogram_data_point__descriptor);
    struct otlp_attributes a = labels_of(arena, m, s);
    if (p == NULL || a.failed)
        return NULL;
    union { // protobuf-c requires them to be writable, although packing only reads
        const double *from;
        double *to;
    } bounds = {m->bounds};
    union {
        const uint64_t *from;
        uint64_t *to;
    } buckets = {s->buckets};
    p->attributes = a.item;
    p->n_attributes = a.n;
    p->start_time_unix_nano = t->start_ns;
    p->time_unix_nano = t->now_ns;
    p->count = s->count;
    p->sum_presence_case =
        OPENTELEMETRY__PROTO__METRICS__V1__HISTOGRAM_DATA_POINT__SUM_PRESENCE_SUM;
    p->sum = s->sum;
    p->explicit_bounds = bounds.to;
    p->n_explicit_bounds = m->bounds_n;
    p->bucket_counts = buckets.to;
    p->n_bucket_counts = s->buckets_n;
    return p;
}

static bool
add_histogram(struct arena *arena, const struct stockade_metric *m, const struct times *t,
              Opentelemetry__Proto__Metrics__V1__Metric *to)
{
    Opentelemetry__Proto__Metrics__V1__HistogramDataPoint **points =
        arena_alloc(arena, (m->samples_n + 1) * sizeof(void *));
    to->histogram = wire_make(arena, &opentelemetry__proto__metrics__v1__histogram__descriptor);
    if (points == NULL || to->histogram == NULL)
        return false;
    to->data_case = OPENTELEMETRY__PROTO__METRICS__V1__METRIC__DATA_HISTOGRAM;
    to->histogram->aggregation_temporality =
        OPENTELEMETRY__PROTO__METRICS__V1__AGGREGATION_TEMPORALITY__AGGREGATION_TEMPORALITY_CUMULATIVE;
    to->histogram->data_points = points;
    for (size_t i = 0; i < m->samples_n; i++) {
        points[i] = histogram_point(arena, m, &m->samples[i], t);
        if (points[i] == NULL)
            return false;
        to->histogram->n_data_points++;
    }
    return true;
}

static Opentelemetry__Proto__Metrics__V1__Metric *
metric_of(struct arena *arena, const struct stockade_metric *m, const struct times *t)
{
    Opentelemetry__Proto__Metrics__V1__Metric *to =
        wire_make(arena, &opentelemetry__proto__metrics__v1__metric__descriptor);
    const char *name = to != NULL ? name_of(arena, m->name) : NULL;
    if (name == NULL)
        return NULL;
    to->name = name;
    to->description = m->help;
    to->unit = unit_of(m->unit);
    bool whole = m->type == STOCKADE_METRIC_HISTOGRAM ? add_histogram(arena, m, t, to)
                                                      : add_numbers(arena, m, t, to);
    return whole ? to : NULL;
}

// When the counters began; 0: unknown.
static uint64_t
start_of(const struct stockade_metrics *all)
{
    static const char end[] = "_start_time_seconds";
    for (size_t i = 0; i < all->n; i++)
        if (strlen(all->items[i].name) >= sizeof end && all->items[i].samples_n > 0 &&
            strcmp(all->items[i].name + strlen(all->items[i].name) - (sizeof end - 1), end) == 0)
            return (uint64_t)(all->items[i].samples[0].value * 1e9);
    return 0;
}

int
otlp_metrics(struct otlp *o, const struct stockade_metrics *metrics, int64_t now_ns,
             struct sink_bytes *out)
{
    Opentelemetry__Proto__Metrics__V1__ScopeMetrics scope =
        OPENTELEMETRY__PROTO__METRICS__V1__SCOPE_METRICS__INIT;
    const struct times t = {start_of(metrics), (uint64_t)now_ns};
    arena_reset(o->arena);
    scope.metrics = arena_alloc(o->arena, (metrics->n + 1) * sizeof(void *));
    if (scope.metrics == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < metrics->n; i++) {
        if (metrics->items[i].samples_n == 0)
            continue;
        Opentelemetry__Proto__Metrics__V1__Metric *m = metric_of(o->arena, &metrics->items[i], &t);
        if (m == NULL)
            return -ENOMEM;
        scope.metrics[scope.n_metrics++] = m;
    }
    return otlp_pack(&scope.base, out);
}
