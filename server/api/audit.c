// SPDX-License-Identifier: Apache-2.0
// stockade.v1.AuditService: translation between its messages and server/audit/read.h.
#include "server/audit/read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/audit_prove.h"
#include "server/base/server.h"
#include "server/base/stopping.h"
#include "server/telemetry/record_store.h"
#include "server/telemetry/telemetry.h"
#include "stockade/v1/audit_service.pb-c.h"
#include "api.h"
#include "convert.h"
#include "page.h"

enum { LENGTH = 4, WATCH_RECORDS = 256, PAGE_USUAL = 100 };
#define PAGE_READ_BYTES (UINT64_C(256) << 20)
#define KIND(name)      STOCKADE__V1__AUDIT_RECORD__BODY_##name

// ---- which records

static const struct {
    const char *name;
    uint32_t body;
} kinds[] = {
    {"start", KIND(START)},
    {"stop", KIND(STOP)},
    {"call", KIND(CALL)},
    {"job", KIND(JOB)},
    {"gap", KIND(GAP)},
    {"change", KIND(CHANGE)},
    {"checkpoint", KIND(CHECKPOINT)},
};

static int
read_kinds(const Stockade__V1__AuditFilter *f, uint32_t *out, struct err *e)
{
    for (size_t i = 0; i < f->n_kinds; i++) {
        size_t k = 0;
        while (k < sizeof kinds / sizeof kinds[0] && strcmp(kinds[k].name, f->kinds[i]) != 0)
            k++;
        if (k == sizeof kinds / sizeof kinds[0])
            return err_field(e, "filter.kinds", "there is no kind %s", f->kinds[i]);
        *out |= UINT32_C(1) << kinds[k].body;
    }
    return 0;
}

static int
read_time(const Google__Protobuf__Timestamp *t, const char *field, int64_t *out, struct err *e)
{
    enum { SECOND_NS = 1000000000 };
    if (t == NULL)
        return 0;
    if (t->seconds < 0 || t->seconds >= INT64_MAX / SECOND_NS || t->nanos < 0 ||
        t->nanos >= SECOND_NS)
        return err_field(e, field, "must be between 1970 and 2262");
    *out = t->seconds * SECOND_NS + t->nanos;
    return 0;
}

static int
read_query(const struct call *c, const Stockade__V1__AuditFilter *f, struct audit_query *q,
           struct err *e)
{
    const char *whose = call_whose(c);
    *q = (struct audit_query){.all = whose == NULL, .kinds = ~(UINT32_C(1) << KIND(CHECKPOINT))};
    (void)snprintf(q->tenant, sizeof q->tenant, "%s", whose != NULL ? whose : "");
    if (f == NULL)
        return 0;
    if (f->n_kinds > 0)
        q->kinds = 0;
    (void)snprintf(q->method, sizeof q->method, "%s", f->method);
    (void)snprintf(q->object, sizeof q->object, "%s", f->object);
    q->phase = (uint32_t)f->phase;
    if (f->phase > STOCKADE__V1__AUDIT_PHASE__AUDIT_PHASE_REFUSED)
        return err_field(e, "filter.phase", "there is no phase %d", (int)f->phase);
    int r = read_time(f->since_time, "filter.since_time", &q->since_ns, e);
    if (r == 0)
        r = read_time(f->until_time, "filter.until_time", &q->until_ns, e);
    return r == 0 ? read_kinds(f, &q->kinds, e) : r;
}

// The next record of a batch, in the arena. NULL: there is none, or it cannot be read.
static Stockade__V1__AuditRecord *
next_record(const struct audit_batch *b, size_t *at, struct arena *a, struct err *e)
{
    uint32_t n;
    union { // messages have writable pointers
        const Stockade__V1__AuditRecord *from;
        Stockade__V1__AuditRecord *to;
    } m = {.from = NULL};
    if (*at == b->n)
        return NULL;
    memcpy(&n, b->bytes + *at, LENGTH);
    const uint8_t *record = b->bytes + *at + LENGTH;
    *at += LENGTH + n;
    return audit_record_read(record, n, a, &m.from, e) == 0 ? m.to : NULL;
}

// ---- List

struct listing {
    struct audit *audit;
    struct call *call;
    struct audit_reader *reader;
    size_t most;
    uint64_t read_bytes; // at least
};

static void
listing_end(struct listing *l)
{
    audit_reader_free(l->reader);
    free(l);
}

