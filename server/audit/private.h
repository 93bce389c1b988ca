// SPDX-License-Identifier: Apache-2.0
// The log, as audit.c (loop thread), writer.c and sync.c (its thread), files.c and recover.c (before the thread, and in it) share it.
#pragma once

#include "audit.h"
#include "server/base/writer_thread.h"

enum {
    AUDIT_RETRY_MS = 500,
    AUDIT_LINGER_MS = 20,
    AUDIT_NAME = 32, // bytes of a file's name
    AUDIT_KEY_PATH = AUDIT_PATH + 2 * AUDIT_NAME,
    AUDIT_CHUNK = 1024, // records that are written at once
    AUDIT_CHUNK_BYTES = 256 * 1024,
    AUDIT_TORN_MAX = 64,
    AUDIT_UNSYNCED_BYTES = 4 * 1024 * 1024,
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
    uint64_t bytes;  // of whole frames
    uint64_t synced; // of them, on the disk for certain
    bool suspect;    // fdatasync(2) failed: what is behind `synced` may be lost
};

// Frames behind `synced`, as they are in the file.
struct audit_unsynced {
    uint8_t *bytes; // AUDIT_UNSYNCED_BYTES; NULL with AUDIT_SYNC_NONE
    size_t n;
};

// What was written to another file because the disk failed; bytes 0: nothing.
struct audit_moved {
    char file[AUDIT_NAME];
    uint64_t offset, bytes;
    int error; // errno
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
    // the beginning of the public key that signs after the last checkpoint: the one that it names, or its own
    uint8_t key_id[AUDIT_KEY_ID];
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
    const struct audit_system *system;
    char folder[AUDIT_PATH];
    int dir;
    char key_path[AUDIT_KEY_PATH], public_path[AUDIT_KEY_PATH], changes_path[AUDIT_KEY_PATH];
    struct audit_found found;
    struct writer_thread writer;
    // ---- shared with the writer, under its lock
    struct audit_buffer filling;
    // `filling` is to be written now: a call waits for it, or it is AUDIT_LINGER_MS old
    bool waited;
    bool ends;
    uint64_t stored; // records that are as durable as `sync` says
    uint64_t last;   // sequence of the last record that is stored
    bool failing;
    struct err why; // ... because of this
    struct audit_figures figures;
    uint8_t keys[AUDIT_KEYS_MAX][AUDIT_KEY]; // public, oldest first
    uint32_t keys_n;
    uint8_t changes[AUDIT_CHAIN_MAX]; // of the key: a packed AuditKeyChain
    size_t changes_n;
    bool rekey_asked, rekey_done; // done: rekey_why is the answer
    bool rekey_failed;
    struct err rekey_why;
    // ---- loop thread
    struct audit_rekey *rekey; // who waits for it; NULL: nobody
    uint64_t queued, known_stored, calls;
    bool known_failing;
    struct err known_why;
    struct audit_missed missed;
    struct audit_figures counted;
    struct list waits;
    struct list readers;
    unsigned readers_n;
    uint64_t known_last, wake_round;
    uv_loop_t *loop;           // borrowed; NULL: it does not run
    struct loop_timer *linger; // set while records may be in the queue that no call waits for
    // ---- writer; before it runs, loop thread
    uint8_t secret[AUDIT_SECRET], public_key[AUDIT_KEY]; // that signs
    bool key_is_next;                                    // it is in audit.key.next still
    uint8_t change[AUDIT_ROTATION_MAX];                  // the last one of the key in the log
    size_t change_n;                                     // 0: none
    struct audit_buffer taken;
    struct audit_file file;
    struct audit_unsynced unsynced;
    struct audit_moved moved;
    struct audit_chain chain;
    uint8_t (*leaf)[AUDIT_HASH], (*scratch)[AUDIT_HASH];
    uint32_t leaves_max;
    uint8_t *out;                                  // frames of a chunk
    uint64_t unsigned_since_ns, unsynced_since_ns; // uv_hrtime(); 0: none
    uint64_t written, written_bytes, checkpoints;
};

// recover.c: finds the chain's end in the files of the folder; allocates `leaf` and `scratch`.
int audit_recover(struct audit *a, struct err *e);

