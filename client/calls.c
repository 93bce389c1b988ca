// SPDX-License-Identifier: Apache-2.0
// See calls.h.
#include "calls.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "proto/wire.h"
#include "errors.h"
#include "handle.h"
#include "link.h"
#include "methods.h"
#include "pump.h"
#include "ready.h"
#include "requests.h"
#include "watch.h"

enum {
    CANCEL_WAIT_MS = 5000,
    // the broker's own END should arrive first, because its text is better
    DEADLINE_GRACE_MS = 1000,
    METADATA_MAX = 32,
    OWN_METADATA = 5, // authorization, idempotency-key, traceparent, approval, approval-wait
    KEY_HEX = 32,
};

static void
random_key(char out[KEY_HEX + 1])
{
    static const char digits[] = "0123456789abcdef";
    uint8_t bytes[KEY_HEX / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        abort(); // requests of up to 256 bytes are always complete (getrandom(2))
    for (size_t i = 0; i < sizeof bytes; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 0xf];
    }
    out[KEY_HEX] = '\0';
}

// The CALL's metadata, as an array that borrows from all of these.
struct call_metadata {
    Stockade__V1__Metadata items[METADATA_MAX];
    Stockade__V1__Metadata *pointers[METADATA_MAX];
    size_t n;
    char key[KEY_HEX + 1];
};

static void
add_metadata(struct call_metadata *m, const char *key, const char *value)
{
    Stockade__V1__Metadata *item = &m->items[m->n];
    stockade__v1__metadata__init(item);
    item->key = key;
    item->value = value;
    m->pointers[m->n++] = item;
}

static bool
has_metadata(const struct stockade_call_options *o, const char *name)
{
    bool found = false;
    for (size_t i = 0; o != NULL && i < o->metadata_n; i++)
        found |= strcmp(o->metadata[i].name, name) == 0;
    return found;
}

static int
fill_metadata(struct call_metadata *m, const struct stockade *s, const struct call_spec *spec,
              struct err *e)
{
    const struct stockade_call_options *o = spec->options;
    if (o != NULL && o->metadata_n > METADATA_MAX - OWN_METADATA)
        return err_field(e, "metadata", "more than %d pairs", METADATA_MAX - OWN_METADATA);
    if (o != NULL && request_list(o->metadata, o->metadata_n, "metadata", e) < 0)
        return err_errno(e);
    if (s->authorization != NULL)
        add_metadata(m, "authorization", s->authorization);
    if (o != NULL && o->idempotency_key != NULL) {
        add_metadata(m, "idempotency-key", o->idempotency_key);
    } else if (method_wants_key(spec->method)) {
        random_key(m->key);
        add_metadata(m, "idempotency-key", m->key);
    }
    for (size_t i = 0; o != NULL && i < o->metadata_n; i++)
        add_metadata(m, o->metadata[i].name, o->metadata[i].value);
    if (s->traceparent[0] != '\0' && !has_metadata(o, "traceparent"))
        add_metadata(m, "traceparent", s->traceparent);
    if (s->approval[0] != '\0' && !has_metadata(o, "approval"))
        add_metadata(m, "approval", s->approval);
    if (s->approval_wait[0] != '\0' && !has_metadata(o, "approval-wait"))
        add_metadata(m, "approval-wait", s->approval_wait);
    return 0;
}

// Sends the CALL of a call that is already in the list. Lock held.
static int
send_call(struct call *c, const struct call_spec *spec, struct err *e)
{
    struct call_metadata metadata = {.n = 0};
    int rc = fill_metadata(&metadata, c->s, spec, e);
    if (rc < 0)
        return rc;
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    f.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_CALL;
    f.method = spec->method;
    f.payload = wire_bytes(spec->request, spec->request_n);
    f.credit = c->credit;
    f.n_metadata = metadata.n;
    f.metadata = metadata.pointers;
    uint32_t ms = spec->options != NULL ? spec->options->deadline_ms : 0;
    if (ms != 0) {
        f.timeout_us = (uint64_t)ms * 1000;
        uint64_t until = link_now_ns() + ((uint64_t)ms + DEADLINE_GRACE_MS) * NS_PER_MS;
        call_set_deadline(&c->s->calls, c, until);
    }
    return pump_send(c->s, call_wire_id(c), &f, e);
}

void
call_forget(struct call *c)
{
    call_set_remove(&c->s->calls, c);
    if (!c->done)
        c->s->open--;
}

void
call_release(struct call *c)
{
    pump_drop_messages(c);
    free(c->error);
    free(c);
}

const struct stockade_error *
call_error(const struct call *c)
{
    static const struct stockade_error no_memory = {
        .code = STOCKADE_RESOURCE_EXHAUSTED, .sys = ENOMEM, .text = "out of memory"};
    return c->error != NULL ? c->error : &no_memory;
}

