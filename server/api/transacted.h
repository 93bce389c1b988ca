// SPDX-License-Identifier: Apache-2.0
// Transactions for the streams that begin one: Start and RunCode.
//
//   transacted_begin() -> on_ready: the sandbox to run in -> ... -> transacted_wait() -> on_settled -> transacted_outcome()
#pragma once

#include <stdbool.h>

#include "proto/arena.h"
#include "server/rpc/call.h"
#include "server/snapshot/transaction.h"
#include "stockade/v1/transaction_service.pb-c.h"

// Embedded in a stream; zeroed before.
struct transacted {
    struct transaction_begin *begin; // until it has begun
    struct transaction *t;           // held; NULL: none
    struct transaction_waiter waiter;
    bool waits;
    // e NULL: `inside` is the sandbox to run in.
    void (*on_ready)(void *cookie, struct sandbox *inside, const struct err *e);
    void *cookie;
};

// Begins a transaction of a sandbox; on_ready is called once, perhaps before this returns, unless transacted_drop() comes
// before.
int transacted_begin(struct transacted *x, struct server *s, struct sandbox *sb,
                     Stockade__V1__TransactionPolicy policy, struct err *e);

// True: it is settled. False: on_settled will be called.
bool transacted_wait(struct transacted *x, void (*on_settled)(void *cookie));

// For the last message. NULL: out of memory.
Stockade__V1__TransactionOutcome *transacted_outcome(struct arena *a, const struct transacted *x);

// The job could not be started: the transaction is discarded. Does nothing without one.
void transacted_fail(struct transacted *x);

// Nobody waits any more. A transaction that has begun goes on.
void transacted_drop(struct transacted *x);
