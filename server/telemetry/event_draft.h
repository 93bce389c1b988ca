// SPDX-License-Identifier: Apache-2.0
// Shared by read.c (validates a record or report, and finds its sandbox) and kinds.c (its meaning).
#pragma once

#include "server/relay/relay.h"
#include "private.h"

enum { TEXT = 3 * WATCH_PATH + 1, DESTINATION = 321 };

// An event in progress: the message and everything that it points to.
struct event_draft {
    struct telemetry_box *box;
    struct job *job;         // NULL: none, or unknown
    struct job_watch *watch; // of it; NULL: not watched
    int64_t time_ns;         // CLOCK_REALTIME
    Stockade__V1__Event m;
    Google__Protobuf__Timestamp time;
    union {
        Stockade__V1__Execution execution;
        Stockade__V1__ProcessExit exit;
        Stockade__V1__FileOpen file;
        Stockade__V1__SignalSent signal;
        Stockade__V1__SystemCall call;
        Stockade__V1__Denial denial;
        Stockade__V1__Flow flow;
        Stockade__V1__ProfileScore score;
        Stockade__V1__RemoteTerminal terminal;
        Stockade__V1__Finding finding;
    } d;
    char comm[64], text[TEXT], more[TEXT], cwd[3 * WATCH_CWD + 1], args[4 * WATCH_ARGV + 1],
        destination[DESTINATION], hash[17], hint[256];
    const char *calls[3];
};

struct telemetry_kind {
    uint32_t size; // of the body
    Stockade__V1__EventKind kind;
    Stockade__V1__Severity severity;
    // Adds the detail to `o`, which has its owner, kind and severity, and passes it to the job's record.
    void (*fill)(struct event_draft *o, const void *body);
};

// The row of an enum event_kind (bpf/emit.h). NULL: unknown.
const struct telemetry_kind *telemetry_kind(uint32_t kind);

// The same for a report of the relay: RELAY_DENIED to RELAY_FLOW_END. `o` has its owner; this also sets kind and
// severity.
void telemetry_fill_relay(struct event_draft *o, const struct relay_report *r);

// arguments.c
// Appends one argument. Returns the new end; `room` is reserved for the quotes and the NUL.
size_t telemetry_add_argument(char *out, size_t at, size_t out_n, const char *arg);
// An argument is /proc/self/fd/N or /dev/fd/N, and N is a file without a name, which ld.so or an interpreter will
// run.
bool telemetry_names_nameless(const struct watch_exec *e);
