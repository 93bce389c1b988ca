// SPDX-License-Identifier: Apache-2.0
// The tripwires of one sandbox: the counts of each rule, in one block of fixed size.
//
// Pure: time is an argument, findings go to a function. The unit tests call it with the kernel's structs.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bpf/emit.h"
#include "rates.h"
#include "rules.h"
#include "server/base/list.h"
#include "server/telemetry/activity.h"

struct detect;
struct detect_event;
struct relay_report;

enum {
    BOX_BUCKETS = 10, // steps of a window
    BOX_DISTINCT = 64,
    BOX_DISTINCT_FEW = 4,
    BOX_DISTINCT_SOME = 8,
    BOX_DISTINCT_NAME = 20, // with its NUL
    BOX_REPORTED = 64,
    BOX_DESTINATIONS = 32, // destinations whose connection intervals are kept
    BOX_ZONES = 16,        // DNS domains
    BOX_NAMES = 32,
    BOX_PORT_BITS = 1024,
    BOX_FINDINGS_BURST = 32, // findings of a job per minute, and the first of each rule
    BOX_SEEN = 10,           // rules that have both
    BOX_LOOKS = 6,           // kinds of commands of reconnaissance
    BOX_KNOWN = 32,
    BOX_OWN = 24,
    BOX_MADE_MAX = 32 // files created in one tick and moved in a later one
};

// Counts in each tenth of a window, up to `at` (tenths since boot).
struct box_window {
    int32_t bucket[BOX_BUCKETS];
    uint64_t at;
};

struct box_destination {
    uint64_t hash, last_ns;
    uint32_t intervals;
    float mean, squares; // Welford: of intervals in ms
};

struct box_zone {
    uint64_t hash;
    struct box_window window;
};

// The counts of a job, and of the sandbox as a whole, which find an attack that is spread over jobs.
struct box_scope {
    uint64_t quiet_ns[ANOMALY_RULES]; // end of the time in which the rule is not reported again
    uint64_t minute;                  // of the fields below
    uint32_t findings;                // raised in this minute
    uint64_t raised;                  // in this minute, bit by rule
    uint64_t seen[BOX_SEEN]; // events seen by a rule that also has a counter (box_seen_at())
    struct box_window window[RULES_WITH_WINDOWS];
    struct box_window execs;     // besides the window of fork-storm
    struct box_window rewritten; // besides the window of mass-encrypt
    uint32_t made;               // created files that may still be renamed to their final names
    uint32_t tools;              // programs of the host that were executed, bit by number (tools.c)
    struct activity before;
};

// A running job. Owned by the caller, which fills in `now` before each box_tick: totals of this job alone, if they
// exist (0: unknown per job).
struct box_job {
    struct list node; // in box.jobs
    uint32_t number;  // from 1, of its sandbox
    void *cookie;     // the caller's
    struct activity now;
    struct box_scope scope;
};

// How a finding is handled.
enum box_voice {
    BOX_REPORT, // new
    BOX_COUNT, // new, but beyond BOX_FINDINGS_BURST in this minute: counted, and the response is carried out
    BOX_ANSWER, // reported within the rule's window: only the response is carried out
};

// box->job is its job; NULL: the sandbox as a whole, or unknown.
typedef void box_raise_fn(void *cookie, enum box_voice voice, enum anomaly_rule rule, double score,
                          const char *text);

// A value of a rule that counts different ones, with the beginning of its text for the finding.
struct box_named {
    uint64_t hash, at_ns;
    uint32_t job;
    char name[BOX_DISTINCT_NAME];
};

// What is known of programs that ran, and the values of rules that are about several things together.
struct box_evidence {
    struct box_named denied[BOX_DISTINCT];
    struct box_named metadata[BOX_DISTINCT_FEW], by_shell[BOX_DISTINCT_FEW],
        calls[BOX_DISTINCT_SOME], credentials[BOX_DISTINCT_SOME], startup[BOX_DISTINCT_FEW],
        preloaded[BOX_DISTINCT_FEW], stolen[BOX_DISTINCT_FEW], together[BOX_DISTINCT_SOME];
    struct {
        uint32_t pid; // 0: unused
        uint32_t is;
    } known[BOX_KNOWN]; // processes that run programs of the host with a purpose (known.c)
    uint32_t own_program[BOX_KNOWN]; // processes that run a file of the sandbox
    uint32_t known_n, own_program_n;
};

