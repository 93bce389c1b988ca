// See calls.h for the theory of operation.
#include "calls.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "../proto/auto.h"
#include "../proto/err.h"
#include "../proto/wire.h"
#include "address.h"
#include "errors.h"
#include "handle.h"
#include "link.h"
#include "methods.h"
#include "stockade/v1/wire.pb-c.h"

enum {
    CREDIT = WIRE_CREDIT_DEFAULT,
    CREDIT_REFILL = CREDIT / 2,
    CANCEL_WAIT_MS = 5000,
    DEADLINE_GRACE_MS = 1000, // the broker's own END comes first, with better words
    METADATA_MAX = 32,
    KEY_HEX = 32,
};

// A message that came and was not yet fetched.
struct message {
    struct message *next;
    uint8_t *bytes;
    size_t n;
};

struct call {
    struct stockade *s;
    struct call *next;
    uint32_t id;
    bool stream;
    bool done, cancelled;
    int rc; // once done: 0 or why it failed, with `error`
    struct stockade_error error;
    uint32_t credit; // DATA frames that the broker may still send
    uint32_t taken;  // fetched since credit was given
    struct message *first, *last;
    uint64_t deadline_ns; // when we stop waiting; 0: never
};

#define NS_PER_MS 1000000ull

// ---- Frames in

static struct call *
find_call(struct stockade *s, uint32_t id)
{
    for (struct call *c = s->calls; c != NULL; c = c->next)
        if (c->id == id)
            return c;
    return NULL;
}

static void
finish(struct call *c, const struct err *why)
{
    if (c->done)
        return;
    c->done = true;
    c->rc = why != NULL ? error_from_err(&c->error, why) : 0;
}

static int
append(struct call *c, const ProtobufCBinaryData *payload, struct err *e)
{
    struct message *m = calloc(1, sizeof *m);
    uint8_t *bytes = malloc(payload->len + 1); // never NULL, also when empty
    if (m == NULL || bytes == NULL) {
        free(m);
        free(bytes);
        return err_sys(e, ENOMEM, "receive %zu bytes", payload->len);
    }
    if (payload->len > 0)
        memcpy(bytes, payload->data, payload->len);
    m->bytes = bytes;
    m->n = payload->len;
    if (c->last != NULL)
        c->last->next = m;
    else
        c->first = m;
    c->last = m;
    return 0;
}

static int
on_data(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f, struct err *e)
{
    struct call *c = find_call(s, id);
    if (c == NULL || c->done)
        return 0; // of a call that was given up
    if (!c->stream || c->credit == 0 || f->payload.len > WIRE_DATA_BYTES_MAX)
        return err_set(e, ERR_DATA_LOSS, "the broker sent more data than it was allowed to");
    c->credit--;
    return append(c, &f->payload, e);
}

static int
on_end(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f, struct err *e)
{
    struct call *c = find_call(s, id);
    if (c == NULL || c->done)
        return 0;
    if (f->status != NULL && f->status->code != 0) {
        c->rc = error_from_status(&c->error, f->status);
        c->done = true;
        return 0;
    }
    int rc = c->stream ? 0 : append(c, &f->payload, e);
    if (rc == 0)
        c->done = true;
    return rc;
}

static int
on_ping(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f, struct err *e)
{
    Stockade__V1__Frame pong = STOCKADE__V1__FRAME__INIT;
    pong.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_PONG;
    pong.payload.data = f->payload.data;
    pong.payload.len = f->payload.len > 8 ? 8 : f->payload.len;
    return link_send(s->link, id, &pong.base, e);
}

// No new calls here; what the broker has not begun will never be.
static int
on_goaway(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f, struct err *e)
{
    (void)e;
    s->draining = true;
    struct err why;
    const char *text =
        f->status != NULL && f->status->message[0] != '\0' ? f->status->message : "it is stopping";
    (void)err_set(&why, ERR_UNAVAILABLE, "the broker takes no more calls: %s", text);
    err_detail(&why, "GOAWAY", NULL, "try again in a moment");
    err_sanitize(&why);
    for (struct call *c = s->calls; c != NULL; c = c->next)
        if (c->id > id)
            finish(c, &why);
    return 0;
}

