// SPDX-License-Identifier: Apache-2.0
// See state.h: opening, reading, and the loop's end of the queue.
#include "state.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "private.h"
#include "proto/auto.h"

enum { PAGE = 4096 };

int
state_fail(sqlite3 *db, int rc, const char *what, struct err *e)
{
    const int kind = rc & 0xff;
    int r = 0;
    if (kind == SQLITE_CORRUPT || kind == SQLITE_NOTADB) {
        r = err_set(e, ERR_DATA_LOSS, "%s: %s", what, sqlite3_errmsg(db));
        err_detail(e, "STATE_DAMAGED", NULL,
                   "restore a backup of stockade.db, or move it away: keys and tokens end with it");
    } else if (kind == SQLITE_FULL) {
        r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%s: No space left on device, or more than %d MiB",
                    what, STATE_FILE_MAX >> 20);
        err_detail(e, "STATE_FULL", NULL, "make room in the state directory of the broker");
    } else if (kind == SQLITE_BUSY || kind == SQLITE_LOCKED) {
        r = err_set(e, ERR_FAILED_PRECONDITION, "%s: another process uses the database", what);
        err_detail(e, "STATE_IN_USE", NULL, "end that process");
    } else if (kind == SQLITE_CONSTRAINT) {
        r = err_set(e, ERR_ALREADY_EXISTS, "%s: %s", what, sqlite3_errmsg(db));
        err_detail(e, "STATE_CONSTRAINT", NULL, NULL);
    } else {
        r = err_set(e, ERR_UNAVAILABLE, "%s: %s", what, sqlite3_errmsg(db));
        err_detail(e, "STATE", NULL, "try again; if it persists, check the disk of the broker");
    }
    return r;
}

// The folder is ours alone, and so is the file before SQLite sees it.
static int
prepare_files(const char *folder, const char *path, struct err *e)
{
    struct stat st;
    int auto_close dir = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0 || fstat(dir, &st) < 0)
        return err_sys(e, errno, "open %s", folder);
    if (st.st_uid != geteuid())
        return err_set(e, ERR_FAILED_PRECONDITION, "%s belongs to uid %u", folder,
                       (unsigned)st.st_uid);
    if ((st.st_mode & 07777) != 0700 && fchmod(dir, 0700) < 0)
        return err_sys(e, errno, "protect %s", folder);
    int auto_close file = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0 || fstat(file, &st) < 0)
        return err_sys(e, errno, "open %s", path);
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1)
        return err_set(e, ERR_FAILED_PRECONDITION, "%s must be a file of the broker's own account",
                       path);
    if ((st.st_mode & 077) != 0 && fchmod(file, 0600) < 0)
        return err_sys(e, errno, "protect %s", path);
    return 0;
}

// The database is locked from the first access on (open_file), so no shared memory is needed for the journal.
static int
configure(sqlite3 *db, struct err *e)
{
    static const char pragmas[] =
        "PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
        " PRAGMA secure_delete = ON; PRAGMA journal_mode = WAL;"
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 256;"
        "PRAGMA journal_size_limit = 4194304; PRAGMA temp_store = MEMORY;"
        "BEGIN IMMEDIATE; COMMIT"; // takes the lock
    char most[64];
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)snprintf(most, sizeof most, "PRAGMA max_page_count = %d", STATE_FILE_MAX / PAGE);
    int rc = sqlite3_exec(db, pragmas, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, most, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : state_fail(db, rc, "open the database", e);
}

static int
prepare_statements(struct state *s, struct err *e)
{
    for (size_t i = 0; i < STATE_CHANGES_N; i++) {
        int rc = sqlite3_prepare_v3(s->db, state_changes[i].sql, -1, SQLITE_PREPARE_PERSISTENT,
                                    &s->change[i], NULL);
        if (rc != SQLITE_OK)
            return state_fail(s->db, rc, "prepare a statement", e);
        const unsigned n = state_changes[i].values + (state_sealed_values[i].column != NULL);
        assert((unsigned)sqlite3_bind_parameter_count(s->change[i]) == n);
        assert(n <= STATE_VALUES_MAX);
    }
    return 0;
}