// Adds it to the handle and sends its CALL. On failure it is freed.
static int
begin(struct call *c, const struct call_spec *spec, struct err *e)
{
    struct stockade *s = c->s;
    if (s->open == 0) { // an idle broker says nothing
        s->heard_ns = link_now_ns();
        s->pinged_ns = 0;
    }
    c->id = pump_new_id(s);
    if (call_set_add(&s->calls, c) < 0) {
        free(c);
        return err_sys(e, ENOMEM, "start a call");
    }
    s->open++;
    int rc = send_call(c, spec, e);
    if (rc < 0) {
        call_forget(c);
        call_release(c);
        return rc;
    }
    if (spec->id != NULL)
        *spec->id = c->id;
    c->pumped = spec->pumped; // from now on, so that one that failed is not listed
    if (spec->pumped)
        s->begun++;
    if (call_set_first(&s->calls) == c)
        ready_wake(s); // its deadline is the nearest
    return 0;
}

static int
refuse_closing(struct err *e)
{
    int rc = err_set(e, ERR_FAILED_PRECONDITION, "the handle is being closed");
    err_detail(e, "HANDLE_CLOSED", NULL, NULL);
    return rc;
}

int
call_begin(struct call **out, struct stockade *s, const struct call_spec *spec,
           struct stockade_error *error)
{
    struct err e;
    if (s == NULL || spec->method == NULL) {
        (void)err_set(&e, ERR_INVALID_ARGUMENT, "there is no %s", s == NULL ? "handle" : "method");
        return error_from_err(error, &e);
    }
    if (request_list(spec->request, spec->request_n, "body", &e) < 0)
        return error_from_err(error, &e);
    struct call *c = calloc(1, sizeof *c);
    if (c == NULL) {
        (void)err_sys(&e, ENOMEM, "start a call");
        return error_from_err(error, &e);
    }
    *c = (struct call){.s = s, .stream = spec->stream, .sink = spec->sink, .cookie = spec->cookie};
    if (c->stream)
        c->credit = c->window = spec->credit != 0 ? spec->credit : WIRE_CREDIT_DEFAULT;
    pthread_mutex_lock(&s->lock);
    int rc = s->closing ? refuse_closing(&e) : pump_connect(s, &e);
    if (rc < 0)
        free(c);
    else
        rc = begin(c, spec, &e);
    if (rc == 0)
        *out = c;
    watch_unlock(s);
    return rc < 0 ? error_from_err(error, &e) : 0;
}

void
call_cancel(struct call *c)
{
    if (c->done || c->cancelled)
        return;
    c->cancelled = true;
    call_set_deadline(&c->s->calls, c, link_now_ns() + CANCEL_WAIT_MS * NS_PER_MS);
    pump_send_kind(c, STOCKADE__V1__FRAME_KIND__FRAME_KIND_CANCEL, 0);
    ready_wake(c->s);
}

// Unlinks the first message. Its credit goes back to the broker.
static struct message *
take_first(struct call *c)
{
    struct message *m = c->first;
    c->first = m->next;
    if (c->first == NULL)
        c->last = NULL;
    if (c->stream && !c->done && ++c->taken >= (c->window + 1) / 2) {
        c->credit += c->taken;
        pump_send_kind(c, STOCKADE__V1__FRAME_KIND__FRAME_KIND_WINDOW, c->taken);
        c->taken = 0;
    }
    return m;
}

// Ends it at once, whatever the broker sends.
static void
abandon(struct call *c, int rc, const struct stockade_error *why)
{
    if (!c->done)
        pump_send_kind(c, STOCKADE__V1__FRAME_KIND__FRAME_KIND_CANCEL, 0);
    pump_drop_messages(c);
    pump_fail(c, rc, why);
}

struct arena *
call_arena(struct delivery *d)
{
    if (*d->arena == NULL)
        *d->arena = arena_new(WIRE_ARENA_BYTES_MAX);
    else
        arena_reset(*d->arena);
    return *d->arena;
}

void
call_pass_on(struct call *c, struct arena **arena)
{
    struct stockade *s = c->s;
    struct stockade_error e;
    struct message *m = take_first(c);
    struct delivery d = {.bytes = m->bytes, .n = m->n, .message = &m, .arena = arena};
    watch_unlock(s);
    int rc = c->sink->on_message(c->cookie, &d, &e);
    free(m);
    pthread_mutex_lock(&s->lock);
    if (rc < 0)
        abandon(c, rc, &e);
    else if (rc > 0)
        call_cancel(c);
}

int
call_wait(struct call *c, struct stockade_error *e)
{
    struct stockade *s = c->s;
    struct arena *auto_arena arena = NULL;
    pthread_mutex_lock(&s->lock);
    s->waits++;
    while (c->first != NULL || !c->done) {
        if (c->first != NULL)
            call_pass_on(c, &arena);
        else
            pump_wait(s, 0);
    }
    int rc = c->rc;
    if (rc < 0 && e != NULL)
        *e = *call_error(c);
    call_forget(c);
    call_release(c);
    s->waits--;
    watch_unlock(s);
    return rc;
}

int
call_do(struct stockade *s, const struct call_spec *spec, struct stockade_error *e)
{
    struct call *c = NULL;
    int rc = call_begin(&c, s, spec, e);
    return c == NULL ? rc : call_wait(c, e);
}

static void
cancel_stream(struct call *c, void *cookie)
{
    (void)cookie;
    if (c->stream)
        call_cancel(c);
}

void
stockade_interrupt(struct stockade *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    s->interrupts++;
    call_set_each(&s->calls, cancel_stream, NULL);
    watch_unlock(s);
}

uint64_t
calls_interrupts(struct stockade *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t n = s->interrupts;
    watch_unlock(s);
    return n;
}
