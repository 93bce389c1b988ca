// SPDX-License-Identifier: Apache-2.0
// The exporter's own metrics: whether the broker answers, and what was lost on the way. A table; each row reads its value
// when it is wanted.
#include <stdio.h>

#include "exporter.h"

struct row {
    const char *name, *help, *unit;
    enum stockade_metric_type type;
    double (*read)(const struct exporter *x);
};

static double
up(const struct exporter *x)
{
    return broker_numbers(x->broker)->connected;
}

static double
failures(const struct exporter *x)
{
    return (double)broker_numbers(x->broker)->failures;
}

static double
fetch_seconds(const struct exporter *x)
{
    return broker_numbers(x->broker)->fetch_s;
}

static double
events(const struct exporter *x)
{
    return (double)broker_numbers(x->broker)->events;
}

static double
gaps(const struct exporter *x)
{
    return (double)broker_numbers(x->broker)->gaps;
}

static double
missed(const struct exporter *x)
{
    return (double)broker_numbers(x->broker)->missed;
}

static double
http_counted(const struct exporter *x, enum http_count which)
{
    return x->http != NULL ? (double)http_count(x->http, which) : 0;
}

static double
accepted(const struct exporter *x)
{
    return http_counted(x, HTTP_ACCEPTED);
}

static double
answered(const struct exporter *x)
{
    return http_counted(x, HTTP_ANSWERED);
}

static double
refused(const struct exporter *x)
{
    return http_counted(x, HTTP_REFUSED);
}

static double
cut(const struct exporter *x)
{
    return http_counted(x, HTTP_CUT);
}

static double
scrapes_failed(const struct exporter *x)
{
    return (double)x->scrapes_failed;
}

static double
lines_written(const struct exporter *x)
{
    return (double)x->lines.written;
}

static double
lines_failed(const struct exporter *x)
{
    return (double)x->lines.failed;
}

#define COUNTER STOCKADE_METRIC_COUNTER
#define GAUGE   STOCKADE_METRIC_GAUGE

static const struct row rows[] = {
    {"stockade_exporter_broker_up", "Whether the broker answered the last call: 1 or 0.", "", GAUGE,
     up},
    {"stockade_exporter_broker_failures_total",
     "Calls to the broker and subscriptions to its events that failed or ended.", "", COUNTER,
     failures},
    {"stockade_exporter_broker_fetch_seconds", "Time that the last call for metrics took.",
     "seconds", GAUGE, fetch_seconds},
    {"stockade_exporter_events_total", "Events that were received from the broker.", "", COUNTER,
     events},
    {"stockade_exporter_event_gaps_total", "Gaps among the events that were received.", "", COUNTER,
     gaps},
    {"stockade_exporter_events_missed_total",
     "Events that the broker no longer kept when they were requested, as far as it knows how many.",
     "", COUNTER, missed},
    {"stockade_exporter_http_connections_total", "Connections of HTTP clients.", "", COUNTER,
     accepted},
    {"stockade_exporter_http_responses_total", "HTTP requests that got a response with status 200.",
     "", COUNTER, answered},
    {"stockade_exporter_http_refused_total", "HTTP requests that got another status.", "", COUNTER,
     refused},
    {"stockade_exporter_http_cut_total", "HTTP clients that were disconnected for being too slow.",
     "", COUNTER, cut},
    {"stockade_exporter_ocsf_lines_total", "Lines that were written to the file of events.", "",
     COUNTER, lines_written},
    {"stockade_exporter_ocsf_failures_total",
     "Writes of a line or of the position that failed, such as on a full disk.", "", COUNTER,
     lines_failed},
    {"stockade_exporter_scrapes_failed_total", "Scrapes without the broker's metrics.", "", COUNTER,
     scrapes_failed},
};

enum { ROWS = sizeof rows / sizeof rows[0] };

const struct stockade_metrics *
own_metrics(const struct exporter *x)
{
    static const char *const label = "version";
    static const char *const version = STOCKADE_VERSION;
    static struct stockade_metric_sample samples[ROWS + 1];
    static struct stockade_metric metrics[ROWS + 1];
    static const struct stockade_metrics all = {metrics, ROWS + 1};
    for (size_t i = 0; i < ROWS; i++) {
        samples[i] = (struct stockade_metric_sample){.value = rows[i].read(x)};
        metrics[i] = (struct stockade_metric){
            .name = rows[i].name,
            .help = rows[i].help,
            .unit = rows[i].unit,
            .type = rows[i].type,
            .samples = &samples[i],
            .samples_n = 1,
        };
    }
    samples[ROWS] = (struct stockade_metric_sample){.labels = &version, .labels_n = 1, .value = 1};
    metrics[ROWS] = (struct stockade_metric){
        .name = "stockade_exporter_build_info",
        .help = "Always 1; the label is the version of the exporter.",
        .unit = "",
        .type = STOCKADE_METRIC_GAUGE,
        .labels = &label,
        .labels_n = 1,
        .samples = &samples[ROWS],
        .samples_n = 1,
    };
    return &all;
}
