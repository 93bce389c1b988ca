// SPDX-License-Identifier: Apache-2.0
// The trace and the span of a job. With a traceparent of its caller the job is in the caller's trace; otherwise the trace id is
// the id of the job without the name of its node. Ids of spans are made of the id of the job, so an event that is sent twice is
// the same span twice.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/stockade.h"

enum { TRACE_ID = 16, SPAN_ID = 8, TRACE_JOBS = 4096, TRACE_JOB_TEXT = 49 };

struct trace {
    uint8_t trace_id[TRACE_ID];
    uint8_t span_id[SPAN_ID]; // of the job
    uint8_t parent_id[SPAN_ID];
    bool has_parent;
    bool recorded; // the caller records its trace, or there is none
};

// The trace of JOB_STARTED and JOB_ENDED. False: the event names no job, or its id has another form.
bool trace_of_job(const struct stockade_event *event, struct trace *out);

// The id of the n-th span below the job's; 0: the job's itself.
void trace_child(const struct trace *t, unsigned n, uint8_t out[SPAN_ID]);

// Two digits a byte, and a NUL.
void trace_hex(const uint8_t *bytes, size_t n, char *out);

// The jobs that have started lately, for events of theirs. Zeroed before first use.
struct traces {
    struct {
        char job[TRACE_JOB_TEXT];
        struct trace trace;
    } job[TRACE_JOBS];
};

// The trace of any event of a job. False: none, or its job started too long ago.
bool trace_find(struct traces *all, const struct stockade_event *event, struct trace *out);
