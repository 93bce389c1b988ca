// SPDX-License-Identifier: Apache-2.0
// See audit.h: opening, and the loop's end of the queue.
#include "audit.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "private.h"
#include "proto/auto.h"
#include "proto/now.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"

enum {
    CALLS_ROOM = AUDIT_QUEUE_BYTES / 4 * 3,
    BOOT_ID = 64,
};

static const struct audit_system kernel = {.sync = fdatasync, .now_ns = now_ns};

void
audit_settings_default(struct audit_settings *s)
{
    *s = (struct audit_settings){
        .enabled = true,
        .sync = AUDIT_SYNC_INTERVAL,
        .sync_ms = 1000,
        .records = 4096,
        .checkpoint_ms = UINT64_C(10000),
        .rotate_bytes = UINT64_C(64) << 20,
        .keep = 64,
        .on_full = AUDIT_FULL_REFUSE,
    };
}

// ---- the start

static void
read_boot_id(char out[BOOT_ID])
{
    int auto_close fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, out, BOOT_ID - 1) : 0;
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

// The first record of a run says what the run before left behind; the writer signs it at once.
static void
write_start(struct audit *a)
{
    static const char *const syncs[] = {"none", "interval", "always"};
    char boot_id[BOOT_ID];
    Stockade__V1__AuditTorn torn[AUDIT_TORN_MAX], *all[AUDIT_TORN_MAX];
    Stockade__V1__AuditStart start = STOCKADE__V1__AUDIT_START__INIT;
    Stockade__V1__AuditRecord m = STOCKADE__V1__AUDIT_RECORD__INIT;
    read_boot_id(boot_id);
    for (uint32_t i = 0; i < a->found.torn_n; i++) {
        stockade__v1__audit_torn__init(&torn[i]);
        torn[i].file = a->found.torn[i].file;
        torn[i].offset = a->found.torn[i].offset;
        torn[i].bytes = a->found.torn[i].bytes;
        all[i] = &torn[i];
    }
    start.version = STOCKADE_VERSION;
    start.key = (ProtobufCBinaryData){AUDIT_KEY, a->public_key};
    start.boot_id = boot_id;
    start.torn = all;
    start.n_torn = a->found.torn_n;
    start.changed = a->found.changed;
    start.sync = syncs[a->settings.sync];
    m.body_case = STOCKADE__V1__AUDIT_RECORD__BODY_START;
    m.start = &start;
    audit_write(a, &m, true);
}

