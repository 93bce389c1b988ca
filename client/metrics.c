// SPDX-License-Identifier: Apache-2.0
// See stockade_telemetry.h: the metrics of the broker.
#include "results.h"

#include "stockade/v1/metrics_service.pb-c.h"

static bool
sample_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__MetricSample *m = (const Stockade__V1__MetricSample *)from;
    (void)a;
    *(struct stockade_metric_sample *)to = (struct stockade_metric_sample){
        .labels = m->labels,
        .labels_n = m->n_labels,
        .value = m->value,
        .count = m->count,
        .sum = m->sum,
        .buckets = m->buckets,
        .buckets_n = m->n_buckets,
    };
    return true;
}

static bool
metric_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__Metric *m = (const Stockade__V1__Metric *)from;
    struct stockade_metric *metric = to;
    *metric = (struct stockade_metric){
        .name = m->name,
        .help = m->help,
        .unit = m->unit,
        .type = (uint32_t)m->type,
        .labels = m->labels,
        .labels_n = m->n_labels,
        .bounds = m->bounds,
        .bounds_n = m->n_bounds,
    };
    return LIST_FROM(metric->samples, metric->samples_n, a, m->samples, m->n_samples, sample_from);
}

bool
metrics_from(void *to, struct arena *a, const ProtobufCMessage *from)
{
    const Stockade__V1__MetricsServiceGetResponse *m =
        (const Stockade__V1__MetricsServiceGetResponse *)from;
    struct stockade_metrics *all = to;
    return LIST_FROM(all->items, all->n, a, m->metrics, m->n_metrics, metric_from);
}

int
stockade_metrics(struct stockade *s, const char *prefix, const struct stockade_metrics **out,
                 struct stockade_error *e)
{
    Stockade__V1__MetricsServiceGetRequest m = STOCKADE__V1__METRICS_SERVICE_GET_REQUEST__INIT;
    m.prefix = prefix != NULL ? prefix : "";
    const struct invocation i = {.method = "/stockade.v1.MetricsService/Get",
                                 .request = &m.base,
                                 .response =
                                     &stockade__v1__metrics_service_get_response__descriptor,
                                 .size = sizeof **out,
                                 .read = metrics_from};
    return invoke(s, &i, out, e);
}
