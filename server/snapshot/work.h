// SPDX-License-Identifier: Apache-2.0
// How files came about: what jobs did in a sandbox, layer by layer, as the broker saw it.
//
//   a job ends         -> `now` of its sandbox
//   a layer is sealed  -> the layer has what was done since the one below it
//   inherited, kept    -> the layers of the other sandbox, and of the record, have the same
//
// So the work of a chain of layers is the work whose files it holds, and what was restored away is not in it. Bounded per sandbox;
// what does not fit is counted. Loop thread only.
#pragma once

#include <stdint.h>

#include "proto/arena.h"
#include "proto/err.h"
#include "work.pb-c.h"

struct stored;

enum { WORK_BYTES_MAX = 32 * 1024, WORK_ARENA_BYTES = 512 * 1024, WORK_VERSION = 1 };

struct work_step {
    char *command;
    int64_t end_ms; // CLOCK_REALTIME
    uint32_t outcome, exit_code;
    char **reached;
    uint32_t reached_n;
    uint64_t connections;
};

// Counted; constant as soon as a layer has it.
struct work {
    uint32_t refs, n;
    struct work_step *step;
    uint64_t omitted;
    size_t bytes;
};

// NULL: out of memory.
struct work *work_new(void);
// Accept NULL.
struct work *work_ref(struct work *w);
void work_unref(struct work *w);

// Another one with the same steps. NULL: out of memory, or w is NULL.
struct work *work_copy(const struct work *w);

// Copies a step, or counts it if it needs more than `most` bytes.
void work_add(struct work *w, const struct work_step *s, size_t most);

// The work of n layers (NULL: none) as a message in the arena. It borrows from them. NULL: out of memory.
Stockade__Work__Work *work_message(struct work *const *of, uint32_t n, struct arena *a);

// The message as bytes for a record, *owned*; what does not fit into `most` bytes is counted. NULL: out of memory.
uint8_t *work_pack(Stockade__Work__Work *m, size_t most, size_t *n);

// The bytes of a record, which may be damaged or of a later version. DATA_LOSS, FAILED_PRECONDITION (NEWER).
int work_unpack(const struct stored *r, struct arena *a, Stockade__Work__Work **out, struct err *e);

// The work of one layer of a message. NULL: there is none, or no memory.
struct work *work_of_layer(const Stockade__Work__Work *m, uint32_t layer);
