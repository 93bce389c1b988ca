// SPDX-License-Identifier: Apache-2.0
// Shared by silences.c (what is in force), acknowledged.c, and silences_store.c (the database).
#pragma once

#include "silences.h"

enum { ACKNOWLEDGED_BUCKETS = 1024 };

struct silences {
    struct state *state;
    struct list silences, acknowledged; // by time
    struct list writing;                // operations
    struct acknowledged *bucket[ACKNOWLEDGED_BUCKETS];
    uint32_t silences_n; // with those that are being written
    uint32_t acknowledged_n;
    uint64_t order;
};

enum acknowledging {
    ACKNOWLEDGING,
    ACKNOWLEDGING_DISPLACES, // the oldest of its tenant, because all were full when it came
    ACKNOWLEDGING_ENDS,      // `acknowledged` names what is removed
};

struct silences_op {
    struct list node; // in writing
    struct silences *all;
    silences_done *done; // NULL: nobody waits
    void *cookie;
    // What takes effect when it is on the disk; one of them.
    struct silence *silence; // owned until then
    struct acknowledged *acknowledged;
    enum acknowledging what;       // of `acknowledged`
    char removed[FINDING_SILENCE]; // the id of a silence
};

// Takes what belongs to it into the lists, or out of them.
void silences_add(struct silences *all, struct silence *s);
void silences_remove(struct silences *all, struct silence *s); // and frees it
struct silence *silences_find(const struct silences *all, const char *id);
void acknowledged_add(struct silences *all, struct acknowledged *a);
void acknowledged_remove(struct silences *all, struct acknowledged *a); // and frees it
void acknowledged_free(struct acknowledged *a);
// The oldest of the tenant, and their number.
struct acknowledged *acknowledged_oldest(const struct silences *all, const char *tenant,
                                         bool by_host, uint32_t *n);

// silences_store.c: begins to write an operation, and to remove a row that nobody waits for.
int silences_write(struct silences_op *op, struct err *e);
void silences_forget(struct silences *all, const char *id);
void acknowledged_forget(struct silences *all, const struct acknowledged *a);
// silences.c: it is on the disk, or failed (e). Frees it.
void silences_finish(struct silences_op *op, const struct err *e);
