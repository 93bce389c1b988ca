// SPDX-License-Identifier: Apache-2.0
// Converts messages to the structs of stockade.h. The structs are allocated from the arena of the message and borrow
// its strings; missing sub-messages read as zero and "".
//
// Each function returns false if the arena is full.
#pragma once

#include <stdbool.h>

#include "proto/arena.h"
#include "invoke.h"
#include "stockade.h"

struct Google__Protobuf__Timestamp;
struct Stockade__V1__InfoResponse;
struct Stockade__V1__NetworkPolicy;
struct Stockade__V1__Process;
struct Stockade__V1__Record;
struct Stockade__V1__Result;
struct Stockade__V1__Sandbox;
struct Stockade__V1__SimulationOutcome;
struct Stockade__V1__TransactionOutcome;

// Milliseconds since 1970; 0 if the time is missing or out of range.
int64_t time_from(const struct Google__Protobuf__Timestamp *from);

// Converts an array of messages with `one`: `items` is a `const struct stockade_X **` of structs of `size` bytes.
bool list_from(void *items, size_t *items_n, size_t size, struct arena *a, ProtobufCMessage **from,
               size_t from_n, invoke_reader *one);

// The same, from one field to another.
#define LIST_FROM(items, items_n, a, from, from_n, one)                                            \
    list_from(&(items), &(items_n), sizeof *(items), a, (ProtobufCMessage **)(from), from_n, one)

bool result_from(struct stockade_result *to, struct arena *a,
                 const struct Stockade__V1__Result *from);
bool sandbox_from(struct stockade_sandbox *to, struct arena *a,
                  const struct Stockade__V1__Sandbox *from);
// (policies.c)
bool policy_from(struct stockade_policy *to, struct arena *a,
                 const struct Stockade__V1__NetworkPolicy *from);
bool process_from(struct stockade_process *to, struct arena *a,
                  const struct Stockade__V1__Process *from);
// (transactions.c)
bool outcome_from(struct stockade_outcome_of_transaction *to, struct arena *a,
                  const struct Stockade__V1__TransactionOutcome *from);
invoke_reader change_from; // of a Change, to a struct stockade_change
// (simulations.c) *out is NULL without a message.
bool simulation_from(const struct stockade_simulation **out, struct arena *a,
                     const struct Stockade__V1__SimulationOutcome *m);
// (records.c)
bool record_from(struct stockade_record *to, struct arena *a,
                 const struct Stockade__V1__Record *from);
// (metrics.c)
invoke_reader metrics_from; // of a MetricsServiceGetResponse, to a struct stockade_metrics
// (anomalies.c)
invoke_reader finding_from; // of a Finding
bool info_from(struct stockade_info *to, struct arena *a,
               const struct Stockade__V1__InfoResponse *from);
