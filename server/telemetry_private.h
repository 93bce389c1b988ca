// SPDX-License-Identifier: Apache-2.0
// Between telemetry.c (sandboxes, timers), telemetry_jobs.c (jobs), telemetry_read.c (events), telemetry_figures.c
// (counters, records) and telemetry_want.c (the syscall tracepoint).
#pragma once

#include <sys/types.h>

#include "anomaly.h"
#include "anomaly_box.h"
#include "bpf.h"
#include "events.h"
#include "job_private.h"
#include "record.h"
#include "record_store.h"
#include "sandbox.h"
#include "server.h"
#include "telemetry.h"
#include "usage.h"

struct ring_buffer;

#define KIND(name)   STOCKADE__V1__EVENT_KIND__EVENT_KIND_##name
#define GRAVE(name)  STOCKADE__V1__SEVERITY__SEVERITY_##name
#define DETAIL(name) STOCKADE__V1__EVENT__DETAIL_##name

enum { RECORD_ARENA_BYTES = 512 * 1024 };

// An ended job's cgroup: its account is given back once it is gone.
struct ended {
    struct list node;
    uint64_t cgroup;
    uint32_t job;
};

// What is known of a sandbox, by its slot.
// The name that a synthetic address of a sandbox stands for.
struct box_name {
    uint32_t index;
    char text[RELAY_NAME_MAX + 3];
};
enum { KNOWN_NAMES = 64 }; // the last of them

struct telemetry_box {
    struct sandbox *sandbox;
    bool owned;            // it is somebody's
    uint64_t taken_ns;     // since when, by the clock of events; 0: it never was
    uint64_t cgroup;       // its own
    uint64_t guest_cgroup; // the guest's
    uint64_t stray_cgroup; // that is none of its jobs'
    uint64_t *lost;        // owned: by class and CPU, as last read
    uint64_t lost_total, relay_lost;
    uint64_t denials, alerts, queries;
    struct net_counters net; // when it was made
    struct anomaly_sums ended;
    struct list ended_jobs;
    struct usage_files *files; // owned
    struct box_name *names;    // owned; NULL: none was looked up
    uint32_t names_n;          // ever
};

struct job_watch {
    struct record *record;
    uint64_t cgroup;                     // 0: not known yet
    const struct watch_account *account; // where it was found; proven by the cgroup's id
    uint64_t tasks;                      // that began in it, as last read
    struct net_counters net;
    uint64_t queries;
    bool alone;           // no other job ran with it so far
    bool wants;           // system calls
    bool syscalls;        // they were counted from the start
    uint32_t detached;    // as in struct telemetry, at the start
    struct box_job marks; // of the detectors
    struct arena *arena;  // the message lives in it
};

enum watching { WATCH_IS_OFF, WATCH_COMES, WATCH_IS_ON, WATCH_GOES };

struct telemetry {
    struct server *srv;
    struct events *events;
    struct record_store *records;
    struct telemetry_box *box[BPF_SLOTS]; // NULL: nobody is there
    struct ring_buffer *alerts_ring, *events_ring;
    int64_t clock_offset_ns; // from CLOCK_BOOTTIME to CLOCK_REALTIME
    uint32_t cpus;
    uint64_t *scratch; // of `cpus`
    uint64_t bad;      // records of the kernel that were no events
    uint64_t missed;   // sandboxes, jobs and records that there was no memory for
    struct loop_timer *tick;
    uint64_t ticks;

    uint32_t owned; // sandboxes that are somebody's
    bool anomaly_wants;
    uint32_t wanted, detached; // how many want it; how often it was given up
    enum watching watching;
    bool broken; // attaching failed
    struct loop_timer *linger;
    struct list waiters;
};

// The sandbox of a slot, if it is of this generation.
struct telemetry_box *telemetry_box(const struct telemetry *t, uint32_t slot, uint32_t generation);
// The same by sandbox. NULL: it is not live, or t is NULL.
struct telemetry_box *telemetry_box_of(const struct telemetry *t, const struct sandbox *s);
// Begins to drain, while there is reason to.
void telemetry_tick_start(struct telemetry *t);
// Gives the detectors the sandbox's figures. just_read: as telemetry_sums() takes it.
void telemetry_tick_anomaly(struct telemetry *t, struct telemetry_box *b,
                            const struct cgstat *just_read);

// There is no memory for what is to be kept of a sandbox or a job: counted, logged, and told by Info.
void telemetry_unwatched(struct telemetry *t, const char *what);

// telemetry_read.c
int telemetry_rings_open(struct telemetry *t, struct err *e);
void telemetry_rings_close(struct telemetry *t);
// A whole record of a ring. False: it is no event.
bool telemetry_event(struct telemetry *t, const void *data, size_t n);
// An event of ours about a sandbox, with what is the same in all of them filled in.
void telemetry_fill(Stockade__V1__Event *m, const struct sandbox *s, const struct job *j,
                    Stockade__V1__EventKind kind, Stockade__V1__Severity severity);
void telemetry_tell(struct telemetry *t, struct telemetry_box *b, Stockade__V1__Event *m);
void telemetry_finding(void *cookie, const struct anomaly_finding *f, struct sandbox *s,
                       struct job *j);

// telemetry_figures.c
const struct watch_account *telemetry_account(const struct telemetry *t, uint64_t cgroup);
const struct watch_account *telemetry_job_account(const struct telemetry *t, struct job *j);
void telemetry_cell_back(const struct telemetry *t, uint64_t cgroup);
bool telemetry_job_cgroup(struct job *j);
void telemetry_read_lost(struct telemetry *t, struct telemetry_box *b);
// The relay could not hand over that many reports more.
void telemetry_relay_lost(struct telemetry *t, struct telemetry_box *b, uint64_t more);
void telemetry_add_account(struct anomaly_sums *to, const struct watch_account *w);
// Keeps the record of a job that has ended.
void telemetry_store(struct telemetry *t, struct job *j);
// just_read: the sandbox's figures where its end was a moment ago, else NULL.
void telemetry_sums(const struct telemetry *t, const struct telemetry_box *b,
                    const struct cgstat *just_read, struct anomaly_sums *out);
