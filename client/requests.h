// SPDX-License-Identifier: Apache-2.0
// Converts the structs of stockade.h to messages. Messages are allocated from the arena and borrow the caller's
// strings.
#pragma once

#include "proto/arena.h"
#include "proto/err.h"
#include "stockade.h"

struct quantity_unit;
struct Stockade__V1__Command;
struct Stockade__V1__VolumeMount;
struct Stockade__V1__Limits;
struct Stockade__V1__NetworkPolicy;
struct Stockade__V1__SimulatedAnswer;

enum { REQUEST_ARENA_BYTES = 4 * 1024 * 1024 };

// Copies an options struct of an older or newer program; missing members are zero. INVALID_ARGUMENT: `size` is 0, or
// `from` is NULL.
int request_options(void *to, size_t to_n, const void *from, struct err *e);

// INVALID_ARGUMENT: the list is NULL, but n is not 0.
int request_list(const void *list, size_t n, const char *field, struct err *e);

int request_command(struct Stockade__V1__Command **out, struct arena *a,
                    const struct stockade_command *from, struct err *e);

// A value for a field of 32 bits. INVALID_ARGUMENT, LIMIT_ABOVE_MAXIMUM: the field cannot hold it, and so the broker
// could not report it. *out is unchanged then.
int request_u32(uint32_t *out, uint64_t value, const struct quantity_unit *units, const char *field,
                struct err *e);

// *out is NULL when every limit is 0. INVALID_ARGUMENT: see request_u32().
int request_limits(struct Stockade__V1__Limits **out, struct arena *a,
                   const struct stockade_limits *from, struct err *e);

// `policy`, or if that is NULL, only the mode. *out is NULL for the template's policy. INVALID_ARGUMENT: an invalid
// destination or port. (policies.c)
int request_network(struct Stockade__V1__NetworkPolicy **out, struct arena *a,
                    enum stockade_network mode, const struct stockade_policy *policy,
                    struct err *e);

// Volumes to mount: *out is an array of *out_n messages.
int request_mounts(struct Stockade__V1__VolumeMount ***out, size_t *out_n, struct arena *a,
                   const struct stockade_mount *from, size_t n, struct err *e);

// What destinations say in a simulation: as above. (simulations.c)
int request_simulate(struct Stockade__V1__SimulatedAnswer ***out, size_t *out_n, struct arena *a,
                     const struct stockade_simulate *from, struct err *e);

// A map<string, string>: *out is an array of n entries of `type`.
int request_labels(void *out, size_t *out_n, const ProtobufCMessageDescriptor *type,
                   struct arena *a, const struct stockade_pair *from, size_t n, struct err *e);
