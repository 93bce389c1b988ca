// SPDX-License-Identifier: Apache-2.0
// Jobs: one program and all that it starts, in a cgroup of its own.
//
//   STARTING --Started--> RUNNING --Exited--> DRAINING --pipes empty, or 100 ms--> DONE
//       |                    |                    ^
//       +--Failed------------+--sandbox is gone---+
//
// A limit, a cancel or a guest that does not answer makes it end sooner (enum job_end), by killing its cgroup; the
// result then says so. A job of ProcessService.Run owns its sandbox and destroys it at the end. Others stay attachable
// for keep_finished_ms. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "../proto/err.h"
#include "bill.h"
#include "idtable.h"
#include "limits.h"
#include "list.h"
#include "output.h"

struct Stockade__V1__Record;
struct job;
struct jobs;
struct loop_poll;
struct loop_timer;
struct sandbox;
struct server;
struct owner;

enum {
    JOB_INPUT_QUEUE_MAX = 256 * 1024,
    JOB_COMMAND_BYTES_MAX = 120 * 1024, // arguments and environment
    JOB_GRACE_MS = 100,                 // for the pipes, after the main process ended
    JOB_START_MS = 60 * 1000, // for the guest's answer to Start: as long as for its first word
    JOB_KILL_MS = 5 * 1000,   // for its answer to a kill
};

// Numbers as in stockade.v1.Outcome.
enum outcome {
    OUTCOME_NONE,
    OUTCOME_EXITED,
    OUTCOME_SIGNALED,
    OUTCOME_LIMIT,
    OUTCOME_REFUSED,
    OUTCOME_FAILED,
    OUTCOME_NOT_EXECUTED,
    OUTCOME_CANCELLED,
};

struct job_result {
    enum outcome outcome;
    uint32_t exit_code;
    uint32_t signal;
    char reason[512];
    struct bill bill;
    struct limit_hits hits;
    const struct Stockade__V1__Record *record; // NULL: nobody watched; lives as long as the job
};

enum job_state { JOB_STARTING, JOB_RUNNING, JOB_DRAINING, JOB_DONE, JOB_STATES_N };

// What to run. All borrowed.
struct job_spec {
    const char *const *args;
    size_t args_n;
    const char *const *env; // complete
    size_t env_n;
    const char *workdir;
    const uint8_t *input;
    size_t input_n;
    bool input_open; // more will come
    bool terminal;
    uint32_t rows, columns;
    struct limits limits;
    bool one_shot;       // its end is the end of the sandbox
    bool count_syscalls; // for its record
    uint64_t arrived_ns, sandbox_ns;
};

// Somebody who follows a job: a stream of its output, or (no_output) its end alone. Embedded in the follower.
struct job_follower {
    struct list node;
    struct output_reader reader;
    struct job *job;
    bool no_output;
    bool started_told;
    // There may be something new: see job_next. It may leave the job in it.
    void (*wake)(void *cookie);
    void *cookie;
};

enum job_event_kind { JOB_NOTHING, JOB_STARTED, JOB_OUTPUT, JOB_ENDED };

struct job_event {
    enum job_event_kind kind;
    struct output_chunk chunk; // OUTPUT
};

// Owned: jobs_free(), when no sandbox is left.
struct jobs *jobs_new(struct server *srv);
void jobs_free(struct jobs *all);
uint32_t jobs_running(const struct jobs *all);

// Starts one in a RUNNING sandbox. RESOURCE_EXHAUSTED (quota, descriptors), FAILED_PRECONDITION. On success *out is
// borrowed: it lives until it is done and nobody follows it any more.
int job_start(struct sandbox *s, const struct job_spec *spec, struct job **out, struct err *e);

// One of the caller's. NOT_FOUND otherwise.
struct job *job_find(struct jobs *all, const char *tenant, const char *id, struct err *e);

// A running one (tenant NULL: anybody's) whose id begins so, which is not empty; *several goes up with each that does.
struct job *job_find_beginning(struct jobs *all, const char *tenant, const char *beginning,
                               uint32_t *several);

// Whose it is, and the template of its sandbox ("": that is gone).
const char *job_tenant(const struct job *j);
const char *job_template(const struct job *j);

// Follows from an offset of the output on. patient: its output waits for this reader however long.
void job_follow(struct job *j, struct job_follower *f, uint64_t offset, bool patient);
void job_unfollow(struct job_follower *f);

// What the follower gets next, and that it has taken it. Data in an event is borrowed until the next turn of the loop.
struct job_event job_next(struct job_follower *f);
void job_taken(struct job_follower *f, const struct job_event *ev);

// See ProcessService. All or nothing.
int job_input(struct job *j, const uint8_t *bytes, size_t n, struct err *e);
int job_close_input(struct job *j, struct err *e);
int job_signal(struct job *j, uint32_t signal, bool group, struct err *e);
int job_resize(struct job *j, uint32_t rows, uint32_t columns, struct err *e);

// Ends it, with this result: OUTCOME_CANCELLED and the reason. Fine in any state.
void job_cancel(struct job *j, const char *reason);

// For sandbox.c: wall-clock time stands still or goes on; the sandbox is going (why: see sandbox_destroy).
void job_pause(struct job *j);
void job_resume(struct job *j);
void job_sandbox_gone(struct job *j, const struct err *why);

// For sandbox.c: the job that a node of sandbox->jobs is.
struct job *job_of_sandbox(struct list *node);

// For sandbox.c: what the guest said about job `number`. False: it cannot have said that.
bool job_said_started(struct sandbox *s, uint32_t number, uint32_t pid, int terminal);
bool job_said_failed(struct sandbox *s, uint32_t number, uint32_t exit_code, int sys,
                     const char *text);
bool job_said_exited(struct sandbox *s, uint32_t number, uint32_t status,
                     const struct bill_rusage *usage);

// Readable by all; written by job.c.
enum { JOB_SHOWN_ARGS = 16, JOB_SHOWN_ARG_BYTES = 256 };
struct job_view {
    const char *id, *sandbox_id;
    uint64_t order;
    uint32_t pid;
    int64_t started_ms; // CLOCK_REALTIME
    bool terminal;
    uint64_t output_bytes;
    const char *const *args;
    size_t args_n;
    const struct job_result *result; // NULL: it runs
};
void job_view(const struct job *j, struct job_view *out);

// Calls fn for each job of a tenant, oldest first, whose order is above `after`; sandbox_id NULL: any. Ends when fn
// says false.
void jobs_each(struct jobs *all, const char *tenant, const char *sandbox_id, uint64_t after,
               bool (*fn)(void *cookie, struct job *j), void *cookie);
