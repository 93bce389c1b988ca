// SPDX-License-Identifier: Apache-2.0
// See pump.h, and calls.h for the theory of operation.
#include "pump.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "proto/quantity.h"
#include "proto/wire.h"
#include "due.h"
#include "errors.h"
#include "handle.h"
#include "link.h"
#include "ready.h"
#include "watch.h"

enum {
    PING_BYTES_MAX = 8,
    PINGS_ANSWERED_MAX = 16, // PINGs of the broker ...
    PINGS_ANSWERED_S = 5,    // ... in this time
};

// ---- incoming frames

// An open call of this connection.
static struct call *
find_call(const struct stockade *s, uint32_t id)
{
    struct call *c = call_set_find(&s->calls, (uint64_t)s->links << 32 | id);
    return c != NULL && !c->done ? c : NULL;
}

static void
set_done(struct call *c)
{
    c->done = true;
    c->s->open--;
    call_set_deadline(&c->s->calls, c, 0);
    ready_add(c);
}

void
pump_fail(struct call *c, int rc, const struct stockade_error *why)
{
    if (c->error == NULL)
        c->error = malloc(sizeof *c->error);
    if (c->error != NULL)
        *c->error = *why;
    c->rc = rc;
    if (!c->done)
        set_done(c);
}

void
pump_finish(struct call *c, const struct err *why)
{
    if (c->done)
        return;
    if (why == NULL) {
        set_done(c);
        return;
    }
    struct stockade_error error;
    int rc = error_from_err(&error, why);
    pump_fail(c, rc, &error);
}

void
pump_drop_messages(struct call *c)
{
    while (c->first != NULL) {
        struct message *m = c->first;
        c->first = m->next;
        free(m);
    }
    c->last = NULL;
}

static int
append(struct call *c, const ProtobufCBinaryData *payload, struct err *e)
{
    struct message *m = malloc(sizeof *m + payload->len);
    if (m == NULL)
        return err_sys(e, ENOMEM, "receive %zu bytes", payload->len);
    if (payload->len > 0)
        memcpy(m->bytes, payload->data, payload->len);
    m->next = NULL;
    m->n = payload->len;
    if (c->last != NULL)
        c->last->next = m;
    else
        c->first = m;
    c->last = m;
    ready_add(c);
    return 0;
}

static int
on_data(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f, struct err *e)
{
    struct call *c = find_call(s, id);
    if (c == NULL)
        return 0; // of a call that was given up
    if (!c->stream || c->credit == 0 || f->payload.len > WIRE_DATA_BYTES_MAX)
        return err_set(e, ERR_DATA_LOSS, "the broker sent more data than it was allowed to");
    c->credit--;
    return c->muted ? 0 : append(c, &f->payload, e);
}

static int
on_end(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f, struct err *e)
{
    struct call *c = find_call(s, id);
    if (c == NULL)
        return 0;
    if (f->status != NULL && f->status->code != 0) {
        struct stockade_error error;
        int failed = error_from_status(&error, f->status);
        pump_fail(c, failed, &error);
        return 0;
    }
    int rc = c->stream || c->muted ? 0 : append(c, &f->payload, e);
    if (rc == 0)
        pump_finish(c, NULL);
    return rc;
}

// Each PING costs a PONG, which waits in our memory while the broker does not read: their number is limited. The Python
// and Node clients have the same limit.
static int
on_ping(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f, struct err *e)
{
    if (f->payload.len > PING_BYTES_MAX)
        return err_set(e, ERR_DATA_LOSS,
                       "the broker sent a PING of %zu bytes; at most %d are allowed",
                       f->payload.len, PING_BYTES_MAX);
    if (s->heard_ns - s->pings_since_ns >= 1000 * NS_PER_MS * PINGS_ANSWERED_S) {
        s->pings_since_ns = s->heard_ns;
        s->pings = 0;
    }
    if (++s->pings > PINGS_ANSWERED_MAX)
        return err_set(e, ERR_DATA_LOSS, "the broker sent more than %d PINGs in %d s",
                       PINGS_ANSWERED_MAX, PINGS_ANSWERED_S);
    Stockade__V1__Frame pong = STOCKADE__V1__FRAME__INIT;
    pong.kind = STOCKADE__V1__FRAME_KIND__FRAME_KIND_PONG;
    pong.payload = f->payload;
    return link_send(s->link, id, &pong.base, true, e);
}

static int
on_pong(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f, struct err *e)
{
    (void)s, (void)id, (void)f, (void)e; // that it came is enough: on_frame()
    return 0;
}

