// The limits of a sandbox and its jobs, as one table: name, bounds, default. Layers only narrow.
#pragma once

#include <stdint.h>

#include "../proto/err.h"
#include "spawner/ops.h"

struct Stockade__V1__Limits;

// In the order of the fields of stockade.v1.Limits.
enum limit {
    LIMIT_MEMORY_BYTES,
    LIMIT_CPU_MILLIS,
    LIMIT_CPU_WEIGHT,
    LIMIT_CPU_TIME_MS,
    LIMIT_WALL_MS,
    LIMIT_PIDS,
    LIMIT_FILES,
    LIMIT_FILE_SIZE_BYTES,
    LIMIT_DISK_BYTES,
    LIMIT_INODES,
    LIMIT_OUTPUT_BYTES,
    LIMITS_N,
};

// Values by enum limit; 0 stands for "not said", and in limits that are in force for "none".
struct limits {
    uint64_t v[LIMITS_N];
};

enum limit_unit { LIMIT_UNIT_COUNT, LIMIT_UNIT_BYTES, LIMIT_UNIT_MS };

struct limit_row {
    const char *name;  // of the field in stockade.v1.Limits and in the configuration
    uint64_t min, max; // as limits.proto says
    uint64_t usual;    // what a request gets that says nothing; 0: none
    uint64_t most;     // the most that it may ask for, where the configuration says nothing; 0: any
    enum limit_unit unit;
    bool of_job; // may be set for one job (ProcessService.Start)
};
extern const struct limit_row limit_table[LIMITS_N];

// The table's columns `usual` and `most`.
void limits_usual(struct limits *out);
void limits_most(struct limits *out);

// What a request gets: its own values, `usual` where it says nothing. INVALID_ARGUMENT LIMIT_ABOVE_MAXIMUM when one is
// above `most`, INVALID_ARGUMENT when one is below the table's minimum. `asked` may be NULL.
int limits_resolve(const struct limits *usual, const struct limits *most,
                   const struct limits *asked, struct limits *out, struct err *e);

// The same for one job in a sandbox whose limits are `own`: only those marked of_job may be said.
int limits_resolve_job(const struct limits *own, const struct limits *asked, struct limits *out,
                       struct err *e);

// From and to the message. `m` NULL: all zero.
void limits_from_message(const struct Stockade__V1__Limits *m, struct limits *out);
void limits_to_message(const struct limits *l, struct Stockade__V1__Limits *out);

// The part that the kernel keeps for the whole sandbox.
void limits_to_spawn(const struct limits *l, struct spawn_limits *out);
