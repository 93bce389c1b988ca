// SPDX-License-Identifier: Apache-2.0
// The configured sinks, each with what it stores to: a file, stdout, or a queue with a delivery behind it. Loop thread only.
#pragma once

#include <stddef.h>
#include <uv.h>

#include "proto/err.h"
#include "config.h"
#include "delivery.h"
#include "lines.h"
#include "line_stream.h"
#include "otlp.h"
#include "queue.h"
#include "sinks.h"

struct output {
    const char *name;
    struct otlp *otlp; // NULL: another format
    struct sink *sink;
    // one of these
    struct lines *lines;        // owned
    struct line_stream *stream; // owned
    struct queue *queue;        // owned, with
    struct delivery *delivery;  // owned
};

struct outputs {
    struct sinks sinks;
    struct poster *poster;  // NULL: nothing goes over HTTP
    struct otlp *otlp;      // NULL: none
    struct output *metrics; // of OTLP: it takes no events; NULL: none
    struct output output[SINKS_MAX];
    size_t n;
};

// Opens what the configuration names. Call outputs_close() and outputs_free() also after a failure.
int outputs_open(struct outputs *all, uv_loop_t *loop, const struct exporter_config *c,
                 struct err *e);
// Puts the metrics into the queue of all->metrics. A negative errno: they do not get there.
int outputs_metrics(struct outputs *all, const struct stockade_metrics *metrics, int64_t now_ns);
void outputs_close(struct outputs *all);
void outputs_free(struct outputs *all);
