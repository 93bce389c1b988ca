// SPDX-License-Identifier: Apache-2.0
// See pump.h, and calls.h for the theory of operation.
#include "pump.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "proto/wire.h"
#include "errors.h"
#include "handle.h"
#include "link.h"

// ---- incoming frames

static struct call *
find_call(struct stockade *s, uint32_t id)
{
    for (struct call *c = s->calls; c != NULL; c = c->next)
        if (c->id == id)
            return c;
    return NULL;
}

void
pump_finish(struct call *c, const struct err *why)
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
    uint8_t *bytes = malloc(payload->len + 1); // never NULL, also if it is empty
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
        return 0; // of a cancelled call
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

// GOAWAY: the broker will not begin calls that it has not begun yet. During its shutdown, calls on existing objects
// continue on this connection as long as other calls do. A peer that closes the connection because of an error of
// ours accepts none.
static int
on_goaway(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f, struct err *e)
{
    (void)e;
    s->draining = true;
    s->refused = f->status != NULL && f->status->code != ERR_UNAVAILABLE;
    struct err why;
    const char *text =
        f->status != NULL && f->status->message[0] != '\0' ? f->status->message : "it is stopping";
    (void)err_set(&why, ERR_UNAVAILABLE, "the broker accepts no more calls: %s", text);
    err_detail(&why, "GOAWAY", NULL, "try again in a moment");
    err_sanitize(&why);
    for (struct call *c = s->calls; c != NULL; c = c->next)
        if (c->id > id)
            pump_finish(c, &why);
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
    s->pinged_ns = 0; // any frame shows that the broker is alive
    if (kind >= sizeof handlers / sizeof handlers[0] || handlers[kind] == NULL)
        return 0; // of a newer broker
    return handlers[kind](s, id, f, e);
}

// ---- The connection

// The connection is broken: ends every open call with the failure. It is closed later, when no thread polls it.
static void
broke(struct stockade *s, const struct err *why)
{
    s->broken = true;
    for (struct call *c = s->calls; c != NULL; c = c->next)
        pump_finish(c, why);
    pthread_cond_broadcast(&s->changed);
}

void
pump_wake(struct stockade *s)
{
    if (s->pumping)
        (void)eventfd_write(s->wake_fd, 1);
}

int
pump_send(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f, struct err *e)
{
    int rc = link_send(s->link, id, &f->base, e);
    soon_sent(&s->soon);
    if (rc < 0 && e->code == ERR_UNAVAILABLE) {
        struct err ignored;
        (void)link_receive(s->link, on_frame, s, &ignored);
        broke(s, e);
    }
    if (rc == 0 && link_wants_write(s->link))
        pump_wake(s);
    return rc;
}

void
pump_send_kind(struct stockade *s, uint32_t id, Stockade__V1__FrameKind kind, uint32_t credit)
{
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    struct err ignored;
    f.kind = kind;
    f.credit = credit;
    if (s->link != NULL && !s->broken)
        (void)pump_send(s, id, &f, &ignored);
}

uint32_t
pump_new_id(struct stockade *s)
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
    s->broken = s->draining = s->refused = false;
    s->pinged_ns = 0;
    s->next_id = 0;
}

// Detects that an idle connection was closed, or that the broker sent GOAWAY.
static void
look_at_idle(struct stockade *s)
{
    struct err e;
    if (s->calls == NULL && !s->pumping && !s->broken && link_receive(s->link, on_frame, s, &e) < 0)
        s->broken = true;
}

int
pump_connect(struct stockade *s, struct err *e)
{
    if (s->link != NULL)
        look_at_idle(s);
    while (s->link != NULL && (s->broken || (s->draining && s->calls == NULL))) {
        if (s->pumping) {
            pump_wake(s);
            pthread_cond_wait(&s->changed, &s->lock);
        } else {
            disconnect(s);
        }
    }
    if (s->link == NULL)
        return link_open(&s->link, &s->address, link_now_ns() + s->connect_timeout_ms * NS_PER_MS,
                         e);
    if (!s->refused)
        return 0;
    int rc = err_set(e, ERR_UNAVAILABLE, "the broker is stopping and accepts no more calls");
    err_detail(e, "GOAWAY", NULL, "try again in a moment");
    return rc;
}

// After a time without data: sends a PING; after the same time again, the broker counts as gone.
static int
keepalive(struct stockade *s, struct err *e)
{
    uint64_t now = link_now_ns(), quiet = s->keepalive_ms * NS_PER_MS;
    if (s->pinged_ns != 0 && now - s->pinged_ns >= quiet) {
        int rc = err_set(e, ERR_UNAVAILABLE, "the broker has not responded for %u ms",
                         2 * s->keepalive_ms);
        err_detail(e, "CONNECTION_LOST", NULL, NULL);
        return rc;
    }
    if (s->pinged_ns == 0 && now - s->heard_ns >= quiet) {
        s->pinged_ns = now;
        pump_send_kind(s, pump_new_id(s), STOCKADE__V1__FRAME_KIND__FRAME_KIND_PING, 0);
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

// poll(2), after some polling without sleep if the answer is expected soon (proto/soon.h).
static int
poll_soon(struct soon *soon, struct pollfd *p, nfds_t fds, int ms)
{
    while (soon_look(soon)) {
        int n = poll(p, fds, 0);
        if (n != 0)
            return n;
    }
    return poll(p, fds, ms);
}

static void
pump(struct stockade *s, uint64_t until_ns)
{
    short events = link_wants_write(s->link) ? POLLIN | POLLOUT : POLLIN;
    struct pollfd p[2] = {{.fd = link_fd(s->link), .events = events},
                          {.fd = s->wake_fd, .events = POLLIN}};
    int ms = poll_ms(s, until_ns);
    struct soon soon = s->soon;
    s->pumping = true;
    pthread_mutex_unlock(&s->lock);
    int n = poll_soon(&soon, p, 2, ms);
    pthread_mutex_lock(&s->lock);
    s->pumping = false;
    s->soon.quick = soon.quick;
    eventfd_t count = 0;
    if (n > 0 && p[1].revents != 0)
        (void)eventfd_read(s->wake_fd, &count);
    struct err e;
    int rc = 0;
    if (!s->broken && n > 0 && p[0].revents != 0) {
        soon_received(&s->soon);
        rc = link_receive(s->link, on_frame, s, &e);
        if (rc == 0)
            rc = link_flush(s->link, &e);
    } else if (!s->broken && n == 0) {
        rc = keepalive(s, &e);
    }
    if (rc < 0)
        broke(s, &e);
    pthread_cond_broadcast(&s->changed);
}

void
pump_wait(struct stockade *s, uint64_t until_ns)
{
    if (!s->pumping && s->link != NULL && !s->broken) {
        pump(s, until_ns);
        return;
    }
    if (until_ns == 0) {
        pthread_cond_wait(&s->changed, &s->lock);
        return;
    }
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    (void)pthread_cond_timedwait(&s->changed, &s->lock, &until);
}