typedef int frame_handler(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f,
                          struct err *e);

static frame_handler *const handlers[] = {
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA] = on_data,
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_END] = on_end,
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_PING] = on_ping,
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_GOAWAY] = on_goaway,
};

static int
on_frame(void *cookie, uint32_t id, const Stockade__V1__Frame *f, struct err *e)
{
    struct stockade *s = cookie;
    unsigned kind = (unsigned)f->kind;
    s->heard_ns = link_now_ns();
    s->pinged_ns = 0; // whatever it says, it is there
    if (kind >= sizeof handlers / sizeof handlers[0] || handlers[kind] == NULL)
        return 0; // of a newer broker
    return handlers[kind](s, id, f, e);
}

// ---- The connection

// It is of no use any more: every open call ends with why. Closed later, when nobody polls it.
static void
broke(struct stockade *s, const struct err *why)
{
    s->broken = true;
    for (struct call *c = s->calls; c != NULL; c = c->next)
        finish(c, why);
    pthread_cond_broadcast(&s->moved);
}

static void
wake_pump(struct stockade *s)
{
    if (s->pumping)
        (void)eventfd_write(s->wake_fd, 1);
}

// Sends a frame of ours. What came before the connection broke is still taken in.
static int
send_frame(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f, struct err *e)
{
    int rc = link_send(s->link, id, &f->base, e);
    if (rc < 0 && e->code == ERR_UNAVAILABLE) {
        struct err ignored;
        (void)link_receive(s->link, on_frame, s, &ignored);
        broke(s, e);
    }
    if (rc == 0 && link_wants_write(s->link))
        wake_pump(s);
    return rc;
}

static void
send_kind(struct stockade *s, uint32_t id, Stockade__V1__FrameKind kind, uint32_t credit)
{
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    struct err ignored;
    f.kind = kind;
    f.credit = credit;
    if (s->link != NULL && !s->broken)
        (void)send_frame(s, id, &f, &ignored);
}

static uint32_t
new_id(struct stockade *s)
{
    do {
        s->next_id = (s->next_id + 1) & ~WIRE_ID_REQUEST;
    } while (s->next_id == 0 || find_call(s, s->next_id | WIRE_ID_REQUEST) != NULL);
    return s->next_id | WIRE_ID_REQUEST;
}

static void
disconnect(struct stockade *s)
{
    link_close(s->link);
    s->link = NULL;
    s->broken = s->draining = false;
    s->pinged_ns = 0;
    s->next_id = 0;
}

// Notices that an idle connection has ended, or that the broker wants us to leave it.
static void
look_at_idle(struct stockade *s)
{
    struct err e;
    if (s->calls == NULL && !s->pumping && !s->broken && link_receive(s->link, on_frame, s, &e) < 0)
        s->broken = true;
}

// Makes sure that there is a connection for a new call. Lock held.
static int
connect_if_needed(struct stockade *s, struct err *e)
{
    if (s->link != NULL)
        look_at_idle(s);
    while (s->link != NULL && (s->broken || (s->draining && s->calls == NULL))) {
        if (s->pumping) {
            wake_pump(s);
            pthread_cond_wait(&s->moved, &s->lock);
        } else {
            disconnect(s);
        }
    }
    if (s->link == NULL)
        return link_open(&s->link, &s->address, link_now_ns() + s->connect_timeout_ms * NS_PER_MS,
                         e);
    if (!s->draining)
        return 0;
    int rc = err_set(e, ERR_UNAVAILABLE, "the broker is stopping and takes no more calls");
    err_detail(e, "GOAWAY", NULL, "try again in a moment");
    return rc;
}

// After a silence: ask whether the broker is there; after a second one it is not.
static int
keepalive(struct stockade *s, struct err *e)
{
    uint64_t now = link_now_ns(), quiet = s->keepalive_ms * NS_PER_MS;
    if (s->pinged_ns != 0 && now - s->pinged_ns >= quiet) {
        int rc = err_set(e, ERR_UNAVAILABLE, "the broker has not answered for %u ms",
                         2 * s->keepalive_ms);
        err_detail(e, "CONNECTION_LOST", NULL, NULL);
        return rc;
    }
    if (s->pinged_ns == 0 && now - s->heard_ns >= quiet) {
        s->pinged_ns = now;
        send_kind(s, new_id(s), STOCKADE__V1__FRAME_KIND__FRAME_KIND_PING, 0);
    }
    return 0;
}