static int
open_folder(struct audit *a, struct err *e)
{
    struct stat st;
    if (mkdir(a->folder, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make %s", a->folder);
    a->dir = open(a->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (a->dir < 0 || fstat(a->dir, &st) < 0)
        return err_sys(e, errno, "open %s", a->folder);
    if (st.st_uid != geteuid()) {
        int r = err_set(e, ERR_FAILED_PRECONDITION, "%s belongs to uid %u", a->folder,
                        (unsigned)st.st_uid);
        err_detail(e, "AUDIT_FOLDER", a->folder, "chown it to the broker's account");
        return r;
    }
    if ((st.st_mode & (S_IWGRP | S_IRWXO)) != 0 && fchmod(a->dir, st.st_mode & 0750) < 0)
        return err_sys(e, errno, "protect %s", a->folder);
    // On the folder: what two would write to changes with each file (flock(2): the lock goes with the last copy of `dir`).
    if (flock(a->dir, LOCK_EX | LOCK_NB) < 0) {
        int r = err_set(e, ERR_FAILED_PRECONDITION, "another process writes to %s", a->folder);
        err_detail(e, "AUDIT_IN_USE", a->folder, "end that process");
        return r;
    }
    return 0;
}

static int
open_key(struct audit *a, const char *key, struct err *e)
{
    (void)snprintf(a->public_path, sizeof a->public_path, "%s/audit.pub", a->folder);
    (void)snprintf(a->changes_path, sizeof a->changes_path, "%s/audit.pub.chain", a->folder);
    if (key[0] != '\0')
        (void)snprintf(a->key_path, sizeof a->key_path, "%s", key);
    else
        (void)snprintf(a->key_path, sizeof a->key_path, "%s/audit.key", a->folder);
    return audit_key_open(a, e);
}

static int
prepare_buffers(struct audit *a, struct err *e)
{
    a->filling.bytes = malloc(AUDIT_QUEUE_BYTES);
    a->taken.bytes = malloc(AUDIT_QUEUE_BYTES);
    return a->filling.bytes != NULL && a->taken.bytes != NULL
               ? audit_writer_prepare(a, e)
               : err_sys(e, ENOMEM, "open the audit log");
}

int
audit_open(const struct audit_settings *s, const char *folder, const char *key, struct audit **out,
           struct err *e)
{
    struct audit *a = calloc(1, sizeof *a);
    if (a == NULL)
        return err_sys(e, ENOMEM, "open the audit log");
    a->settings = *s;
    a->system = s->system != NULL ? s->system : &kernel;
    a->dir = a->file.fd = -1;
    list_init(&a->waits);
    list_init(&a->readers);
    writer_thread_init(&a->writer);
    int r = (size_t)snprintf(a->folder, sizeof a->folder, "%s", folder) < sizeof a->folder
                ? 0
                : err_set(e, ERR_INVALID_ARGUMENT, "%s: its path is too long", folder);
    if (r == 0)
        r = open_folder(a, e);
    if (r == 0)
        r = open_key(a, key, e);
    if (r == 0)
        r = prepare_buffers(a, e);
    if (r == 0)
        r = audit_recover(a, e);
    if (r == 0)
        r = audit_key_recover(a, e);
    if (r < 0) {
        audit_close(a, 0);
        return err_wrap(e, "audit log in %s", folder);
    }
    write_start(a);
    *out = a;
    return 0;
}

// ---- what the writer reports

static void
count(struct audit *a, const struct audit_figures *now)
{
    metrics_add(METRIC_AUDIT_RECORDS, now->records - a->counted.records);
    metrics_add(METRIC_AUDIT_BYTES, now->bytes - a->counted.bytes);
    metrics_add(METRIC_AUDIT_CHECKPOINTS, now->checkpoints - a->counted.checkpoints);
    metrics_add(METRIC_AUDIT_FAILURES, now->failures - a->counted.failures);
    if (now->checkpoints > a->counted.checkpoints)
        metrics_set(METRIC_AUDIT_CHECKPOINT_TIME, 0, now_ns(CLOCK_REALTIME));
    a->counted = *now;
}

static void
end_wait(struct audit_wait *w, const struct err *e)
{
    audit_unwait(w);
    w->done(w, e);
}

// The change of the key has ended.
static void
end_rekey(struct audit *a)
{
    uv_mutex_lock(&a->writer.lock);
    const bool done = a->rekey_done;
    const bool failed = a->rekey_failed;
    const struct err why = a->rekey_why;
    if (done)
        a->rekey_asked = a->rekey_done = false;
    uv_mutex_unlock(&a->writer.lock);
    struct audit_rekey *w = a->rekey;
    if (!done)
        return;
    a->rekey = NULL;
    if (w != NULL)
        w->done(w, failed ? &why : NULL);
}

int
audit_rekey(struct audit *a, struct audit_rekey *w, struct err *e)
{
    if (a == NULL || !a->writer.started)
        return err_set(e, ERR_FAILED_PRECONDITION, "this broker has no audit log");
    uv_mutex_lock(&a->writer.lock);
    const bool busy = a->rekey_asked;
    a->rekey_asked = true;
    uv_mutex_unlock(&a->writer.lock);
    if (busy)
        return err_set(e, ERR_ABORTED, "the key of the audit log is being changed already");
    a->rekey = w;
    uv_cond_signal(&a->writer.wake);
    return 0;
}

void
audit_rekey_forget(struct audit *a, const struct audit_rekey *w)
{
    if (a->rekey == w)
        a->rekey = NULL;
}

static void
collect(void *audit)
{
    struct audit *a = audit;
    uv_mutex_lock(&a->writer.lock);
    const bool was = a->known_failing;
    const struct audit_figures figures = a->figures;
    const bool more = a->last != a->known_last;
    a->known_stored = a->stored;
    a->known_last = a->last;
    a->known_failing = a->failing;
    if (a->failing)
        a->known_why = a->why;
    metrics_set(METRIC_AUDIT_QUEUE, 0, (int64_t)a->filling.n);
    uv_mutex_unlock(&a->writer.lock);
    count(a, &figures);
    if (a->known_failing && !was)
        log_err(LOG_ERROR, "audit", &a->known_why);
    else if (was && !a->known_failing)
        log_event(LOG_WARNING, "audit", "the audit log is written again");
    struct err refusal;
    const bool refuses = audit_admit(a, &refusal) < 0;
    while (!list_empty(&a->waits)) { // in the order of the queue; what they do may end others
        struct audit_wait *w = list_entry(a->waits.next, struct audit_wait, node);
        const bool stored = w->until <= a->known_stored;
        if (!stored && !a->known_failing)
            break;
        end_wait(w, stored || !refuses ? NULL : &refusal);
    }
    if (more)
        audit_readers_wake(a);
    end_rekey(a);
}

int
audit_start(struct audit *a, uv_loop_t *loop, struct err *e)
{
    a->unsigned_since_ns = 1; // the start is written and signed at once
    a->waited = a->filling.n > 0;
    int r = writer_thread_start(&a->writer, loop, audit_run, collect, a, e);
    if (r < 0)
        return r;
    a->loop = loop;
    return 0;
}

// ---- the queue

static void
miss(struct audit *a, bool job)
{
    struct audit_missed *m = &a->missed;
    if (m->calls + m->jobs == 0) {
        m->since_ns = a->system->now_ns(CLOCK_REALTIME);
        m->since_boot_ns = a->system->now_ns(CLOCK_BOOTTIME);
    }
    m->calls += !job;
    m->jobs += job;
    metrics_add(METRIC_AUDIT_MISSED, 1);
}

// With the lock: what was missed comes before the next record.
static int
put_gap(struct audit *a, size_t room)
{
    const struct audit_missed *missed = &a->missed;
    Google__Protobuf__Timestamp since = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    Stockade__V1__AuditGap gap = STOCKADE__V1__AUDIT_GAP__INIT;
    Stockade__V1__AuditRecord m = STOCKADE__V1__AUDIT_RECORD__INIT;
    if (missed->calls + missed->jobs == 0)
        return 0;
    since.seconds = missed->since_ns / 1000000000;
    since.nanos = (int32_t)(missed->since_ns % 1000000000);
    gap.calls = missed->calls;
    gap.jobs = missed->jobs;
    gap.since = &since;
    gap.since_boot_ns = (uint64_t)missed->since_boot_ns;
    m.body_case = STOCKADE__V1__AUDIT_RECORD__BODY_GAP;
    m.gap = &gap;
    int r = audit_put(a->system, &a->filling, room, &m);
    if (r == 0) {
        a->missed = (struct audit_missed){0};
        a->queued++;
    }
    return r;
}

// Wakes the writer. Without the lock: a thread that wakes up inside it would have to wait for it.
static void
write_now(struct audit *a)
{
    uv_mutex_lock(&a->writer.lock);
    const bool asleep = !a->waited && a->filling.n > 0;
    a->waited = a->waited || asleep;
    uv_mutex_unlock(&a->writer.lock);
    if (asleep)
        uv_cond_signal(&a->writer.wake);
}

static void
on_linger(void *audit)
{
    struct audit *a = audit;
    loop_timer_stop(&a->linger);
    write_now(a);
}

// The writer sleeps until a call waits, or the time is up: waking it for each record would cost more than to write it.
static void
linger(struct audit *a)
{
    if (a->loop != NULL && a->linger == NULL &&
        loop_timer_start(a->loop, &a->linger, AUDIT_LINGER_MS, on_linger, a) < 0)
        write_now(a);
}

void
audit_write(struct audit *a, Stockade__V1__AuditRecord *m, bool vital)
{
    if (a == NULL)
        return;
    const size_t room = vital ? AUDIT_QUEUE_BYTES : CALLS_ROOM;
    uv_mutex_lock(&a->writer.lock);
    int r = put_gap(a, room);
    if (r == 0)
        r = audit_put(a->system, &a->filling, room, m);
    if (r == 0)
        a->queued++;
    else
        miss(a, vital);
    const bool much = a->filling.n >= AUDIT_QUEUE_BYTES / 4;
    uv_mutex_unlock(&a->writer.lock);
    if (much)
        write_now(a);
    else
        linger(a);
}

int
audit_admit(const struct audit *a, struct err *e)
{
    if (a == NULL || a->settings.on_full == AUDIT_FULL_CONTINUE)
        return 0;
    if (a->known_failing) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                        "the audit log cannot be written, so nothing may change: %.300s",
                        a->known_why.text);
        err_detail(e, "AUDIT_FULL", NULL,
                   "jobs that run go on; the operator makes room on the disk of the audit log");
        return r;
    }
    if (a->missed.calls + a->missed.jobs == 0)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED,
                    "the disk of the audit log is slower than its records come");
    err_detail(e, "AUDIT_QUEUE", NULL, "try again in a second");
    return r;
}

