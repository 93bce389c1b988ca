// SPDX-License-Identifier: Apache-2.0
// Transactions: changes to the files of a sandbox that take effect together, or not at all.
//
//   begin     (seal the files of the sandbox: the layer `base`) -> a fork of it, in which jobs of the transaction run
//   commit    seal both -> the fork's layers become layers of the sandbox (GRAFT), on its top one -> if the sandbox has changed
//             since `base`: look for conflicts -> show them (RESTORE) -> the fork ends
//   discard   the fork ends
//
//   sandbox   base <- top <- [grafted layers] <- (now)
//   fork      base <- its layers <- (now)
//
// The layer `base` stays in the sandbox while the transaction is open, so that it can be said what has changed since. Both
// sandboxes may end at any time, and are found again by their ids. When the fork ends, the transaction is discarded; when the sandbox ends,
// so is the fork. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"
#include "server/base/idtable.h"
#include "server/base/list.h"
#include "conflicts.h"

struct commit;
struct job;
struct pool;
struct sandbox;
struct server;
struct transaction_begin;
struct transactions;

enum {
    TRANSACTIONS_ENDED = 64,   // ended ones of a sandbox that are remembered
    TRANSACTION_CHANGES = 100, // of an outcome
};
#define TRANSACTION_SNAPSHOT "begin" // in the fork

// Numbers as in stockade.v1.TransactionPolicy and TransactionState.
enum transaction_policy { TRANSACTION_NONE, TRANSACTION_ASK, TRANSACTION_ON_SUCCESS };
enum transaction_state { TRANSACTION_OPEN = 1, TRANSACTION_COMMITTED, TRANSACTION_DISCARDED };

// Read-only for others.
struct transaction {
    struct list node; // of all, oldest first
    struct transactions *all;
    uint64_t order;
    uint32_t refs;
    char id[ID_TEXT_MAX + 1], sandbox[ID_TEXT_MAX + 1], tenant[32]; // id: that of the fork
    int64_t created_ms;                                             // CLOCK_REALTIME
    enum transaction_policy policy;
    enum transaction_state state;
    uint32_t base, base_inside; // the layer of its begin, in the sandbox and in the fork
    bool counted;               // as open, by the metrics
    bool orphaned;              // the sandbox has ended
    bool fork_gone;             // while it was open: its base is to be given up
    struct commit *commit;      // in progress
    struct err refused;         // the last commit's failure; code 0: none
    struct conflict_list conflicts;
    struct settling *settling; // NULL: nothing waits for the end of its job
    bool settled;
    // Of its job, when it is settled: packed SnapshotServiceDiffResponse, owned. NULL: `unknown` says why.
    uint8_t *changes;
    size_t changes_n;
    struct err unknown;
};

// NULL: out of memory.
struct transactions *transactions_new(struct server *srv);
// Call it when no sandbox is left. Accepts NULL.
void transactions_free(struct transactions *all);

struct transaction_want {
    enum transaction_policy policy;
    bool stop;       // cancel the jobs that run first
    uint64_t ttl_ms; // 0: that of the sandbox
};

// Begins one. done is called once, perhaps before this returns, unless transaction_begin_cancel() comes before: then none is left.
// A failure of this call leaves *out NULL. FAILED_PRECONDITION: jobs run, or the sandbox is not RUNNING. RESOURCE_EXHAUSTED.
typedef void transaction_done(void *cookie, struct transaction *t, const struct err *e);
int transaction_begin(struct transactions *all, struct sandbox *s,
                      const struct transaction_want *want, transaction_done *done, void *cookie,
                      struct transaction_begin **out, struct err *e);
void transaction_begin_cancel(struct transaction_begin *b);

// NULL and NOT_FOUND: the caller has none of this id.
struct transaction *transaction_find(const struct transactions *all, const char *tenant,
                                     const char *id, struct err *e);
struct list *transactions_list(struct transactions *all);

// Open ones that change a sandbox, or whose jobs run in it. `all` may be NULL.
uint32_t transactions_open(const struct transactions *all, const struct sandbox *s);

// The sandbox in which its jobs run. NULL and ABORTED: it has ended.
struct sandbox *transaction_inside(const struct transaction *t, struct err *e);

// Starts to commit it. done is called once, later, unless transaction_unwait() comes before: the commit goes on. ABORTED
// (TRANSACTION_CONFLICT): `conflicts` has the paths. FAILED_PRECONDITION: it is not open, or jobs run.
// stop: where jobs are cancelled first.
enum transaction_stop { TRANSACTION_STOP_INSIDE = 1, TRANSACTION_STOP_OUTSIDE = 2 };
int transaction_commit(struct transaction *t, unsigned stop, transaction_done *done, void *cookie,
                       struct err *e);
void transaction_unwait(struct transaction *t);

// Does nothing if it was discarded. FAILED_PRECONDITION: it is being committed, or was.
int transaction_discard(struct transaction *t, struct err *e);

// Its job or cell has ended: finds out what it changed, and does what the policy says (stop: of the commit). Or: does that when this
// job ends.
void transaction_settle(struct transaction *t, bool success, unsigned stop);
void transaction_follow(struct transaction *t, struct job *j);

// Waits until it is settled. Embedded; done is called once, unless transaction_unawait() comes before.
struct transaction_waiter {
    struct list node;
    void (*done)(void *cookie);
    void *cookie;
};
void transaction_await(struct transaction *t, struct transaction_waiter *w);
void transaction_unawait(struct transaction_waiter *w);

// For who keeps a pointer to it.
struct transaction *transaction_hold(struct transaction *t);
void transaction_let_go(struct transaction *t); // accepts NULL
