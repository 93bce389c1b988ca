// SPDX-License-Identifier: Apache-2.0
// The use of one owner, one number per account, and the place where it is stored. Every quota of a tenant is a charge
// with a maximum.
//
//   charge --> above the maximum? -EDQUOT --> the store refuses? UNAVAILABLE, nothing has changed --> held grows
//   release --> held shrinks; what the store does not accept now is saved again later
//
// A store is a row of functions. "memory" is the first: its contents end with the process. A lasting store is read
// when the owner is first charged, and gets absolute numbers, so saving twice is harmless, and the next save repairs
// a lost one. It decides which accounts it stores: those of connections, calls and bytes end with the process anyway.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proto/err.h"

enum ledger_account {
    LEDGER_CONNECTIONS,
    LEDGER_CALLS,
    LEDGER_BYTES,       // of large frames, requests, replies, and output
    LEDGER_KEYS,        // idempotency keys
    LEDGER_KEY_BYTES,   // of results kept for them
    LEDGER_KEY_WRITES,  // changes of them that wait for the disk
    LEDGER_SANDBOXES,   // including promised ones, without those that are being removed
    LEDGER_JOBS,        // that run
    LEDGER_KEPT,        // jobs that have ended and can still be attached to
    LEDGER_LAYER_BYTES, // of layers of files that forks share
    LEDGER_LAYERS,      // of files, in memory
    LEDGER_CPU_MILLIS,  // limits of sandboxes, also of promised ones
    LEDGER_MEMORY_BYTES,
    LEDGER_DISK_BYTES,
    LEDGER_LEAVING_SANDBOXES, // that are being removed, and what they still hold
    LEDGER_LEAVING_CPU_MILLIS,
    LEDGER_LEAVING_MEMORY_BYTES,
    LEDGER_LEAVING_DISK_BYTES,
    LEDGER_ACCOUNTS,
};

// Loop thread only; neither function may block for long or call back. `state` is the store's own, and `owner` is borrowed.
struct ledger_store {
    const char *name;
    bool lasts; // an owner whom nobody holds may still hold something there
    // Writes all accounts into held, 0 for those that it does not keep. On failure e says why, and nothing is loaded.
    int (*load)(void *state, const char *owner, uint64_t held[LEDGER_ACCOUNTS], struct err *e);
    // From now on the owner holds this much. On failure the earlier number still stands in the store.
    int (*save)(void *state, const char *owner, enum ledger_account a, uint64_t held,
                struct err *e);
};

extern const struct ledger_store ledger_memory;

// One owner's. Zeroed at first; the functions below alone change it. Embedded; owns nothing.
struct ledger {
    uint64_t held[LEDGER_ACCOUNTS];
    uint32_t unsaved; // bits of accounts whose last release the store did not take
    bool loaded;
};

// The place where an owner's ledger is stored. Borrowed; must stay valid as long as there are owners.
struct ledger_keeper {
    const struct ledger_store *store; // NULL: ledger_memory
    void *state;
};

// As tables and errors name it: "sandboxes".
const char *ledger_account_name(enum ledger_account a);

// Adds n. -EDQUOT: the sum would exceed max, and e is unchanged (the caller knows the words). Other negative numbers: the
// store failed, and e says so: UNAVAILABLE. Nothing has changed in either case.
int ledger_charge(struct ledger *l, const struct ledger_keeper *k, const char *owner,
                  enum ledger_account a, uint64_t n, uint64_t max, struct err *e);

// Takes n of what was charged away. Cannot fail.
void ledger_release(struct ledger *l, const struct ledger_keeper *k, const char *owner,
                    enum ledger_account a, uint64_t n);

// Saves again what the store did not take. False: it still does not.
bool ledger_settle(struct ledger *l, const struct ledger_keeper *k, const char *owner);

// Nothing is held, or the store lasts.
bool ledger_may_rest(const struct ledger *l, const struct ledger_keeper *k);
