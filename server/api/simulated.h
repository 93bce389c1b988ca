// SPDX-License-Identifier: Apache-2.0
// Simulations for the streams that begin one: Run, Start and RunCode.
//
//   simulated_read() -> simulated_fork() or simulated_fresh() -> on_ready: the sandbox to run in -> ... -> simulated_wait() -> on_end
//   -> simulated_outcome()
#pragma once

#include <stdbool.h>

#include "proto/arena.h"
#include "server/base/idtable.h"
#include "server/rpc/call.h"
#include "stockade/v1/simulation.pb-c.h"

struct sandbox;
struct sandbox_spec;
struct simulate;
struct simulation;

// Embedded in a stream; zeroed before.
struct simulated {
    struct server *s;
    struct simulation *simulation; // counted; NULL: the call is real
    struct simulate *run;
    bool ending, ended;
    bool beginning_to_end;            // simulated_wait() has not returned
    char process_id[ID_TEXT_MAX + 1]; // for its record; "": no process began
    bool volumes, root_writable;      // what it cannot show
    // e NULL: `inside` is the sandbox to run in. Then, after simulated_wait(): its outcome is known.
    void (*on_ready)(void *cookie, struct sandbox *inside, const struct err *e);
    void (*on_end)(void *cookie);
    void *cookie;
};

// The fields `mode` and `answers` of a request. INVALID_ARGUMENT.
struct simulated_fields {
    Stockade__V1__JobMode mode;
    size_t answers_n;
    Stockade__V1__SimulatedAnswer *const *answers;
};
int simulated_read(struct simulated *x, struct server *s, const struct simulated_fields *m,
                   struct err *e);
bool simulated_is_on(const struct simulated *x);

// Begins; on_ready is called once, perhaps before this returns, unless simulated_drop() comes before. The second one takes *spec, also on
// failure.
int simulated_fork(struct simulated *x, struct sandbox *parent, struct err *e);
int simulated_fresh(struct simulated *x, const char *tenant, struct sandbox_spec *spec,
                    struct err *e);

// The process has begun.
void simulated_process(struct simulated *x, const char *process_id);

// True: the outcome is known, and nothing of the sandbox is left. False: on_end will be called.
bool simulated_wait(struct simulated *x);

// For the last message. NULL: out of memory.
Stockade__V1__SimulationOutcome *simulated_outcome(struct arena *a, const struct simulated *x);

// The same for a call that a policy refuses.
Stockade__V1__SimulationOutcome *simulated_refused(struct arena *a, const struct call *c);

// Ends it, with its sandbox.
void simulated_drop(struct simulated *x);
