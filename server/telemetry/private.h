// SPDX-License-Identifier: Apache-2.0
// Shared by telemetry.c (sandboxes, timers), jobs.c (jobs), read.c (events), figures.c (counters, records) and want.c
// (the syscall tracepoint).
#pragma once

#include <sys/types.h>

#include "server/sandbox/bpf.h"
#include "events.h"
#include "finding.h"
#include "server/sandbox/job.h"
#include "server/sandbox/observers.h"
#include "record.h"
#include "record_store.h"
#include "server/sandbox/sandbox.h"
#include "server/base/server.h"
#include "telemetry.h"
#include "server/sandbox/usage.h"

struct ring_buffer;

#define KIND(name)   STOCKADE__V1__EVENT_KIND__EVENT_KIND_##name
#define GRAVE(name)  STOCKADE__V1__SEVERITY__SEVERITY_##name
#define DETAIL(name) STOCKADE__V1__EVENT__DETAIL_##name

enum { RECORD_ARENA_BYTES = 512 * 1024 };

// The cgroup of an ended job: its account is released when the cgroup was removed.
struct ended {
    struct list node;
    uint64_t cgroup;
    uint32_t job;
};

// Data about a sandbox, by its slot. struct box_name: the name that a synthetic address of a sandbox stands for.
struct box_name {
    uint32_t index;
    char text[RELAY_NAME_MAX + 3];
};
enum { KNOWN_NAMES = 64 }; // number of recent names that are kept

struct telemetry_box {
    struct sandbox *sandbox;
    bool owned;            // it has an owner
    uint64_t taken_ns;     // the time when it got its owner, by the clock of events; 0: never
    uint64_t cgroup;       // its own
    uint64_t guest_cgroup; // the guest's
    uint64_t stray_cgroup; // that belongs to no job
    uint64_t *lost;        // owned: by class and CPU, as last read
    uint64_t lost_total, relay_lost;
    uint64_t denials, alerts, queries;
    struct net_counters net; // when it was made
    struct activity ended;
    struct list ended_jobs;
    struct usage_files *files; // owned
    struct box_name *names;    // owned; NULL: none was looked up
    uint32_t names_n;          // number of names that were ever stored
};

struct job_watch {
    struct record *record;
    uint64_t cgroup;                     // 0: unknown yet
    const struct watch_account *account; // its account, verified by the cgroup's id
    uint64_t forks;                      // tasks started in it, or calls to start one, as last read
    struct net_counters net;
    uint64_t queries;
    bool alone;          // no other job has run at the same time
    bool wants;          // system calls
    bool syscalls;       // they were counted from the start
    uint32_t detached;   // as in struct telemetry, at the start
    struct arena *arena; // memory of the message
};

enum watching { WATCH_IS_OFF, WATCH_COMES, WATCH_IS_ON, WATCH_GOES };

struct telemetry {
    struct server *srv;
    const struct telemetry_settings *settings;
    struct events *events;
    struct record_store *records;
    const struct telemetry_detectors *detectors;
    void *detectors_cookie;
    unsigned observer;                    // our number: job_notes() has the struct job_watch
    struct telemetry_box *box[BPF_SLOTS]; // NULL: no sandbox
    struct ring_buffer *alerts_ring, *events_ring;
    int64_t clock_offset_ns; // from CLOCK_BOOTTIME to CLOCK_REALTIME
    uint32_t cpus;
    uint64_t *scratch; // of `cpus`
    struct loop_timer *tick;
    uint64_t ticks;

    uint32_t owned; // sandboxes with an owner
    bool detectors_want;
    uint32_t wanted, detached; // number of users; number of failed attempts
    enum watching watching;
    bool broken; // attaching failed
    struct loop_timer *linger;
    struct list waiters;
};

// NULL: not watched.
static inline struct job_watch *
telemetry_watch(const struct telemetry *t, const struct job *j)
{
    return job_note(j, t->observer);
}

// The sandbox of a slot, if it has this generation.
struct telemetry_box *telemetry_box(const struct telemetry *t, uint32_t slot, uint32_t generation);
// The same for a sandbox. NULL: it is not live, or t is NULL.
struct telemetry_box *telemetry_box_of(const struct telemetry *t, const struct sandbox *s);
// Starts to drain the rings, while it is needed.
void telemetry_tick_start(struct telemetry *t);
// Passes the sandbox's counters to the detectors. just_read: see telemetry_sums().
void telemetry_look(struct telemetry *t, struct telemetry_box *b, const struct cgstat *just_read);
// Whether the detectors need system calls.
bool telemetry_detectors_want(const struct telemetry *t);

// jobs.c: the facts of a job (server/sandbox/observers.h).
void telemetry_job_begun(void *telemetry, struct job *j, const struct job_spec *spec);
void telemetry_job_started(void *telemetry, struct job *j);
void telemetry_job_exited(void *telemetry, struct job *j);
void telemetry_job_ended(void *telemetry, struct job *j);
void telemetry_job_gone(void *telemetry, struct job *j);

// read.c
int telemetry_rings_open(struct telemetry *t, struct err *e);
void telemetry_rings_close(struct telemetry *t);
// Handles a complete record of a ring. False: not a valid event.
bool telemetry_event(struct telemetry *t, const void *data, size_t n);
// Creates an event about a sandbox, with the common fields filled in.
void telemetry_fill(Stockade__V1__Event *m, const struct sandbox *s, const struct job *j,
                    Stockade__V1__EventKind kind, Stockade__V1__Severity severity);
void telemetry_publish(struct telemetry *t, struct telemetry_box *b, Stockade__V1__Event *m);

// kinds.c: the names of what is refused, for the metrics.
void telemetry_name_denials(void);

// figures.c
const struct watch_account *telemetry_account(const struct telemetry *t, uint64_t cgroup);
// The same for a job; NULL also if the job is not watched.
const struct watch_account *telemetry_job_account(const struct telemetry *t, const struct job *j);
void telemetry_cell_back(const struct telemetry *t, uint64_t cgroup);
bool telemetry_job_cgroup(const struct telemetry *t, const struct job *j);
void telemetry_read_lost(struct telemetry *t, struct telemetry_box *b);
// The relay lost this many more reports.
void telemetry_relay_lost(struct telemetry *t, struct telemetry_box *b, uint64_t more);
void telemetry_add_account(struct activity *to, const struct watch_account *w);
// audited.c: the end of a job, with the digest of its packed record (NULL: it has none), into the audit log.
void telemetry_audit(struct telemetry *t, const struct job *j, const uint8_t *bytes, size_t n);
// Stores the record of an ended job.
void telemetry_store(struct telemetry *t, struct job *j);
// just_read: the sandbox's counters if they were just read, otherwise NULL.
void telemetry_sums(const struct telemetry *t, const struct telemetry_box *b,
                    const struct cgstat *just_read, struct activity *out);