// chain.c: reads the changes of the key; notes a checkpoint that names a next key; adds the one that was noted, unless it is there.
void audit_chain_open(struct audit *a);
void audit_chain_note(struct audit *a, const Stockade__V1__AuditCheckpoint *c);
int audit_chain_add(struct audit *a, struct err *e);

// files.c
void audit_name(uint32_t number, char out[AUDIT_NAME]);
// The number in a file's name; 0: it is no file of the log.
uint32_t audit_name_read(const char *name);
// Numbers of all files, ascending. *out: free it. Returns how many, or a negative errno.
int audit_list(int dir, const char *folder, uint32_t **out, struct err *e);
// FAILED_PRECONDITION: others may write the file.
int audit_file_check(int fd, const char *path, struct err *e);
// Opens the last file at its end, or the next one.
int audit_file_open(struct audit *a, uint32_t number, bool make, struct err *e);

// key.c: reads the key, or makes it; then, when the log was read: ends or forgets a change that a kill interrupted, and writes the
// public half.
int audit_key_open(struct audit *a, struct err *e);
int audit_key_recover(struct audit *a, struct err *e);
// A change: makes audit.key.next; removes it again; or makes it the key, when the log on the disk names it.
struct audit_pair {
    uint8_t secret[AUDIT_SECRET], public_key[AUDIT_KEY];
};
int audit_key_prepare(const struct audit *a, struct audit_pair *next, struct err *e);
void audit_key_forget(const struct audit *a);
int audit_key_finish(struct audit *a, struct err *e);

// writer.c
void audit_run(void *audit);
int audit_writer_prepare(struct audit *a, struct err *e);
// Packs a record with both clocks of now behind its length. Returns 0, or -EMSGSIZE, -ENOSPC.
int audit_put(const struct audit_system *system, struct audit_buffer *b, size_t room,
              Stockade__V1__AuditRecord *m);

// cursor.c
struct audit_cursor {
    int dir;             // owned by who has it
    struct arena *arena; // of AUDIT_ARENA; borrowed for each reading
    uint64_t after;      // sequence of the last record that was read
    uint32_t number;     // of the file; 0: not known yet
    uint64_t offset;
};
enum {
    AUDIT_CURSOR_END = 1,  // no record behind it up to the limit
    AUDIT_CURSOR_MORE = 2, // so many bytes were read
    AUDIT_CURSOR_STOP = 3, // the function stopped it, or was full
    AUDIT_CURSOR_FULL = 4, // of the function: no room, this record again
};
// f and m: borrowed for the call. 0: go on; AUDIT_CURSOR_STOP, AUDIT_CURSOR_FULL, or a negative errno.
typedef int audit_cursor_fn(void *cookie, const struct audit_frame *f,
                            const Stockade__V1__AuditRecord *m, struct err *e);
// Reads on behind `after`, up to the record `limit` and about so many bytes. END, MORE, STOP, or a negative errno.
int audit_cursor_read(struct audit_cursor *c, uint64_t limit, uint64_t bytes,
                      audit_cursor_fn *record, void *cookie, struct err *e);

// proving.c
struct audit_proving;
// tenant NULL: of any. NULL: out of memory.
struct audit_proving *audit_proving_new(const char *process_id, const char *tenant);
void audit_proving_free(struct audit_proving *p);
// The next piece. END: call it again when there are new records; MORE; STOP: *text is the proof, free it; or a negative errno.
int audit_proving_run(struct audit_proving *p, struct audit_cursor *c, uint64_t limit, char **text,
                      struct err *e);

// read.c
void audit_readers_wake(struct audit *a);
void audit_readers_detach(struct audit *a);

// sync.c
// Room for the frames that are not synced.
int audit_sync_prepare(struct audit *a, struct err *e);
// Before n bytes are appended: syncs if they would not fit beside the unsynced ones, or if the file is suspect.
int audit_sync_room(struct audit *a, size_t n, struct err *e);
// After they were appended.
void audit_sync_add(struct audit *a, const uint8_t *bytes, size_t n);
// What is in the file is on the disk afterwards; the file may be another one.
int audit_sync(struct audit *a, struct err *e);
// At the start: finishes a move that a kill interrupted. 1: there is one file more, with this number; 0: nothing to do.
int audit_sync_recover(struct audit *a, uint32_t number, struct err *e);
