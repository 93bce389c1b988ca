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
#include "signature.h"
#include "sinks.h"
#include "webhook.h"

struct output {
    const char *name;
    struct otlp *otlp; // NULL: another format
    const char *kinds; // of events, between blanks; borrowed from the configuration. NULL: all
    struct sink *sink;
    // one of these
    struct lines *lines;        // owned
    struct line_stream *stream; // owned
    struct queue *queue;        // owned, with
    struct delivery *delivery;  // owned
};

struct outputs {
    struct sinks sinks;
    struct poster *poster;       // NULL: nothing goes over HTTP
    struct otlp *otlp;           // NULL: none
    struct output *metrics;      // of OTLP: it takes no events; NULL: none
    struct webhook *webhook;     // owned; NULL: none
    struct output *approvals;    // of the webhook: it takes no events
    struct signature *signature; // owned: of CloudEvents; NULL: they are not signed
    struct output output[SINKS_MAX];
    size_t n;
};

// Opens what the configuration names. Call outputs_close() and outputs_free() also after a failure.
int outputs_open(struct outputs *all, uv_loop_t *loop, const struct exporter_config *c,
                 struct err *e);
// Puts the metrics into the queue of all->metrics. A negative errno: they do not get there.
int outputs_metrics(struct outputs *all, const struct stockade_metrics *metrics, int64_t now_ns);
// Puts an event of the webhook into its queue: struct webhook_begin's store; cookie: the struct outputs.
int outputs_approval(void *outputs, const char *bytes, size_t n);
void outputs_close(struct outputs *all);
void outputs_free(struct outputs *all);