static int
open_file(struct state *s, const char *path, struct err *e)
{
    int version = 0;
    int r = prepare_files(s->folder, path, e);
    if (r < 0)
        return r;
    int rc = sqlite3_open_v2(path, &s->db,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW |
                                 SQLITE_OPEN_EXRESCODE,
                             NULL);
    if (rc != SQLITE_OK)
        return state_fail(s->db, rc, "open the database", e);
    rc = sqlite3_exec(s->db, "PRAGMA locking_mode = EXCLUSIVE", NULL, NULL, NULL);
    r = rc == SQLITE_OK ? schema_find(s->db, path, &version, e)
                        : state_fail(s->db, rc, "open the database", e);
    if (r == 0)
        r = configure(s->db, e);
    if (r == 0)
        r = schema_prepare(s->db, path, version, e);
    return r == 0 ? prepare_statements(s, e) : r;
}

int
state_open(const char *folder, struct state **out, struct err *e)
{
    char path[sizeof(*out)->folder + 16];
    struct state *s = calloc(1, sizeof *s);
    if (s == NULL)
        return err_sys(e, ENOMEM, "open the state");
    s->queued_last = &s->queued_first;
    s->done_last = &s->done_first;
    writer_thread_init(&s->writer);
    int r = (size_t)snprintf(s->folder, sizeof s->folder, "%s", folder) < sizeof s->folder
                ? 0
                : err_set(e, ERR_INVALID_ARGUMENT, "%s: its path is too long", folder);
    (void)snprintf(path, sizeof path, "%s/stockade.db", s->folder);
    if (r == 0)
        r = open_file(s, path, e);
    if (r < 0) {
        state_close(s);
        return err_wrap(e, "state in %s", folder);
    }
    *out = s;
    return 0;
}

struct state_value
state_column(sqlite3_stmt *t, int i)
{
    struct state_value v = {.kind = STATE_NUMBER};
    const int type = sqlite3_column_type(t, i);
    if (type == SQLITE_INTEGER) {
        v.number = sqlite3_column_int64(t, i);
        return v;
    }
    v.kind = type == SQLITE_TEXT ? STATE_TEXT : STATE_BYTES;
    v.bytes =
        type == SQLITE_TEXT ? (const void *)sqlite3_column_text(t, i) : sqlite3_column_blob(t, i);
    v.n = (size_t)sqlite3_column_bytes(t, i);
    return v;
}

static int
read_row(struct state *s, enum state_query q, sqlite3_stmt *t,
         int (*row)(void *cookie, const struct state_value *value, struct err *e), void *cookie,
         struct err *e)
{
    struct state_value value[STATE_VALUES_MAX];
    uint8_t *auto_free plain = NULL;
    const unsigned n = state_queries[q].values;
    int r = 0;
    for (unsigned i = 0; i < n; i++)
        value[i] = state_column(t, (int)i);
    if (state_sealed_columns[q].column != NULL) {
        const struct state_value key = state_column(t, (int)n);
        r = sealing_open(s, &state_sealed_columns[q], value, &key, &plain, e);
    }
    return r == 0 ? row(cookie, value, e) : r;
}

int
state_read(struct state *s, enum state_query q,
           int (*row)(void *cookie, const struct state_value *value, struct err *e), void *cookie,
           struct err *e)
{
    const struct state_statement *what = &state_queries[q];
    sqlite3_stmt *t = NULL;
    assert(!s->writer.started);
    int rc = sqlite3_prepare_v2(s->db, what->sql, -1, &t, NULL);
    int r = 0;
    assert(rc != SQLITE_OK || (unsigned)sqlite3_column_count(t) ==
                                  what->values + (state_sealed_columns[q].column != NULL));
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(t);
        if (rc != SQLITE_ROW)
            break;
        r = read_row(s, q, t, row, cookie, e);
        if (r < 0)
            break;
    }
    if (r == 0 && rc != SQLITE_DONE)
        r = state_fail(s->db, rc, "read the state", e);
    (void)sqlite3_finalize(t);
    return r;
}

// ---- the queue

static void
report(struct state_order *o)
{
    if (o->copied != NULL)
        o->copied(o->cookie, o->failed ? -1 : o->fd, o->bytes, o->failed ? &o->e : NULL);
    else if (o->done != NULL)
        o->done(o->cookie, o->rows, o->failed ? &o->e : NULL);
    free(o);
}

// Reports what the writer has handed back.
static void
collect(void *state)
{
    struct state *s = state;
    uv_mutex_lock(&s->writer.lock);
    struct state_order *o = s->done_first;
    s->done_first = NULL;
    s->done_last = &s->done_first;
    uv_mutex_unlock(&s->writer.lock);
    while (o != NULL) {
        struct state_order *next = o->next;
        s->queued--;
        report(o);
        o = next;
    }
}

