// SPDX-License-Identifier: Apache-2.0
// See limits.h.
#include "limits.h"

#include <stdio.h>

#include "proto/quantity.h"
#include "stockade/v1/limits.pb-c.h"

#define KIB     ((uint64_t)1024)
#define MIB     (1024 * KIB)
#define GIB     (1024 * MIB)
#define TIB     (1024 * GIB)
#define YEAR_MS UINT64_C(31536000000)
#define DAY_MS  UINT64_C(86400000)

const struct limit_row limit_table[LIMITS_N] = {
    [LIMIT_MEMORY_BYTES] = {"memory_bytes", "memory", 4 * MIB, TIB, 512 * MIB, 4 * GIB,
                            LIMIT_UNIT_BYTES, LIMIT_OF_SANDBOX},
    [LIMIT_CPU_MILLIS] = {"cpu_millis", "cpus", 10, 1024000, 1000, 64000, LIMIT_UNIT_CPUS,
                          LIMIT_OF_SANDBOX},
    [LIMIT_CPU_WEIGHT] = {"cpu_weight", "cpu_weight", 1, 10000, 100, 1000, LIMIT_UNIT_COUNT,
                          LIMIT_OF_SANDBOX},
    [LIMIT_CPU_TIME_MS] = {"cpu_time_ms", "cpu_time", 1, YEAR_MS, 60000, DAY_MS, LIMIT_UNIT_MS,
                           LIMIT_OF_RUN},
    [LIMIT_WALL_MS] = {"wall_ms", "timeout", 1, YEAR_MS, 60000, DAY_MS, LIMIT_UNIT_MS,
                       LIMIT_OF_RUN},
    [LIMIT_PIDS] = {"pids", "pids", 1, 4194304, 128, 4096, LIMIT_UNIT_COUNT, LIMIT_OF_SANDBOX},
    [LIMIT_FILES] = {"files", "files", 8, 1048576, 1024, 65536, LIMIT_UNIT_COUNT, LIMIT_OF_JOB},
    [LIMIT_FILE_SIZE_BYTES] = {"file_size_bytes", "file_size", 1, TIB, 256 * MIB, 4 * GIB,
                               LIMIT_UNIT_BYTES, LIMIT_OF_JOB},
    [LIMIT_DISK_BYTES] = {"disk_bytes", "disk", 64 * KIB, TIB, 256 * MIB, 4 * GIB, LIMIT_UNIT_BYTES,
                          LIMIT_OF_SANDBOX},
    [LIMIT_INODES] = {"inodes", "inodes", 64, 100000000, 16384, 1000000, LIMIT_UNIT_COUNT,
                      LIMIT_OF_SANDBOX},
    [LIMIT_OUTPUT_BYTES] = {"output_bytes", "output", 1, TIB, 0, 0, LIMIT_UNIT_BYTES, LIMIT_OF_RUN},
};

const struct quantity_unit *
limits_units(int limit)
{
    static const struct quantity_unit *const units[] = {
        [LIMIT_UNIT_COUNT] = quantity_count,
        [LIMIT_UNIT_BYTES] = quantity_bytes,
        [LIMIT_UNIT_MS] = quantity_time_ms,
        [LIMIT_UNIT_CPUS] = quantity_cpu_millis,
    };
    return units[limit_table[limit].unit];
}

void
limits_usual(struct limits *out)
{
    for (int i = 0; i < LIMITS_N; i++)
        out->v[i] = limit_table[i].usual;
}

void
limits_most(struct limits *out)
{
    for (int i = 0; i < LIMITS_N; i++)
        out->v[i] = limit_table[i].most;
}

#define RAISE "request less, or raise limits_max in the broker's configuration and "

// A job has the limits of its sandbox.
static const char of_job[] = "request less, or create the sandbox with more";

// How to raise a limit that comes from the configuration.
static const char *
raise_it(int i, uint64_t value, const struct limits *held)
{
    bool enforced = limit_table[i].owner == LIMIT_OF_SANDBOX && held->v[i] != 0;
    return enforced && value > held->v[i] ? RAISE "restart the broker" : RAISE "reload it";
}

static int
check_one(int i, uint64_t value, uint64_t most, const char *hint, struct err *e)
{
    char a[QUANTITY_TEXT], b[QUANTITY_TEXT];
    const struct limit_row *row = &limit_table[i];
    char field[64];
    (void)snprintf(field, sizeof field, "limits.%s", row->name);
    if (value < row->min)
        return err_field(e, field, "%s is below the minimum of %s",
                         quantity_write(value, limits_units(i), a),
                         quantity_write(row->min, limits_units(i), b));
    if (value <= most || most == 0)
        return 0;
    int r = err_field(e, field, "%s requested, at most %s allowed",
                      quantity_write(value, limits_units(i), a),
                      quantity_write(most, limits_units(i), b));
    char rule[80], allowed[96];
    (void)snprintf(rule, sizeof rule, "%s.%s", hint == of_job ? "limits" : "limits_max", row->key);
    (void)snprintf(allowed, sizeof allowed, "%s up to %s", row->key, b);
    err_detail(e, "LIMIT_ABOVE_MAXIMUM", NULL, hint);
    err_rule(e, rule, allowed);
    return r;
}