static void
reply_page(struct call *c, const struct audit_batch *b, uint64_t last)
{
    Stockade__V1__AuditServiceListResponse response =
        STOCKADE__V1__AUDIT_SERVICE_LIST_RESPONSE__INIT;
    char token[PAGE_TOKEN_BYTES] = "";
    struct err e = {0};
    size_t at = 0;
    struct arena *auto_arena arena = arena_new(CONVERT_ARENA_MAX);
    response.records = arena != NULL ? arena_alloc(arena, (b->records + 1) * sizeof(void *)) : NULL;
    if (response.records == NULL) {
        convert_no_memory(c);
        return;
    }
    while (response.n_records < b->records) {
        Stockade__V1__AuditRecord *m = next_record(b, &at, arena, &e);
        if (m == NULL) {
            call_fail(c, &e);
            return;
        }
        response.records[response.n_records++] = m;
    }
    if (!b->end)
        (void)snprintf(token, sizeof token, "%016llx", (unsigned long long)b->last);
    response.next_page_token = token;
    response.last_sequence = last;
    call_reply(c, &response.base);
}

static void
on_listed(void *cookie, const struct audit_batch *b, const struct err *e)
{
    struct listing *l = cookie;
    l->read_bytes += AUDIT_READ_BYTES;
    if (e == NULL && !b->end && b->records == 0 && l->read_bytes < PAGE_READ_BYTES) {
        audit_reader_next(l->reader, b->last, l->most);
        return;
    }
    if (e != NULL)
        call_fail(l->call, e);
    else
        reply_page(l->call, b, audit_last(l->audit));
    listing_end(l);
}

static void
on_list_cancel(void *cookie, enum call_cancel why)
{
    (void)why;
    listing_end(cookie);
}

static void
list(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__AuditServiceListRequest *m =
        (const Stockade__V1__AuditServiceListRequest *)req;
    struct audit_query q;
    struct page auto_page p = {0};
    struct err e;
    struct listing *l = NULL;
    int r = page_begin(&p, m->page_size, m->page_token, &e);
    if (r == 0)
        r = read_query(c, m->filter, &q, &e);
    if (r == 0 && (l = calloc(1, sizeof *l)) == NULL)
        r = err_sys(&e, ENOMEM, "read the audit log");
    if (r == 0 && l != NULL) {
        *l = (struct listing){
            .audit = s->audit, .call = c, .most = m->page_size != 0 ? m->page_size : PAGE_USUAL};
        l->reader = audit_reader_new(s->audit, s->loop, &q, on_listed, l, &e);
    }
    if (r < 0 || l == NULL || l->reader == NULL) {
        call_fail(c, &e);
        free(l);
        return;
    }
    call_watch(c, on_list_cancel, NULL, l);
    audit_reader_next(l->reader, m->page_token[0] != '\0' ? p.last : m->after_sequence, l->most);
}

// ---- Watch

struct watching {
    struct call *call;
    struct audit_reader *reader;
    uint64_t sent; // all up to this record
    bool reads, waits, more;
};

static void
watching_end(struct watching *w, const struct err *e)
{
    if (e != NULL)
        call_fail(w->call, e); // it may be the reader's
    audit_reader_free(w->reader);
    free(w);
}

static void
read_on(struct watching *w)
{
    w->reads = true;
    w->more = false;
    audit_reader_next(w->reader, w->sent, WATCH_RECORDS);
}

// Sends the records of a batch as far as the caller reads; the rest is read again when it does.
static void
on_read(void *cookie, const struct audit_batch *b, const struct err *failed)
{
    struct watching *w = cookie;
    struct err e = {0};
    size_t at = 0;
    int r = 0;
    w->reads = false;
    if (failed != NULL) {
        watching_end(w, failed);
        return;
    }
    struct arena *auto_arena arena = arena_new(CONVERT_ARENA_MAX);
    while (arena != NULL && at < b->n && r == 0) {
        Stockade__V1__AuditServiceWatchResponse response =
            STOCKADE__V1__AUDIT_SERVICE_WATCH_RESPONSE__INIT;
        arena_reset(arena);
        response.record = next_record(b, &at, arena, &e);
        r = response.record != NULL ? call_send(w->call, &response.base) : -ENOMEM;
        w->sent = r == 0 ? response.record->sequence : w->sent;
    }
    if (arena == NULL || (r < 0 && r != -EAGAIN)) {
        audit_reader_free(w->reader);
        convert_no_memory(w->call);
        free(w);
        return;
    }
    w->waits = r == -EAGAIN;
    w->sent = r == 0 ? b->last : w->sent;
    if (!w->waits && (!b->end || w->more))
        read_on(w);
}

static void
on_writable(void *cookie)
{
    struct watching *w = cookie;
    if (w->waits && !w->reads) {
        w->waits = false;
        read_on(w);
    }
}

static void
on_wake(void *cookie, bool ends)
{
    struct watching *w = cookie;
    struct err e;
    if (ends) {
        (void)stopping_say(&e, ERR_UNAVAILABLE);
        watching_end(w, &e);
        return;
    }
    w->more = true;
    if (!w->reads && !w->waits)
        read_on(w);
}

static void
on_watch_cancel(void *cookie, enum call_cancel why)
{
    (void)why;
    watching_end(cookie, NULL);
}

