// SPDX-License-Identifier: Apache-2.0
// The exporter's own metrics: whether the broker answers, and what was lost on the way. A table; each row reads its value
// when it is wanted.
#include <stdio.h>

#include "proto/now.h"
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
page_counted(const struct exporter *x, enum gateway_count which)
{
    return x->dashboard.gateway != NULL ? (double)gateway_count(x->dashboard.gateway, which) : 0;
}

static double
page_streams(const struct exporter *x)
{
    return page_counted(x, GATEWAY_COUNT_STREAMS);
}

static double
page_calls(const struct exporter *x)
{
    return page_counted(x, GATEWAY_COUNT_CALLS);
}

// The gateway's refusals, and those of the server: a wrong path, Host or Origin.
static double
page_refused(const struct exporter *x)
{
    return x->dashboard.http != NULL ? (double)http_count(x->dashboard.http, HTTP_REFUSED) : 0;
}

static double
page_cut(const struct exporter *x)
{
    const struct http *h = x->dashboard.http;
    return page_counted(x, GATEWAY_COUNT_CUT) + (h != NULL ? (double)http_count(h, HTTP_CUT) : 0);
}

static double
scrapes_failed(const struct exporter *x)
{
    return (double)x->scrapes_failed;
}

// ---- Of each sink

static double
sink_events(const struct output *o)
{
    return (double)o->sink->events;
}

static double
sink_failures(const struct output *o)
{
    return (double)o->sink->failed;
}

static double
sink_behind(const struct output *o)
{
    return o->sink->behind;
}

static double
sink_missed(const struct output *o)
{
    return (double)o->sink->missed;
}

static double
queue_length(const struct output *o)
{
    return (double)queue_numbers(o->queue)->records;
}

static double
queue_bytes(const struct output *o)
{
    return (double)queue_numbers(o->queue)->bytes;
}

static double
queue_age(const struct output *o)
{
    const int64_t oldest = queue_numbers(o->queue)->oldest_ns;
    const int64_t age = oldest != 0 ? now_ns(CLOCK_REALTIME) - oldest : 0;
    return age > 0 ? (double)age / 1e9 : 0;
}

static double
queue_dropped(const struct output *o)
{
    return (double)queue_numbers(o->queue)->dropped;
}

static double
queue_damaged(const struct output *o)
{
    return (double)queue_numbers(o->queue)->damaged;
}

static double
sent(const struct output *o)
{
    return (double)delivery_numbers(o->delivery)->sent;
}

static double
refused_records(const struct output *o)
{
    return (double)delivery_numbers(o->delivery)->refused;
}

static double
requests(const struct output *o)
{
    return (double)delivery_numbers(o->delivery)->requests;
}

static double
retries(const struct output *o)
{
    return (double)delivery_numbers(o->delivery)->retries;
}

static double
reachable(const struct output *o)
{
    return delivery_numbers(o->delivery)->reachable;
}

static double
start_time(const struct exporter *x)
{
    return x->started_s;
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
    {"stockade_exporter_dashboard_streams", "Pages of the dashboard that follow the broker.", "",
     GAUGE, page_streams},
    {"stockade_exporter_dashboard_calls_total",
     "Calls and streams that pages of the dashboard have made at the broker.", "", COUNTER,
     page_calls},
    {"stockade_exporter_dashboard_refused_total",
     "Requests to the dashboard that got another status than 200.", "", COUNTER, page_refused},
    {"stockade_exporter_dashboard_cut_total",
     "Pages of the dashboard that were disconnected for being too slow.", "", COUNTER, page_cut},
    {"stockade_exporter_start_time_seconds", "When the exporter started, since 1970.", "seconds",
     GAUGE, start_time},
    {"stockade_exporter_scrapes_failed_total", "Scrapes without the broker's metrics.", "", COUNTER,
     scrapes_failed},
};

enum { ROWS = sizeof rows / sizeof rows[0] };

struct sink_row {
    const char *name, *help, *unit;
    enum stockade_metric_type type;
    bool queued; // only of sinks with a queue
    double (*read)(const struct output *o);
};

// events = sent + refused + dropped + queue length, of the events since the start, and the length at the start.
static const struct sink_row sink_rows[] = {
    {"stockade_exporter_sink_events_total", "Events that were written, or put into a queue.", "",
     COUNTER, false, sink_events},
    {"stockade_exporter_sink_failures_total",
     "Writes that failed, such as on a full disk; they are tried again.", "", COUNTER, false,
     sink_failures},
    {"stockade_exporter_sink_behind",
     "Whether an event cannot be written now: 1 or 0. The others are requested from the broker "
     "again.",
     "", GAUGE, false, sink_behind},
    {"stockade_exporter_sink_missed_total",
     "Events that the broker no longer kept for a sink that was behind, as far as it knows how "
     "many.",
     "", COUNTER, false, sink_missed},
    {"stockade_exporter_queue_records", "Records that wait in the queue.", "", GAUGE, true,
     queue_length},
    {"stockade_exporter_queue_bytes", "Bytes of these records.", "bytes", GAUGE, true, queue_bytes},
    {"stockade_exporter_queue_age_seconds", "Age of the oldest record in the queue.", "seconds",
     GAUGE, true, queue_age},
    {"stockade_exporter_queue_dropped_total",
     "Records that were dropped because the queue was full.", "", COUNTER, true, queue_dropped},
    {"stockade_exporter_queue_damaged_total",
     "Places in files of the queue that could not be read; each is one record or more.", "",
     COUNTER, true, queue_damaged},
    {"stockade_exporter_sent_total", "Records that the receiver has accepted.", "", COUNTER, true,
     sent},
    {"stockade_exporter_refused_total",
     "Records that the receiver has refused, and that are not sent again.", "", COUNTER, true,
     refused_records},
    {"stockade_exporter_requests_total", "Requests to the receiver.", "", COUNTER, true, requests},
    {"stockade_exporter_retries_total", "Requests that have to be repeated.", "", COUNTER, true,
     retries},
    {"stockade_exporter_receiver_up", "Whether the last request was accepted: 1 or 0.", "", GAUGE,
     true, reachable},
};

enum { SINK_ROWS = sizeof sink_rows / sizeof sink_rows[0] };

static void
fill_sink_row(const struct exporter *x, const struct sink_row *r, struct stockade_metric *to)
{
    static const char *const label = "sink";
    static struct stockade_metric_sample samples[SINK_ROWS][SINKS_MAX];
    struct stockade_metric_sample *mine = samples[r - sink_rows];
    size_t n = 0;
    for (size_t i = 0; i < x->outputs.n; i++) {
        const struct output *o = &x->outputs.output[i];
        if (!r->queued || o->delivery != NULL)
            mine[n++] = (struct stockade_metric_sample){
                .labels = &o->name, .labels_n = 1, .value = r->read(o)};
    }
    *to = (struct stockade_metric){
        .name = r->name,
        .help = r->help,
        .unit = r->unit,
        .type = r->type,
        .labels = &label,
        .labels_n = 1,
        .samples = mine,
        .samples_n = n,
    };
}

const struct stockade_metrics *
own_metrics(const struct exporter *x)
{
    static const char *const label = "version";
    static const char *const version = STOCKADE_VERSION;
    static struct stockade_metric_sample samples[ROWS + 1];
    static struct stockade_metric metrics[ROWS + 1 + SINK_ROWS];
    static const struct stockade_metrics all = {metrics, ROWS + 1 + SINK_ROWS};
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
    for (size_t i = 0; i < SINK_ROWS; i++)
        fill_sink_row(x, &sink_rows[i], &metrics[ROWS + 1 + i]);
    return &all;
}
