// SPDX-License-Identifier: Apache-2.0
// Metrics as text for Prometheus: for the command `stockade metrics`, and for the exporter.
//
//   EXPOSITION_TEXT          prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4
//   EXPOSITION_OPENMETRICS   OpenMetrics 1.0: families without "_total", units, exemplars, "# EOF"
#pragma once

#include <stddef.h>
#include <stdio.h>

#include "stockade.h"

enum exposition { EXPOSITION_TEXT, EXPOSITION_OPENMETRICS };

// One observation of a bucket, with the trace that it belongs to.
struct exposition_exemplar {
    const char *trace_id; // hexadecimal digits
    double value;
    double time_s; // since 1970
};

struct exposition_options {
    enum exposition form;
    // The exemplar of a bucket, borrowed until the next call; NULL: none. Used with EXPOSITION_OPENMETRICS; may be NULL.
    const struct exposition_exemplar *(*exemplar)(void *cookie, const struct stockade_metric *m,
                                                  size_t bucket);
    void *cookie;
};

// Writes them in their order. A caller may write several groups whose names differ, and then the end.
void exposition_write(FILE *to, const struct stockade_metrics *all,
                      const struct exposition_options *o);
void exposition_end(FILE *to, enum exposition form);

// The value of the header Content-Type.
const char *exposition_content_type(enum exposition form);

// The name of a type of the schema: "counter", "gauge", "histogram", or "untyped".
const char *exposition_type(uint32_t type);

// A number as short as it can be without losing digits; integers without an exponent. Returns out.
enum { EXPOSITION_NUMBER_MAX = 40 };
char *exposition_number(double value, char *out, size_t n);
