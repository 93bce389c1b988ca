// SPDX-License-Identifier: Apache-2.0
// Anomalies: what telemetry sees of a sandbox, compared with what is plainly wrong and with what is usual for it.
//
//   kernel's events, relay's reports --> tripwires (anomaly_box.c)     named rules: a threshold, a window
//   counters, every 100 ms ----------> rates (anomaly_rates.c)         EWMA and two-sided CUSUM
//   exec events, profile events -----> profiles (anomaly_profiles.c)   per template and executable
//                                          |
//                                       finding --> kept here, given to the listener (the event hub, the job's record)
//                                          +------> response: log, alert, throttle, pause, kill (anomaly_act.c)
//
// Nothing here allocates per event: each sandbox has one block of fixed size, made with its first event. Loop thread
// only. A response is begun from a timer of its own, never inside a call below, so sandboxes and jobs outlive each call.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "../bpf/emit.h"
#include "../bpf/watch.h"
#include "../proto/err.h"
#include "list.h"

struct anomaly;
struct config_template;
struct job;
struct relay_report;
struct sandbox;
struct server;

// Numbers as in stockade.v1.Severity.
enum severity {
    SEVERITY_INFO = 1,
    SEVERITY_NOTICE = 2,
    SEVERITY_WARNING = 3,
    SEVERITY_CRITICAL = 4,
};

enum anomaly_response {
    RESPONSE_LOG = 1, // kept, in the record, and an event
    RESPONSE_ALERT,   // and a warning in the broker's log
    RESPONSE_THROTTLE,
    RESPONSE_PAUSE,
    RESPONSE_KILL,
};

enum { ANOMALY_TEXT_MAX = 256, ANOMALY_LABELS = 512, ANOMALY_TICK_MS = 100 };

struct anomaly_finding {
    uint64_t sequence;  // counts up, from 1; 0: held back, since there were too many in a minute
    uint64_t of_tenant; // counts up over those of its tenant, from 1
    uint64_t time_ns;   // CLOCK_REALTIME
    uint64_t event_ns;  // CLOCK_BOOTTIME of the event that raised it; 0: a tick did
    const char *rule;   // constant, such as "denied-fan-out"
    enum severity severity;
    enum anomaly_response response;
    double score, threshold;
    char text[ANOMALY_TEXT_MAX]; // one sentence, UTF-8, no control bytes
    char sandbox_id[33];
    char process_id[33]; // "": the sandbox as a whole
    char template[64];
    char tenant[32];
    char sandbox_name[65];
    uint32_t pid;                // of the host; 0: no process is known
    char comm[64];               // UTF-8
    char labels[ANOMALY_LABELS]; // "KEY\0VALUE\0", as many as fit
    uint32_t labels_n;
};

// What is known of a sandbox at one moment: sums over all its jobs, those that have ended included, so that each figure
// only goes up while the sandbox lives. What is not known stays 0.
struct anomaly_sums {
    uint64_t forks, execs, exits, signals;
    uint64_t rewrites, links;
    uint64_t opens_write, opens_sensitive, looks_sensitive, unlinks, renames;
    uint64_t opens_exclusive; // files made to be written, which no other call had made
    uint64_t syscalls, errors[WATCH_ERRORS];
    uint64_t connects_allowed, connects_denied;
    uint64_t out_bytes, out_packets, in_bytes, in_packets; // net_counters
    uint64_t queries;                                      // of DNS
    uint64_t cpu_ns, output_bytes;
    uint64_t memfd_execs, io_urings, ooms, dangerous, socket_execs, new_execs;
};

// Owned: anomaly_free(). Reads srv->config, and srv->bpf where it has profiles. NULL without memory. Profiles of an
// earlier run are loaded from the state directory; what cannot be read is told in the log and left out.
struct anomaly *anomaly_new(struct server *srv);
void anomaly_free(struct anomaly *a);

// Every finding is given to `fn`, inside the call that raised it, and so are those that are held back, for the counts; f,
// s and j are borrowed. j is NULL when it is about the sandbox as a whole, in which several jobs run. One listener.
void anomaly_listen(struct anomaly *a,
                    void (*fn)(void *cookie, const struct anomaly_finding *f, struct sandbox *s,
                               struct job *j),
                    void *cookie);

// The enum watch_flag bits that a sandbox of this template needs in its map entry (bpf/sandbox.h), and whether any
// template wants the syscall tracepoint attached (SPAWN_WATCH) as soon as it has a sandbox. Both change while it runs.
uint32_t anomaly_watch(const struct anomaly *a, const struct config_template *t);
bool anomaly_wants_syscalls(const struct anomaly *a);

// An event of a sandbox that belongs to somebody. `body` has event->size bytes; j is NULL when the job is not known.
void anomaly_event(struct anomaly *a, struct sandbox *s, struct job *j, const struct event *event,
                   const void *body);

// A report of the relay about it: RELAY_DENIED, RELAY_LOOKUP, RELAY_FLOW; others are ignored.
void anomaly_relay(struct anomaly *a, struct sandbox *s, struct job *j,
                   const struct relay_report *report);

// What is known of a running job alone, before anomaly_tick() of its sandbox.
void anomaly_job_sums(struct anomaly *a, struct sandbox *s, struct job *j,
                      const struct anomaly_sums *sums);

// Every ANOMALY_TICK_MS, for each sandbox that runs a job, and when a job ends. now_ns: CLOCK_BOOTTIME.
void anomaly_tick(struct anomaly *a, struct sandbox *s, const struct anomaly_sums *sums,
                  uint64_t now_ns);

// A job has ended: it counts as one run of its template. Before the job is freed.
void anomaly_job_end(struct anomaly *a, struct sandbox *s, struct job *j);

// Nothing more is known of this sandbox: its block is freed.
void anomaly_sandbox_end(struct anomaly *a, struct sandbox *s);

// ---- for server/api/anomaly.c

struct anomaly_config;
struct profiles;

// The last finding's sequence; 0: none yet. The first one that is kept behind a sequence number; NULL: there is none. And
// how many of a tenant (NULL: of all) behind it are no longer kept, at most.
enum { ANOMALY_FINDINGS = 2048 };
uint64_t anomaly_last(const struct anomaly *a);
const struct anomaly_finding *anomaly_next(const struct anomaly *a, uint64_t after);
uint64_t anomaly_forgotten(const struct anomaly *a, const char *tenant, uint64_t after);

// Somebody who waits for the next finding of any sandbox. Embedded; told once, from a timer, or taken back.
struct anomaly_waiter {
    struct list node;
    void (*done)(void *cookie);
    void *cookie;
};
void anomaly_wait(struct anomaly *a, struct anomaly_waiter *w);
void anomaly_unwait(struct anomaly_waiter *w);
// All of them are told, since the broker begins to stop.
void anomaly_drain_begun(struct anomaly *a);

// The rules in force for a template, by its number in the configuration.
const struct anomaly_config *anomaly_policy(const struct anomaly *a, uint32_t template);

// Another state of a template's profiles: its live sandboxes are looked at anew (anomaly_watch), and whether system calls
// are wanted.
void anomaly_changed(struct anomaly *a, uint32_t template);

// The same for one that was ready before it became somebody's.
void anomaly_sandbox_taken(struct anomaly *a, struct sandbox *s);

// The profiles. anomaly_save() after a change: writes them to the state directory, or says why not.
struct profiles *anomaly_profiles(struct anomaly *a);
int anomaly_save(struct anomaly *a, uint32_t template, struct err *e);
