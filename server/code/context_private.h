// SPDX-License-Identifier: Apache-2.0
// A context, as shared by context.c (its life and its table) and cell.c (the cells that run in it).
#pragma once

#include "context.h"
#include "language.h"
#include "link.h"
#include "server/base/list.h"
#include "server/sandbox/cgstat.h"
#include "server/sandbox/job.h"

struct image;
struct live_op;
struct loop_timer;

enum { BURST_MAX = OUTPUT_CHUNK_MAX };

// Why the interpreter or its cell is being ended by us.
enum code_stop { STOP_NONE, STOP_TIMEOUT, STOP_RESTART, STOP_DELETE, STOP_ABANDONED };

struct code_run {
    struct list node; // in waiting
    struct context *context;
    char *text; // owned
    size_t text_n;
    uint64_t timeout_ms, arrived_ns, began_ns, number;
    struct code_sink sink;
    bool abandoned, blocked;
    bool begun; // BEGIN was taken
    uint64_t output_bytes;
};

struct context {
    struct idnode id; // must be first
    struct list node; // oldest first
    struct contexts *all;
    struct sandbox *sandbox; // NULL: it has gone
    char sandbox_id[ID_TEXT_MAX + 1];
    const struct language *language;
    int64_t created_ms;
    char *workdir;                                   // owned
    struct Stockade__V1__EnvironmentVariable *env;   // owned, with its texts
    struct Stockade__V1__EnvironmentVariable **envs; // owned: pointers to them
    size_t env_n;

    bool is_default, one_shot;
    bool fresh; // its interpreter has run no cell yet
    bool dying; // its interpreter is being killed
    enum context_state state;
    struct job *job; // the interpreter; NULL: none
    struct job_follower output, end;
    struct kernel_link link;
    struct kernel_frame frame; // read, and not handled yet
    bool has_frame, link_over, job_over;
    enum code_stop stop;
    struct err broke; // it broke the protocol: code is not 0
    uint64_t runs;    // number of the last one
    uint32_t forged;  // ends of earlier cells that its interpreter has sent
    uint32_t count;
    uint32_t waiting_n;
    struct list waiting;

    struct cgstat billed;          // counters of its interpreter at the end of the last cell
    struct cgstat_files *counters; // owned: the files that they are read from; or NULL
    struct code_run *current;
    uint8_t *burst; // owned: output that waits for more of it
    size_t burst_n;
    unsigned burst_stream;
    bool burst_waits; // for burst_timer
    bool begin_alone; // no event came within BEGIN_MS
    struct loop_timer *burst_timer, *later, *limit, *again, *closed, *gone;
    uint32_t interrupts; // of the cell, to make it end
    bool pumping, pump_again;
    struct live_op *op; // no cell begins before it has ended (live.h)
};

struct contexts {
    struct server *srv;
    struct idtable table;
    struct list list;
    unsigned observer;
    struct list checkpoints, ops; // live.c
    struct loop_timer *live_again;
};

// Ends the interpreter, for this reason, which the cell gets.
void context_kill(struct context *c, enum code_stop why);
// Starts an interpreter: DOWN to STARTING. Or with an image, which it frees in any case: to IDLE.
int context_start(struct context *c, struct image *from, struct err *e);
// Forgets the interpreter that has ended.
void context_down(struct context *c);

// Gives it an interpreter with the memory of a READY image, after `count` cells, instead of the one that it has. Frees the image.
int context_replace(struct context *c, struct image *from, uint32_t count, struct err *e);
// Makes a context like another one with such an interpreter.
int context_of_image(const struct context *like, struct image *from, uint32_t count,
                     struct context **out, struct err *e);
int context_check_room(const struct contexts *all, const struct sandbox *s, struct err *e);

// live.c
// Kills the interpreter when the operation of its context has ended, and keeps its link open until then.
void live_kill_later(struct context *c, const char *why);
void live_context_gone(struct context *c);
void live_sandbox_gone(struct contexts *all, const struct sandbox *s);
void live_end(struct contexts *all);
void live_go_on(void *cookie); // the contexts

// cell_output.c
// 0: the sink has it, or nobody waits for it. -EAGAIN: not now.
int cell_begin(struct code_run *r, bool more);
int cell_deliver(struct code_run *r, const struct code_event *ev);
// Sends the output that was collected: 0, or -EAGAIN.
void cell_deliver_end(struct code_run *r, const struct code_end *end);
int cell_flush(struct context *c, bool more);
void cell_burst_none(struct context *c);
void cell_burst_wait(struct context *c);
// n: at most BURST_MAX. 0: all were taken; -EAGAIN: none.
int cell_add_output(struct context *c, unsigned stream, const uint8_t *bytes, size_t n);
// Takes what the pipes have. 1: something was taken; 0: nothing is there; -EAGAIN.
int cell_take_pipes(struct context *c);
// Whatever was written before the end of a cell. A process that it left may go on writing.
int cell_take_all_pipes(struct context *c);

// cell_end.c
enum { CELL_REASON_MAX = 600 };
// Reads the counters of the interpreter: what is counted from now on is the next cell's.
void cell_bill_begin(struct context *c);
// The bill of a cell until now.
void cell_bill(const struct code_run *r, struct code_end *end);
// How a cell ends whose interpreter has ended.
void cell_end_with_kernel(struct context *c, struct code_end *end, char reason[CELL_REASON_MAX]);
void cell_end_by_frame(struct context *c, const struct kernel_frame *f, struct code_end *end);

// cell.c: does what can be done now: reads frames and output, sends events, begins the next cell.
void cell_pump(struct context *c);
// The same, later.
void cell_pump_soon(struct context *c, uint64_t ms);
// The running cell ends as cancelled.
void cell_cancel_current(struct context *c, const char *reason);
// All cells end as cancelled, without their remaining output.
void cell_cancel_all(struct context *c, const char *reason);
// Sends SIGINT until the running cell ends, and kills the interpreter after CONTEXT_GRACE_MS.
void cell_must_end(struct context *c, enum code_stop why);