static int
on_clients_own(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f, struct err *e)
{
    (void)s, (void)id;
    const ProtobufCEnumValue *kind =
        protobuf_c_enum_descriptor_get_value(&stockade__v1__frame_kind__descriptor, (int)f->kind);
    return err_set(e, ERR_DATA_LOSS, "the broker sent %s, which only a client sends",
                   kind->name + strlen("FRAME_KIND_"));
}

struct goaway {
    uint32_t last_id; // that the broker began
    struct err why;
};

static void
end_not_begun(struct call *c, void *cookie)
{
    const struct goaway *g = cookie;
    if (call_wire_id(c) > g->last_id)
        pump_finish(c, &g->why);
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
    struct goaway g = {.last_id = id};
    const char *text =
        f->status != NULL && f->status->message[0] != '\0' ? f->status->message : "it is stopping";
    (void)err_set(&g.why, ERR_UNAVAILABLE, "the broker accepts no more calls: %s", text);
    err_detail(&g.why, "GOAWAY", NULL, "try again in a moment");
    err_sanitize(&g.why);
    call_set_each(&s->calls, end_not_begun, &g);
    return 0;
}

typedef int frame_handler(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f,
                          struct err *e);

static frame_handler *const handlers[] = {
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_CALL] = on_clients_own,
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_DATA] = on_data,
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_END] = on_end,
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_CANCEL] = on_clients_own,
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_WINDOW] = on_clients_own,
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_PING] = on_ping,
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_PONG] = on_pong,
    [STOCKADE__V1__FRAME_KIND__FRAME_KIND_GOAWAY] = on_goaway,
};

static int
on_frame(void *cookie, uint32_t id, const Stockade__V1__Frame *f, struct err *e)
{
    struct stockade *s = cookie;
    unsigned kind = (unsigned)f->kind;
    if (kind >= sizeof handlers / sizeof handlers[0] || handlers[kind] == NULL)
        return 0; // of a newer broker; it does not replace the PONG
    s->heard_ns = link_now_ns();
    s->pinged_ns = 0; // any known frame shows that the broker is alive
    return handlers[kind](s, id, f, e);
}

// ---- The connection

// Closes the connection; if another thread polls it, that thread does.
static void
disconnect(struct stockade *s)
{
    watch_forget(s);
    if (s->polled == s->link)
        s->doomed = s->link;
    else
        link_close(s->link);
    s->link = NULL;
    s->draining = s->refused = false;
    s->pinged_ns = 0;
}

static void
end_broken(struct call *c, void *cookie)
{
    pump_finish(c, cookie);
}

// The connection is broken: ends every open call with the failure.
static void
broke(struct stockade *s, struct err *why)
{
    disconnect(s);
    call_set_each(&s->calls, end_broken, why);
    ready_wake(s);
}

int
pump_send(struct stockade *s, uint32_t id, const Stockade__V1__Frame *f, struct err *e)
{
    bool urgent = f->kind != STOCKADE__V1__FRAME_KIND__FRAME_KIND_CALL;
    int rc = link_send(s->link, id, &f->base, urgent, e);
    soon_sent(&s->soon);
    if (rc < 0 && e->code == ERR_UNAVAILABLE) {
        struct err ignored;
        (void)link_work(s->link, on_frame, s, &ignored);
        broke(s, e);
    } else if (rc < 0 && urgent) {
        broke(s, e); // a stream without its WINDOW would never continue
    } else if (rc == 0 && (link_events(s->link) & POLLOUT) != 0) {
        ready_wake(s);
    }
    return rc;
}

static void
send_kind(struct stockade *s, uint32_t id, Stockade__V1__FrameKind kind, uint32_t credit)
{
    Stockade__V1__Frame f = STOCKADE__V1__FRAME__INIT;
    struct err ignored;
    f.kind = kind;
    f.credit = credit;
    (void)pump_send(s, id, &f, &ignored);
}

void
pump_send_kind(const struct call *c, Stockade__V1__FrameKind kind, uint32_t credit)
{
    if (c->s->link != NULL && c->id >> 32 == c->s->links)
        send_kind(c->s, call_wire_id(c), kind, credit);
}

uint64_t
pump_new_id(struct stockade *s)
{
    uint64_t id = 0;
    do {
        s->next_id = (s->next_id + 1) & ~WIRE_ID_REQUEST;
        id = (uint64_t)s->links << 32 | WIRE_ID_REQUEST | s->next_id;
    } while (s->next_id == 0 || call_set_find(&s->calls, id) != NULL);
    return id;
}

// Detects that an idle connection was closed, or that the broker sent GOAWAY.
static void
look_at_idle(struct stockade *s)
{
    struct err e;
    if (s->open == 0 && !s->polling && link_work(s->link, on_frame, s, &e) < 0)
        disconnect(s);
}

