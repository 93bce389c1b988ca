// SPDX-License-Identifier: Apache-2.0
// Passes the reports of the kernel and the relay to the event hub, the record of the job, and the detectors.
//
//   rings of the BPF programs  --drained every 10 ms while a job runs, alerts first--.
//   relay's reports            --relay_link's callback-------------------------------+--> find owner --> events.c
//   sandboxes and jobs         --observers.h----------------------------------------'     slot -> box     record.c
//                                                                                         cgroup -> job   detectors
//
// The owner: a slot with its generation identifies a sandbox (struct telemetry_box), and the inode number of the
// directory of job-N identifies a job. A job is registered here before the guest gets the order to start it, so no
// event arrives before its job. Its directory is read when the first event with an unknown cgroup arrives. The
// kernel's records are checked like any input.
//
// A job's counters are read when all its processes have ended, before anything is removed; the record is complete
// with the job's result. The kernel's account of a job is released after its cgroup was removed.
//
// Every function accepts t == NULL and does nothing then. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/arena.h"
#include "proto/err.h"
#include "activity.h"
#include "server/base/list.h"

struct event;
struct events;
struct finding;
struct job;
struct record_store;
struct relay_report;
struct sandbox;
struct server;
struct telemetry;
struct usage;
struct Stockade__V1__Event;
struct Stockade__V1__Record;

// The configuration's telemetry.syscalls.
enum telemetry_syscalls { SYSCALLS_ON_DEMAND, SYSCALLS_OFF, SYSCALLS_ALWAYS };

struct telemetry_settings {
    uint32_t syscalls; // enum telemetry_syscalls
    char feed[256];    // the address where events are published; "": none
};

enum {
    TELEMETRY_DRAIN_MS = 10,
    TELEMETRY_LOOK_MS = 100, // interval of the counters for detectors
    // the syscall tracepoint stays attached this long after its last use
    TELEMETRY_LINGER_MS = 5000,
};

// Creates it. Free it with telemetry_free() when no job is left. Needs srv->loop, features, bpf, spawn and sandboxes, and
// registers itself with the last. The settings are borrowed. NULL: out of memory.
struct telemetry *telemetry_new(struct server *srv, const struct telemetry_settings *settings);
void telemetry_free(struct telemetry *t);

struct events *telemetry_events(struct telemetry *t);
struct record_store *telemetry_records(struct telemetry *t);

// ---- system calls, counted while they are needed

// FAILED_PRECONDITION if this broker cannot count system calls, or must not.
int telemetry_check_syscalls(const struct telemetry *t, struct err *e);

// Whether a job's system calls must be watched: it requested it, or the detectors need it. Then it is started after
// the tracepoint is attached (telemetry_wait), because otherwise its record could not be complete.
bool telemetry_watches(const struct telemetry *t, bool asked);

// Each telemetry_want needs one telemetry_unwant.
void telemetry_want(struct telemetry *t);
void telemetry_unwant(struct telemetry *t);

// The needs of the detectors may have changed: they count as one user, or none.
void telemetry_want_for_detectors(struct telemetry *t);

// A waiter for the tracepoint.
struct telemetry_waiter {
    struct list node;
    void (*done)(void *cookie);
    void *cookie;
};

// True: it is attached, or never will be. False: `done` is called once, later, when one of both is true;
// telemetry_unwait() cancels it.
bool telemetry_wait(struct telemetry *t, struct telemetry_waiter *w);
void telemetry_unwait(struct telemetry_waiter *w);

// The spawner does not respond: waiters for the tracepoint continue without it. Or it responds again.
void telemetry_spawner(struct telemetry *t, bool hangs);

// ---- detectors

// The functions of the detectors, always called inside a call of ours. They respond from a timer; inside they only raise
// findings (telemetry_finding()). Times are CLOCK_BOOTTIME.
struct telemetry_detectors {
    // Whether the syscall tracepoint is needed while a sandbox has an owner. After a change call
    // telemetry_want_for_detectors().
    bool (*wants_syscalls)(void *cookie);
    // An event of a sandbox with an owner. `body` has event->size bytes; j is NULL if the job is unknown. *m: the same event, as it was
    // published, without labels.
    void (*event)(void *cookie, struct sandbox *s, struct job *j, const struct event *event,
                  const void *body, const struct Stockade__V1__Event *m);
    // An event of a sandbox, with its name and labels, after it was published. Findings are published inside of this call.
    void (*published)(void *cookie, struct sandbox *s, const struct Stockade__V1__Event *m);
    // A report of the relay: RELAY_DENIED to RELAY_FLOW_END.
    void (*report)(void *cookie, struct sandbox *s, struct job *j, const struct relay_report *r);
    // The counters of one running job; then those of its sandbox as a whole. Every TELEMETRY_LOOK_MS for each sandbox that
    // runs a job, and when a job ends.
    void (*job_activity)(void *cookie, struct sandbox *s, struct job *j, const struct activity *a);
    // The account of one running job, at the same times before; it is valid during the call.
    void (*job_counters)(void *cookie, struct sandbox *s, struct job *j,
                         const struct watch_account *account);
    void (*activity)(void *cookie, struct sandbox *s, const struct activity *a, uint64_t now_ns);
    // A job has ended, and all its events and counters were passed: a finding now is still in its record.
    void (*job_settled)(void *cookie, struct sandbox *s, struct job *j);
};

// Registers the detectors, at start; without them nothing is detected. *d is borrowed.
void telemetry_detect(struct telemetry *t, const struct telemetry_detectors *d, void *cookie);

// A finding, including withheld ones: for the record of its job, and as an event. j NULL: it is about the sandbox as a
// whole. All borrowed.
void telemetry_finding(struct telemetry *t, const struct finding *f, struct sandbox *s,
                       struct job *j);

// Out of memory for data of a sandbox or a job: counts it (METRIC_UNWATCHED) and logs it.
void telemetry_unwatched(const char *what);

// ---- for relay_link's callback

void telemetry_relay(struct telemetry *t, const struct relay_report *r);

// ---- queries

// The record of a job so far. It is allocated from the arena, and borrows from the job. NULL: the arena is full.
struct Stockade__V1__Record *telemetry_record(struct telemetry *t, struct job *j, struct arena *a);

struct telemetry_sums {
    struct activity sums;
    uint64_t denials, alerts, lost;
};
void telemetry_sandbox_sums(struct telemetry *t, const struct sandbox *s,
                            struct telemetry_sums *out);

// Its current resource use.
void telemetry_usage(struct telemetry *t, const struct sandbox *s, struct usage *out);

// Every sandbox has gone: the last events are read, and subscriptions end.
void telemetry_end(struct telemetry *t);

// Drains the rings now.
void telemetry_drain(struct telemetry *t);
