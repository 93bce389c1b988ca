// SPDX-License-Identifier: Apache-2.0
// A job, as shared by job.c (its life), job_limits.c (what ends it), job_io.c (its pipes) and job_table.c (its
// followers).
#pragma once

#include "proto/traceparent.h"
#include "cgstat.h"
#include "job.h"
#include "observers.h"
#include "sandbox.h"
#include "server/base/loop.h"

// The reason why the broker ended it.
enum job_end { END_NONE, END_WALL, END_CPU, END_CANCEL };

// Whether its pipes are read: not while small reads are delayed (BATCHING), or while the ring is full (FULL).
enum job_reading { READING, BATCHING, FULL };

enum { IN = 0, OUT = 1, ERR = 2, STDIO_N = 3 };

struct job {
    struct idnode id;       // must be first
    struct list all_node;   // oldest first
    struct list of_sandbox; // while it runs
    struct list kept_node;  // of its tenant, after its end
    struct jobs *all;
    struct sandbox *sandbox; // NULL after its end
    char sandbox_id[ID_TEXT_MAX + 1];
    struct tenant *tenant; // held: output and input are counted for it
    uint64_t order;
    uint32_t number, pid;
    enum job_state state;
    enum job_end end;
    char *shown[JOB_SHOWN_ARGS]; // owned
    size_t shown_n;
    int64_t started_ms;
    struct limits limits;

    int fd[STDIO_N]; // the broker's ends; with a terminal its master at OUT, and again at IN
    struct loop_poll *poll[STDIO_N];
    uint8_t *input; // owned: [input_at, input_n) is queued
    size_t input_at, input_n, input_size;
    struct output *output;
    struct output_share share;
    uint64_t last_read_ns;
    struct loop_timer *retry; // of reading

    // timeout for the guest, then for the pipes, then for clients that may attach
    struct loop_timer *timeout;
    struct loop_timer *wall, *cpu;
    uint64_t wall_left_ns, wall_from_ns; // from: 0 while it is paused
    uint64_t paused_from_ns;
    struct bill_input used;
    char traceparent[TRACEPARENT_LENGTH + 1];
    void *notes[OBSERVERS_MAX]; // of each observer
    struct job_result result;
    char end_reason[256];

    struct sandbox_settler settler; // waits while its traffic is settled, before it is DONE
    struct list followers;
    struct list *walk; // the next follower, during the calls
    unsigned walking;  // then it must not be freed

    enum job_reading reading;
    unsigned waits;         // of calls on its terminal, which should not wait
    unsigned disk_had_room; // DISK_BYTES_FULL, DISK_INODES_FULL: was not full at an earlier check
    bool one_shot, unkept, terminal, kept;
    bool input_ends; // close stdin (or send ^D) after the queued bytes
    bool walk_again;
};

struct jobs {
    struct server *srv;
    struct idtable table;
    struct list list; // oldest first
    uint64_t begun;
    uint32_t running;
};

// The sandboxes' observers are also the jobs'.
struct observers *job_observers(const struct job *j);

// job_io.c: makes the pipes; child[] are the job's ends, owned by the caller.
int job_io_open(struct job *j, const struct job_spec *spec, int child[STDIO_N], struct err *e);
// The terminal's master has arrived.
int job_io_terminal(struct job *j, int master, struct err *e);
// Starts reading and writing.
int job_io_begin(struct job *j, struct err *e);
// Reads available bytes; true if both pipes have ended.
bool job_io_drain(struct job *j);
// The job has ended: frees descriptors, timers and queued input.
void job_io_end(struct job *j);
// A reader has read something.
void job_io_reader_moved(struct job *j);

// job_table.c
bool job_notify_followers(struct job *j); // false: j was freed
void
job_keep(struct job *j); // the job has ended; it exists while a client follows it or may attach
bool job_settle(struct job *j); // false: no client can attach any more, so it was freed

// Takes n bytes of its tenant's share (rpc.bytes_per_uid). If there is not enough, ended jobs are freed first.
bool job_take_bytes(void *job, size_t n);
void job_give_bytes(void *job, size_t n);
// Counts its output and input towards the tenant.
void job_share_begin(struct job *j);

// job_limits.c: stops and continues wall-clock time.
void job_pause(struct job *j);
void job_resume(struct job *j);
// The job runs: its time counts from now.
void job_limits_begin(struct job *j);
// The kernel does not count writes that failed because the disk was full, so the broker checks the disk when the job
// starts, at intervals, and at the end. A disk that was full at each of these is not a limit that this job reached.
void job_look_at_disk(struct job *j);
// Sets the result: a limit, with this text; the broker's reason for the kill; the signal that killed it.
void job_limit_ended(struct job *j, enum limit which, uint64_t over, bool count, const char *what);
void job_classify_end(struct job *j);
void job_classify_signal(struct job *j, int signal);
// The job was never executed: with this exit code (0: Stockade failed), or because of the guest's clone error.
void job_classify_failure(struct job *j, uint32_t exit_code, int sys, const char *text);

// job.c
extern const struct sandbox_jobs job_sandbox_events;
// Kills it for this reason. Does nothing if it has ended or is ending.
void job_end_now(struct job *j, enum job_end why);
// Both output pipes have ended.
void job_output_ended(struct job *j);
