// SPDX-License-Identifier: Apache-2.0
// The record of one job (stockade.v1.Record): what was refused, executed and found wrong while it ran, and the figures
// of the kernel at its end. Lists are bounded; what is the same is counted, what does not fit is counted in the totals.
//
//   telemetry.c: record_new --record_denial, record_execution, record_finding, record_lost--> record_message --> result
//                                                                                              record_store.c: inspect
//
// Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../bpf/emit.h"
#include "../bpf/watch.h"
#include "../proto/wire.h"
#include "stockade/v1/record.pb-c.h"

struct anomaly_finding;

enum {
    RECORD_DENIALS =
        64, // as in record.proto; of each list one half are the first, one half the last
    RECORD_EXECUTIONS = 64,
    RECORD_FINDINGS = 32,
    RECORD_CPUS = 1024,
    RECORD_BYTES = 40 * 1024, // packed: a Result has to fit into one DATA frame
    RECORD_NOTES = 32,        // hooks, and reasons for what is missing
};

struct record_denial {
    int64_t time_ns;
    uint32_t pid, rule;
    uint64_t count;
    const char *operation, *protocol, *reason; // constant
    char comm[64];
    char *destination; // owned
    char *hint;        // owned; NULL: none
};

struct record_execution {
    int64_t time_ns;
    uint32_t pid;
    bool unnamed;
    uint64_t count, inode, args_hash;
    char *path; // owned, UTF-8
};

struct record {
    int64_t start_ns; // CLOCK_REALTIME
    struct record_denial *denials;
    struct record_execution *executions;
    struct anomaly_finding *findings;
    uint32_t denials_n, executions_n, findings_n;
    uint64_t denials_total, executions_total, findings_total;
    bool cut;
    uint64_t lost[EVENT_CLASSES];
    uint64_t lost_cpus[EVENT_CLASSES][RECORD_CPUS / 64];
};

// What else a message needs: the kernel's figures, and what watched. All borrowed, also by the message.
struct record_view {
    const Stockade__V1__NetworkUse *network; // NULL: nothing counted
    const struct watch_account *account;     // NULL: nothing counted
    bool syscalls;                           // they were counted
    bool whole;                              // what had to watch did, all the time
    int64_t end_ns;
    const char *const *hooks;
    size_t hooks_n;
    const char *const *missing;
    size_t missing_n;
};

// Owned: record_free(). NULL without memory.
struct record *record_new(int64_t start_ns);
void record_free(struct record *r);

// One denial (operation, protocol and reason constant; time_ns, pid, rule, comm, destination as seen; the destination
// and the hint are copied). Without memory it is counted alone.
void record_denial(struct record *r, const struct record_denial *d);
void record_execution(struct record *r, const struct record_execution *x);
// One that was held back (sequence 0) is counted alone.
void record_finding(struct record *r, const struct anomaly_finding *f);

// n events of a class were lost on a CPU (RECORD_CPUS or above: not known on which).
void record_lost(struct record *r, uint32_t class, uint32_t cpu, uint64_t n);

// At most RECORD_BYTES when packed. NULL: the arena is full.
Stockade__V1__Record *record_message(const struct record *r, const struct record_view *v,
                                     struct arena *a);

// "denial", "alarm", ...; "other".
const char *record_class_name(uint32_t class);

// Replaces what is no UTF-8 or a control byte by U+FFFD; ends at a NUL. Returns out, which has room for 3 * n + 1 bytes
// or is cut before a character.
const char *record_text(const char *bytes, size_t n, char *out, size_t out_n);