static void
watch(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__AuditServiceWatchRequest *m =
        (const Stockade__V1__AuditServiceWatchRequest *)req;
    struct audit_query q;
    struct err e;
    struct watching *w = NULL;
    int r = s->draining ? stopping_say(&e, ERR_UNAVAILABLE) : read_query(c, m->filter, &q, &e);
    if (r == 0 && (w = calloc(1, sizeof *w)) == NULL)
        r = err_sys(&e, ENOMEM, "read the audit log");
    if (r == 0 && w != NULL) {
        w->call = c;
        w->reader = audit_reader_new(s->audit, s->loop, &q, on_read, w, &e);
    }
    if (r < 0 || w == NULL || w->reader == NULL) {
        call_fail(c, &e);
        free(w);
        return;
    }
    w->sent = m->after_sequence != 0 ? m->after_sequence : audit_last(s->audit);
    audit_reader_watch(w->reader, on_wake);
    call_watch(c, on_watch_cancel, on_writable, w);
    call_only_watches(c);
    read_on(w);
}

// ---- GetProof

struct getting {
    struct server *s;
    struct call *call;
    struct audit_reader *reader;
    const char *process_id; // of the request
    bool reads, more;
};

static void
getting_end(struct getting *g, const struct err *e)
{
    if (e != NULL)
        call_fail(g->call, e); // it may be the reader's
    audit_reader_free(g->reader);
    free(g);
}

// The proof, and the job's whole record if the broker still has it.
static void
reply_proof(struct getting *g, const char *text)
{
    Stockade__V1__GetProofResponse response = STOCKADE__V1__GET_PROOF_RESPONSE__INIT;
    const Stockade__V1__AuditProof *found = NULL;
    uint32_t several = 0;
    size_t n = 0;
    struct err e;
    union { // messages have writable pointers
        const uint8_t *from;
        uint8_t *to;
    } job;
    struct arena *auto_arena arena = arena_new(CONVERT_ARENA_MAX);
    if (arena == NULL) {
        convert_no_memory(g->call);
        return;
    }
    if (audit_proof_read(text, arena, &found, &e) < 0) {
        call_fail(g->call, &e);
        return;
    }
    Stockade__V1__AuditProof proof = *found;
    job.from = record_store_find(telemetry_records(g->s->telemetry), call_whose(g->call),
                                 g->process_id, &n, &several);
    if (job.from != NULL && n <= AUDIT_PROOF_MAX - AUDIT_RECORD_MAX)
        proof.job = (ProtobufCBinaryData){n, job.to};
    audit_rotations(g->s->audit, arena, &proof);
    response.proof = &proof;
    call_reply(g->call, &response.base);
}

static void
prove_on(struct getting *g)
{
    g->reads = true;
    g->more = false;
    audit_reader_prove(g->reader, g->process_id);
}

static void
on_proved(void *cookie, const struct audit_batch *b, const struct err *e)
{
    struct getting *g = cookie;
    g->reads = false;
    if (e != NULL) {
        getting_end(g, e);
    } else if (b->proof != NULL) {
        reply_proof(g, b->proof);
        getting_end(g, NULL);
    } else if (!b->end || g->more) {
        prove_on(g);
    }
}

static void
on_prove_wake(void *cookie, bool ends)
{
    struct getting *g = cookie;
    struct err e;
    if (ends) {
        (void)stopping_say(&e, ERR_UNAVAILABLE);
        getting_end(g, &e);
        return;
    }
    g->more = true;
    if (!g->reads)
        prove_on(g);
}

static void
on_prove_cancel(void *cookie, enum call_cancel why)
{
    (void)why;
    getting_end(cookie, NULL);
}

static void
get_proof(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__GetProofRequest *m = (const Stockade__V1__GetProofRequest *)req;
    struct audit_query q;
    struct err e;
    struct getting *g = NULL;
    int r = read_query(c, NULL, &q, &e);
    if (r == 0 && (g = calloc(1, sizeof *g)) == NULL)
        r = err_sys(&e, ENOMEM, "prove a record");
    if (r == 0 && g != NULL) {
        *g = (struct getting){.s = s, .call = c, .process_id = m->process_id};
        g->reader = audit_reader_new(s->audit, s->loop, &q, on_proved, g, &e);
    }
    if (r < 0 || g == NULL || g->reader == NULL) {
        call_fail(c, &e);
        free(g);
        return;
    }
    audit_reader_watch(g->reader, on_prove_wake);
    call_watch(c, on_prove_cancel, NULL, g);
    call_only_watches(c);
    prove_on(g);
}

const struct call_method audit_methods[] = {
    {"/stockade.v1.AuditService/List", &stockade__v1__audit_service_list_request__descriptor,
     &stockade__v1__audit_service_list_response__descriptor, list},
    {"/stockade.v1.AuditService/Watch", &stockade__v1__audit_service_watch_request__descriptor,
     &stockade__v1__audit_service_watch_response__descriptor, watch},
    {"/stockade.v1.AuditService/GetProof", &stockade__v1__get_proof_request__descriptor,
     &stockade__v1__get_proof_response__descriptor, get_proof},
    {0},
};
