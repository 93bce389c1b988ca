// SPDX-License-Identifier: Apache-2.0
// The state of `stockade batch`, and its input: lines that become jobs in a queue, from which the broker accepts them.
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
    Stockade__V1__BatchJob *job;
    size_t bytes;
};

struct output {
    char *bytes;
    size_t n;
};

struct batch {
    const struct command *c;
    const struct options *o;
    struct stockade *s;
    char key[129];
    int in;
    char *line; // bytes that were read and are no whole line
    size_t line_n;
    uint64_t line_number;
    bool eof;
    struct queued queue[BATCH_QUEUE_MAX]; // the first one has the number `front`
    size_t queue_n, queue_bytes;
    uint64_t front;
    uint64_t call; // the stream
    uint32_t window;
    uint64_t accepted, printed, confirmed; // jobs; results
    bool begun, adding, said_last, ended;
    bool last_is_sent;   // the call that adds says that no job follows ...
    uint64_t last_after; // ... these
    bool lost;           // the stream; it is begun again
    bool stopped;        // the broker takes no more jobs, because of `why`
    struct stockade_error why;
    uint64_t lost_ms;
    struct output out[2];
    uint64_t failed, began_ms, shown_ms;
    int code; // EXIT_OK while it goes on
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
