// SPDX-License-Identifier: Apache-2.0
// The record of one job (stockade.v1.Record): refusals, executed programs and findings while it ran, and the kernel's
// counters at its end. Lists are bounded; equal entries are counted once, and entries that do not fit are counted in
// the totals.
//
//   telemetry.c: record_new --record_denial, record_execution, record_finding, record_lost--> record_message --> result
//                                                                                             record_store.c: inspect
//
// Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/emit.h"
#include "bpf/watch.h"
#include "proto/wire.h"
#include "stockade/v1/record.pb-c.h"

struct finding;
struct witness;

enum {
    // as in record.proto; half of each list are the first entries, half the last
    RECORD_DENIALS = 64,
    RECORD_EXECUTIONS = 64,
    RECORD_FINDINGS = 32,
    RECORD_REACHED = 32,
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
    struct finding *findings;
    char *reached[RECORD_REACHED]; // owned: "pypi.org:443"
    uint32_t denials_n, executions_n, findings_n, reached_n;
    uint64_t denials_total, executions_total, findings_total, reached_total;
    bool cut;
    uint64_t lost[EVENT_CLASSES];
    uint64_t lost_cpus[EVENT_CLASSES][RECORD_CPUS / 64];
};

// Further parts of a message: the kernel's counters, and the active hooks. All borrowed, also by the message.
struct record_view {
    const Stockade__V1__NetworkUse *network; // NULL: not counted
    const struct witness *witness;           // of its traffic, at the job's end; NULL: none
    const struct watch_account *account;     // NULL: not counted
    bool syscalls;                           // system calls were counted
    bool whole;                              // all hooks were active all the time
    int64_t end_ns;
    const char *const *hooks;
    size_t hooks_n;
    const char *const *missing;
    size_t missing_n;
};

// Creates a record. Free it with record_free(). NULL: out of memory.
struct record *record_new(int64_t start_ns);
void record_free(struct record *r);

// Adds a denial (operation, protocol and reason are constant; time_ns, pid, rule, comm, destination as observed;
// destination and hint are copied). Only counts it if memory is short.
void record_denial(struct record *r, const struct record_denial *d);
void record_execution(struct record *r, const struct record_execution *x);
// Adds a finding. One that was withheld (sequence 0) is only counted.
void record_finding(struct record *r, const struct finding *f);

// Adds a connection to a destination.
void record_reached(struct record *r, const char *destination);

// Adds n lost events of a class on a CPU (RECORD_CPUS or above: unknown CPU).
void record_lost(struct record *r, uint32_t class, uint32_t cpu, uint64_t n);

// The message, at most RECORD_BYTES when packed. NULL: the arena is full.
Stockade__V1__Record *record_message(const struct record *r, const struct record_view *v,
                                     struct arena *a);

// The name of a class: "denial", "alarm", ...; "other".
const char *record_class_name(uint32_t class);

// Replaces invalid UTF-8 and control bytes by U+FFFD; stops at a NUL. Returns out, which needs 3 * n + 1 bytes; with
// less room the text is truncated between characters.
const char *record_text(const char *bytes, size_t n, char *out, size_t out_n);
