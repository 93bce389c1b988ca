// SPDX-License-Identifier: Apache-2.0
// See metrics.h. All values stand in one array; the compiler knows from the table where those of a metric begin. A counter
// with labels has a cell for each pair of values, a histogram its buckets and its sum for each value.
#include "metrics.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
    HISTOGRAM_CELLS = METRIC_BUCKETS + 1, // the last one is the sum
    TENANT_BYTES = 32                     // of a tenant's name, with its NUL
};

// NOLINTBEGIN(bugprone-macro-parentheses): names of enum members
enum {
#define CELLS(id, n)                       FIRST_##id, LAST_##id = FIRST_##id + (n)-1,
#define CELLS_COUNTER(id, unit, a, b, ...) CELLS(id, METRIC_VALUES_##a *METRIC_VALUES_##b)
#define CELLS_GAUGE(id, unit, a, ...)      CELLS(id, METRIC_VALUES_##a)
#define CELLS_PAIR(id, unit, a, b, ...)    CELLS(id, METRIC_VALUES_##a *METRIC_VALUES_##b)
#define CELLS_TIMES(id, a, ...)            CELLS(id, METRIC_VALUES_##a *HISTOGRAM_CELLS)
#define CELLS_LOSS(id, a, ...)             CELLS(id, METRIC_VALUES_##a)
    METRICS_TABLE(CELLS_COUNTER, CELLS_GAUGE, CELLS_PAIR, CELLS_TIMES, CELLS_LOSS) CELLS_N
};

