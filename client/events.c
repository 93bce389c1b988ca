// SPDX-License-Identifier: Apache-2.0
// Events (stockade.h). The details of an event are one of many messages; the descriptor turns each of its fields into a
// fact, so that no kind of event needs code of its own here.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/auto.h"
#include "proto/wire.h"
#include "calls.h"
#include "errors.h"
#include "invoke.h"
#include "requests.h"
#include "stockade/v1/telemetry_service.pb-c.h"

enum { FACTS_MAX = 24, LIST_TEXT_MAX = 4096, KINDS_MAX = 64 };

// A subscription, which may consist of several calls, one after the other.
struct subscription {
    struct stockade *s;
    struct call *call; // in progress
    const struct stockade_event_handlers *handlers;
    bool cancelled;
    bool begun;        // it has received something from the broker
    uint64_t next;     // event that it waits for
    char instance[33]; // the run of the broker that it belongs to; "": unknown
    unsigned failures; // consecutive failed attempts to connect
    uint64_t interrupts;
};

// ---- From a message to facts

static const void *
at(const ProtobufCMessage *m, unsigned offset)
{
    return (const char *)m + offset;
}

// The name of an enum value without the common prefix, such as "DENIED" for EVENT_KIND_DENIED.
static const char *
enum_name(struct arena *a, const ProtobufCEnumDescriptor *type, int value)
{
    char number[32];
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(type, value);
    const ProtobufCEnumValue *zero = protobuf_c_enum_descriptor_get_value(type, 0);
    size_t prefix = zero != NULL && strlen(zero->name) > strlen("UNSPECIFIED")
                        ? strlen(zero->name) - strlen("UNSPECIFIED")
                        : 0;
    if (v != NULL && strlen(v->name) > prefix)
        return v->name + prefix;
    int n = snprintf(number, sizeof number, "KIND_%d", value);
    return arena_copy(a, number, (size_t)n);
}

// A repeated field, as text.
static const char *
list_text(struct arena *a, const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    char *out = arena_alloc(a, LIST_TEXT_MAX);
    size_t n = *(const size_t *)at(m, f->quantifier_offset);
    size_t used = 0;
    const void *items = *(void *const *)at(m, f->offset);
    for (size_t i = 0; out != NULL && i < n && used < LIST_TEXT_MAX; i++) {
        int more = f->type == PROTOBUF_C_TYPE_STRING
                       ? snprintf(out + used, LIST_TEXT_MAX - used, "%s%s", i > 0 ? " " : "",
                                  ((const char *const *)items)[i])
                       : snprintf(out + used, LIST_TEXT_MAX - used, "%s%u", i > 0 ? " " : "",
                                  ((const uint32_t *)items)[i]);
        used += more > 0 ? (size_t)more : 0;
    }
    return out;
}

// False: it has no value to show (an empty text, a message).
static bool
fact_from(struct stockade_fact *to, struct arena *a, const ProtobufCMessage *m,
          const ProtobufCFieldDescriptor *f)
{
    const void *p = at(m, f->offset);
    *to = (struct stockade_fact){.name = f->name, .type = STOCKADE_FACT_TEXT, .text = ""};
    if (f->label == PROTOBUF_C_LABEL_REPEATED) {
        if (f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_UINT32)
            to->text = list_text(a, m, f);
    } else if (f->type == PROTOBUF_C_TYPE_STRING) {
        to->text = *(const char *const *)p;
    } else if (f->type == PROTOBUF_C_TYPE_ENUM && *(const int *)p != 0) {
        to->text = enum_name(a, f->descriptor, *(const int *)p);
    } else if (f->type == PROTOBUF_C_TYPE_UINT32 || f->type == PROTOBUF_C_TYPE_UINT64) {
        to->type = STOCKADE_FACT_NUMBER;
        to->number =
            f->type == PROTOBUF_C_TYPE_UINT32 ? *(const uint32_t *)p : *(const uint64_t *)p;
    } else if (f->type == PROTOBUF_C_TYPE_INT64) {
        to->type = STOCKADE_FACT_SIGNED;
        to->number = *(const uint64_t *)p;
    } else if (f->type == PROTOBUF_C_TYPE_DOUBLE) {
        to->type = STOCKADE_FACT_REAL;
        to->real = *(const double *)p;
    } else if (f->type == PROTOBUF_C_TYPE_BOOL) {
        to->type = STOCKADE_FACT_BOOL;
        to->number = *(const protobuf_c_boolean *)p != 0;
    }
    return to->type != STOCKADE_FACT_TEXT || (to->text != NULL && to->text[0] != '\0');
}

