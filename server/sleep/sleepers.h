// SPDX-License-Identifier: Apache-2.0
// Sandboxes that are asleep: their files are on the disk, and nothing of them is in memory.
//
//   (never slept) --Sleep, or idle--> falling --record written--> ASLEEP --a call, Wake--> WAKING --files laid--> AWAKE
//         ^                              |                          ^                        |                      |
//         +---- a call, or a failure ----+                          +------- a failure ------+                      |
//                                                                   +----- falling; or it, the broker or the host --+
//                                                                          was lost
//
// Falling asleep is a snapshot of the files, a record of the store with all layers, and the end of the sandbox, in this order; so a
// crash leaves a sandbox that is awake or one that is asleep, and never less than what was on the disk. Waking up takes a sandbox of
// the pool, which gets the id of the earlier one, and shows it the layers: nothing is copied. The record stays until the sandbox falls
// asleep again, is deleted, or its time to live ends. So a sandbox that is lost while it is awake is as it was when it had slept
// last, and says so (`fell_back`).
//
// A call about a sandbox that is asleep waits in front of its handler (dispatch_gate) until it is awake. Loop thread only. What a
// sandbox has written is hostile; nothing here opens it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/arena.h"
#include "proto/err.h"
#include "server/base/idtable.h"
#include "server/base/list.h"
#include "server/rpc/dispatch.h"
#include "stockade/v1/sandbox_service.pb-c.h"

struct fall;
struct limits;
struct sandbox;
struct server;
struct sleep_waiter;
struct sleepers;
struct stored;
struct wake;

enum sleeper_state { SLEEPER_ASLEEP, SLEEPER_WAKING, SLEEPER_AWAKE };

// What it lost with its processes, and when.
struct sleep_facts {
    int64_t sleep_ms, wake_ms; // CLOCK_REALTIME; wake_ms 0: it is asleep
    bool idle, fell_back;
    uint32_t processes, contexts, operations, connections;
};

// Read-only for others.
struct sleeper {
    struct idnode id; // must be first
    struct list node; // by `order`
    struct sleepers *all;
    enum sleeper_state state;
    bool leaving; // something of the sandbox that it was is left
    char tenant[32], name[65], template[64];
    uint64_t order; // as of sandboxes
    int64_t created_ms, expires_ms;
    struct sleep_facts facts;
    struct stored *record;
    struct wake *wake;   // WAKING
    struct list waiting; // calls
};

struct sleep_settings {
    const struct limits *limits_held; // borrowed, as for limits_resolve()
    // A sandbox as Get shows it. NULL: the arena is full.
    Stockade__V1__Sandbox *(*describe)(struct arena *a, const struct sandbox *s);
};

// Reads the records of the store, which must exist (srv->store; NULL: nothing can sleep), and observes the sandboxes. NULL: out of
// memory.
struct sleepers *sleepers_new(struct server *srv, const struct sleep_settings *settings);
// Nobody waits any more. Accepts NULL.
void sleepers_stop(struct sleepers *all);
// When no sandbox is left. Accepts NULL.
void sleepers_free(struct sleepers *all);

// As dispatch_set_gate() wants it, with the sleepers as cookie.
dispatch_gate sleepers_gate;

// Starts to put a sandbox to sleep. done is called once, unless sleep_unwait() comes before: with the sleeper, or with the failure.
// Errors: SandboxService.Sleep.
typedef void sleep_done(void *cookie, const struct sleeper *sl, const struct err *e);
int sleepers_sleep(struct sleepers *all, struct sandbox *s, bool stop, sleep_done *done,
                   void *cookie, struct sleep_waiter **out, struct err *e);
void sleep_unwait(struct sleep_waiter *w);

// Starts to forget a sandbox of a caller, by id or name: its record goes, and it stays where it is if it is here. 1: it has no record.
// 0: done is called once, unless sleep_unwait() comes before (then it is forgotten all the same), with `sl` NULL.
int sleepers_forget(struct sleepers *all, const char *tenant, const char *name, sleep_done *done,
                    void *cookie, struct sleep_waiter **out, struct err *e);

// One that is not here, asleep or waking up, by id or name. NULL: there is none.
const struct sleeper *sleepers_find(const struct sleepers *all, const char *tenant,
                                    const char *name);

// The id of a sandbox of a caller, here or not, by id or name. NULL and NOT_FOUND: there is none.
const char *sleepers_id(const struct sleepers *all, const char *tenant, const char *name,
                        struct err *e);

// What is known of a sandbox that slept before; NULL: it never did.
const struct sleeper *sleepers_of(const struct sleepers *all, const struct sandbox *s);

// The next one of a caller that is not here, in the order of sandboxes, after this order. NULL: none.
const struct sleeper *sleepers_next(const struct sleepers *all, const char *tenant, uint64_t after);

// It as Get shows it, and its last sleep. NULL: the arena is full, or its record is damaged.
Stockade__V1__Sandbox *sleeper_message(struct arena *a, const struct sleeper *sl);
Stockade__V1__Sleep *sleeper_facts(struct arena *a, const struct sleeper *sl);