int
pump_connect(struct stockade *s, struct err *e)
{
    if (s->link != NULL)
        look_at_idle(s);
    if (s->link != NULL && s->draining && s->open == 0)
        disconnect(s);
    if (s->link == NULL) {
        uint64_t until = link_now_ns() + s->connect_timeout_ms * NS_PER_MS;
        int rc = link_open(&s->link, &s->address, until, e);
        if (rc < 0)
            return rc;
        s->links++;
        s->next_id = 0;
        s->pings = 0;
        ready_wake(s); // a thread may poll without it
        return 0;
    }
    if (!s->refused)
        return 0;
    int rc = err_set(e, ERR_UNAVAILABLE, "the broker is stopping and accepts no more calls");
    err_detail(e, "GOAWAY", NULL, "try again in a moment");
    return rc;
}

// ---- Time

// After a time without data: sends a PING; after the same time again, the broker counts as gone.
static void
keepalive(struct stockade *s, uint64_t now)
{
    uint64_t until = due_quiet_ns(s);
    if (until == 0 || now < until)
        return;
    if (s->pinged_ns == 0) {
        s->pinged_ns = now;
        send_kind(s, (uint32_t)pump_new_id(s), STOCKADE__V1__FRAME_KIND__FRAME_KIND_PING, 0);
        return;
    }
    struct err e;
    char quiet[QUANTITY_TEXT];
    (void)err_set(&e, ERR_UNAVAILABLE, "the broker has not responded for %s",
                  quantity_write(2 * (uint64_t)s->keepalive_ms, quantity_time_ms, quiet));
    err_detail(&e, "CONNECTION_LOST", NULL, NULL);
    broke(s, &e);
}

// The deadline of a call, or the time limit for the END after a CANCEL, has passed.
static void
give_up(struct call *c)
{
    struct err e;
    if (c->cancelled) {
        (void)err_set(&e, ERR_CANCELLED, "cancelled; the broker did not confirm it");
    } else {
        (void)err_set(&e, ERR_DEADLINE_EXCEEDED, "the broker did not answer before the deadline");
        pump_send_kind(c, STOCKADE__V1__FRAME_KIND__FRAME_KIND_CANCEL, 0);
    }
    pump_finish(c, &e);
}

static void
look_at_time(struct stockade *s)
{
    uint64_t now = link_now_ns();
    struct call *c = NULL;
    while ((c = call_set_first(&s->calls)) != NULL && c->deadline_ns <= now)
        give_up(c);
    keepalive(s, now);
}

// ---- Work and wait

void
pump_work(struct stockade *s)
{
    struct err e;
    if (s->link != NULL) {
        bool connecting = link_due_ns(s->link) != 0;
        int rc = link_work(s->link, on_frame, s, &e);
        if (rc > 0)
            soon_received(&s->soon);
        if (rc < 0)
            broke(s, &e);
        else if (connecting)
            s->heard_ns = link_now_ns(); // nothing could have come before
    }
    look_at_time(s);
    pthread_cond_broadcast(&s->changed);
}

static int
poll_ms(uint64_t until_ns)
{
    if (until_ns == 0)
        return -1;
    uint64_t now = link_now_ns();
    uint64_t ms = until_ns <= now ? 0 : (until_ns - now) / NS_PER_MS + 1;
    return ms > INT_MAX ? INT_MAX : (int)ms;
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

// Polls without the lock, and does what is ready then.
static void
poll_and_work(struct stockade *s, uint64_t until_ns)
{
    struct pollfd p[2] = {{.fd = -1}, {.fd = s->wake_fd, .events = POLLIN}};
    if (s->link != NULL)
        p[0] = (struct pollfd){.fd = link_fd(s->link), .events = link_events(s->link)};
    int ms = poll_ms(due_earlier(until_ns, due_ns(s)));
    struct soon soon = s->soon;
    s->polling = true;
    s->polled = s->link;
    watch_unlock(s);
    (void)poll_soon(&soon, p, 2, ms);
    pthread_mutex_lock(&s->lock);
    s->polling = false;
    s->polled = NULL;
    s->soon.quick = soon.quick;
    link_close(s->doomed);
    s->doomed = NULL;
    eventfd_t count = 0;
    if (s->woken)
        (void)eventfd_read(s->wake_fd, &count);
    s->woken = false;
    pump_work(s);
}

void
pump_wait(struct stockade *s, uint64_t until_ns)
{
    if (!s->polling) {
        poll_and_work(s, until_ns);
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
