// SPDX-License-Identifier: Apache-2.0
// From what the kernel and the relay tell to whom it concerns: the event hub, the record of the job, the anomaly detectors.
//
//   rings of the BPF programs  --drained every 10 ms while a job runs, alerts first--.
//   relay's reports            --relay_link's callback-------------------------------+--> whose is it? --> events.c
//   sandbox.c, job.c           --what they begin and end----------------------------'     slot -> box       record.c
//                                                                                         cgroup -> job     anomaly.c
//
// Whose: a slot with its generation is a sandbox (struct telemetry_box), the inode number of the directory of job-N is a job. A job
// is known here before its guest is told to start it, so an event never comes before its job; its directory is looked at
// when the first event with an unknown cgroup comes. What the kernel says is checked like any input.
//
// A job's figures are taken when it has ended and all its processes with it, before anything is removed; the record is
// complete with the job's result. The kernel's account of a job is given back once its cgroup is gone.
//
// Every function takes t == NULL, and does nothing then. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "../proto/arena.h"
#include "../proto/err.h"
#include "anomaly.h"
#include "list.h"

struct box_job;
struct events;
struct job;
struct job_watch;
struct record_store;
struct relay_report;
struct sandbox;
struct server;
struct telemetry;
struct usage;
struct Stockade__V1__Record;

// The configuration's telemetry.syscalls.
enum telemetry_syscalls { SYSCALLS_ON_DEMAND, SYSCALLS_OFF, SYSCALLS_ALWAYS };

enum {
    TELEMETRY_DRAIN_MS = 10,
    TELEMETRY_LINGER_MS =
        5000, // the syscall tracepoint stays this long after the last who wanted it
};

// Owned: telemetry_free(). Needs srv->loop, features, config, bpf and spawn. NULL without memory.
struct telemetry *telemetry_new(struct server *srv);
void telemetry_free(struct telemetry *t);

struct events *telemetry_events(struct telemetry *t);
struct record_store *telemetry_records(struct telemetry *t);

// ---- system calls: counted while somebody wants it

// FAILED_PRECONDITION when this broker cannot, or is told not to.
int telemetry_check_syscalls(const struct telemetry *t, struct err *e);

// A job's system calls are to be looked at: since it asked for it, or because the detectors do. Then it is started once the
// tracepoint is there (telemetry_wait), or its record could not say that it is complete.
bool telemetry_watches(const struct telemetry *t, bool asked);

// Each want is ended by one unwant.
void telemetry_want(struct telemetry *t);
void telemetry_unwant(struct telemetry *t);

// The detectors may want something else than before (anomaly_wants_syscalls): what they do is one want, or none.
void telemetry_want_for_anomaly(struct telemetry *t);

// Somebody who wants it and waits until it is so.
struct telemetry_waiter {
    struct list node;
    void (*done)(void *cookie);
    void *cookie;
};

// True: it is so already, or never will be. False: `done` comes once, later, when one of both is so; telemetry_unwait()
// takes it back.
bool telemetry_wait(struct telemetry *t, struct telemetry_waiter *w);
void telemetry_unwait(struct telemetry_waiter *w);

// The spawner hangs: who waits for the tracepoint goes on without. Or it answers again.
void telemetry_spawner(struct telemetry *t, bool hangs);

// ---- what sandbox.c tells

void telemetry_sandbox_live(struct telemetry *t, struct sandbox *s); // its slot is known
void telemetry_sandbox_taken(struct telemetry *t, struct sandbox *s);
void telemetry_sandbox_paused(struct telemetry *t, struct sandbox *s, bool paused);
void telemetry_sandbox_deleted(struct telemetry *t, struct sandbox *s, const char *why);
void telemetry_sandbox_gone(struct telemetry *t, struct sandbox *s); // nothing is left of it
// Its network policy is another one: `note` says which.
void telemetry_policy_changed(struct telemetry *t, struct sandbox *s, const char *note);

// ---- what job.c tells

// It counts from now on: j->watch is made.
void telemetry_job_begun(struct telemetry *t, struct job *j, bool count_syscalls);
void telemetry_job_started(struct telemetry *t, struct job *j);
// How many of its writes RLIMIT_FSIZE refused. False where no program counts.
bool telemetry_job_oversized(const struct telemetry *t, struct job *j, uint64_t *n);
// Its result is complete, its sandbox and cgroup are still there: j->result.record is set.
void telemetry_job_ended(struct telemetry *t, struct job *j);
void job_watch_free(struct job_watch *w); // NULL is fine
// What the detectors keep of a running job; NULL: nobody watches it. For anomaly.c.
struct box_job *telemetry_box_job(struct job *j);

// ---- what relay_link's callback tells

void telemetry_relay(struct telemetry *t, const struct relay_report *r);

// ---- what others ask

// The record of a job so far. It lives in the arena, and borrows from the job. NULL: the arena is full.
struct Stockade__V1__Record *telemetry_record(struct telemetry *t, struct job *j, struct arena *a);

struct telemetry_sums {
    struct anomaly_sums sums;
    uint64_t denials, alerts, lost;
};
void telemetry_sandbox_sums(struct telemetry *t, const struct sandbox *s,
                            struct telemetry_sums *out);

// What it uses now.
void telemetry_usage(struct telemetry *t, const struct sandbox *s, struct usage *out);

// The broker begins to stop: subscriptions end.
void telemetry_drain_begun(struct telemetry *t);

// Drains the rings now.
void telemetry_drain(struct telemetry *t);

// Records of the kernel that were no events.
uint64_t telemetry_bad(const struct telemetry *t);

// Sandboxes, jobs and records that there was no memory to watch or keep.
uint64_t telemetry_missed(const struct telemetry *t);
