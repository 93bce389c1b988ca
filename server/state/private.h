// SPDX-License-Identifier: Apache-2.0
// The database, as state.c (loop thread), writer.c (its thread) and schema.c share it.
#pragma once

#include <sqlite3.h>

#include "server/base/writer_thread.h"
#include "state.h"

// A change in the queue, with copies of its values behind it.
struct state_order {
    struct state_order *next;
    enum state_change change;
    bool copies; // the whole database, instead of a change
    state_done *done;
    state_copied *copied;
    void *cookie;
    uint64_t rows;
    int fd; // of the copy
    uint64_t bytes;
    bool failed;
    struct err e;
    struct state_value value[STATE_VALUES_MAX];
    unsigned char data[];
};

struct state {
    sqlite3 *db;
    struct state_sealer sealer;
    char folder[256];
    sqlite3_stmt *change[STATE_CHANGES_N];
    struct writer_thread writer;
    // ---- shared with the writer, under its lock
    struct state_order *queued_first, **queued_last;
    struct state_order *done_first, **done_last;
    size_t queued;
    bool ends;
};

// One row of a table: the SQL, and how many values or columns it has.
struct state_statement {
    const char *sql;
    unsigned values;
};
extern const struct state_statement state_queries[STATE_QUERIES_N];
extern const struct state_statement state_changes[STATE_CHANGES_N];

enum { STATE_ID_MAX = 3 };

// Which value of a statement has content of a tenant: its column, and which values are the id of the row (one or more), the tenant, and it. The SQL
// has one more parameter, or column, than values: the number of the data key, NULL for one that is plain.
struct state_sealed {
    const char *column;             // NULL: none
    unsigned id[STATE_ID_MAX], ids; // how many
    unsigned tenant, value;
    bool begins; // what comes later will have content: the tenant's data key must be there
};
extern const struct state_sealed state_sealed_columns[STATE_QUERIES_N];
extern const struct state_sealed state_sealed_values[STATE_CHANGES_N];

// schema.c: finds out, without a change, whether the file is a database of a broker, and of which version (0: an empty one); then
// checks that it is whole, and brings an older schema up to date, each step in a transaction of its own.
int schema_find(sqlite3 *db, const char *path, int *version, struct err *e);
int schema_prepare(sqlite3 *db, const char *path, int version, struct err *e);

// writer.c: the thread, and one change at once.
void writer_run(void *state);
void writer_change(struct state *s, struct state_order *o);

void state_bind(sqlite3_stmt *t, int at, const struct state_value *v);
struct state_value state_column(sqlite3_stmt *t, int i);

// sealing.c

// The data key for a change. 1: *key is valid; 0: its values are written as they are.
int sealing_need(struct state *s, const struct state_sealed *what, const struct state_value *value,
                 uint8_t key[STATE_SEAL_KEY], struct err *e);
// Seals one value to `out`, which has STATE_SEAL_OVER bytes more.
int sealing_seal(struct state *s, const struct state_sealed *what, const struct state_value *value,
                 const uint8_t key[STATE_SEAL_KEY], uint8_t *out, struct err *e);
// Opens the sealed value of a row, if it is sealed. *out: owned, it has the bytes.
int sealing_open(struct state *s, const struct state_sealed *what, struct state_value *value,
                 const struct state_value *key, uint8_t **out, struct err *e);

// An error of SQLite about the database. Returns a negative errno.
int state_fail(sqlite3 *db, int rc, const char *what, struct err *e);
