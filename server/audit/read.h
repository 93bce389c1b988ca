// SPDX-License-Identifier: Apache-2.0
// Reads the log while it is written: for AuditService. The files are read by threads of libuv's pool, a bounded piece at a time,
// and never beyond the last record that is stored, so no reader sees a half of one. Loop thread only.
//
//   audit_reader_new() -> audit_reader_next() -> done(batch) -> audit_reader_next() ...       List, Watch
//   audit_prove() -> done(proof)                                                               GetProof
//
// A reader belongs to its caller, which frees it at any time, also while a thread reads.
#pragma once

#include "audit.h"

enum {
    AUDIT_READERS_MAX = 64,
    AUDIT_READERS_OF_TENANTS = 48, // the others are for operators
    AUDIT_READERS_OF_TENANT = 16,
    AUDIT_READ_BYTES = 4 * 1024 * 1024, // of the log, in one piece
    AUDIT_BATCH_BYTES = 1024 * 1024,    // of records, in one batch
    AUDIT_METHOD = 97,
    AUDIT_OBJECT = 257,
    AUDIT_TENANT = 32,
};

// Which records; zero: all of them.
struct audit_query {
    bool all;                  // tenants; else those of:
    char tenant[AUDIT_TENANT]; //
    uint32_t kinds;            // bits 1 << body_case
    char method[AUDIT_METHOD], object[AUDIT_OBJECT];
    uint32_t phase;
    int64_t since_ns, until_ns; // 0: unset
};

// Records that match: each its length (4 bytes) and the packed record. Borrowed for the call.
struct audit_batch {
    const uint8_t *bytes;
    size_t n, records;
    uint64_t last;     // sequence of the last record that the reader has passed
    bool end;          // there is no other behind it now
    const char *proof; // of audit_reader_prove(): the proof as a text; NULL: not yet
};

struct audit_reader;
// e NULL: *b is set.
typedef void audit_read_done(void *cookie, const struct audit_batch *b, const struct err *e);

// NULL: *e says why (AUDIT_OFF, AUDIT_READERS). a may be NULL.
struct audit_reader *audit_reader_new(struct audit *a, uv_loop_t *loop, const struct audit_query *q,
                                      audit_read_done *done, void *cookie, struct err *e);
void audit_reader_free(struct audit_reader *r);

// Reads the next piece behind the record `after`, and at most `records` that match; `done` is called once, later.
void audit_reader_next(struct audit_reader *r, uint64_t after, size_t records);

// Calls `wake` when there are new records, and with `ends` when the log is about to be closed: free the reader then.
void audit_reader_watch(struct audit_reader *r, void (*wake)(void *cookie, bool ends));

// The sequence of the last record that is stored.
uint64_t audit_last(const struct audit *a);

// Looks for a job's proof, without its record, a piece at a time: call it again until `proof` is set; after `end`, when new records
// have come, because no checkpoint covers the job yet. NOT_FOUND: AUDIT_NO_JOB.
void audit_reader_prove(struct audit_reader *r, const char *process_id);
