// SPDX-License-Identifier: Apache-2.0
// stockade-exporter: metrics and events of one broker for the monitoring systems of others. A client of the broker like any
// other, in a process of its own with an account that may read and nothing else.
//
//   broker.c  --MetricsService.Get-->  scrape.c  --client/exposition.c-->  http.c    Prometheus
//             --events------------->   exemplars.c
//                                      sinks.c  --ocsf.c-->  lines.c, line_stream.c         file, stdout
//                                               --...----->  queue.c --> delivery.c, post.c HTTP
//
//   gateway.c  --calls of pages, with their credentials; streams-->   dashboard.c, http.c    browsers
//
// One thread, one loop (libuv); libcurl resolves names in threads of its own.
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "proto/err.h"
#include "broker.h"
#include "config.h"
#include "dashboard.h"
#include "exemplars.h"
#include "http.h"
#include "outputs.h"

struct exporter {
    uv_loop_t loop;
    const struct exporter_config *config;
    struct broker *broker;
    struct broker_events events;
    struct http *http; // NULL: none
    struct dashboard dashboard;
    struct exemplars exemplars;
    char last_instance[BROKER_INSTANCE]; // the last event that came
    uint64_t last_sequence;
    struct outputs outputs;
    uv_timer_t interval;
    bool has_interval, fetching;
    struct broker_waiter waiter; // of interval.c
    double started_s;            // since 1970
    uint64_t scrapes_failed;     // the broker did not answer
};

// ---- scrape.c

// The server for Prometheus: struct http_settings; cookie: a struct exporter.
void scrape_request(void *exporter, struct http_request *r);
void scrape_gone(void *exporter, struct http_request *r);

// Writes the broker's metrics, if metrics is not NULL, and the exporter's own. False: out of memory, or the file failed.
bool scrape_write(struct exporter *x, const struct stockade_metrics *metrics, enum exposition form,
                  FILE *to);

// ---- interval.c

// Puts the metrics into the queue for OTLP in the configured interval, if they are wanted.
int interval_begin(struct exporter *x, struct err *e);
void interval_close(struct exporter *x);

// ---- own.c

// The exporter's own metrics. Borrowed until the next call.
const struct stockade_metrics *own_metrics(const struct exporter *x);
