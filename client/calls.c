// SPDX-License-Identifier: Apache-2.0
// See calls.h.
#include "calls.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "proto/wire.h"
#include "errors.h"
#include "handle.h"
#include "link.h"
#include "methods.h"
#include "pump.h"
#include "requests.h"

enum {
    CREDIT = WIRE_CREDIT_DEFAULT,
    CREDIT_REFILL = CREDIT / 2,
    CANCEL_WAIT_MS = 5000,
    // the broker's own END should arrive first, because its text is better
    DEADLINE_GRACE_MS = 1000,
    METADATA_MAX = 32,
    KEY_HEX = 32,
};

static void
random_key(char out[KEY_HEX + 1])
{
    uint8_t bytes[KEY_HEX / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        abort(); // requests of up to 256 bytes are always complete (getrandom(2))
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
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

static int
fill_metadata(struct call_metadata *m, const struct stockade *s, const struct call_spec *spec,
              struct err *e)
{
    const struct stockade_call_options *o = spec->options;
    if (o != NULL && o->metadata_n > METADATA_MAX - 2)
        return err_field(e, "metadata", "more than %d pairs", METADATA_MAX - 2);
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
    f.payload.len = spec->request_n;
    union { // protobuf-c requires it to be writable, although packing only reads
        const void *from;
        uint8_t *to;
    } payload = {.from = spec->request};
    f.payload.data = payload.to;
    f.credit = c->stream ? CREDIT : 0;
    f.n_metadata = metadata.n;
    f.metadata = metadata.pointers;
    uint32_t ms = spec->options != NULL ? spec->options->deadline_ms : 0;
    if (ms != 0) {
        f.timeout_us = (uint64_t)ms * 1000;
        c->deadline_ns = link_now_ns() + ((uint64_t)ms + DEADLINE_GRACE_MS) * NS_PER_MS;
    }
    return pump_send(c->s, c->id, &f, e);
}

static void
unlist(struct call *c)
{
    struct call **p = &c->s->calls;
    while (*p != c)
        p = &(*p)->next;
    *p = c->next;
    pthread_cond_broadcast(&c->s->changed);
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
    *c = (struct call){.s = s, .stream = spec->stream, .credit = spec->stream ? CREDIT : 0};
    pthread_mutex_lock(&s->lock);
    int rc = pump_connect(s, &e);
    if (rc == 0) {
        if (s->calls == NULL)
            s->heard_ns = link_now_ns();
        c->id = pump_new_id(s);
        c->next = s->calls;
        s->calls = c;
        rc = send_call(c, spec, &e);
        if (rc < 0)
            unlist(c);
    }
    pthread_mutex_unlock(&s->lock);
    if (rc < 0) {
        free(c);
        return error_from_err(error, &e);
    }
    *out = c;
    return 0;
}

static void
cancel_locked(struct call *c)
{
    if (c->done || c->cancelled)
        return;
    c->cancelled = true;
    c->deadline_ns = link_now_ns() + CANCEL_WAIT_MS * NS_PER_MS;
    pump_send_kind(c->s, c->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_CANCEL, 0);
    pthread_cond_broadcast(&c->s->changed);
    pump_wake(c->s);
}

void
call_cancel(struct call *c)
{
    pthread_mutex_lock(&c->s->lock);
    cancel_locked(c);
    pthread_mutex_unlock(&c->s->lock);
}

static void
give_up(struct call *c)
{
    struct err e;
    if (c->cancelled) {
        (void)err_set(&e, ERR_CANCELLED, "cancelled; the broker did not confirm it");
    } else {
        (void)err_set(&e, ERR_DEADLINE_EXCEEDED, "the broker did not answer before the deadline");
        pump_send_kind(c->s, c->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_CANCEL, 0);
    }
    pump_finish(c, &e);
}

static void
take_first(struct call *c, uint8_t **out, size_t *n)
{
    struct message *m = c->first;
    c->first = m->next;
    if (c->first == NULL)
        c->last = NULL;
    *out = m->bytes;
    *n = m->n;
    free(m);
    if (c->stream && !c->done && ++c->taken >= CREDIT_REFILL) {
        pump_send_kind(c->s, c->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_WINDOW, c->taken);
        c->credit += c->taken;
        c->taken = 0;
    }
}

int
call_next(struct call *c, uint8_t **out, size_t *n, struct stockade_error *e)
{
    struct stockade *s = c->s;
    pthread_mutex_lock(&s->lock);
    while (c->first == NULL && !c->done) {
        if (c->deadline_ns != 0 && link_now_ns() >= c->deadline_ns)
            give_up(c);
        else
            pump_wait(s, c->deadline_ns);
    }
    int rc = 0;
    if (c->first != NULL) {
        take_first(c, out, n);
        rc = 1;
    } else if (c->rc < 0) {
        rc = c->rc;
        if (e != NULL)
            *e = c->error;
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

void
call_free(struct call *c)
{
    if (c == NULL)
        return;
    struct stockade *s = c->s;
    pthread_mutex_lock(&s->lock);
    if (!c->done)
        cancel_locked(c);
    unlist(c);
    pthread_mutex_unlock(&s->lock);
    while (c->first != NULL) {
        struct message *m = c->first;
        c->first = m->next;
        free(m->bytes);
        free(m);
    }
    free(c);
}

void
stockade_interrupt(struct stockade *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    s->interrupts++;
    for (struct call *c = s->calls; c != NULL; c = c->next)
        if (c->stream)
            cancel_locked(c);
    pthread_mutex_unlock(&s->lock);
}

uint64_t
calls_interrupts(struct stockade *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t n = s->interrupts;
    pthread_mutex_unlock(&s->lock);
    return n;
}
