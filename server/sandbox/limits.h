// SPDX-License-Identifier: Apache-2.0
// The limits of a sandbox and its jobs, as one table: name, bounds, default. Each layer may only narrow them.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/spawner/ops.h"

struct Stockade__V1__Limits;
struct quantity_unit;

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

// Values by enum limit. 0 means "not set", and in limits in force "no limit".
struct limits {
    uint64_t v[LIMITS_N];
};

enum limit_unit { LIMIT_UNIT_COUNT, LIMIT_UNIT_BYTES, LIMIT_UNIT_MS, LIMIT_UNIT_CPUS };

// The scope of a limit. A limit of a job may be set for each job (ProcessService.Start). LIMIT_OF_RUN has a default
// only for jobs that a caller waits for; a job that stays (a shell, a server) has no such limit unless it was set.
enum limit_owner { LIMIT_OF_SANDBOX, LIMIT_OF_JOB, LIMIT_OF_RUN };

struct limit_row {
    const char *name;  // name of the field in stockade.v1.Limits
    const char *key;   // name in the configuration
    uint64_t min, max; // bounds in limits.proto
    uint64_t usual;    // default of a request; 0: none
    uint64_t most;     // default of the maximum; 0: any
    enum limit_unit unit;
    enum limit_owner owner;
};
extern const struct limit_row limit_table[LIMITS_N];

// The units of a limit in the configuration, for proto/quantity.h.
const struct quantity_unit *limits_units(int limit);

// The table's columns `usual` and `most`.
void limits_usual(struct limits *out);
void limits_most(struct limits *out);

// The limits of a request: its own values, and `usual` for those that it does not set. INVALID_ARGUMENT
// LIMIT_ABOVE_MAXIMUM: a value is above `most`; INVALID_ARGUMENT: a value is below the table's minimum. `asked` may be
// NULL. The hint depends on `held`: the spawner enforces these maximums of sandboxes until the broker is restarted.
int limits_resolve(const struct limits *usual, const struct limits *most, const struct limits *held,
                   const struct limits *asked, struct limits *out, struct err *e);

// The values that the limits of a job come from.
struct limits_of_box {
    const struct limits *own;   // in force for its sandbox
    const struct limits *asked; // those that the request for the sandbox set
    const struct limits *most;  // of the template
};

// The same for one job in an existing sandbox. INVALID_ARGUMENT: a limit of the sandbox was set. At most the limits of
// the sandbox; for a LIMIT_OF_RUN that was not set for the sandbox, at most the template's maximum, and no limit if the
// job stays and sets none.
int limits_resolve_job(const struct limits_of_box *box, const struct limits *asked, bool stays,
                       struct limits *out, struct err *e);

// Converts from and to the message. `m` NULL: all zero.
void limits_from_message(const struct Stockade__V1__Limits *m, struct limits *out);
void limits_to_message(const struct limits *l, struct Stockade__V1__Limits *out);

// The limits that the kernel enforces for the whole sandbox.
void limits_to_spawn(const struct limits *l, struct spawn_limits *out);

// Number of INET sockets that a sandbox may have at a time, including connections that its listeners accepted: one per
// 512 KiB of memory_bytes, at least 64. A socket owns less than 512 KiB of memory that no cgroup is charged for.
uint32_t limits_sockets(const struct limits *l);
