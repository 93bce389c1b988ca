// SPDX-License-Identifier: Apache-2.0
// stockade.v1.TelemetryService: translation between its messages and server/telemetry/telemetry.h, events.h.
#include "proto/now.h"
#include "api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/wire.h"
#include "server/telemetry/events.h"
#include "server/telemetry/record_store.h"
#include "server/sandbox/sandbox.h"
#include "server/base/server.h"
#include "server/base/stopping.h"
#include "server/telemetry/telemetry.h"
#include "server/sandbox/usage.h"
#include "convert.h"
#include "page.h"
#include "server/sandbox/job.h"
#include "server/sandbox/job_message.h"

// The requested tenant, for the hub; "" means all.
static const char *
whose(const struct call *c)
{
    return call_whose(c) != NULL ? call_whose(c) : "";
}

// ---- Subscribe

struct subscription {
    struct server *s;
    struct call *call;
    struct events_reader *reader;
    bool counts;  // it needs system calls watched
    bool blocked; // no credit: on_writable will be called
    bool greeted; // the first message has been sent
    bool kept_only;
};

static void
subscription_free(struct subscription *sub)
{
    events_unsubscribe(sub->reader);
    if (sub->counts)
        telemetry_unwant(sub->s->telemetry);
    free(sub);
}

static void
on_cancel(void *cookie, enum call_cancel why)
{
    (void)why;
    subscription_free(cookie);
}

// Events are already packed. protobuf-c writes unknown fields unchanged, so each event is sent as one: field 1, with
// its length before it.
static int
send_batch(struct subscription *sub, const struct events_batch *b)
{
    Stockade__V1__SubscribeResponse m = STOCKADE__V1__SUBSCRIBE_RESPONSE__INIT;
    Stockade__V1__Gap gap = STOCKADE__V1__GAP__INIT;
    ProtobufCMessageUnknownField fields[EVENTS_BATCH];
    for (uint32_t i = 0; i < b->n; i++)
        fields[i] = (ProtobufCMessageUnknownField){
            .tag = 1,
            .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
            .len = b->event[i]->n,
            .data = (uint8_t *)(uintptr_t)b->event[i]->bytes,
        };
    m.base.n_unknown_fields = b->n;
    m.base.unknown_fields = fields;
    m.last_sequence = events_last(telemetry_events(sub->s->telemetry));
    m.instance = events_instance(telemetry_events(sub->s->telemetry));
    if (b->gap.from != 0) {
        gap.from_sequence = b->gap.from;
        gap.to_sequence = b->gap.to;
        gap.count = b->gap.count;
        gap.reason = b->gap.reason;
        m.gap = &gap;
    }
    return call_send(sub->call, &m.base);
}

// Sends available events, as far as credit permits.
static int
pump(struct subscription *sub)
{
    static const struct events_batch nothing;
    struct events_batch b;
    int r = sub->greeted ? 0 : send_batch(sub, &nothing);
    sub->greeted = sub->greeted || r == 0;
    while (r == 0 && events_peek(sub->reader, &b)) {
        r = send_batch(sub, &b);
        if (r == 0)
            events_taken(sub->reader, &b);
    }
    sub->blocked = r == -EAGAIN;
    return r == -EAGAIN ? 0 : r;
}

static bool
has_all(const struct subscription *sub)
{
    return sub->kept_only && !sub->blocked && events_caught_up(sub->reader);
}

static void
on_wake(void *cookie)
{
    struct subscription *sub = cookie;
    struct err e;
    int r = sub->blocked ? 0 : pump(sub);
    if (r == 0 && has_all(sub)) {
        call_end(sub->call);
        subscription_free(sub);
        return;
    }
    if (r < 0)
        (void)err_sys(&e, r, "send events");
    else if (sub->s->drained && !sub->blocked)
        (void)stopping_say(&e, ERR_UNAVAILABLE);
    else
        return;
    call_fail(sub->call, &e);
    subscription_free(sub);
}