static int
poll_ms(const struct stockade *s, uint64_t until_ns)
{
    uint64_t now = link_now_ns();
    uint64_t quiet = (s->pinged_ns != 0 ? s->pinged_ns : s->heard_ns) + s->keepalive_ms * NS_PER_MS;
    uint64_t until = until_ns != 0 && until_ns < quiet ? until_ns : quiet;
    return until <= now ? 0 : (int)((until - now) / NS_PER_MS + 1);
}

static void
pump(struct stockade *s, uint64_t until_ns)
{
    short events = link_wants_write(s->link) ? POLLIN | POLLOUT : POLLIN;
    struct pollfd p[2] = {{.fd = link_fd(s->link), .events = events},
                          {.fd = s->wake_fd, .events = POLLIN}};
    int ms = poll_ms(s, until_ns);
    s->pumping = true;
    pthread_mutex_unlock(&s->lock);
    int n = poll(p, 2, ms);
    pthread_mutex_lock(&s->lock);
    s->pumping = false;
    eventfd_t count = 0;
    if (n > 0 && p[1].revents != 0)
        (void)eventfd_read(s->wake_fd, &count);
    struct err e;
    int rc = 0;
    if (!s->broken && n > 0 && p[0].revents != 0) {
        rc = link_receive(s->link, on_frame, s, &e);
        if (rc == 0)
            rc = link_flush(s->link, &e);
    } else if (!s->broken && n == 0) {
        rc = keepalive(s, &e);
    }
    if (rc < 0)
        broke(s, &e);
    pthread_cond_broadcast(&s->moved);
}

// Waits until something may have moved, or until_ns (0: for ever). Lock held on entry and on return.
static void
wait_step(struct stockade *s, uint64_t until_ns)
{
    if (!s->pumping && s->link != NULL && !s->broken) {
        pump(s, until_ns);
        return;
    }
    if (until_ns == 0) {
        pthread_cond_wait(&s->moved, &s->lock);
        return;
    }
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    (void)pthread_cond_timedwait(&s->moved, &s->lock, &until);
}

// ---- Calls

static void
random_key(char out[KEY_HEX + 1])
{
    uint8_t bytes[KEY_HEX / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        abort(); // at most 256 bytes are never cut short (getrandom(2))
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

// Sends the CALL of an already listed call. Lock held.
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
    union { // protobuf-c wants it writable; packing only reads
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
    return send_frame(c->s, c->id, &f, e);
}

static void
unlist(struct call *c)
{
    struct call **p = &c->s->calls;
    while (*p != c)
        p = &(*p)->next;
    *p = c->next;
    pthread_cond_broadcast(&c->s->moved);
}

int
call_begin(struct call **out, struct stockade *s, const struct call_spec *spec,
           struct stockade_error *error)
{
    struct err e;
    struct call *c = calloc(1, sizeof *c);
    if (c == NULL) {
        (void)err_sys(&e, ENOMEM, "begin a call");
        return error_from_err(error, &e);
    }
    *c = (struct call){.s = s, .stream = spec->stream, .credit = spec->stream ? CREDIT : 0};
    pthread_mutex_lock(&s->lock);
    int rc = connect_if_needed(s, &e);
    if (rc == 0) {
        if (s->calls == NULL)
            s->heard_ns = link_now_ns();
        c->id = new_id(s);
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
    send_kind(c->s, c->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_CANCEL, 0);
    pthread_cond_broadcast(&c->s->moved);
    wake_pump(c->s);
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
        send_kind(c->s, c->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_CANCEL, 0);
    }
    finish(c, &e);
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
        send_kind(c->s, c->id, STOCKADE__V1__FRAME_KIND__FRAME_KIND_WINDOW, c->taken);
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
            wait_step(s, c->deadline_ns);
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
    pthread_mutex_lock(&s->lock);
    for (struct call *c = s->calls; c != NULL; c = c->next)
        if (c->stream)
            cancel_locked(c);
    pthread_mutex_unlock(&s->lock);
}
