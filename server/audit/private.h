// SPDX-License-Identifier: Apache-2.0
// The log, as audit.c (loop thread), writer.c (its thread), files.c and recover.c (before the thread, and in it) share it.
#pragma once

#include "audit.h"

enum {
    AUDIT_RETRY_MS = 500,
    AUDIT_LINGER_MS = 20,
    AUDIT_NAME = 32,    // bytes of a file's name
    AUDIT_CHUNK = 1024, // records that are written at once
    AUDIT_CHUNK_BYTES = 256 * 1024,
    AUDIT_TORN_MAX = 64,
};

// Where the chain ends, and what the next checkpoint covers.
struct audit_chain {
    uint64_t sequence; // of the last record; 0: none
    uint8_t head[AUDIT_HASH];
    uint64_t first;             // of the records since the last checkpoint
    uint8_t before[AUDIT_HASH]; // hash of the record before it
    uint32_t leaves_n;
};

// The file that is written to.
struct audit_file {
    int fd;
    uint32_t number;
    uint64_t bytes; // of whole frames
};

struct audit_torn {
    char file[AUDIT_NAME];
    uint64_t offset, bytes;
};

// What the start found.
struct audit_found {
    struct audit_torn torn[AUDIT_TORN_MAX];
    uint32_t torn_n;
    uint64_t changed;
};

// A queue: records, each behind its length (4 bytes).
struct audit_buffer {
    uint8_t *bytes; // AUDIT_QUEUE_BYTES
    size_t n;
    uint64_t records;
};

// Of the writer, since the start.
struct audit_figures {
    uint64_t records, bytes, checkpoints, failures;
};

struct audit_missed {
    uint64_t calls, jobs;
    int64_t since_ns, since_boot_ns;
};

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): one part per thread
struct audit {
    struct audit_settings settings;
    char folder[AUDIT_PATH];
    int dir;
    uint8_t secret[AUDIT_SECRET], public_key[AUDIT_KEY];
    struct audit_found found;
    // ---- shared with the writer, under `lock`
    uv_mutex_t lock;
    uv_cond_t wake;
    struct audit_buffer filling;
    bool waited; // a call waits for `filling`
    bool ends;
    uint64_t stored; // records that are as durable as `sync` says
    bool failing;
    struct err why; // ... because of this
    struct audit_figures figures;
    // ---- loop thread
    uint64_t queued, known_stored, calls;
    bool known_failing;
    struct err known_why;
    struct audit_missed missed;
    struct audit_figures counted;
    struct list waits;
    bool runs;
    uv_thread_t writer;
    uv_async_t *async; // freed by the loop
    // ---- writer; before it runs, loop thread
    struct audit_buffer taken;
    struct audit_file file;
    struct audit_chain chain;
    uint8_t (*leaf)[AUDIT_HASH], (*scratch)[AUDIT_HASH];
    uint32_t leaves_max;
    uint8_t *out;                                  // frames of a chunk
    uint64_t unsigned_since_ns, unsynced_since_ns; // uv_hrtime(); 0: none
    uint64_t written, written_bytes, checkpoints;
};

// recover.c: finds the chain's end in the files of the folder; allocates `leaf` and `scratch`.
int audit_recover(struct audit *a, struct err *e);

// files.c
void audit_name(uint32_t number, char out[AUDIT_NAME]);
// The number in a file's name; 0: it is no file of the log.
uint32_t audit_name_read(const char *name);
// Numbers of all files, ascending. *out: free it. Returns how many, or a negative errno.
int audit_list(const struct audit *a, uint32_t **out, struct err *e);
int audit_key_open(const char *path, const char *public_path, struct audit *a, struct err *e);
// Opens the last file at its end, or the next one.
int audit_file_open(struct audit *a, uint32_t number, bool make, struct err *e);

// writer.c
void audit_run(void *audit);
int audit_writer_prepare(struct audit *a, struct err *e);
// Packs a record with both clocks of now behind its length. Returns 0, or -EMSGSIZE, -ENOSPC.
int audit_put(struct audit_buffer *b, size_t room, Stockade__V1__AuditRecord *m);
