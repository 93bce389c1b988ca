// SPDX-License-Identifier: Apache-2.0
// Jobs: one program and all processes that it starts, in a cgroup of its own.
//
//   STARTING --Started--> RUNNING --Exited--> DRAINING --pipes empty, or 100 ms--> DONE
//       |                    |                    ^
//       +--Failed------------+--sandbox is gone---+
//
// A limit, a cancellation or a guest that does not respond ends it earlier (enum job_end), by killing its cgroup; the
// result says so. A job of ProcessService.Run owns its sandbox and destroys it at the end. Clients can attach to other
// jobs for keep_finished_ms after their end. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"
#include "bill.h"
#include "server/base/idtable.h"
#include "limits.h"
#include "server/base/list.h"
#include "output.h"

struct Stockade__V1__Record;
struct agent;
struct job;
struct jobs;
struct loop_poll;
struct loop_timer;
struct sandbox;
struct server;

enum {
    JOB_INPUT_QUEUE_MAX = 256 * 1024,
    JOB_COMMAND_BYTES_MAX = 120 * 1024, // arguments and environment
    JOB_SETTLE_MS = 100,                // timeout for the relay's counters, after that
    JOB_GRACE_MS = 100,                 // timeout for the pipes, after the main process ended
    JOB_START_MS = 10 * 1000,           // timeout for the guest's answer to Start
    JOB_KILL_MS = 5 * 1000,             // timeout for its answer to a kill
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
    const struct Stockade__V1__Record *record; // NULL: not watched; valid as long as the job
};

enum job_state { JOB_STARTING, JOB_RUNNING, JOB_DRAINING, JOB_DONE, JOB_STATES_N };

// The command. All pointers are borrowed.
struct job_spec {
    const char *const *args;
    size_t args_n;
    const char *const *env; // complete
    size_t env_n;
    const char *workdir;
    const uint8_t *input;
    size_t input_n;
    bool input_open; // more input may follow
    bool terminal;
    uint32_t rows, columns;
    struct limits limits;
    bool one_shot;       // its end ends the sandbox
    bool unkept;         // nobody finds it after its end: its followers have the result
    bool count_syscalls; // for its record
    bool has_link;       // its descriptor 3 is this socket:
    int link;            // *owned* by job_start(), also on failure
    // NULL, or a RUNNING agent that agent_fork() began: its process becomes the job's, which gets descriptors 0 to 2 and the
    // link (has_link is set). args, env and workdir only say what the job shows: the process sets them itself. Also on
    // failure, unless it is refused before the agent is touched, the agent is gone or ending.
    struct agent *agent;
    uint64_t arrived_ns, sandbox_ns;
    const char *traceparent; // of its caller, or NULL; ignored if it is malformed
};

// A follower of a job: a stream of its output, or (no_output) of its end only. Embedded in its owner.
struct job_follower {
    struct list node;
    struct output_reader reader;
    struct job *job;
    bool no_output;
    bool started_reported;
    // There may be a new event: see job_next. May unfollow the job.
    void (*wake)(void *cookie);
    void *cookie;
};

enum job_event_kind { JOB_NOTHING, JOB_STARTED, JOB_OUTPUT, JOB_ENDED };

struct job_event {
    enum job_event_kind kind;
    struct output_chunk chunk; // OUTPUT
};

// Creates the table. Free it with jobs_free() when no sandbox is left. Registers itself with srv->sandboxes.
struct jobs *jobs_new(struct server *srv);
void jobs_free(struct jobs *all);
uint32_t jobs_running(const struct jobs *all);

// Starts a job in a RUNNING sandbox. RESOURCE_EXHAUSTED (quota, descriptors), FAILED_PRECONDITION. On success *out is
// borrowed: it exists until it is done and has no followers.
int job_start(struct sandbox *s, const struct job_spec *spec, struct job **out, struct err *e);

// Finds a job of the caller. NOT_FOUND otherwise.
struct job *job_find(struct jobs *all, const char *tenant, const char *id, struct err *e);

// Finds a running job (tenant NULL: of any tenant) by the first digits of its id, at least one; *several increases with
// each match.
struct job *job_find_beginning(struct jobs *all, const char *tenant, const char *beginning,
                               uint32_t *several);

// Its tenant, and the template of its sandbox ("": the sandbox was removed).
const char *job_tenant(const struct job *j);
const char *job_template(const struct job *j);

// What observers read of it besides job_view(). All of it exists as long as the job.
const char *job_id(const struct job *j);
uint32_t job_number(const struct job *j);         // in its sandbox, from 1
bool job_has_started(const struct job *j);        // the guest has said so, so its output is read
struct sandbox *job_sandbox(const struct job *j); // NULL after its end
const struct limits *job_limits(const struct job *j);
uint64_t job_output_bytes(const struct job *j);           // until now
const struct job_result *job_result(const struct job *j); // complete from its end on
const char *job_traceparent(const struct job *j);         // "": none
// Time from the start of its main process to its end, and from then until now.
void job_times(const struct job *j, uint64_t *exec_us, uint64_t *collect_us);
const struct cgstat *job_stat_after(const struct job *j); // of its sandbox, at the job's end

// Follows the output from an offset on. no_timeout: the job waits for this reader without a timeout.
void job_follow(struct job *j, struct job_follower *f, uint64_t offset, bool no_timeout);
void job_unfollow(struct job_follower *f);

// The next event of a follower, and its acknowledgement. Data in an event is borrowed until the next turn of the loop.
struct job_event job_next(struct job_follower *f);
void job_taken(struct job_follower *f, const struct job_event *ev);

// See ProcessService. Accepts all of the input or none.
int job_input(struct job *j, const uint8_t *bytes, size_t n, struct err *e);
int job_close_input(struct job *j, struct err *e);
int job_signal(struct job *j, uint32_t signal, bool group, struct err *e);
int job_resize(struct job *j, uint32_t rows, uint32_t columns, struct err *e);

// Ends the job with OUTCOME_CANCELLED and this reason. Works in any state.
void job_cancel(struct job *j, const char *reason);

// Reads what its pipes have now, for a follower that knows that something was written.
void job_read_now(struct job *j);

// The job of a node in sandbox->jobs.
struct job *job_of_sandbox(struct list *node);

// For observers (observers.h): the pointer that observer `n` keeps for a job, NULL at first; its record, which exists as
// long as the job; the number of its writes that RLIMIT_FSIZE refused, and of its calls that RLIMIT_NOFILE refused.
void **job_notes(struct job *j, unsigned n);
void *job_note(const struct job *j, unsigned n);
void job_set_record(struct job *j, const struct Stockade__V1__Record *record);
void job_set_oversized(struct job *j, uint64_t writes);
void job_set_no_file(struct job *j, uint64_t calls);

// All files may read it; only job.c writes it.
enum { JOB_SHOWN_ARGS = 16, JOB_SHOWN_ARG_BYTES = 256 };
struct job_view {
    const char *id, *sandbox_id;
    uint64_t order;
    uint32_t number; // in its sandbox, from 1
    uint32_t pid;
    int64_t started_ms; // CLOCK_REALTIME
    bool terminal;
    uint64_t output_bytes;
    const char *const *args;
    size_t args_n;
    const struct job_result *result; // NULL: it still runs
};
void job_view(const struct job *j, struct job_view *out);

// Calls fn for each job of a tenant with an order above `after`, oldest first; sandbox_id NULL: any. Ends when fn
// returns false.
void jobs_each(struct jobs *all, const char *tenant, const char *sandbox_id, uint64_t after,
               bool (*fn)(void *cookie, struct job *j), void *cookie);
