// SPDX-License-Identifier: Apache-2.0
// See otlp.h: events as log records, and the end of a job as spans.
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/now.h"
#include "proto/plural.h"
#include "proto/wire.h"
#include "opentelemetry/proto/common/v1/common.pb-c.h"
#include "opentelemetry/proto/logs/v1/logs.pb-c.h"
#include "opentelemetry/proto/trace/v1/trace.pb-c.h"
#include "facts.h"
#include "otlp.h"
#include "stockade/v1/telemetry_service.pb-c.h"

enum { NAME_BYTES = 64, BODY_BYTES = 160, RECORDED = 1, US = 1000 };

// ---- Logs

// As syslog's severities (opentelemetry.io/docs/specs/otel/logs/data-model-appendix).
static const struct {
    int32_t number;
    const char *text;
} severities[] = {{0, ""}, {9, "INFO"}, {10, "INFO2"}, {13, "WARN"}, {18, "ERROR2"}};

static int
pack_log(Opentelemetry__Proto__Logs__V1__LogRecord *m, const struct otlp_attributes *a,
         struct sink_bytes *out)
{
    Opentelemetry__Proto__Logs__V1__ScopeLogs scope =
        OPENTELEMETRY__PROTO__LOGS__V1__SCOPE_LOGS__INIT;
    m->attributes = a->item;
    m->n_attributes = a->n;
    m->observed_time_unix_nano = (uint64_t)now_ns(CLOCK_REALTIME);
    scope.log_records = &m;
    scope.n_log_records = 1;
    return a->failed ? -ENOMEM : otlp_pack(&scope.base, out);
}

