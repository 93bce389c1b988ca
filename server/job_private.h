// SPDX-License-Identifier: Apache-2.0
// Between job.c (life), job_limits.c (what ends it), job_io.c (its pipes) and job_table.c (who follows it): the job itself.
#pragma once

#include "cgstat.h"
#include "job.h"
#include "loop.h"

// Why we made it end.
enum job_end { END_NONE, END_WALL, END_CPU, END_CANCEL };

// Whether its pipes are read: not while small reads are put off (BATCHING) or a reader has to move first (FULL).
enum job_reading { READING, BATCHING, FULL };

enum { IN = 0, OUT = 1, ERR = 2, STDIO_N = 3 };

struct job {
    struct idnode id;       // first
    struct list all_node;   // oldest first
    struct list of_sandbox; // while it runs
    struct list kept_node;  // of its tenant, once it is done
    struct jobs *all;
    struct sandbox *sandbox; // NULL once it is done
    char sandbox_id[ID_HEX + 1];
    struct owner *tenant;
    uint64_t order;
    uint32_t number, pid;
    enum job_state state;
    enum job_end end;
    bool one_shot, terminal, kept;
    char *shown[JOB_SHOWN_ARGS]; // owned
    size_t shown_n;
    int64_t started_ms;
    struct limits limits;

    int fd[STDIO_N]; // our ends; with a terminal its master at OUT, and again at IN
    struct loop_poll *poll[STDIO_N];
    uint8_t *input; // owned: [input_at, input_n) waits
    size_t input_at, input_n, input_size;
    bool input_ends; // close stdin (or send ^D) after what waits
    struct output *output;
    struct tenant *
        tenant_bytes; // held: whose share of memory output and input are; NULL in tests without rpc
    struct output_share share;
    enum job_reading reading;
    uint64_t last_read_ns;
    struct loop_timer *retry; // of reading

    struct loop_timer *patience; // for the guest, then for the pipes, then for those who may attach
    struct loop_timer *wall, *cpu;
    uint64_t wall_left_ns, wall_from_ns; // from: 0 while it stands still
    uint64_t paused_from_ns;
    struct bill_input used;
    struct job_watch *watch; // owned, telemetry.c's; NULL: nobody watches
    struct job_result result;
    char end_reason[256];

    struct list followers;
    struct list *walk; // next one to be told, while they are
    unsigned walking;  // it is not to be freed
    bool walk_again;
};

struct jobs {
    struct server *srv;
    struct idtable table;
    struct list list; // oldest first
    uint64_t begun;
    uint32_t running;
};

// job_io.c
// Makes the pipes; child[] are the job's ends, owned by the caller.
int job_io_open(struct job *j, const struct job_spec *spec, int child[STDIO_N], struct err *e);
// The terminal's master came.
int job_io_terminal(struct job *j, int master, struct err *e);
// Begins to read and to write.
int job_io_begin(struct job *j, struct err *e);
// Reads what is there now; true when both ends were reached.
bool job_io_drain(struct job *j);
// The job is over: lets go of descriptors, timers and waiting input.
void job_io_end(struct job *j);
// A reader has taken something.
void job_io_reader_moved(struct job *j);

// job_table.c
void job_tell_followers(struct job *j);
void job_keep(
    struct job *j); // it is done; from now on it lives as long as somebody follows or may attach
void job_settle(struct job *j); // frees it when that is over

// Takes n bytes of its tenant's share (rpc.bytes_per_uid): jobs that have ended and could still be attached to go first.
bool job_take_bytes(void *job, size_t n);
void job_give_bytes(void *job, size_t n);
// Its output and its input are the tenant's from now on, and no longer.
void job_share_begin(struct job *j);
void job_share_end(struct job *j);

// job_limits.c
// It runs: its time counts from now.
void job_limits_begin(struct job *j);
// The kernel keeps no count of writes that found the disk full, so it is looked at now and then, and at the end.
void job_look_at_disk(struct job *j);
// What it came to: a limit, in these words; what made us kill it; what killed it.
void job_limit_ended(struct job *j, enum limit which, uint64_t over, bool count, const char *what);
void job_classify_end(struct job *j);
void job_classify_signal(struct job *j, int signal);
// It never ran, for this exit code (0: not its own fault) or for what the guest's clone answered.
void job_classify_failure(struct job *j, uint32_t exit_code, int sys, const char *text);

// job.c
// Kills it for that; nothing happens where it is over, or about to be.
void job_end_now(struct job *j, enum job_end why);
// Both output pipes have ended.
void job_output_ended(struct job *j);
