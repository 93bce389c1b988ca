// SPDX-License-Identifier: Apache-2.0
// A queue on disk of records that wait for a receiver: a folder of segments, each a file of records, oldest first.
//
//   FOLDER/0000000000000001.q    length, CRC-32, time, bytes; length, CRC-32, time, bytes; ...
//   FOLDER/0000000000000002.q    <- records are appended here
//   FOLDER/done                  how much of the first segment was delivered
//
// Segments and not a database: a segment that was delivered, or must make room, is one unlink(2), which needs no free space, so
// a full disk empties by itself; SQLite's log needs space even to delete. An append is one write(2): after kill -9 a
// record is there or it is not; half a record is removed at the next start. Not synced: a power failure may take the last seconds.
//
// At least once: a record is removed after queue_done(). The queue has at most `bytes_max` bytes; when a record does not fit, the
// oldest segment is dropped, and its records are counted. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/err.h"

enum {
    QUEUE_SEGMENTS = 32,            // of bytes_max, at least
    QUEUE_RECORD_MAX = 1024 * 1024, // bytes
    QUEUE_BYTES_MIN = 1024 * 1024,  // of bytes_max
};

struct queue;

struct queue_numbers {
    uint64_t records, bytes; // that wait, including those that were taken
    int64_t oldest_ns;       // time of the oldest; 0: empty
    uint64_t accepted;       // records put since the start
    uint64_t dropped;        // records, because the queue was full
    uint64_t damaged;        // places in files that could not be read; each is one record or more
    uint64_t failed;         // writes
};

// Opens the folder, or creates it, 0700, and finds the records of an earlier start. FAILED_PRECONDITION: another process has
// it open.
struct queue *queue_open(const char *folder, uint64_t bytes_max, struct err *e);
void queue_close(struct queue *q); // keeps the records

// Appends a record, whole or not at all. A negative errno: -ENOSPC, -EIO, ..., or -EMSGSIZE above QUEUE_RECORD_MAX.
int queue_put(struct queue *q, const void *bytes, size_t n, int64_t time_ns);

// Takes the oldest records, at most `records` and about `bytes`, but at least one. Returns their number, and their bytes one
// behind the other: *out is *owned*, free(3). 0: none waits, or out of memory. Nothing else can be taken until one of:
size_t queue_take(struct queue *q, size_t records, size_t bytes, uint8_t **out, size_t *out_n);
void queue_done(struct queue *q);  // they were delivered, or are given up
void queue_again(struct queue *q); // they are taken again

const struct queue_numbers *queue_numbers(const struct queue *q);