bool
audit_wait(struct audit *a, struct audit_wait *w)
{
    w->waits = false;
    if (a == NULL || a->settings.sync == AUDIT_SYNC_NONE || a->known_failing ||
        a->queued == a->known_stored)
        return false;
    w->waits = true;
    w->until = a->queued;
    list_append(&a->waits, &w->node);
    write_now(a);
    return true;
}

void
audit_unwait(struct audit_wait *w)
{
    if (!w->waits)
        return;
    w->waits = false;
    list_remove(&w->node);
}

uint64_t
audit_number(struct audit *a)
{
    return ++a->calls;
}

// ---- the end

static void
stop_writer(struct audit *a, int status)
{
    Stockade__V1__AuditStop stop = STOCKADE__V1__AUDIT_STOP__INIT;
    Stockade__V1__AuditRecord m = STOCKADE__V1__AUDIT_RECORD__INIT;
    stop.status = (uint32_t)status;
    m.body_case = STOCKADE__V1__AUDIT_RECORD__BODY_STOP;
    m.stop = &stop;
    audit_write(a, &m, true);
    loop_timer_stop(&a->linger);
    a->loop = NULL;
    (void)writer_thread_end(&a->writer, &a->ends);
    collect(a);
}

void
audit_close(struct audit *a, int status)
{
    if (a == NULL)
        return;
    if (a->writer.started)
        stop_writer(a, status);
    audit_readers_end(a);
    audit_readers_detach(a);
    list_each(it, &a->waits) audit_unwait(list_entry(it, struct audit_wait, node));
    if (a->file.fd >= 0)
        (void)close(a->file.fd);
    if (a->dir >= 0)
        (void)close(a->dir);
    writer_thread_free(&a->writer);
    sodium_memzero(a->secret, sizeof a->secret);
    free(a->filling.bytes);
    free(a->taken.bytes);
    free(a->leaf);
    free(a->scratch);
    free(a->out);
    free(a->unsynced.bytes);
    free(a);
}
