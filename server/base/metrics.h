// SPDX-License-Identifier: Apache-2.0
// What the broker counts about itself: counters, gauges and histograms, as the table in metrics_table.h declares them.
//
//   where a fact is known   metrics_add(METRIC_POOL_HITS, 1)      an addition to a static array: no lock, no memory
//   MetricsService          metrics_row(), metrics_value()        a walk over the table
//
// They count for the whole process, from its start. A layer that cannot be named here registers the names of its label
// values at its start. Loop thread only: transports call the layers above them there (rpc/transport.h), and no other
// thread of the broker counts anything.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "metrics_table.h"

// NOLINTBEGIN(bugprone-macro-parentheses): names of enum members
enum metric {
#define METRIC_ID(id, ...) METRIC_##id,
    METRICS_TABLE(METRIC_ID, METRIC_ID, METRIC_ID, METRIC_ID, METRIC_ID)
#undef METRIC_ID
        METRICS_N
};

enum metric_label {
#define METRIC_LABEL_ID(id, name, values) METRIC_BY_##id,
    METRIC_LABELS(METRIC_LABEL_ID)
#undef METRIC_LABEL_ID
        METRIC_LABELS_N
};

enum {
#define METRIC_LABEL_VALUES(id, name, values) METRIC_VALUES_##id = (values),
    METRIC_LABELS(METRIC_LABEL_VALUES)
#undef METRIC_LABEL_VALUES
        METRIC_BUCKETS = 44 // of a histogram, with the last one
};
// NOLINTEND(bugprone-macro-parentheses)

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

// Of SECONDS the values are nanoseconds, and those who show them divide.
enum metric_unit { METRIC_NUMBER, METRIC_SECONDS, METRIC_BYTES };

// ---- Counting. A value of a label that is not in its set is a bug of the broker and aborts.

// Adds to a counter. At UINT64_MAX it stays there: a smaller value would look like a restart.
void metrics_add(enum metric m, uint64_t n);
// The same for a counter with labels; b is 0 for one with a single label.
void metrics_add_by(enum metric m, uint32_t a, uint32_t b, uint64_t n);

// Changes a gauge; a is 0 for one without a label. metrics_move_by: of one with two labels.
void metrics_move(enum metric m, uint32_t a, int64_t by);
void metrics_move_by(enum metric m, uint32_t a, uint32_t b, int64_t by);
void metrics_set(enum metric m, uint32_t a, int64_t value);

// Adds a time to a histogram.
void metrics_observe(enum metric m, uint32_t a, uint64_t ns);

// ---- Values of labels that belong to no other layer

enum metric_fetch { FETCH_DONE, FETCH_FAILED };
enum metric_dial { DIAL_OPENED, DIAL_FAILED, DIAL_REFUSED };
enum metric_direction { DIRECTION_OUT, DIRECTION_IN };
enum metric_map { MAP_SANDBOXES, MAP_RULES };
enum metric_process { PROCESS_BROKER, PROCESS_SPAWNER, PROCESS_RELAY };

// Names them, at the start.
void metrics_name_own(void);

// The value of a tenant: the first `max` tenants, at most 64, have one of their own; all others share 0. It is never given to
// another tenant.
uint32_t metrics_tenant(const char *name, uint32_t max);

// ---- Names of label values

// Registers the name of a label's value. *Borrowed*, for the rest of the process. NULL or "": the value is not in use.
void metrics_name_value(enum metric_label l, uint32_t value, const char *name);

// ---- Reading

struct metric_row {
    const char *name, *help;
    enum metric_type type;
    enum metric_unit unit;
    enum metric_label label[2];  // METRIC_BY_NONE: none
    const char *part, *sentence; // of a LOSS, for SystemService.Info; else NULL
};
const struct metric_row *metrics_row(enum metric m);

// Name of a label; number of its values; name of a value, NULL: it is not in use.
const char *metrics_label(enum metric_label l);
uint32_t metrics_label_values(enum metric_label l);
const char *metrics_label_value(enum metric_label l, uint32_t value);

// The value of a counter or gauge (of a gauge: as int64_t), and the sum of a counter over all its labels.
uint64_t metrics_value(enum metric m, uint32_t a, uint32_t b);
uint64_t metrics_sum(enum metric m);

// Number of observations, their sum in nanoseconds, and the observations of each bucket (not of those below it too).
struct metric_histogram {
    uint64_t count, sum_ns;
    uint64_t bucket[METRIC_BUCKETS];
};
void metrics_histogram(enum metric m, uint32_t a, struct metric_histogram *out);

// Upper bound of a bucket in nanoseconds; UINT64_MAX: the last one.
uint64_t metrics_bound_ns(uint32_t bucket);

// Sets every value to 0, for tests.
void metrics_clear(void);