// "stockade.job_ended"
static void
event_name(const char *kind, char name[NAME_BYTES])
{
    (void)snprintf(name, NAME_BYTES, "stockade.%s", kind);
    for (char *c = name; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
}

// One sentence, if the event has one.
static const char *
sentence(const struct stockade_event *event)
{
    static const char *const facts[] = {"text", "hint", "reason", "note"};
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        if (fact_text(event, facts[i])[0] != '\0')
            return fact_text(event, facts[i]);
    return "";
}

int
otlp_log(struct otlp *o, const struct stockade_event *event, struct sink_bytes *out)
{
    Opentelemetry__Proto__Logs__V1__LogRecord m = OPENTELEMETRY__PROTO__LOGS__V1__LOG_RECORD__INIT;
    Opentelemetry__Proto__Common__V1__AnyValue body =
        OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__INIT;
    struct otlp_attributes a = {.arena = o->arena};
    struct trace t;
    char name[NAME_BYTES], uid[NAME_BYTES];
    arena_reset(o->arena);
    event_name(event->kind, name);
    m.event_name = name;
    m.time_unix_nano = (uint64_t)event->time_ns;
    const size_t severity = event->severity < 5 ? event->severity : 0;
    m.severity_number = severities[severity].number;
    m.severity_text = severities[severity].text;
    body.value_case = OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_STRING_VALUE;
    body.string_value = sentence(event)[0] != '\0' ? sentence(event) : name;
    m.body = &body;
    (void)snprintf(uid, sizeof uid, "%.16s-%" PRIu64, event->instance, event->sequence);
    otlp_add_text(&a, "log.record.uid", uid);
    otlp_add_event(&a, event);
    otlp_add_facts(&a, event);
    if (trace_find(&o->traces, event, &t)) {
        m.trace_id = (ProtobufCBinaryData){TRACE_ID, t.trace_id};
        m.span_id = (ProtobufCBinaryData){SPAN_ID, t.span_id};
        m.flags = t.recorded ? RECORDED : 0;
    }
    return pack_log(&m, &a, out);
}

int
otlp_log_gap(struct otlp *o, uint64_t count, const char *reason, struct sink_bytes *out)
{
    Opentelemetry__Proto__Logs__V1__LogRecord m = OPENTELEMETRY__PROTO__LOGS__V1__LOG_RECORD__INIT;
    Opentelemetry__Proto__Common__V1__AnyValue body =
        OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__INIT;
    struct otlp_attributes a = {.arena = o->arena};
    char text[BODY_BYTES];
    arena_reset(o->arena);
    if (count == 0)
        (void)snprintf(text, sizeof text, "an unknown number of events was missed: %.32s", reason);
    else
        (void)snprintf(text, sizeof text, "%" PRIu64 " %s missed: %.32s", count,
                       plural(count, "event was", "events were"), reason);
    m.event_name = "stockade.events_missed";
    m.time_unix_nano = (uint64_t)now_ns(CLOCK_REALTIME);
    m.severity_number = severities[3].number;
    m.severity_text = severities[3].text;
    body.value_case = OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_STRING_VALUE;
    body.string_value = text;
    m.body = &body;
    otlp_add_number(&a, "stockade.events", count);
    otlp_add_text(&a, "stockade.reason", reason);
    return pack_log(&m, &a, out);
}

// ---- Spans

enum { SPANS = 5 };

// What follows one another between the arrival of the call and the event, in microseconds.
struct phases {
    uint64_t queue, set_up, exec, collect;
};

static struct phases
phases_of(const Stockade__V1__JobFacts *job)
{
    const Stockade__V1__Bill *b = job->bill;
    return (struct phases){
        .queue = b != NULL && b->queue_us != NULL ? b->queue_us->value : 0,
        .set_up = b != NULL && b->setup_us != NULL ? b->setup_us->value : 0,
        .exec = job->exec_us,
        .collect = job->collect_us,
    };
}

// The figures are the first fields of the message.
static void
add_bill(struct otlp_attributes *a, const Stockade__V1__Bill *bill)
{
    char key[NAME_BYTES];
    for (unsigned i = 0; bill != NULL && i < bill->base.descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &bill->base.descriptor->fields[i];
        const Stockade__V1__Figure *figure = NULL;
        if (f->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        memcpy(&figure, (const char *)bill + f->offset, sizeof(void *));
        if (figure == NULL ||
            figure->source == STOCKADE__V1__FIGURE_SOURCE__FIGURE_SOURCE_UNSPECIFIED)
            continue;
        (void)snprintf(key, sizeof key, "stockade.bill.%s", f->name);
        otlp_add_number(a, key, figure->value);
    }
}

struct span {
    Opentelemetry__Proto__Trace__V1__Span m;
    uint8_t id[SPAN_ID];
};

static void
set_span(struct span *s, const struct trace *t, unsigned n, const char *name, uint64_t start_ns,
         uint64_t us)
{
    opentelemetry__proto__trace__v1__span__init(&s->m);
    trace_child(t, n, s->id);
    s->m.trace_id = wire_bytes(t->trace_id, TRACE_ID);
    s->m.span_id = (ProtobufCBinaryData){SPAN_ID, s->id};
    if (n > 0 || t->has_parent)
        s->m.parent_span_id = wire_bytes(n == 0 ? t->parent_id : t->span_id, SPAN_ID);
    s->m.flags = RECORDED;
    s->m.name = name;
    s->m.kind = n == 0 ? OPENTELEMETRY__PROTO__TRACE__V1__SPAN__SPAN_KIND__SPAN_KIND_SERVER
                       : OPENTELEMETRY__PROTO__TRACE__V1__SPAN__SPAN_KIND__SPAN_KIND_INTERNAL;
    s->m.start_time_unix_nano = start_ns;
    s->m.end_time_unix_nano = start_ns + us * US;
}

static void
set_spans(struct span s[SPANS], const struct trace *t, const struct phases *p, int64_t end_ns)
{
    const uint64_t all = p->queue + p->set_up + p->exec + p->collect;
    uint64_t at = (uint64_t)end_ns - all * US;
    const struct {
        const char *name;
        uint64_t us;
    } parts[] = {
        {"queue", p->queue}, {"set up", p->set_up}, {"exec", p->exec}, {"collect", p->collect}};
    set_span(&s[0], t, 0, "run", at, all);
    for (unsigned i = 1; i < SPANS; i++) {
        set_span(&s[i], t, i, parts[i - 1].name, at, parts[i - 1].us);
        at += parts[i - 1].us * US;
    }
}

// Only a program that has ended by itself is no failure of the run.
static void
set_status(Opentelemetry__Proto__Trace__V1__Span *m,
           Opentelemetry__Proto__Trace__V1__Status *status, struct otlp_attributes *a,
           const struct stockade_event *event)
{
    const char *outcome = fact_text(event, "outcome");
    if (strcmp(outcome, "EXITED") == 0)
        return;
    opentelemetry__proto__trace__v1__status__init(status);
    status->code = OPENTELEMETRY__PROTO__TRACE__V1__STATUS__STATUS_CODE__STATUS_CODE_ERROR;
    status->message = fact_text(event, "reason");
    m->status = status;
    otlp_add_text(a, "error.type", outcome);
}

int
otlp_spans(struct otlp *o, const struct stockade_event *event, struct sink_bytes *out)
{
    const Stockade__V1__Event *from = event->message;
    Opentelemetry__Proto__Trace__V1__ScopeSpans scope =
        OPENTELEMETRY__PROTO__TRACE__V1__SCOPE_SPANS__INIT;
    Opentelemetry__Proto__Trace__V1__Status status;
    Opentelemetry__Proto__Trace__V1__Span *pointers[SPANS];
    struct otlp_attributes a = {.arena = o->arena};
    struct span spans[SPANS];
    struct trace t;
    if (strcmp(event->kind, "JOB_ENDED") != 0 || from == NULL ||
        from->detail_case != STOCKADE__V1__EVENT__DETAIL_JOB || !trace_of_job(event, &t) ||
        !t.recorded)
        return 0;
    arena_reset(o->arena);
    const struct phases p = phases_of(from->job);
    set_spans(spans, &t, &p, event->time_ns);
    otlp_add_event(&a, event);
    otlp_add_text(&a, "stockade.outcome", fact_text(event, "outcome"));
    otlp_add_number(&a, "process.exit.code", fact_number(event, "exit_code"));
    add_bill(&a, from->job->bill);
    set_status(&spans[0].m, &status, &a, event);
    spans[0].m.attributes = a.item;
    spans[0].m.n_attributes = a.n;
    for (size_t i = 0; i < SPANS; i++)
        pointers[i] = &spans[i].m;
    scope.spans = pointers;
    scope.n_spans = SPANS;
    return a.failed ? -ENOMEM : otlp_pack(&scope.base, out);
}
