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
#include "async.h"
#include "calls.h"
#include "errors.h"
#include "invoke.h"
#include "requests.h"
#include "stockade/v1/telemetry_service.pb-c.h"

enum { FACTS_MAX = 24, LIST_TEXT_MAX = 4096, KINDS_MAX = 64 };

// A subscription, which may consist of several calls, one after the other.
struct subscription {
    struct stockade *s;
    struct stockade_event_handlers handlers;
    struct stockade_async a; // of one that was begun
    bool cancelled;
    void (*on_connection)(void *cookie, const struct stockade_error *lost);
    bool lost;         // ... was called with a reason
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

// Reports, once for each change, that the connection is lost or works again.
static void
set_lost(struct subscription *sub, const struct stockade_error *lost)
{
    if (sub->lost == (lost != NULL))
        return;
    sub->lost = lost != NULL;
    if (sub->on_connection != NULL)
        sub->on_connection(sub->handlers.cookie, lost);
}

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
    set_lost(sub, NULL);
}

static int
deliver(struct subscription *sub, struct arena *a, const Stockade__V1__SubscribeResponse *m)
{
    const struct stockade_event_handlers *h = &sub->handlers;
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
take(void *cookie, struct delivery *d, struct stockade_error *e)
{
    struct subscription *sub = cookie;
    ProtobufCMessage *m = NULL;
    struct arena *a = call_arena(d);
    int rc = invoke_unpack(&stockade__v1__subscribe_response__descriptor, d->bytes, d->n, a, &m, e);
    if (rc < 0)
        return rc;
    if (!sub->cancelled && deliver(sub, a, (const Stockade__V1__SubscribeResponse *)m) != 0)
        sub->cancelled = true;
    return sub->cancelled;
}

// A subscription that a handler refused is cancelled, also if it ended with OK.
static int
conclude(const struct subscription *sub, int rc, struct stockade_error *error)
{
    struct err e;
    if (rc < 0 || !sub->cancelled)
        return rc;
    (void)err_set(&e, ERR_CANCELLED, "cancelled by the calling program");
    return error_from_err(error, &e);
}

static void
end(void *cookie, uint64_t id, int rc, const struct stockade_error *error)
{
    struct subscription *sub = cookie;
    struct stockade_error no;
    int concluded = conclude(sub, rc, &no);
    async_end(&sub->a, id, concluded, rc < 0 ? error : &no, NULL, NULL);
    free(sub);
}

static const struct call_sink sink = {.on_message = take, .on_end = end};

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

// The call of a subscription; *request is owned by the caller.
static int
fill_spec(struct subscription *sub, struct call_spec *spec, uint8_t **request,
          const Stockade__V1__SubscribeRequest *m, const struct stockade_call_options *options,
          struct stockade_error *e)
{
    *spec = (struct call_spec){.method = "/stockade.v1.TelemetryService/Subscribe",
                               .stream = true,
                               .options = options,
                               .sink = &sink,
                               .cookie = sub};
    int rc = invoke_pack(&m->base, request, &spec->request_n, e);
    spec->request = *request;
    return rc;
}

static int
subscribe_once(struct subscription *sub, const Stockade__V1__SubscribeRequest *m,
               const struct stockade_call_options *options, struct stockade_error *error)
{
    struct call_spec spec;
    uint8_t *auto_free request = NULL;
    int rc = fill_spec(sub, &spec, &request, m, options, error);
    return rc < 0 ? rc : call_do(sub->s, &spec, error);
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
        set_lost(sub, e);
        if (!wait_again(sub)) {
            sub->cancelled = true;
            return 0;
        }
        m->from_sequence = sub->next;
        m->instance = sub->instance;
    }
}

// What both functions below need of the program's options.
struct wanted {
    struct stockade_events_options o;
    struct stockade_call_options options;
    Stockade__V1__SubscribeRequest m;
};

static int
fill_wanted(struct wanted *w, struct arena *a, const struct stockade_events_options *given,
            struct stockade_error *error)
{
    struct err e;
    w->o = (struct stockade_events_options)STOCKADE_EVENTS_OPTIONS_INIT;
    w->options = (struct stockade_call_options)STOCKADE_CALL_OPTIONS_INIT;
    stockade__v1__subscribe_request__init(&w->m);
    if ((given != NULL && request_options(&w->o, sizeof w->o, given, &e) < 0) ||
        fill_request(&w->m, a, &w->o, &e) < 0 ||
        (w->o.call != NULL && request_options(&w->options, sizeof w->options, w->o.call, &e) < 0))
        return error_from_err(error, &e);
    return 0;
}

int
stockade_events(struct stockade *s, const struct stockade_events_options *given,
                const struct stockade_event_handlers *h, struct stockade_error *e)
{
    struct wanted w;
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    if (a == NULL)
        return invoke_too_large(e);
    int rc = fill_wanted(&w, a, given, e);
    if (rc < 0)
        return rc;
    struct subscription sub = {
        .s = s,
        .next = w.o.from_sequence,
        .interrupts = s != NULL ? calls_interrupts(s) : 0,
    };
    if (h != NULL)
        sub.handlers = *h;
    sub.on_connection = w.o.on_connection;
    (void)snprintf(sub.instance, sizeof sub.instance, "%s", w.m.instance);
    rc = subscribe(&sub, &w.m, &w.options, w.o.reconnect, e);
    return conclude(&sub, rc, e);
}

static int
refuse_reconnect(struct stockade_error *error)
{
    struct err e;
    (void)err_field(&e, "reconnect",
                    "a subscription that was begun does not begin again by itself");
    err_detail(&e, NULL, NULL, "begin again in on_end");
    return error_from_err(error, &e);
}

int
stockade_begin_events(struct stockade *s, const struct stockade_events_options *given,
                      const struct stockade_event_handlers *h, const struct stockade_async *async,
                      uint64_t *call, struct stockade_error *e)
{
    struct wanted w;
    struct call_spec spec;
    uint8_t *auto_free request = NULL;
    struct arena *auto_arena a = arena_new(REQUEST_ARENA_BYTES);
    if (a == NULL)
        return invoke_too_large(e);
    struct subscription *auto_free sub = calloc(1, sizeof *sub);
    if (sub == NULL)
        return invoke_too_large(e);
    int rc = async_options(&sub->a, async, e);
    if (rc == 0)
        rc = fill_wanted(&w, a, given, e);
    if (rc == 0 && w.o.reconnect)
        rc = refuse_reconnect(e);
    if (rc < 0)
        return rc;
    if (h != NULL)
        sub->handlers = *h;
    rc = fill_spec(sub, &spec, &request, &w.m, &w.options, e);
    if (rc == 0)
        rc = async_begin(s, &spec, &sub->a, call, e);
    if (rc == 0)
        (void)take_ptr(sub);
    return rc;
}