// Fields that the event itself contains.
static bool
is_own_field(const char *name)
{
    static const char *const names[] = {"time",       "pid",        "comm",
                                        "sandbox_id", "process_id", "template"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static bool
facts_from(struct stockade_event *to, struct arena *a, const Stockade__V1__Event *m)
{
    struct stockade_fact *facts = arena_alloc(a, FACTS_MAX * sizeof *facts);
    to->facts = facts;
    if (facts == NULL || m->detail_case == STOCKADE__V1__EVENT__DETAIL__NOT_SET)
        return facts != NULL;
    if (m->detail_case == STOCKADE__V1__EVENT__DETAIL_NOTE) {
        facts[to->facts_n++] =
            (struct stockade_fact){.name = "note", .type = STOCKADE_FACT_TEXT, .text = m->note};
        return true;
    }
    const ProtobufCMessage *detail = &m->execution->base; // every kind starts with the same base
    for (unsigned i = 0; i < detail->descriptor->n_fields && to->facts_n < FACTS_MAX; i++) {
        const ProtobufCFieldDescriptor *f = &detail->descriptor->fields[i];
        if (!is_own_field(f->name) && fact_from(&facts[to->facts_n], a, detail, f))
            to->facts_n++;
    }
    return true;
}

static bool
event_from(struct stockade_event *to, struct arena *a, const Stockade__V1__Event *m)
{
    *to = (struct stockade_event){
        .sequence = m->sequence,
        .kind = enum_name(a, &stockade__v1__event_kind__descriptor, (int)m->kind),
        .severity = (uint32_t)m->severity,
        .sandbox_id = m->sandbox_id,
        .process_id = m->process_id,
        .tenant = m->tenant,
        .template_name = m->template_,
        .pid = m->pid,
        .comm = m->comm,
        .instance = m->instance,
        .message = m,
    };
    if (m->time != NULL && m->time->seconds > 0 && m->time->seconds < INT64_MAX / 2000000000)
        to->time_ns = m->time->seconds * 1000000000 + m->time->nanos;
    return to->kind != NULL && facts_from(to, a, m);
}

// ---- The stream

// The position after a gap.
static void
move_on(struct subscription *sub, const Stockade__V1__SubscribeResponse *m)
{
    if (sub->instance[0] != '\0' && strcmp(sub->instance, m->instance) != 0)
        sub->next = 1;
    else if (sub->next == 0)
        sub->next = m->last_sequence + 1;
    if (m->gap != NULL && m->gap->to_sequence >= sub->next)
        sub->next = m->gap->to_sequence + 1;
    if (m->n_events > 0)
        sub->next = m->events[m->n_events - 1]->sequence + 1;
    (void)snprintf(sub->instance, sizeof sub->instance, "%s", m->instance);
    sub->begun = true;
    sub->failures = 0;
}

static int
deliver(struct subscription *sub, struct arena *a, const Stockade__V1__SubscribeResponse *m)
{
    const struct stockade_event_handlers *h = sub->handlers;
    int rc = 0;
    move_on(sub, m);
    if (m->gap != NULL && h->on_gap != NULL)
        rc = h->on_gap(h->cookie, m->gap->from_sequence, m->gap->to_sequence, m->gap->count,
                       m->gap->reason);
    for (size_t i = 0; rc == 0 && i < m->n_events; i++) {
        struct stockade_event event;
        if (h->on_event != NULL && event_from(&event, a, m->events[i]))
            rc = h->on_event(h->cookie, &event);
    }
    return rc;
}

static int
read_stream(struct subscription *sub, struct stockade_error *e)
{
    struct arena *auto_arena a = arena_new(WIRE_ARENA_BYTES_MAX);
    if (a == NULL)
        return invoke_too_large(e);
    for (;;) {
        uint8_t *auto_free bytes = NULL;
        ProtobufCMessage *m = NULL;
        size_t n = 0;
        int rc = call_next(sub->call, &bytes, &n, e);
        if (rc <= 0)
            return rc;
        arena_reset(a);
        rc = invoke_unpack(&stockade__v1__subscribe_response__descriptor, bytes, n, a, &m, e);
        if (rc < 0)
            return rc;
        if (!sub->cancelled && deliver(sub, a, (const Stockade__V1__SubscribeResponse *)m) != 0) {
            sub->cancelled = true;
            call_cancel(sub->call);
        }
    }
}

// Names in upper or lower case, with '-' for '_'.
static bool
same_name(const char *typed, const char *name)
{
    for (; *typed != '\0' && *name != '\0'; typed++, name++)
        if (*typed != *name && !(*typed == '-' && *name == '_') &&
            !(*typed >= 'a' && *typed <= 'z' && *typed - 'a' == *name - 'A'))
            return false;
    return *typed == *name;
}

static int
kind_number(const char *name, Stockade__V1__EventKind *out, struct err *e)
{
    const ProtobufCEnumDescriptor *type = &stockade__v1__event_kind__descriptor;
    for (unsigned i = 0; i < type->n_values; i++) {
        const ProtobufCEnumValue *v = &type->values[i];
        if (v->value == 0 || !same_name(name, v->name + strlen("EVENT_KIND_")))
            continue;
        *out = (Stockade__V1__EventKind)v->value;
        return 0;
    }
    return err_field(e, "kinds", "there is no kind of event \"%s\"", name);
}

static int
fill_request(Stockade__V1__SubscribeRequest *m, struct arena *a,
             const struct stockade_events_options *o, struct err *e)
{
    if (o->kinds_n > KINDS_MAX)
        return err_field(e, "kinds", "more than %d", KINDS_MAX);
    if (request_list(o->kinds, o->kinds_n, "kinds", e) < 0 ||
        request_list(o->sandboxes, o->sandboxes_n, "sandbox_ids", e) < 0)
        return err_errno(e);
    m->kinds = arena_alloc(a, (o->kinds_n + 1) * sizeof *m->kinds);
    m->sandbox_ids = arena_alloc(a, (o->sandboxes_n + 1) * sizeof *m->sandbox_ids);
    if (m->kinds == NULL || m->sandbox_ids == NULL)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "too many sandboxes");
    for (; m->n_kinds < o->kinds_n; m->n_kinds++) {
        int rc = kind_number(o->kinds[m->n_kinds], &m->kinds[m->n_kinds], e);
        if (rc < 0)
            return rc;
    }
    for (; m->n_sandbox_ids < o->sandboxes_n; m->n_sandbox_ids++)
        m->sandbox_ids[m->n_sandbox_ids] = o->sandboxes[m->n_sandbox_ids];
    if (o->process_id != NULL)
        m->process_id = o->process_id;
    if (o->tenant != NULL)
        m->tenant = o->tenant;
    m->severity = (Stockade__V1__Severity)o->severity;
    m->from_sequence = o->from_sequence;
    m->kept_only = o->kept_only;
    if (o->instance != NULL)
        m->instance = o->instance;
    return 0;
}

static int
subscribe_once(struct subscription *sub, Stockade__V1__SubscribeRequest *m,
               const struct stockade_call_options *options, struct stockade_error *error)
{
    struct call_spec spec = {
        .method = "/stockade.v1.TelemetryService/Subscribe", .stream = true, .options = options};
    uint8_t *auto_free request = NULL;
    int rc = invoke_pack(&m->base, &request, &spec.request_n, error);
    if (rc < 0)
        return rc;
    spec.request = request;
    struct call *auto_call call = NULL;
    rc = call_begin(&call, sub->s, &spec, error);
    if (rc < 0)
        return rc;
    sub->call = call;
    return read_stream(sub, error);
}

// Waits longer with each failure, up to a second. False: it was interrupted.
static bool
wait_again(struct subscription *sub)
{
    enum { SLICE_MS = 50, SLICES_MAX = 20 };
    const struct timespec slice = {.tv_nsec = SLICE_MS * 1000000L};
    unsigned slices = sub->failures < 5 ? 1U << sub->failures : SLICES_MAX;
    sub->failures++;
    for (unsigned i = 0; i < slices && calls_interrupts(sub->s) == sub->interrupts; i++)
        (void)nanosleep(&slice, NULL);
    return calls_interrupts(sub->s) == sub->interrupts;
}

// With `reconnect` a broken subscription is started again after the last received event; the broker reports events
// that were missed.
static int
subscribe(struct subscription *sub, Stockade__V1__SubscribeRequest *m,
          const struct stockade_call_options *options, bool reconnect, struct stockade_error *error)
{
    struct stockade_error *const e = error != NULL ? error : &(struct stockade_error){0};
    for (;;) {
        int rc = subscribe_once(sub, m, options, e);
        if (rc >= 0 || sub->cancelled || !reconnect || !sub->begun ||
            e->code != STOCKADE_UNAVAILABLE)
            return rc;
        if (!wait_again(sub)) {
            sub->cancelled = true;
            return 0;
        }
        m->from_sequence = sub->next;
        m->instance = sub->instance;
    }
}

int
stockade_events(struct stockade *s, const struct stockade_events_options *given,
                const struct stockade_event_handlers *h, struct stockade_error *error)
{
    static const struct stockade_event_handlers nobody;
    struct err e;
    struct stockade_events_options o = STOCKADE_EVENTS_OPTIONS_INIT;
    struct stockade_call_options options = STOCKADE_CALL_OPTIONS_INIT;
    Stockade__V1__SubscribeRequest m = STOCKADE__V1__SUBSCRIBE_REQUEST__INIT;
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    if (a == NULL)
        return invoke_too_large(error);
    if ((given != NULL && request_options(&o, sizeof o, given, &e) < 0) ||
        fill_request(&m, a, &o, &e) < 0 ||
        (o.call != NULL && request_options(&options, sizeof options, o.call, &e) < 0))
        return error_from_err(error, &e);
    struct subscription sub = {
        .s = s,
        .handlers = h != NULL ? h : &nobody,
        .next = o.from_sequence,
        .interrupts = calls_interrupts(s),
    };
    (void)snprintf(sub.instance, sizeof sub.instance, "%s", m.instance);
    int rc = subscribe(&sub, &m, &options, o.reconnect, error);
    if (rc < 0 || !sub.cancelled)
        return rc;
    (void)err_set(&e, ERR_CANCELLED, "cancelled by the calling program");
    return error_from_err(error, &e);
}