// The hint for a value above the maximum is `hint`, or if that is NULL, it depends on `held`.
static int
resolve(const struct limits *usual, const struct limits *most, const struct limits *asked,
        const char *hint, const struct limits *held, struct limits *out, struct err *e)
{
    struct limits result = *usual;
    for (int i = 0; i < LIMITS_N; i++) {
        if (asked == NULL || asked->v[i] == 0)
            continue;
        result.v[i] = asked->v[i];
        int r = check_one(i, asked->v[i], most->v[i],
                          hint != NULL ? hint : raise_it(i, asked->v[i], held), e);
        if (r < 0)
            return r;
    }
    *out = result;
    return 0;
}

int
limits_resolve(const struct limits *usual, const struct limits *most, const struct limits *held,
               const struct limits *asked, struct limits *out, struct err *e)
{
    return resolve(usual, most, asked, NULL, held, out, e);
}

int
limits_resolve_job(const struct limits_of_box *box, const struct limits *asked, bool stays,
                   struct limits *out, struct err *e)
{
    struct limits usual = *box->own, most = *box->own;
    for (int i = 0; i < LIMITS_N; i++) {
        const struct limit_row *row = &limit_table[i];
        if (asked->v[i] != 0 && row->owner == LIMIT_OF_SANDBOX) {
            char field[64];
            (void)snprintf(field, sizeof field, "limits.%s", row->name);
            return err_field(e, field,
                             "applies to the whole sandbox and cannot be set for one process");
        }
        if (row->owner != LIMIT_OF_RUN || box->asked->v[i] != 0)
            continue;
        most.v[i] = box->most->v[i];
        if (stays)
            usual.v[i] = 0;
    }
    return resolve(&usual, &most, asked, of_job, NULL, out, e);
}

void
limits_from_message(const struct Stockade__V1__Limits *m, struct limits *out)
{
    *out = (struct limits){0};
    if (m == NULL)
        return;
    *out = (struct limits){{
        [LIMIT_MEMORY_BYTES] = m->memory_bytes,
        [LIMIT_CPU_MILLIS] = m->cpu_millis,
        [LIMIT_CPU_WEIGHT] = m->cpu_weight,
        [LIMIT_CPU_TIME_MS] = m->cpu_time_ms,
        [LIMIT_WALL_MS] = m->wall_ms,
        [LIMIT_PIDS] = m->pids,
        [LIMIT_FILES] = m->files,
        [LIMIT_FILE_SIZE_BYTES] = m->file_size_bytes,
        [LIMIT_DISK_BYTES] = m->disk_bytes,
        [LIMIT_INODES] = m->inodes,
        [LIMIT_OUTPUT_BYTES] = m->output_bytes,
    }};
}

void
limits_to_message(const struct limits *l, struct Stockade__V1__Limits *out)
{
    out->memory_bytes = l->v[LIMIT_MEMORY_BYTES];
    out->cpu_millis = (uint32_t)l->v[LIMIT_CPU_MILLIS];
    out->cpu_weight = (uint32_t)l->v[LIMIT_CPU_WEIGHT];
    out->cpu_time_ms = l->v[LIMIT_CPU_TIME_MS];
    out->wall_ms = l->v[LIMIT_WALL_MS];
    out->pids = (uint32_t)l->v[LIMIT_PIDS];
    out->files = (uint32_t)l->v[LIMIT_FILES];
    out->file_size_bytes = l->v[LIMIT_FILE_SIZE_BYTES];
    out->disk_bytes = l->v[LIMIT_DISK_BYTES];
    out->inodes = (uint32_t)l->v[LIMIT_INODES];
    out->output_bytes = l->v[LIMIT_OUTPUT_BYTES];
}

void
limits_to_spawn(const struct limits *l, struct spawn_limits *out)
{
    *out = (struct spawn_limits){
        .memory_bytes = l->v[LIMIT_MEMORY_BYTES],
        .disk_bytes = l->v[LIMIT_DISK_BYTES],
        .inodes = (uint32_t)l->v[LIMIT_INODES],
        .cpu_millis = (uint32_t)l->v[LIMIT_CPU_MILLIS],
        .cpu_weight = (uint32_t)l->v[LIMIT_CPU_WEIGHT],
        .pids = (uint32_t)l->v[LIMIT_PIDS],
    };
}

uint32_t
limits_sockets(const struct limits *l)
{
    enum { LEAST = 64, MOST = 1 << 20 };
    uint64_t n = l->v[LIMIT_MEMORY_BYTES] / (512 * KIB);
    return n < LEAST ? LEAST : n > MOST ? MOST : (uint32_t)n;
}
