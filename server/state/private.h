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

// schema.c: finds out, without a change, whether the file is a database of a broker, and of which version (0: an empty one); then
// checks that it is whole, and brings an older schema up to date, each step in a transaction of its own.
int schema_find(sqlite3 *db, const char *path, int *version, struct err *e);
int schema_prepare(sqlite3 *db, const char *path, int version, struct err *e);

// writer.c: the thread.
void writer_run(void *state);

// An error of SQLite about the database. Returns a negative errno.
int state_fail(sqlite3 *db, int rc, const char *what, struct err *e);