static void
on_writable(void *cookie)
{
    struct subscription *sub = cookie;
    sub->blocked = false;
    on_wake(sub);
}

static int
read_filter(const struct call *c, const Stockade__V1__SubscribeRequest *m, struct event_filter *f,
            struct err *e)
{
    *f = (struct event_filter){.severity = (uint32_t)m->severity};
    int r = 0;
    (void)snprintf(f->tenant, sizeof f->tenant, "%s", whose(c));
    for (size_t i = 0; r == 0 && i < m->n_kinds; i++) {
        if (protobuf_c_enum_descriptor_get_value(&stockade__v1__event_kind__descriptor,
                                                 (int)m->kinds[i]) == NULL ||
            m->kinds[i] == STOCKADE__V1__EVENT_KIND__EVENT_KIND_UNSPECIFIED)
            return err_field(e, "kinds", "%d is not a kind of event", (int)m->kinds[i]);
        f->kinds[m->kinds[i] / 64] |= UINT64_C(1) << m->kinds[i] % 64;
    }
    if (m->severity > STOCKADE__V1__SEVERITY__SEVERITY_CRITICAL)
        return err_field(e, "severity", "%d is not a severity", (int)m->severity);
    for (size_t i = 0; i < m->n_sandbox_ids && i < EVENTS_SANDBOXES; i++)
        (void)snprintf(f->sandbox_id[f->sandboxes_n++], sizeof f->sandbox_id[0], "%s",
                       m->sandbox_ids[i]);
    memcpy(f->process_id, m->process_id, strlen(m->process_id) + 1);
    return r;
}

static bool
names_syscalls(const struct event_filter *f)
{
    static const Stockade__V1__EventKind kinds[] = {
        STOCKADE__V1__EVENT_KIND__EVENT_KIND_DANGEROUS_CALL,
        STOCKADE__V1__EVENT_KIND__EVENT_KIND_IO_URING,
        STOCKADE__V1__EVENT_KIND__EVENT_KIND_SENSITIVE_OPEN,
        STOCKADE__V1__EVENT_KIND__EVENT_KIND_REMOTE_TERMINAL,
        STOCKADE__V1__EVENT_KIND__EVENT_KIND_PROFILE,
    };
    bool any = false;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        any = any || (f->kinds[kinds[i] / 64] >> kinds[i] % 64 & 1) != 0;
    return any;
}

static void
subscribe(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__SubscribeRequest *m = (const Stockade__V1__SubscribeRequest *)req;
    struct event_filter f;
    struct err e;
    struct subscription *sub = calloc(1, sizeof *sub);
    if (sub == NULL) {
        convert_no_memory(c);
        return;
    }
    sub->s = s;
    sub->call = c;
    const struct events_listener l = {call_tenant(c), on_wake, sub};
    if (read_filter(c, m, &f, &e) < 0 ||
        events_subscribe(telemetry_events(s->telemetry), &f, m->from_sequence, m->instance, &l,
                         &sub->reader, &e) < 0) {
        free(sub);
        call_fail(c, &e);
        return;
    }
    sub->kept_only = m->kept_only;
    sub->counts = names_syscalls(&f) && !m->kept_only;
    if (sub->counts)
        telemetry_want(s->telemetry);
    call_watch(c, on_cancel, on_writable, sub);
    call_only_watches(c);
    on_wake(sub);
}

// ---- GetRecord

static void
no_record(struct call *c, const char *id, uint32_t several)
{
    struct err e;
    if (several > 1) {
        (void)err_field(&e, "process_id", "%u processes begin with %s", several, id);
    } else if (id[0] != '\0' && strlen(id) < 6) {
        (void)err_field(&e, "process_id", "at least 6 digits are needed");
    } else {
        (void)err_set(&e, ERR_NOT_FOUND, "there is no record of process %s", id);
        err_detail(
            &e, "RECORD", "process_id",
            "it does not exist, belongs to another caller, or is not among the last 1,000 that are kept");
    }
    call_fail(c, &e);
}

