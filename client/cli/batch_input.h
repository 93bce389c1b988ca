// SPDX-License-Identifier: Apache-2.0
// The state of `stockade batch`, and its input: lines that become jobs in a queue, where they are until the broker has accepted them.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "batch_line.h"
#include "cli.h"

enum { BATCH_QUEUE_MAX = 256, BATCH_JOB_ARENA_MAX = 4 * 1024 * 1024 };

// A job that was read and not accepted.
struct queued {
    struct arena *arena;
    struct stockade_batch_job job;
    size_t bytes; // of its line
};

struct batch {
    const struct command *c;
    const struct options *o;
    struct stockade *s;
    int in;
    char *line; // bytes that were read and are no whole line
    size_t line_n;
    uint64_t line_number;
    bool eof;
    struct queued queue[BATCH_QUEUE_MAX]; // the first one has the number `front`
    size_t queue_n, queue_bytes;
    uint64_t front;
    struct stockade_batch_state state;
    uint64_t failed, began_ms, shown_ms;
    bool stopped; // jobs were cancelled because the broker stops
    int code;     // EXIT_OK while it goes on
};

// Reports a failure, which ends the batch.
void batch_fail(struct batch *b, const struct stockade_error *e);

// True: there is room for more jobs, and no whole line is left.
bool batch_wants_input(const struct batch *b);

// Reads what is there; may wait.
void batch_read_more(struct batch *b);

// Turns what was read into jobs, as far as there is room.
void batch_split(struct batch *b);

void batch_drop_first(struct batch *b);
// Forgets the jobs that the broker has.
void batch_drop_accepted(struct batch *b);

// A file is checked as a whole, before any of its jobs is executed.
void batch_check_file(struct batch *b);
