// SPDX-License-Identifier: Apache-2.0
// The tripwires of one sandbox: what is counted for each rule, in one block of fixed size.
//
// Pure: time comes as an argument, findings go to a function. So the unit tests drive it with the kernel's structs, and
// nothing else.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "../bpf/emit.h"
#include "anomaly.h"
#include "anomaly_rates.h"
#include "anomaly_rules.h"
#include "list.h"

enum {
    BOX_BUCKETS = 10, // a window moves in tenths
    BOX_DISTINCT = 64,
    BOX_TOLD = 64,
    BOX_PLACES = 32, // destinations whose rhythm is watched
    BOX_ZONES = 16,  // DNS domains
    BOX_NAMES = 32,
    BOX_PORT_BITS = 1024,
    BOX_BEATS_MIN = 8,         // connections until a rhythm is one
    BOX_BEAT_MIN_MS = 200,     // what is faster is work
    BOX_FINDINGS_BURST = 32,   // findings of a job per minute, and the first of each rule
    BOX_NAME_LETTERS_MIN = 12, // of a name's part that may carry data
    BOX_MADE_MAX = 32          // made in one tick, moved in a later one
};

// What was counted in each tenth of a window, up to `at` (tenths since boot).
struct box_window {
    int32_t bucket[BOX_BUCKETS];
    uint64_t at;
};

struct box_place {
    uint64_t hash, last_ns;
    uint32_t intervals;
    float mean, squares; // Welford: of intervals in ms
};

struct box_zone {
    uint64_t hash;
    struct box_window window;
};

// What is counted for a job, and the same for the sandbox as a whole: an attack that is spread over jobs is found, too.
struct box_scope {
    uint64_t quiet_ns[ANOMALY_RULES]; // until then the rule has been reported
    uint64_t minute;                  // of the findings below
    uint32_t findings;                // raised in this minute
    uint32_t raised;                  // in this minute, bit by rule
    uint64_t seen
        [ANOMALY_RULES]; // events that a rule looked at, where a counter says how many there were
    struct box_window window[ANOMALY_RULES];
    struct box_window execs; // beside the window of fork-storm
    uint32_t made;           // files that were made and may yet be moved to their place
    uint32_t tools;          // of the host's that were executed, bit by number (anomaly_tools.c)
    struct anomaly_sums before;
};

// A running job. Owned by the caller, which fills in `now` before each box_tick: sums of this job alone, as far as there
// are any (0: not known per job).
struct box_job {
    struct list node; // in box.jobs
    uint32_t number;  // from 1, of its sandbox
    void *cookie;     // the caller's
    struct anomaly_sums now;
    struct box_scope scope;
};

// What becomes of a finding.
enum box_voice {
    BOX_REPORT, // it is new
    BOX_COUNT, // it is new, but there were BOX_FINDINGS_BURST in this minute: it is counted and answered
    BOX_ANSWER, // it has been reported within the rule's window: it is answered, and nothing else
};

// box->job says in which job; NULL: in the sandbox as a whole, or not known.
typedef void box_raise_fn(void *cookie, enum box_voice voice, enum anomaly_rule rule, double score,
                          const char *text);

struct box {
    const struct anomaly_config *policy; // borrowed
    box_raise_fn *raise;
    void *cookie;
    uint32_t cpu_millis; // its quota
    uint32_t told_n;
    struct {
        uint64_t subject, until_ns;
    } told[BOX_TOLD];    // subjects that were reported, each once within the rule's window
    struct list jobs;    // that run: struct box_job
    struct box_job *job; // whom the call in progress is about; NULL: not known
    struct box_scope whole;
    struct {
        uint64_t hash, at_ns;
        uint32_t job, zero;
    } denied[BOX_DISTINCT];
    struct box_place place[BOX_PLACES];
    struct box_zone zone[BOX_ZONES];
    uint64_t name[BOX_NAMES]; // asked for lately
    uint32_t name_n;
    uint64_t port_bits[BOX_PORT_BITS / 64];
    uint64_t ports, ports_cleared_ns;
    uint64_t tick_ns; // of whole.before; 0: none
    double busy_ms;   // how long it has looked like mining
    struct rates rates;
};

_Static_assert(ANOMALY_RULES <= 32, "a bit each");

// What is known about the executable of an exec event.
enum box_exe {
    BOX_EXE_KNOWN, // or there is nothing to compare with
    BOX_EXE_NEW,   // the template's frozen profile does not know it
};

// `policy` is complete (anomaly_config_inherit).
void box_init(struct box *b, const struct anomaly_config *policy, uint32_t cpu_millis,
              box_raise_fn *raise, void *cookie);

// A job begins: *j is zero but for `number` and `cookie`. And ends: box_job_settled() before, then box_job_end(), which is
// fine for one that is in no box. box_close(): the box goes, its jobs are in none.
void box_job_begin(struct box *b, struct box_job *j);
void box_job_end(struct box_job *j);
void box_close(struct box *b);

// Whom the calls below are about, until the next one says otherwise.
void box_enter(struct box *b, struct box_job *j);

// An event with a body of event->size bytes. One whose size does not suit its kind is left alone.
void box_event(struct box *b, const struct event *event, const void *body, enum box_exe exe);

// A report of the relay.
void box_relay(struct box *b, const struct relay_report *report);

// The job that box_enter() named has ended, and its events have all come: what is missing of them was lost. `all`: no other
// job runs, so this holds for the whole sandbox.
void box_settled(struct box *b, uint64_t now_ns, bool all);

// 100 ms later.
void box_tick(struct box *b, const struct anomaly_sums *sums, uint64_t now_ns);