struct box {
    const struct anomaly_config *policy; // borrowed
    struct detect *rules; // the conditions; borrowed until the end of the call. NULL: none
    box_raise_fn *raise;
    void *cookie;
    uint32_t cpu_millis; // its quota
    uint32_t reported_n;
    struct {
        uint64_t subject, until_ns;
    } reported[BOX_REPORTED]; // reported subjects, each once within the rule's window
    struct list jobs;         // running jobs: struct box_job
    struct box_job *job;      // job of the current call; NULL: unknown
    bool ours;                // the current call is about a program of ours
    struct box_scope whole;
    struct box_evidence *evidence; // borrowed
    struct box_destination destination[BOX_DESTINATIONS];
    struct box_zone zone[BOX_ZONES];
    uint64_t name[BOX_NAMES]; // queried recently
    uint32_t name_n;
    uint64_t port_bits[BOX_PORT_BITS / 64];
    uint64_t ports, ports_cleared_ns;
    uint64_t tick_ns;              // of whole.before; 0: none
    double busy_ms;                // time for which it looked like mining
    uint64_t looked_ns[BOX_LOOKS]; // the last look of each kind (looks.c); 0: none
    struct {
        uint64_t file;
        uint32_t path; // a hash
        uint32_t job;  // 0: unused
    } own[BOX_OWN];    // credentials that a job made (own.c)
    uint32_t own_n;
    struct rates rates;
};

_Static_assert(ANOMALY_RULES <= 64, "a bit each");

// Facts about the executable of an exec event.
enum box_exe {
    BOX_EXE_KNOWN, // or there is nothing to compare with
    BOX_EXE_NEW,   // it is not in the template's frozen profile
};

// `policy` is complete (anomaly_config_inherit). `evidence` is cleared; it must live as long as the box.
void box_init(struct box *b, struct box_evidence *evidence, const struct anomaly_config *policy,
              uint32_t cpu_millis, box_raise_fn *raise, void *cookie);

// A job starts: *j is zero except `number` and `cookie`. A job ends: box_job_settled() first, then box_job_end(), which
// does nothing for a job in no box. box_close(): frees the box; its jobs are in none.
void box_job_begin(struct box *b, struct box_job *j);
void box_job_end(struct box_job *j);
void box_close(struct box *b);

// The job and the conditions of the following calls, until the next box_enter().
void box_enter(struct box *b, struct box_job *j, struct detect *rules);

// Handles an event with a body of event->size bytes. Ignores one with a wrong size for its kind. *ev: the same event as the conditions
// see it, without what only the box knows, which is added. NULL: no condition is about it.
void box_event(struct box *b, const struct event *event, const void *body, enum box_exe exe,
               struct detect_event *ev);

// Handles a finding about the sandbox, or the job of box_enter(), as evidence: rules may be about several of them together. *ev: the event
// that it is.
void box_finding(struct box *b, const struct detect_event *ev);

// Handles a report of the relay.
void box_relay(struct box *b, const struct relay_report *report);

// The job of box_enter() has ended, and all its events have arrived: missing ones were lost. `all`: no other job runs,
// so this is true for the whole sandbox.
void box_settled(struct box *b, uint64_t now_ns, bool all);

// The witnesses of the traffic contradict each other (network/witness.h).
void box_witnesses(struct box *b, uint64_t now_ns, const char *why);

// The sandbox may hold most of the kernel's lists of names, and has so many jobs.
struct sandbox_lists;
void box_lists(struct box *b, uint64_t now_ns, const struct sandbox_lists *what, uint32_t jobs);

// Called every 100 ms.
void box_tick(struct box *b, const struct activity *sums, uint64_t now_ns);
