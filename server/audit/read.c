// SPDX-License-Identifier: Apache-2.0
// See read.h.
#include "read.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "private.h"
#include "proto/auto.h"

enum { LENGTH = 4 };

struct audit_reader {
    struct list node;
    struct audit *a; // NULL: the log was closed
    uv_loop_t *loop;
    uv_work_t work;
    struct audit_query query;
    audit_read_done *done;
    void (*wake)(void *cookie, bool ends);
    void *cookie;
    bool busy, freed, proves;
    uint64_t woken; // round
    // of the thread while it is busy
    struct audit_cursor cursor;
    struct audit_proving *proving; // NULL: it reads records
    uint64_t limit;
    size_t records_max, records;
    uint8_t *bytes; // AUDIT_BATCH_BYTES
    size_t n;
    char *proof; // owned
    int r;
    struct err e;
};

// ---- which records

static bool
has_object(const Stockade__V1__AuditRecord *m, const char *object)
{
    if (m->body_case == STOCKADE__V1__AUDIT_RECORD__BODY_JOB)
        return strcmp(m->job->process_id, object) == 0 || strcmp(m->job->sandbox_id, object) == 0;
    if (m->body_case != STOCKADE__V1__AUDIT_RECORD__BODY_CALL)
        return false;
    for (size_t i = 0; i < m->call->n_objects; i++)
        if (strcmp(m->call->objects[i]->value, object) == 0)
            return true;
    return false;
}

// "/stockade.v1.SandboxService/Create" is of "SandboxService/Create" and of "SandboxService".
static bool
has_method(const Stockade__V1__AuditRecord *m, const char *method)
{
    static const char prefix[] = "/stockade.v1.";
    const size_t n = strlen(method);
    if (m->body_case != STOCKADE__V1__AUDIT_RECORD__BODY_CALL ||
        strncmp(m->call->method, prefix, sizeof prefix - 1) != 0)
        return false;
    const char *name = m->call->method + sizeof prefix - 1;
    return strncmp(name, method, n) == 0 &&
           (name[n] == '\0' || (name[n] == '/' && strchr(method, '/') == NULL));
}

static const char *
tenant_of(const Stockade__V1__AuditRecord *m)
{
    if (m->body_case == STOCKADE__V1__AUDIT_RECORD__BODY_CALL)
        return m->call->tenant;
    return m->body_case == STOCKADE__V1__AUDIT_RECORD__BODY_JOB ? m->job->tenant : NULL;
}

static bool
matches(const struct audit_query *q, const Stockade__V1__AuditRecord *m)
{
    const char *tenant = tenant_of(m);
    const int64_t ns = m->time != NULL ? m->time->seconds * 1000000000 + m->time->nanos : 0;
    if (!q->all && (tenant == NULL || strcmp(tenant, q->tenant) != 0))
        return false;
    if (q->kinds != 0 && (q->kinds & UINT32_C(1) << m->body_case) == 0)
        return false;
    if (q->method[0] != '\0' && !has_method(m, q->method))
        return false;
    if (q->phase != 0 && (m->body_case != STOCKADE__V1__AUDIT_RECORD__BODY_CALL ||
                          (uint32_t)m->call->phase != q->phase))
        return false;
    if (q->object[0] != '\0' && !has_object(m, q->object))
        return false;
    return (q->since_ns == 0 || ns >= q->since_ns) && (q->until_ns == 0 || ns < q->until_ns);
}

// ---- in the thread

static int
keep(void *reader, const struct audit_frame *f, const Stockade__V1__AuditRecord *m, struct err *e)
{
    struct audit_reader *r = reader;
    const uint32_t length = (uint32_t)f->n;
    (void)e;
    if (!matches(&r->query, m))
        return 0;
    if (r->n + LENGTH + f->n > AUDIT_BATCH_BYTES)
        return AUDIT_CURSOR_FULL;
    memcpy(r->bytes + r->n, &length, LENGTH);
    memcpy(r->bytes + r->n + LENGTH, f->record, f->n);
    r->n += LENGTH + f->n;
    return ++r->records == r->records_max ? AUDIT_CURSOR_STOP : 0;
}

static void
in_thread(uv_work_t *work)
{
    struct audit_reader *r = work->data;
    r->e = (struct err){0};
    r->cursor.arena = arena_new(AUDIT_ARENA);
    if (r->bytes == NULL)
        r->bytes = malloc(AUDIT_BATCH_BYTES);
    if (r->cursor.arena == NULL || r->bytes == NULL || (r->proves && r->proving == NULL))
        r->r = err_sys(&r->e, ENOMEM, "read the audit log");
    else if (r->proving != NULL)
        r->r = audit_proving_run(r->proving, &r->cursor, r->limit, &r->proof, &r->e);
    else
        r->r = audit_cursor_read(&r->cursor, r->limit, AUDIT_READ_BYTES, keep, r, &r->e);
    arena_free(take_ptr(r->cursor.arena));
}

// ---- on the loop

static void
release(struct audit_reader *r)
{
    audit_proving_free(r->proving);
    if (r->cursor.dir >= 0)
        (void)close(r->cursor.dir);
    free(r->bytes);
    free(r->proof);
    free(r);
}