static bool
reply_running(struct server *s, struct call *c, struct job *j)
{
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    Stockade__V1__GetRecordResponse m = STOCKADE__V1__GET_RECORD_RESPONSE__INIT;
    m.process = a != NULL ? job_message_process(a, j) : NULL;
    m.record = m.process != NULL ? telemetry_record(s->telemetry, j, a) : NULL;
    if (m.record == NULL)
        return false;
    m.tenant = job_tenant(j);
    m.template_ = job_template(j);
    call_reply(c, &m.base);
    return true;
}

static void
reply_kept(struct call *c, const uint8_t *bytes, size_t n)
{
    struct err e;
    struct arena *auto_arena a = arena_new(CONVERT_ARENA_MAX);
    ProtobufCMessage *kept = NULL;
    if (a == NULL) {
        convert_no_memory(c);
        return;
    }
    if (wire_unpack(&stockade__v1__get_record_response__descriptor, bytes, n, a, &kept, &e) < 0)
        call_fail(c, &e);
    else
        call_reply(c, kept);
}

static void
get_record(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__GetRecordRequest *m = (const Stockade__V1__GetRecordRequest *)req;
    const char *id = m->process_id;
    const char *tenant = id[0] != '\0' ? call_whose(c) : call_tenant(c);
    size_t n = 0;
    uint32_t several = 0;
    const uint8_t *bytes = NULL;
    struct job *j = job_find_beginning(s->jobs, tenant, id, &several);
    if (id[0] == '\0' || strlen(id) >= 6)
        bytes = record_store_find(telemetry_records(s->telemetry), tenant, id, &n, &several);
    if (several == 1 && j != NULL && reply_running(s, c, j))
        return;
    if ((several == 1 || id[0] == '\0') && bytes != NULL)
        reply_kept(c, bytes, n);
    else
        no_record(c, id, several);
}

// ---- ListUsage

static Stockade__V1__Pressure *
convert_pressure(struct arena *a, const struct usage_pressure *p, bool *whole)
{
    Stockade__V1__Pressure *m = p->known ? wire_make(a, &stockade__v1__pressure__descriptor) : NULL;
    *whole = *whole && (m != NULL || !p->known);
    if (m == NULL)
        return NULL;
    m->some_centipercent = p->some_centipercent;
    m->some_us = p->some_us;
    m->full_centipercent = p->full_centipercent;
    m->full_us = p->full_us;
    return m;
}

static bool
fill_files(struct arena *a, const struct usage *u, Stockade__V1__Usage *m)
{
    bool whole = true;
    m->cpu_ns = u->v[USAGE_CPU_NS];
    m->throttled_ns = u->v[USAGE_THROTTLED_NS];
    m->memory_bytes = u->v[USAGE_MEMORY_BYTES];
    m->pids = (uint32_t)u->v[USAGE_PIDS];
    m->io_read_bytes = u->v[USAGE_IO_READ_BYTES];
    m->io_write_bytes = u->v[USAGE_IO_WRITE_BYTES];
    m->cpu_pressure = convert_pressure(a, &u->pressure[USAGE_CPU], &whole);
    m->memory_pressure = convert_pressure(a, &u->pressure[USAGE_MEMORY], &whole);
    m->io_pressure = convert_pressure(a, &u->pressure[USAGE_IO], &whole);
    m->unknown = arena_alloc(a, sizeof(char *) * USAGE_FIGURES);
    if (m->unknown == NULL)
        return false;
    for (unsigned i = 0; i < USAGE_FIGURES; i++)
        if ((u->known >> i & 1) == 0)
            m->unknown[m->n_unknown++] = usage_name(i);
    return whole;
}

