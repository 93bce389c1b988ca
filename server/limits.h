// SPDX-License-Identifier: Apache-2.0
// The limits of a sandbox and its jobs, as one table: name, bounds, default. Layers only narrow.
#pragma once

#include <stdbool.h>
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

enum limit_unit { LIMIT_UNIT_COUNT, LIMIT_UNIT_BYTES, LIMIT_UNIT_MS, LIMIT_UNIT_CPUS };

// Whose it is. One of a job may be set for each (ProcessService.Start). What is LIMIT_OF_RUN has a default for jobs that
// are waited for; a job that stays (a shell, a server) has none unless one was asked for.
enum limit_owner { LIMIT_OF_SANDBOX, LIMIT_OF_JOB, LIMIT_OF_RUN };

struct limit_row {
    const char *name;  // of the field in stockade.v1.Limits
    const char *key;   // in the configuration
    uint64_t min, max; // as limits.proto says
    uint64_t usual;    // what a request gets that says nothing; 0: none
    uint64_t most;     // the most that it may ask for, where the configuration says nothing; 0: any
    enum limit_unit unit;
    enum limit_owner owner;
};
extern const struct limit_row limit_table[LIMITS_N];

// The table's columns `usual` and `most`.
void limits_usual(struct limits *out);
void limits_most(struct limits *out);

// What a request gets: its own values, `usual` where it says nothing. INVALID_ARGUMENT LIMIT_ABOVE_MAXIMUM when one is
// above `most`, INVALID_ARGUMENT when one is below the table's minimum. `asked` may be NULL.
int limits_resolve(const struct limits *usual, const struct limits *most,
                   const struct limits *asked, struct limits *out, struct err *e);

// What a job's limits are taken from.
struct limits_of_box {
    const struct limits *own;   // in force for its sandbox
    const struct limits *asked; // of those, what the sandbox was asked for with
    const struct limits *most;  // of the template
};

// The same for one job in a sandbox that is there: INVALID_ARGUMENT for a limit of the sandbox. It may have as much as
// the sandbox has; of a limit that is LIMIT_OF_RUN, which nobody asked for, as much as the template lets, and none where
// it stays and asks for none itself.
int limits_resolve_job(const struct limits_of_box *box, const struct limits *asked, bool stays,
                       struct limits *out, struct err *e);

// From and to the message. `m` NULL: all zero.
void limits_from_message(const struct Stockade__V1__Limits *m, struct limits *out);
void limits_to_message(const struct limits *l, struct Stockade__V1__Limits *out);

// The part that the kernel keeps for the whole sandbox.
void limits_to_spawn(const struct limits *l, struct spawn_limits *out);

// INET sockets that a sandbox may have at a time, connections that its listeners took included: one per 512 KiB of
// memory_bytes, 64 at least. What a socket owns and the kernel charges to nobody is less than that.
uint32_t limits_sockets(const struct limits *l);
