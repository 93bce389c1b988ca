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
#include "queue.h"
#include "sinks.h"

struct output {
    const char *name;
    struct sink *sink;
    // one of these
    struct lines *lines;        // owned
    struct line_stream *stream; // owned
    struct queue *queue;        // owned, with
    struct delivery *delivery;  // owned
};

struct outputs {
    struct sinks sinks;
    struct poster *poster; // NULL: nothing goes over HTTP
    struct output output[SINKS_MAX];
    size_t n;
};

// Opens what the configuration names. Call outputs_close() and outputs_free() also after a failure.
int outputs_open(struct outputs *all, uv_loop_t *loop, const struct exporter_config *c,
                 struct err *e);
void outputs_close(struct outputs *all);
void outputs_free(struct outputs *all);