static bool
fill_sums(struct arena *a, struct server *s, const struct sandbox *box, Stockade__V1__Usage *m)
{
    struct telemetry_sums t;
    telemetry_sandbox_sums(s->telemetry, box, &t);
    m->network = wire_make(a, &stockade__v1__network_use__descriptor);
    if (m->network == NULL)
        return false;
    m->network->out_bytes = t.sums.out_bytes;
    m->network->out_packets = t.sums.out_packets;
    m->network->in_bytes = t.sums.in_bytes;
    m->network->in_packets = t.sums.in_packets;
    m->network->connects_allowed = t.sums.connects_allowed;
    m->network->connects_denied = t.sums.connects_denied;
    m->network->queries = t.sums.queries;
    m->denials = t.denials;
    m->alerts = t.alerts;
    m->lost = t.lost;
    m->forks = t.sums.forks;
    m->execs = t.sums.execs;
    return true;
}

static Stockade__V1__Usage *
convert_usage(struct arena *a, struct server *s, struct sandbox *box)
{
    struct usage u;
    Stockade__V1__Usage *m = wire_make(a, &stockade__v1__usage__descriptor);
    if (m == NULL)
        return NULL;
    m->sandbox_id = box->id.id;
    m->name = box->spec.name;
    m->tenant = box->tenant->name;
    m->template_ = box->spec.template->name;
    m->paused = box->state == SANDBOX_PAUSED;
    m->jobs = box->jobs_n;
    m->memory_limit_bytes = box->spec.limits.v[LIMIT_MEMORY_BYTES];
    m->pids_limit = (uint32_t)box->spec.limits.v[LIMIT_PIDS];
    const int64_t now = now_ns(CLOCK_REALTIME);
    m->time = wire_make_time(a, now / 1000000000, (int32_t)(now % 1000000000));
    m->create_time =
        wire_make_time(a, box->created_ms / 1000, (int32_t)(box->created_ms % 1000) * 1000000);
    if (m->time == NULL || m->create_time == NULL)
        return NULL;
    telemetry_usage(s->telemetry, box, &u);
    return fill_files(a, &u, m) && fill_sums(a, s, box, m) ? m : NULL;
}

static bool
is_meant(const struct sandbox *box, const char *tenant, const char *id)
{
    if (box->state == SANDBOX_DELETING ||
        (tenant != NULL && strcmp(box->tenant->name, tenant) != 0))
        return false;
    return id[0] == '\0' || strcmp(box->id.id, id) == 0 || strcmp(box->spec.name, id) == 0;
}

static void
list_usage(struct server *s, struct call *c, const ProtobufCMessage *req)
{
    const Stockade__V1__ListUsageRequest *m = (const Stockade__V1__ListUsageRequest *)req;
    Stockade__V1__ListUsageResponse response = STOCKADE__V1__LIST_USAGE_RESPONSE__INIT;
    struct page auto_page p = {0};
    if (!page_open(&p, c, m->page_size, m->page_token))
        return;
    list_each(it, sandboxes_owned(s->sandboxes))
    {
        struct sandbox *box = list_entry(it, struct sandbox, node);
        if (box->order <= p.last || !is_meant(box, call_whose(c), m->sandbox_id))
            continue;
        if (!page_has_room(&p) || !page_add(&p, box->order, convert_usage(p.arena, s, box)))
            break;
    }
    response.usage = p.elements;
    response.n_usage = p.n;
    response.next_page_token = p.token;
    page_reply(&p, c, &response.base);
}

const struct call_method telemetry_methods[] = {
    {"/stockade.v1.TelemetryService/Subscribe", &stockade__v1__subscribe_request__descriptor,
     &stockade__v1__subscribe_response__descriptor, subscribe},
    {"/stockade.v1.TelemetryService/GetRecord", &stockade__v1__get_record_request__descriptor,
     &stockade__v1__get_record_response__descriptor, get_record},
    {"/stockade.v1.TelemetryService/ListUsage", &stockade__v1__list_usage_request__descriptor,
     &stockade__v1__list_usage_response__descriptor, list_usage},
    {0},
};
