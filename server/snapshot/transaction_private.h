// SPDX-License-Identifier: Apache-2.0
// Shared by transaction.c (which there are, begin and end), commit.c, and settle.c (after the job of one).
#pragma once

#include "transaction.h"

struct transactions {
    struct server *srv;
    struct list list;
    uint64_t order;
    struct loop_timer *timer; // to end the forks of sandboxes that have ended
};

// A sandbox that is not being deleted; NULL: there is none.
struct sandbox *transaction_sandbox(const struct transactions *all, const char *tenant,
                                    const char *id);

// It is not open any more: its base and, unless the fork is being deleted already, the fork go.
void transaction_end(struct transaction *t, enum transaction_state state, const char *why);

// settle.c: frees what it has.
void transaction_unsettle(struct transaction *t);
