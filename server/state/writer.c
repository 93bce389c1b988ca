// SPDX-License-Identifier: Apache-2.0
// The writer: a thread that makes queued changes, as many as are queued in one transaction.
//
//   wait --> take the whole queue --> BEGIN --> SAVEPOINT, change, RELEASE (each) --> COMMIT --> hand back --> wait
//                                                 |                                     |
//                                                 | refused: ROLLBACK TO, this one      | failed: none of them was made
//
// So a change that violates a rule of the schema harms no other, and if the disk is full all of a transaction are refused.
#include "private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"

static int
execute(struct state *s, const char *sql, const char *what, struct err *e)
{
    int rc = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? 0 : state_fail(s->db, rc, what, e);
}

void
state_bind(sqlite3_stmt *t, int at, const struct state_value *v)
{
    if (v->kind == STATE_NUMBER)
        (void)sqlite3_bind_int64(t, at, v->number);
    else if (v->kind == STATE_TEXT)
        (void)sqlite3_bind_text64(t, at, v->bytes, v->n, SQLITE_STATIC, SQLITE_UTF8);
    else
        (void)sqlite3_bind_blob64(t, at, v->bytes, v->n, SQLITE_STATIC);
}

static int
change(struct state *s, struct state_order *o)
{
    sqlite3_stmt *t = s->change[o->change];
    const bool seals = state_sealed_values[o->change].column != NULL;
    for (unsigned i = 0; i < state_changes[o->change].values + seals; i++)
        state_bind(t, (int)i + 1, &o->value[i]);
    const int rc = sqlite3_step(t);
    const int r = rc == SQLITE_DONE ? 0 : state_fail(s->db, rc, "change the state", &o->e);
    o->rows = r == 0 ? (uint64_t)sqlite3_changes64(s->db) : 0;
    (void)sqlite3_reset(t);
    (void)sqlite3_clear_bindings(t);
    return r;
}

void
writer_change(struct state *s, struct state_order *o)
{
    o->failed = change(s, o) < 0;
}

static void
change_alone(struct state *s, struct state_order *o)
{
    int r = execute(s, "SAVEPOINT one", "change the state", &o->e);
    if (r == 0)
        r = change(s, o);
    o->failed = r < 0;
    if (sqlite3_get_autocommit(s->db) != 0)
        return; // SQLite has rolled everything back, such as when the disk is full
    (void)sqlite3_exec(s->db, r < 0 ? "ROLLBACK TO one; RELEASE one" : "RELEASE one", NULL, NULL,
                       NULL);
}

// VACUUM INTO makes a consistent copy; its file loses its name at once, so nothing is left over after a crash but by chance, and
// the next copy removes that.
static void
copy(struct state *s, struct state_order *o)
{
    char path[sizeof s->folder + 16];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/copy.db", s->folder);
    (void)unlink(path);
    int auto_close empty = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (empty < 0) {
        o->failed = err_sys(&o->e, errno, "copy the state") < 0;
        return;
    }
    sqlite3_stmt *t = NULL;
    int rc = sqlite3_prepare_v2(s->db, "VACUUM INTO ?1", -1, &t, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(t, 1, path, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(t);
    (void)sqlite3_finalize(t);
    o->fd = rc == SQLITE_DONE ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (rc != SQLITE_DONE)
        o->failed = state_fail(s->db, rc, "copy the state", &o->e) < 0;
    else if (o->fd < 0 || fstat(o->fd, &st) < 0)
        o->failed = err_sys(&o->e, errno, "copy the state") < 0;
    else
        o->bytes = (uint64_t)st.st_size;
    (void)unlink(path);
}

// The error of the transaction, for each change that was not refused for itself.
static void
fail_all(struct state_order *o, const struct state_order *end, const struct err *e)
{
    for (; o != end; o = o->next) {
        if (o->failed)
            continue;
        o->failed = true;
        o->rows = 0;
        o->e = *e;
    }
}

// Whether the journal must not keep what was there before: wrapped keys.
static bool
leaves_secrets(const struct state_order *o, const struct state_order *end)
{
    for (; o != end; o = o->next)
        if (o->change == STATE_DATA_KEY_FORGET || o->change == STATE_ENCRYPTION_ROTATE)
            return true;
    return false;
}

// The changes from o until the next copy, as one transaction. Returns the first that was not handled.
static struct state_order *
commit(struct state *s, struct state_order *o)
{
    struct err e;
    struct state_order *at = o;
    int r = execute(s, "BEGIN IMMEDIATE", "change the state", &e);
    for (; at != NULL && !at->copies; at = at->next) {
        if (r < 0)
            continue;
        change_alone(s, at);
        if (sqlite3_get_autocommit(s->db) != 0) {
            e = at->e;
            r = err_errno(&e);
        }
    }
    if (r == 0)
        r = execute(s, "COMMIT", "change the state", &e);
    if (r == 0 && leaves_secrets(o, at)) // what is committed cannot fail any more
        (void)sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    if (r < 0)
        fail_all(o, at, &e);
    if (sqlite3_get_autocommit(s->db) == 0)
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return at;
}

static void
work(struct state *s, struct state_order *o)
{
    while (o != NULL) {
        if (!o->copies) {
            o = commit(s, o);
            continue;
        }
        copy(s, o);
        o = o->next;
    }
}

void
writer_run(void *state)
{
    struct state *s = state;
    uv_mutex_lock(&s->writer.lock);
    for (;;) {
        while (s->queued_first == NULL && !s->ends)
            uv_cond_wait(&s->writer.wake, &s->writer.lock);
        if (s->queued_first == NULL)
            break;
        struct state_order *batch = s->queued_first;
        struct state_order **last = s->queued_last;
        s->queued_first = NULL;
        s->queued_last = &s->queued_first;
        uv_mutex_unlock(&s->writer.lock);
        work(s, batch);
        uv_mutex_lock(&s->writer.lock);
        *s->done_last = batch;
        s->done_last = last;
        writer_thread_done(&s->writer);
    }
    uv_mutex_unlock(&s->writer.lock);
}