int
state_start(struct state *s, uv_loop_t *loop, struct err *e)
{
    return writer_thread_start(&s->writer, loop, writer_run, collect, s, e);
}

// A start makes few changes, and waits for each.
static int
at_once(struct state *s, struct state_order *o, struct err *e)
{
    writer_change(s, o);
    const int r = o->failed ? err_errno(&o->e) : 0;
    if (r < 0)
        *e = o->e;
    else
        report(take_ptr(o));
    free(o);
    return r;
}

static int
enqueue(struct state *s, struct state_order *o, struct err *e)
{
    if (!s->writer.started)
        return at_once(s, o, e);
    if (s->ends) { // the writer has ended: a callback of state_close() wants another change
        free(o);
        int r = err_set(e, ERR_UNAVAILABLE, "the broker is shutting down");
        err_detail(e, "DRAINING", NULL, "repeat the call when the broker was started again");
        return r;
    }
    if (s->queued >= STATE_QUEUE_MAX) {
        free(o);
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%d changes of the state wait for the disk",
                        STATE_QUEUE_MAX);
        err_detail(e, "STATE_QUEUE", NULL, "try again in a second");
        return r;
    }
    s->queued++;
    uv_mutex_lock(&s->writer.lock);
    *s->queued_last = o;
    s->queued_last = &o->next;
    uv_cond_signal(&s->writer.wake);
    uv_mutex_unlock(&s->writer.lock);
    return 0;
}

// Copies the values behind the order; the one with content is sealed there, if there is a key.
static int
take_values(struct state *s, struct state_order *o, const struct state_value *value,
            const uint8_t *key, struct err *e)
{
    const struct state_sealed *what = &state_sealed_values[o->change];
    const unsigned n = state_changes[o->change].values;
    size_t used = 0;
    int r = 0;
    for (unsigned i = 0; i < n && r == 0; i++) {
        const bool seals = key != NULL && what->column != NULL && i == what->value;
        o->value[i] = value[i];
        o->value[i].bytes = o->data + used;
        if (seals) {
            o->value[i].kind = STATE_BYTES;
            o->value[i].n += STATE_SEAL_OVER;
            r = sealing_seal(s, what, value, key, o->data + used, e);
        } else if (value[i].n > 0) {
            memcpy(o->data + used, value[i].bytes, value[i].n);
        }
        used += o->value[i].n;
    }
    if (what->column == NULL)
        return r;
    o->value[n] = (struct state_value){.kind = STATE_BYTES}; // NULL
    if (key != NULL) {
        memcpy(o->data + used, key, STATE_SEAL_KEY);
        o->value[n] = STATE_OF_BYTES(o->data + used, STATE_SEAL_KEY);
    }
    return r;
}

int
state_write(struct state *s, enum state_change c, const struct state_value *value, state_done *done,
            void *cookie, struct err *e)
{
    const unsigned n = state_changes[c].values;
    uint8_t key[STATE_SEAL_KEY];
    size_t bytes = 0;
    for (unsigned i = 0; i < n; i++)
        bytes += value[i].n;
    if (bytes > STATE_BYTES_MAX)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "change the state: %zu bytes, at most %d", bytes,
                       STATE_BYTES_MAX);
    int r = sealing_need(s, &state_sealed_values[c], value, key, e);
    if (r < 0)
        return r;
    struct state_order *o = calloc(1, sizeof *o + bytes + STATE_SEAL_OVER + STATE_SEAL_KEY);
    if (o == NULL)
        return err_sys(e, ENOMEM, "change the state");
    o->change = c;
    o->done = done;
    o->cookie = cookie;
    o->fd = -1;
    r = take_values(s, o, value, r > 0 ? key : NULL, e);
    if (r == 0)
        return enqueue(s, o, e);
    free(o);
    return r;
}

int
state_copy(struct state *s, state_copied *done, void *cookie, struct err *e)
{
    struct state_order *o = calloc(1, sizeof *o);
    if (o == NULL)
        return err_sys(e, ENOMEM, "copy the state");
    o->copies = true;
    o->copied = done;
    o->cookie = cookie;
    o->fd = -1;
    return enqueue(s, o, e);
}

void
state_close(struct state *s)
{
    if (s == NULL)
        return;
    if (writer_thread_end(&s->writer, &s->ends))
        collect(s);
    for (size_t i = 0; i < STATE_CHANGES_N; i++)
        (void)sqlite3_finalize(s->change[i]);
    (void)sqlite3_close(s->db);
    writer_thread_free(&s->writer);
    free(s);
}
