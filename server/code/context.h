// SPDX-License-Identifier: Apache-2.0
// Contexts: interpreters in sandboxes, and the cells that run in them.
//
//   DOWN --a cell, or context_create--> STARTING --ready--> IDLE <--run, done--> BUSY
//     ^                                    |                 |                    |
//     +------- its process ended, or it broke the protocol --+--------------------+
//
// The interpreter is a job of the sandbox (job.h) with a link (kernel.h), so it has its limits, its bill, its record and a
// cgroup of its own. A context outlives its interpreter: the next cell starts another. It ends with its sandbox.
//
// Cells of a context run one after the other. A cell has a sink, which gets its events. When the sink takes no more, nothing
// is read from the interpreter, and it waits in its write(2). Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/base/idtable.h"
#include "server/sandbox/bill.h"
#include "kernel.h"

struct code_run;
struct context;
struct contexts;
struct sandbox;
struct server;
struct Stockade__V1__EnvironmentVariable;

enum {
    CONTEXTS_OF_SANDBOX = 32,
    CONTEXT_WAITING_MAX = 16,
    CONTEXT_GRACE_MS = 3000, // after the first interrupt of a cell that must end
};

// Numbers as in stockade.v1.CodeState.
enum context_state { CONTEXT_STARTING = 1, CONTEXT_IDLE, CONTEXT_BUSY, CONTEXT_DOWN };

struct context_spec {
    const char *language; // "": python
    const char *workdir;  // "": the template's
    struct Stockade__V1__EnvironmentVariable *const *env;
    size_t env_n;
    bool is_default;
    bool one_shot; // it is alone in its sandbox
};

struct code_begin {
    const char *context_id, *sandbox_id;
    bool fresh;
};

struct code_end {
    enum code_status status;
    uint32_t count;
    bool lost;
    const char *reason;
    struct bill bill;
    struct limit_hits hits; // the first ended the interpreter, if there is one
};

enum code_event_kind { CODE_BEGIN, CODE_OUTPUT, CODE_RESULT, CODE_FAILURE, CODE_END };

// Pointers are borrowed for the call.
struct code_event {
    enum code_event_kind kind;
    bool more; // another one follows at once: they can be sent together
    struct code_begin begin;
    unsigned stream; // OUTPUT: enum output_stream
    const uint8_t *bytes;
    size_t n;
    const struct kernel_frame *result;
    struct kernel_error failure;
    const struct code_end *end;
};

struct code_sink {
    // 0: taken. -EAGAIN: not now; code_run_go_on() follows. After END the run does not exist any more.
    int (*event)(void *cookie, const struct code_event *ev);
    void *cookie;
};

// Creates the table of the broker, which registers itself as an observer of sandboxes. NULL: out of memory.
struct contexts *contexts_new(struct server *srv);
// When no sandbox is left. Accepts NULL.
void contexts_free(struct contexts *all);

// Makes a context and starts its interpreter. INVALID_ARGUMENT (language, workdir), RESOURCE_EXHAUSTED, FAILED_PRECONDITION.
// *out is borrowed until it is deleted or its sandbox goes.
int context_create(struct contexts *all, struct sandbox *s, const struct context_spec *spec,
                   struct context **out, struct err *e);

// The default context of a sandbox for a language, made if necessary.
int context_default(struct contexts *all, struct sandbox *s, const char *language,
                    struct context **out, struct err *e);

// Finds a context of the caller: NOT_FOUND.
struct context *context_find(struct contexts *all, const char *tenant, const char *id,
                             struct err *e);

// See CodeService.
void context_restart(struct context *c);
void context_interrupt(struct context *c);
void context_delete(struct context *c);

// Runs a cell when it is its turn; the text is copied. timeout_ms 0: none. On success *out is borrowed until END, or until
// code_run_abandon(). RESOURCE_EXHAUSTED: too many wait. No event is sent before this returns.
int context_run(struct context *c, const char *text, uint64_t timeout_ms, uint64_t arrived_ns,
                const struct code_sink *sink, struct code_run **out, struct err *e);

// The sink takes events again.
void code_run_go_on(struct code_run *r);

// Nobody waits for it any more: a waiting cell is removed; a running one is interrupted, and its interpreter is killed
// if it does not end. No further event is sent.
void code_run_abandon(struct code_run *r);

// All files may read it; only context.c writes it.
struct context_view {
    const char *id, *sandbox_id, *language, *workdir;
    enum context_state state;
    uint32_t count, waiting;
    int64_t created_ms;
    bool is_default;
    const char *process_id; // ""
};
void context_view(const struct context *c, struct context_view *out);

// Interpreters that run no cell, and for which none waits.
uint32_t contexts_at_rest(const struct contexts *all);

// Calls fn for each context of a sandbox, oldest first.
void contexts_each(struct contexts *all, const struct sandbox *s,
                   void (*fn)(void *cookie, const struct context *c), void *cookie);
