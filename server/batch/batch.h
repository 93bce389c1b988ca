// SPDX-License-Identifier: Apache-2.0
// Batches: many jobs of one caller, each as ProcessService.Run would run it, whose results the caller confirms.
//
//   batch_add --> QUEUED --a sandbox, at most `parallel` at a time--> RUNNING --ended--> DONE --confirmed--> (forgotten)
//
// A batch outlives the call that follows it: without one it is kept for keep_ms, and its jobs continue. Jobs are numbered
// by the caller, so that a repeated request cannot execute a job twice; results are numbered in the order in which the jobs
// end. A result and its output stay with the job (sandbox/job.h) until they are confirmed, so the window bounds what a
// batch keeps: jobs that were accepted and not confirmed. Requests and output are counted for the tenant.
//
// Each job has a fresh sandbox, or (`recycles`) one of the batch's own, in which it finds nothing of the job before.
// Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/sandbox/output.h"
#include "server/sandbox/sandbox.h"

struct Stockade__V1__BatchJob;
struct batch;
struct batches;
struct job_result;
struct limits;
struct network;
struct server;

enum {
    BATCH_KEY_MAX = 128,
    BATCH_OUTPUT_USUAL = 64 * 1024, // output_bytes of a job that sets none
    BATCH_OUTPUT_MAX = OUTPUT_RING_MAX,
    BATCH_WINDOW_USUAL = 256,
    BATCH_KEEP_USUAL_MS = 60 * 1000,
    BATCHES_OF_TENANT = 64,
};

struct batch_spec {
    char key[BATCH_KEY_MAX + 1];
    struct sandbox_spec box; // owned; of each job, whose limits may be others
    uint32_t parallel, window;
    uint64_t deadline_ms; // 0: none
    uint64_t keep_ms;
    // Jobs follow each other in the same sandboxes (lane.c); its network is none or off.
    bool recycles;
    // Only with `recycles`: jobs that are `python3 -c CODE` are forked from an interpreter (warm.c).
    bool warm;
};

// What a batch looks like to others. Everything in it is borrowed.
struct batch_view {
    const char *key, *template;
    const struct limits *limits;   // of jobs that set none
    const struct network *network; // of its sandboxes; NULL: none
    uint64_t accepted, results;
    uint32_t window, parallel;
    bool last;
};

enum batch_event_kind { BATCH_NOTHING, BATCH_OUTPUT, BATCH_FINISHED, BATCH_ENDED };

// Everything in it is borrowed until the next call of a function of this file.
struct batch_event {
    enum batch_event_kind kind;
    uint64_t number, sequence;
    const char *job_key;
    const char *process_id;          // FINISHED; "": never started
    const struct job_result *result; // FINISHED
    uint64_t lost_bytes;             // FINISHED
    struct output_chunk chunk;       // OUTPUT
};

// The call that follows a batch. Embedded in its owner.
struct batch_follower {
    struct batch *batch;
    // There may be a new event: see batch_next(). Not called from within functions of this file.
    void (*wake)(void *cookie);
    // Another call follows the batch now, or it was forgotten; `batch` is NULL.
    void (*dropped)(void *cookie, const struct err *why);
    void *cookie;
};

// Creates the table of the broker; `held` is borrowed (limits_resolve()). Free it with batches_free() when no call is left, before the pool and the jobs. NULL:
// out of memory.
struct batches *batches_new(struct server *srv, const struct limits *held);
void batches_free(struct batches *all); // accepts NULL

// The broker stops: jobs that have not begun are cancelled.
void batches_drain(struct batches *all);

// Creates a batch. Takes spec->box on success. ALREADY_EXISTS, RESOURCE_EXHAUSTED.
int batch_open(struct batches *all, const char *tenant, struct batch_spec *spec, struct batch **out,
               struct err *e);

// Finds a batch of the caller. NOT_FOUND otherwise.
struct batch *batch_find(struct batches *all, const char *tenant, const char *key, struct err *e);
void batch_view(const struct batch *b, struct batch_view *out);

// The limits that this job would have. INVALID_ARGUMENT as of batch_add().
int batch_job_limits(const struct batch *b, const struct Stockade__V1__BatchJob *m,
                     struct limits *out, struct err *e);

// Accepts the first of n jobs for which there is room; jobs that it has are skipped. INVALID_ARGUMENT: one is wrong, and
// none was accepted; OUT_OF_RANGE: `first` is not the next number; DEADLINE_EXCEEDED, UNAVAILABLE: no more jobs.
int batch_add(struct batch *b, uint64_t first, struct Stockade__V1__BatchJob *const *jobs, size_t n,
              bool last, struct err *e);

// The caller has the results up to this one. OUT_OF_RANGE: it was not sent yet. The follower, if the batch has ended, is
// woken later.
int batch_received(struct batch *b, uint64_t sequence, struct err *e);

// Sends the results after `received` to this follower, from now on; an earlier follower is dropped (ABORTED).
// OUT_OF_RANGE: as above.
int batch_follow(struct batch *b, struct batch_follower *f, uint64_t received, struct err *e);

// The follower is gone; the batch is kept for keep_ms. Does nothing if it follows none.
void batch_unfollow(struct batch_follower *f);

// Cancels all jobs and forgets the batch; its follower is not called any more.
void batch_cancel(struct batch_follower *f, const char *why);

// The next event of the follower, and its acknowledgement. After ENDED was taken the batch is forgotten.
struct batch_event batch_next(const struct batch_follower *f);
void batch_taken(struct batch_follower *f, const struct batch_event *ev);
