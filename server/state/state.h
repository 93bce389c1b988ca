// SPDX-License-Identifier: Apache-2.0
// Durable state: one SQLite database, STATE_DIR/state/stockade.db. All SQL of the broker is in this folder.
//
//   start   state_open()  check the file, migrate its schema       loop thread, before anything listens
//           state_read()  the layers read what they need into memory, where all later questions are answered
//           state_start() the writer begins
//   later   state_write() --queue--> writer: BEGIN, all queued changes, COMMIT --uv_async--> done(), on the loop thread
//
// Why a thread: a commit waits for the disk, between 0.1 ms and, when the disk is busy, seconds. The loop thread must never do
// that. What waits for the disk together is committed together, so a thousand changes at once cost a few waits, not a thousand.
// A change is reported as done only when it is on the disk (synchronous=FULL): whatever a caller was
// answered survives kill -9 and a power failure.
//
// The database belongs to the broker's account, mode 0600 in a folder of mode 0700, and is locked as long as the broker runs. It
// holds secrets: the seeds of the keys that sign tokens. So does a backup.
//
// Values with content of tenants are sealed with the data key of their tenant, if encryption is on: statements.c says which, and
// sealing.c does it, so no caller can forget to. The keys are those of a sealer, which lies above this layer (vault/vault.h).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "proto/err.h"

struct state;

enum {
    STATE_VALUES_MAX = 12,              // of one change, or columns of one row
    STATE_QUEUE_MAX = 16384,            // changes that wait for the writer
    STATE_BYTES_MAX = 64 * 1024,        // of one change's values
    STATE_FILE_MAX = 256 * 1024 * 1024, // of the database: further changes are refused
};

// What can be read and changed: rows of statements.c, which has the SQL and describes the values.
enum state_query {
    STATE_SECRETS,
    STATE_KEYS,
    STATE_SIGNING_KEYS,
    STATE_REVOKED,
    STATE_USES,
    STATE_APPROVALS,
    STATE_ENCRYPTION,
    STATE_DATA_KEYS,
    STATE_CALLS,
    STATE_RULE_FILES,
    STATE_SILENCES,
    STATE_ACKNOWLEDGED,
    STATE_QUERIES_N,
};
enum state_change {
    STATE_KEY_ADD,
    STATE_KEY_REVOKE,
    STATE_KEY_FORGET,
    STATE_SIGNING_ADD,
    STATE_SIGNING_RETIRE,
    STATE_BLOCK_REVOKE,
    STATE_USE,
    STATE_USES_FORGET,
    STATE_APPROVAL_PUT,
    STATE_APPROVAL_FORGET,
    STATE_ENCRYPTION_SET,
    STATE_ENCRYPTION_ROTATE,
    STATE_DATA_KEY_ADD,
    STATE_DATA_KEY_NEXT,
    STATE_DATA_KEY_FORGET,
    STATE_CALL_BEGIN,
    STATE_CALL_END,
    STATE_CALL_FORGET,
    STATE_CALLS_LOST,
    STATE_CALLS_EXPIRE,
    STATE_RULE_FILE_PUT,
    STATE_RULE_FILE_FORGET,
    STATE_SILENCE_PUT,
    STATE_SILENCE_FORGET,
    STATE_ACKNOWLEDGED_PUT,
    STATE_ACKNOWLEDGED_FORGET,
    STATE_CHANGES_N,
};

// FORGOTTEN: of a row, it was sealed with a data key that was forgotten; no bytes.
enum state_kind { STATE_NUMBER, STATE_TEXT, STATE_BYTES, STATE_FORGOTTEN };
struct state_value {
    enum state_kind kind;
    int64_t number;
    const void *bytes; // borrowed; of text as well, without its end
    size_t n;
};
#define STATE_OF_NUMBER(v)    ((struct state_value){STATE_NUMBER, (int64_t)(v), NULL, 0})
#define STATE_OF_TEXT(s)      ((struct state_value){STATE_TEXT, 0, (s), strlen(s)})
#define STATE_OF_BYTES(p, n_) ((struct state_value){STATE_BYTES, 0, (p), (n_)})

// Opens the database in `folder`, which must exist and belong to the caller; makes it at the first start. Refused with what to
// do: FAILED_PRECONDITION for a schema that is newer than this broker, a file that is no database of a broker, or one that
// another process uses; DATA_LOSS for a damaged file. The file is unchanged then. Free it with state_close().
int state_open(const char *folder, struct state **out, struct err *e);

// ---- sealed values

enum { STATE_SEAL_KEY = 16, STATE_SEAL_OVER = 24 + 16 };

// A sealed value is STATE_SEAL_OVER bytes longer than the plain one. `where` names the column, the row and the tenant, and is
// authenticated, so that a value is not accepted in another place.
struct state_sealer {
    void *cookie;
    // The number of the tenant's data key, made if it has none. 1: *key is valid. 0: encryption is off.
    int (*need)(void *cookie, const char *tenant, uint8_t key[STATE_SEAL_KEY], struct err *e);
    int (*seal)(void *cookie, const uint8_t key[STATE_SEAL_KEY], const struct state_value *where,
                const struct state_value *plain, uint8_t *out, struct err *e);
    // 1: the key was forgotten. DATA_LOSS: it was changed, or is of another place.
    int (*open)(void *cookie, const uint8_t key[STATE_SEAL_KEY], const struct state_value *where,
                const struct state_value *sealed, uint8_t *out, struct err *e);
};
// Values about all tenants ("*") belong to the host, and are sealed with its data key.
#define STATE_ALL_TENANTS "*"
#define STATE_HOST_TENANT "uid:0"
const char *state_sealing_tenant(const char *tenant);

// Before rows with such values are read. NULL: values are read and written as they are.
void state_seal_with(struct state *s, const struct state_sealer *sealer);

// Seals all values that are not yet sealed, in one transaction, before state_start(). *n: how many there were.
int state_seal_rows(struct state *s, uint64_t *n, struct err *e);
// Removes what state_seal_rows() has left in free space and in the journal, now, or when an earlier run ended before it had done so.
int state_scrub(struct state *s, struct err *e);

// Passes each row to `row`, in the order of the statement, before state_start(). The values are borrowed until it returns; there
// are as many as the statement has columns. If it returns a negative number, the rest is not read.
int state_read(struct state *s, enum state_query q,
               int (*row)(void *cookie, const struct state_value *value, struct err *e),
               void *cookie, struct err *e);

// Starts the writer, once. Its thread must not exist before the spawner was forked.
int state_start(struct state *s, uv_loop_t *loop, struct err *e);

// A change that was made or refused. e NULL: it is on the disk, and `rows` rows changed.
typedef void state_done(void *cookie, uint64_t rows, const struct err *e);

// Queues a change with the values of its statement, which are copied. Changes are made in the order of the queue. On failure
// (RESOURCE_EXHAUSTED: the queue is full) `done` is not called. `done` may be NULL. Before state_start() the change is made at once.
int state_write(struct state *s, enum state_change c, const struct state_value *value,
                state_done *done, void *cookie, struct err *e);

// A copy of the whole database as of now. fd: of a file without a name, open for reading; the receiver owns it. -1: see e.
typedef void state_copied(void *cookie, int fd, uint64_t bytes, const struct err *e);
int state_copy(struct state *s, state_copied *done, void *cookie, struct err *e);

// Ends the writer after all queued changes, calls what still has a `done`, and closes the database. Waits for the disk. The loop
// must run once more before it is closed. A change that such a `done` queues fails with UNAVAILABLE. NULL: nothing to do.
void state_close(struct state *s);

// The newest schema that this broker knows.
int state_schema(void);