static void
on_work_done(uv_work_t *work, int status)
{
    struct audit_reader *r = work->data;
    (void)status; // never cancelled
    r->busy = false;
    if (r->freed) {
        release(r);
        return;
    }
    const struct audit_batch b = {
        .bytes = r->bytes,
        .n = r->n,
        .records = r->records,
        .last = r->cursor.after,
        .end = r->r == AUDIT_CURSOR_END,
        .proof = r->proof,
    };
    r->done(r->cookie, &b, r->r < 0 ? &r->e : NULL);
}

static void
begin(struct audit_reader *r)
{
    assert(!r->busy && !r->freed);
    r->n = r->records = 0;
    r->limit = r->a != NULL ? audit_last(r->a) : 0;
    r->busy = true;
    (void)uv_queue_work(r->loop, &r->work, in_thread, on_work_done);
}

// Readers may stay for as long as they like, so no tenant gets all places, and all of them leave some to operators.
static int
check_room(const struct audit *a, const struct audit_query *q, struct err *e)
{
    unsigned own = 0, tenants = 0;
    const char *who = NULL;
    list_each(it, &a->readers)
    {
        const struct audit_query *other = &list_entry(it, struct audit_reader, node)->query;
        tenants += !other->all;
        own += !other->all && strcmp(other->tenant, q->tenant) == 0;
    }
    if (!q->all && own >= AUDIT_READERS_OF_TENANT)
        who = q->tenant;
    else if (!q->all && tenants >= AUDIT_READERS_OF_TENANTS)
        who = "all tenants";
    else if (a->readers_n >= AUDIT_READERS_MAX)
        who = "all callers";
    if (who == NULL)
        return 0;
    int r =
        err_set(e, ERR_RESOURCE_EXHAUSTED,
                "the calls of %s that read the audit log are the most that may do so at once", who);
    err_detail(e, "AUDIT_READERS", NULL, "try again in a second");
    return r;
}

struct audit_reader *
audit_reader_new(struct audit *a, uv_loop_t *loop, const struct audit_query *q,
                 audit_read_done *done, void *cookie, struct err *e)
{
    if (a == NULL) {
        (void)err_set(e, ERR_FAILED_PRECONDITION, "the broker keeps no audit log");
        err_detail(e, "AUDIT_OFF", NULL, "the operator sets audit.enabled in stockaded.yaml");
        return NULL;
    }
    if (check_room(a, q, e) < 0)
        return NULL;
    struct audit_reader *r = calloc(1, sizeof *r);
    const int dir = r != NULL ? fcntl(a->dir, F_DUPFD_CLOEXEC, 0) : -1;
    if (dir < 0) {
        (void)err_sys(e, r != NULL ? errno : ENOMEM, "read the audit log");
        free(r);
        return NULL;
    }
    *r = (struct audit_reader){.a = a, .loop = loop, .query = *q, .done = done, .cookie = cookie};
    r->cursor.dir = dir;
    r->work.data = r;
    list_append(&a->readers, &r->node);
    a->readers_n++;
    return r;
}

static void
detach(struct audit_reader *r)
{
    if (r->a == NULL)
        return;
    r->a->readers_n--;
    list_remove(&r->node);
    r->a = NULL;
}

void
audit_reader_free(struct audit_reader *r)
{
    if (r == NULL)
        return;
    detach(r);
    r->freed = true;
    if (!r->busy)
        release(r);
}

void
audit_reader_next(struct audit_reader *r, uint64_t after, size_t records)
{
    if (after != r->cursor.after)
        r->cursor.number = 0;
    r->cursor.after = after;
    r->records_max = records;
    begin(r);
}

void
audit_reader_watch(struct audit_reader *r, void (*wake)(void *cookie, bool ends))
{
    r->wake = wake;
}

void
audit_reader_prove(struct audit_reader *r, const char *process_id)
{
    const struct audit_query *q = &r->query;
    if (r->proving == NULL)
        r->proving = audit_proving_new(process_id, q->all ? NULL : q->tenant);
    r->proves = true;
    begin(r);
}

// A reader that is woken may free itself, and others.
static void
wake_all(struct audit *a, bool ends)
{
    const uint64_t round = ++a->wake_round;
    bool again = true;
    while (again) {
        again = false;
        list_each(it, &a->readers)
        {
            struct audit_reader *r = list_entry(it, struct audit_reader, node);
            if (r->wake == NULL || r->woken == round)
                continue;
            r->woken = round;
            r->wake(r->cookie, ends);
            again = true;
            break;
        }
    }
}

void
audit_readers_wake(struct audit *a)
{
    wake_all(a, false);
}

void
audit_readers_end(struct audit *a)
{
    if (a != NULL)
        wake_all(a, true);
}

void
audit_readers_detach(struct audit *a)
{
    while (!list_empty(&a->readers))
        detach(list_entry(a->readers.next, struct audit_reader, node));
}

uint64_t
audit_last(const struct audit *a)
{
    return a->known_last;
}
