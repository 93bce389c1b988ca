// SPDX-License-Identifier: Apache-2.0
// The audit log: a chain of records in files (proto/audit.h), and the thread that writes them.
//
//   loop thread   audit_write() --packs--> queue (two buffers of fixed size)
//                 audit_wait()  <--uv_async-- "stored up to number N"
//   writer        takes the whole queue: frames, hashes, one write(2), fdatasync(2) as `sync` says, checkpoints, rotation
//
// Why a thread: a write may wait for the disk. Why two buffers: no allocation per record, and what waits together is written
// together.
//
// When is a call's record safe? Before the call begins, so nothing happens without a trace. `sync` says what safe means:
//   none       queued: an orderly stop keeps it, kill -9 of the broker may lose the last 20 ms
//   interval   in the kernel's memory: survives kill -9 of the broker; fdatasync(2) every sync_interval, so a power failure loses
//              at most that. The default: it costs some 10 us per call, and a fdatasync(2) between 0.1 ms and, on a busy disk, seconds
//   always     on the disk: survives a power failure
// The ends of calls and jobs are written within 20 ms, and nobody waits for them.
//
// A disk that is full or fails: the records wait in memory, audit_admit() refuses every call that changes something, the writer
// tries again each half second, and all goes on when there is room. What did not fit into the queue meanwhile is counted, and the
// first record afterwards is an AuditGap that says so.
//
// An fdatasync(2) that failed is not tried again on the same file: Linux may have dropped the pages, and the next call would
// return 0 for a file that lacks them (fsync(2), NOTES). sync.c cuts the file and writes the records to the next one.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <uv.h>

#include "proto/audit.h"
#include "proto/err.h"
#include "server/base/list.h"

struct audit;

enum audit_sync { AUDIT_SYNC_NONE, AUDIT_SYNC_INTERVAL, AUDIT_SYNC_ALWAYS };
enum audit_full { AUDIT_FULL_REFUSE, AUDIT_FULL_CONTINUE };

enum {
    AUDIT_PATH = 256,
    AUDIT_RECORDS_MAX = 65536, // between two checkpoints
    AUDIT_QUEUE_BYTES = 4 * 1024 * 1024,
};

// What the log needs of the kernel. Tests have their own.
struct audit_system {
    int (*sync)(int fd);                // fdatasync(2)
    int64_t (*now_ns)(clockid_t clock); // CLOCK_REALTIME and CLOCK_BOOTTIME
};

struct audit_settings {
    bool enabled;
    char folder[AUDIT_PATH]; // "": audit in the state folder
    char key[AUDIT_PATH];    // of the seed; "": audit.key in the folder
    enum audit_sync sync;
    uint64_t sync_ms;       // with AUDIT_SYNC_INTERVAL
    uint32_t records;       // a checkpoint at least every so many records
    uint64_t checkpoint_ms; // and this long after the first record that is not signed
    uint64_t rotate_bytes;  // size of a file
    uint32_t keep;          // files; 0: all
    enum audit_full on_full;
    const struct audit_system *system; // NULL: the kernel's
};
void audit_settings_default(struct audit_settings *s);

// Opens the log in a folder that exists and belongs to the caller, or makes it: finds the end of the chain, continues it, and makes
// the key at the first start (0600; the public half beside it, audit.pub, 0644). What a killed run left at the end of the last file
// stays there; the chain goes on in another file. `folder` and `key`: as in the settings, or their defaults. DATA_LOSS: no file can be read.
// FAILED_PRECONDITION: a file or key that is not ours alone, or that another process writes to. Free it with audit_close().
int audit_open(const struct audit_settings *s, const char *folder, const char *key,
               struct audit **out, struct err *e);

// Starts the writer, once. Its thread must not exist before the spawner was forked.
int audit_start(struct audit *a, uv_loop_t *loop, struct err *e);

// Queues a record. Time and clocks are set here; sequence and previous later. It is copied; a record that is too long or finds no
// room is counted as missing. `vital`: it may use the last quarter of the queue. NULL: nothing to do.
void audit_write(struct audit *a, Stockade__V1__AuditRecord *m, bool vital);

// Whether a call that changes something may begin. RESOURCE_EXHAUSTED with the reason AUDIT_FULL (the disk) or AUDIT_QUEUE (slower than
// the records come). 0 for NULL.
int audit_admit(const struct audit *a, struct err *e);

// Waits until all records that are queued now are stored as `sync` says, or cannot be (e). False: nothing to wait for, and `done`
// is not called.
struct audit_wait {
    struct list node;
    uint64_t until;
    void (*done)(struct audit_wait *w, const struct err *e);
    bool waits;
};
bool audit_wait(struct audit *a, struct audit_wait *w);
// Ends a wait without a call of `done`. A wait that has ended, or never began, is fine.
void audit_unwait(struct audit_wait *w);

// Ends all readers (read.h): the broker shuts down. NULL: nothing to do.
void audit_readers_end(struct audit *a);

// Changes the key that signs checkpoints: a checkpoint of the present key names the next one. `done` is called when both are on the
// disk, or could not be (e). ABORTED: it is being changed. FAILED_PRECONDITION: there is no log.
struct audit_rekey {
    void (*done)(struct audit_rekey *w, const struct err *e);
};
int audit_rekey(struct audit *a, struct audit_rekey *w, struct err *e);
// `done` will not be called; the key changes all the same.
void audit_rekey_forget(struct audit *a, const struct audit_rekey *w);

// The public keys of this log, oldest first; the last one signs. Returns their number.
size_t audit_public_keys(struct audit *a, uint8_t out[AUDIT_KEYS_MAX][AUDIT_KEY]);

// Puts the changes of the key that a proof needs into it, borrowed from the arena, unless it has more of them already. Loop thread.
void audit_rotations(struct audit *a, struct arena *arena, Stockade__V1__AuditProof *proof);

// A number for a call, from 1.
uint64_t audit_number(struct audit *a);

// Writes the last record and a checkpoint, ends the writer and closes the files. The loop must run once more before it is closed.
// NULL: nothing to do.
void audit_close(struct audit *a, int status);
