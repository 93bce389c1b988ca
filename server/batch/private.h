// SPDX-License-Identifier: Apache-2.0
// A batch and its jobs, as shared by batch.c (what the caller does with a batch), job.c (one job, from the queue to its
// result) and lane.c (the sandboxes of a batch that recycles them).
#pragma once

#include "batch.h"
#include "server/base/list.h"
#include "server/base/loop.h"
#include "server/sandbox/job.h"
#include "server/telemetry/telemetry.h"

struct Stockade__V1__Command;

struct batches {
    struct server *srv;
    const struct limits *held; // borrowed: see limits_resolve()
    int snippets_fd;           // the program of zygotes, owned; -1: none needed it yet
    struct list list;
};

struct batch {
    struct list node;
    struct batches *all;
    struct tenant *tenant; // held; its ledger counts the requests
    char key[BATCH_KEY_MAX + 1];
    char template[64]; // a reload may remove it, and use its place for another
    struct sandbox_spec box;
    uint32_t parallel, window;
    uint64_t keep_ms;
    uint64_t accepted;  // jobs; the number of the next one
    uint64_t results;   // jobs that have ended; the sequence of the last one
    uint64_t confirmed; // the sequence of the last one that the caller has
    bool last;          // there will be no more jobs
    bool over;          // the deadline has expired, or the broker stops: there will be no more jobs
    bool wants, waits;  // has the tracepoint held; waits for it
    struct telemetry_waiter waiter;
    struct list queued, running, done; // of batch_job; done in the order of their sequence
    uint32_t running_n;
    bool recycles, warm;
    struct list lanes;           // of batch_lane
    uint32_t lanes_n, acquiring; // sandboxes that it has, and has requested
    uint64_t unread;             // bytes of output of those that are done
    struct list *next;           // in `done`: the next one to send; &done: none
    uint32_t unclean; // sandboxes, one after the other, that could not be reset for their first job
    struct err unclean_why; // the last of them
    struct batch_follower *follower;
    struct loop_timer *soon, *retry, *deadline, *keep, *rest;
};

// A sandbox of a batch that recycles: FRESH or USED --reset--> RESETTING --> (WARMING) --> IDLE --a job--> BUSY --> USED. It may
// be gone at any time, so it is found by its id.
enum batch_lane_state { LANE_USED, LANE_RESETTING, LANE_WARMING, LANE_IDLE, LANE_BUSY };

struct batch_warm;

struct batch_lane {
    struct list node;
    struct batch *batch;
    enum batch_lane_state state;
    char sandbox_id[ID_TEXT_MAX + 1];
    // Those that belong to the sandbox; others may differ from job to job.
    struct spawn_limits limits;
    uint32_t jobs;           // so far
    uint32_t begun;          // of the sandbox, as the lane knows it: see sandbox.jobs_begun
    uint64_t idle_bytes;     // memory when it was ready for its first job
    struct batch_warm *warm; // owned; NULL: none
    struct sandbox_swap reset;
};

struct batch_job {
    struct list node;
    struct batch *batch;
    uint64_t number, sequence;
    uint64_t arrived_ns;
    char *key;       // owned
    uint8_t *packed; // owned; NULL: it has begun
    size_t packed_n;
    size_t charged; // bytes that the tenant was charged for
    struct pool_request *request;
    struct batch_lane *lane; // NULL: none, or it is gone
    struct job_follower follower;
    struct job_result *own; // owned; of one that was never started
    uint64_t output_bytes, lost_bytes;
};

// job.c: a job of n packed bytes; NULL: out of memory. Free it with batch_job_free(), in any state.
struct batch_job *batch_job_new(struct batch *b, const struct Stockade__V1__BatchJob *m);
void batch_job_free(struct batch_job *j);

// Starts queued jobs as far as `parallel` and the memory for output permit.
void batch_start_jobs(struct batch *b);

// Cancels a job that is queued or running. Its result comes now or later.
void batch_job_cancel(struct batch_job *j, const char *why);

// INVALID_ARGUMENT: what the job requests cannot be.
int batch_job_check(const struct batch *b, const struct Stockade__V1__BatchJob *m, struct err *e);

// lane.c: adds a sandbox of the caller, to be reset before its first job. False: out of memory.
bool batch_lane_add(struct batch *b, const struct sandbox *sb);

// How many it may have: more than jobs run at a time, so that a job need not wait while another's sandbox is reset. No more
// than now after one was refused, until it is tried again.
uint32_t batch_lanes_max(const struct batch *b);

// Whether a job can be started or a sandbox be requested now.
bool batch_lanes_have_room(const struct batch *b);

// An idle sandbox with these limits, busy from now on; NULL: none. If all lanes have other limits, an idle one is given up.
struct batch_lane *batch_lane_take(struct batch *b, const struct limits *l, struct sandbox **sb);

// The job has ended, or did not start.
void batch_lane_done(struct batch_lane *l);

// Resets the sandboxes that jobs have used, or gives them up; begins or ends their rest.
void batch_lanes_look(struct batch *b);

// Ends all of them.
void batch_lanes_end(struct batch *b);

// The wait for its interpreter has ended.
void batch_lane_warmed(struct batch_lane *l, const struct sandbox *s);

// A job was started in it.
void batch_lane_started(struct batch_lane *l, const struct sandbox *s);

// warm.c: has a process forked for the next job in a sandbox that was reset; batch_lane_warmed() follows, later. False: there will
// be none.
bool batch_warm_prepare(struct batch_lane *l, struct sandbox *s);
void batch_warm_end(struct batch_lane *l);

// The number of the agent that stays when the sandbox is reset; 0: none.
uint32_t batch_warm_number(const struct batch_lane *l);

// Ends the process that waits, because the job needs another one.
void batch_warm_drop(struct batch_lane *l);

// Whether the process that waits can be this job.
bool batch_warm_fits(const struct batch_lane *l, const struct Stockade__V1__Command *m,
                     const struct limits *limits);

// As job_start(), with the process that waits.
int batch_warm_start(struct batch_lane *l, struct job_spec *spec, struct job **out, struct err *e);

// batch.c: has a result, starts the next jobs and wakes the follower, in the next turn of the loop.
void batch_soon(struct batch *b);