static const struct {
    struct metric_row row;
    uint32_t first;
} table[METRICS_N] = {
#define ROW_COUNTER(id, unit, a, b, name, help)                                                    \
    [METRIC_##id] = {                                                                              \
        {name, help, METRIC_COUNTER, METRIC_##unit, {METRIC_BY_##a, METRIC_BY_##b}, NULL, NULL},   \
        FIRST_##id},
#define ROW_GAUGE(id, unit, a, name, help)                                                         \
    [METRIC_##id] = {                                                                              \
        {name, help, METRIC_GAUGE, METRIC_##unit, {METRIC_BY_##a, METRIC_BY_NONE}, NULL, NULL},    \
        FIRST_##id},
#define ROW_PAIR(id, unit, a, b, name, help)                                                       \
    [METRIC_##id] = {                                                                              \
        {name, help, METRIC_GAUGE, METRIC_##unit, {METRIC_BY_##a, METRIC_BY_##b}, NULL, NULL},     \
        FIRST_##id},
#define ROW_TIMES(id, a, name, help)                                                               \
    [METRIC_##id] = {{name,                                                                        \
                      help,                                                                        \
                      METRIC_HISTOGRAM,                                                            \
                      METRIC_SECONDS,                                                              \
                      {METRIC_BY_##a, METRIC_BY_NONE},                                             \
                      NULL,                                                                        \
                      NULL},                                                                       \
                     FIRST_##id},
#define ROW_LOSS(id, a, name, help, part, sentence)                                                \
    [METRIC_##id] = {{name,                                                                        \
                      help,                                                                        \
                      METRIC_COUNTER,                                                              \
                      METRIC_NUMBER,                                                               \
                      {METRIC_BY_##a, METRIC_BY_NONE},                                             \
                      part,                                                                        \
                      sentence},                                                                   \
                     FIRST_##id},
    METRICS_TABLE(ROW_COUNTER, ROW_GAUGE, ROW_PAIR, ROW_TIMES, ROW_LOSS)};

// The names of the values of each label.
#define VALUES_OF(id, name, values) static const char *values_of_##id[values];
METRIC_LABELS(VALUES_OF)

static const struct {
    const char *name;
    uint32_t n;
    const char **value;
} labels[METRIC_LABELS_N] = {
#define LABEL_ROW(id, name, values) [METRIC_BY_##id] = {name, values, values_of_##id},
    METRIC_LABELS(LABEL_ROW)};
// NOLINTEND(bugprone-macro-parentheses)

static const uint64_t bounds_ns[] = {METRIC_BOUNDS, UINT64_MAX};
_Static_assert(sizeof bounds_ns / sizeof bounds_ns[0] == METRIC_BUCKETS,
               "one bound for each bucket");

static uint64_t cells[CELLS_N];

// ---- counting

static uint64_t *
cell(enum metric m, uint32_t a, uint32_t b)
{
    const struct metric_row *r = &table[m].row;
    assert(m < METRICS_N && a < labels[r->label[0]].n && b < labels[r->label[1]].n);
    return &cells[table[m].first + a * labels[r->label[1]].n + b];
}

static void
add(uint64_t *to, uint64_t n)
{
    if (__builtin_add_overflow(*to, n, to))
        *to = UINT64_MAX;
}

void
metrics_add(enum metric m, uint64_t n)
{
    add(cell(m, 0, 0), n);
}

void
metrics_add_by(enum metric m, uint32_t a, uint32_t b, uint64_t n)
{
    add(cell(m, a, b), n);
}

void
metrics_move(enum metric m, uint32_t a, int64_t by)
{
    metrics_move_by(m, a, 0, by);
}

void
metrics_move_by(enum metric m, uint32_t a, uint32_t b, int64_t by)
{
    assert(table[m].row.type == METRIC_GAUGE);
    *cell(m, a, b) += (uint64_t)by;
}

void
metrics_set(enum metric m, uint32_t a, int64_t value)
{
    assert(table[m].row.type == METRIC_GAUGE);
    *cell(m, a, 0) = (uint64_t)value;
}

static uint64_t *
histogram(enum metric m, uint32_t a)
{
    const struct metric_row *r = &table[m].row;
    assert(r->type == METRIC_HISTOGRAM && a < labels[r->label[0]].n);
    return &cells[table[m].first + a * HISTOGRAM_CELLS];
}

void
metrics_observe(enum metric m, uint32_t a, uint64_t ns)
{
    uint64_t *of = histogram(m, a);
    uint32_t bucket = 0;
    while (ns > bounds_ns[bucket])
        bucket++;
    add(&of[bucket], 1);
    add(&of[METRIC_BUCKETS], ns);
}

// ---- names

void
metrics_name_value(enum metric_label l, uint32_t value, const char *name)
{
    assert(l < METRIC_LABELS_N && value < labels[l].n);
    labels[l].value[value] = name;
}

const char *
metrics_label(enum metric_label l)
{
    return labels[l].name;
}

uint32_t
metrics_label_values(enum metric_label l)
{
    return labels[l].n;
}

const char *
metrics_label_value(enum metric_label l, uint32_t value)
{
    const char *name = labels[l].value[value];
    if (l == METRIC_BY_NONE)
        return "";
    return name != NULL && name[0] != '\0' ? name : NULL;
}

static const struct {
    enum metric_label label;
    uint32_t value;
    const char *name;
} own_values[] = {
    {METRIC_BY_FETCH, FETCH_DONE, "ok"},
    {METRIC_BY_FETCH, FETCH_FAILED, "failed"},
    {METRIC_BY_DIAL, DIAL_OPENED, "opened"},
    {METRIC_BY_DIAL, DIAL_FAILED, "failed"},
    {METRIC_BY_DIAL, DIAL_REFUSED, "refused"},
    {METRIC_BY_DIRECTION, DIRECTION_OUT, "out"},
    {METRIC_BY_DIRECTION, DIRECTION_IN, "in"},
    {METRIC_BY_MAP, MAP_SANDBOXES, "sandboxes"},
    {METRIC_BY_MAP, MAP_RULES, "rules"},
    {METRIC_BY_PROCESS, PROCESS_BROKER, "broker"},
    {METRIC_BY_PROCESS, PROCESS_SPAWNER, "spawner"},
    {METRIC_BY_PROCESS, PROCESS_RELAY, "relay"},
    {METRIC_BY_TENANT, 0, "other"},
};

void
metrics_name_own(void)
{
    for (size_t i = 0; i < sizeof own_values / sizeof own_values[0]; i++)
        metrics_name_value(own_values[i].label, own_values[i].value, own_values[i].name);
}

uint32_t
metrics_tenant(const char *name, uint32_t max)
{
    static char names[METRIC_VALUES_TENANT][TENANT_BYTES];
    for (uint32_t i = 1; i < METRIC_VALUES_TENANT; i++) {
        if (strncmp(names[i], name, TENANT_BYTES - 1) == 0)
            return i;
        if (names[i][0] != '\0')
            continue;
        if (i > max)
            return 0;
        (void)snprintf(names[i], TENANT_BYTES, "%s", name);
        metrics_name_value(METRIC_BY_TENANT, i, names[i]);
        return i;
    }
    return 0;
}

// ---- reading

const struct metric_row *
metrics_row(enum metric m)
{
    return &table[m].row;
}

uint64_t
metrics_value(enum metric m, uint32_t a, uint32_t b)
{
    assert(table[m].row.type != METRIC_HISTOGRAM);
    return *cell(m, a, b);
}

uint64_t
metrics_sum(enum metric m)
{
    const struct metric_row *r = &table[m].row;
    uint64_t sum = 0;
    for (uint32_t a = 0; a < labels[r->label[0]].n; a++)
        for (uint32_t b = 0; b < labels[r->label[1]].n; b++)
            add(&sum, metrics_value(m, a, b));
    return sum;
}

void
metrics_histogram(enum metric m, uint32_t a, struct metric_histogram *out)
{
    const uint64_t *of = histogram(m, a);
    *out = (struct metric_histogram){.sum_ns = of[METRIC_BUCKETS]};
    for (uint32_t i = 0; i < METRIC_BUCKETS; i++) {
        out->bucket[i] = of[i];
        add(&out->count, of[i]);
    }
}

uint64_t
metrics_bound_ns(uint32_t bucket)
{
    assert(bucket < METRIC_BUCKETS);
    return bounds_ns[bucket];
}

void
metrics_clear(void)
{
    memset(cells, 0, sizeof cells);
}
