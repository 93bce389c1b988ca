// SPDX-License-Identifier: Apache-2.0
// Checks files of the audit log with the public key alone: is every record there, in its place, and as it was when it was signed?
//
//   audit_verify_new --> audit_verify_file (each, in the order of their numbers) --> audit_verify_end --> audit_verify_free
//
// Each problem is reported once, with file, offset and sequence. Any thread.
#pragma once

#include "audit.h"

struct audit_verify;

enum audit_problem_kind {
    AUDIT_MISSING,   // records that should be there are not
    AUDIT_CHANGED,   // a record is not the one that was written, or not the one that was signed
    AUDIT_REORDERED, // a record is not in its place
    AUDIT_TORN,      // bytes at the end of a file are no record, and no later start reports them
    AUDIT_FOREIGN,   // another key signed
    AUDIT_PROBLEMS,
};

struct audit_problem {
    enum audit_problem_kind kind;
    const char *file;
    uint64_t offset;
    uint64_t sequence; // 0: unknown
    const char *text;  // one sentence
};
typedef void audit_problem_fn(void *cookie, const struct audit_problem *p);

// What was found.
struct audit_verified {
    bool whole; // no problem
    uint32_t files, recovered;
    uint64_t first, last; // sequences; 0: no record
    uint64_t records, checkpoints, calls, jobs;
    uint64_t missed;     // records that the broker itself says it could not keep
    uint64_t not_signed; // records after the last checkpoint
    // records at the beginning, whose checkpoint covers others that are not in these files
    uint64_t not_covered;
    uint32_t starts, kills; // starts, and those before which the broker had not stopped
    uint8_t head[AUDIT_HASH];
    int64_t signed_s;       // time of the last checkpoint; 0: none
    uint32_t rekeyed;       // changes of the key
    uint8_t key[AUDIT_KEY]; // that signs what follows
};

// keys: at least one, of which any may have signed the first checkpoint. From then on a checkpoint is signed by the key of the one
// before, or by the next key that it names. Free it with audit_verify_free().
int audit_verify_new(const uint8_t (*keys)[AUDIT_KEY], uint32_t keys_n, audit_problem_fn *problem,
                     void *cookie, struct audit_verify **out, struct err *e);
void audit_verify_free(struct audit_verify *v);

// The next file; `name` for problems. Negative: it cannot be read.
int audit_verify_file(struct audit_verify *v, int fd, const char *name, struct err *e);

// After the last file.
struct audit_verified audit_verify_end(struct audit_verify *v);
