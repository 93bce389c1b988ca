// SPDX-License-Identifier: Apache-2.0
// See feed.h.
#include "feed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "events.h"
#include "server/base/list.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "server/rpc/transport.h"

enum { SP_PROTO_PUB = 0x20, SP_PROTO_SUB = 0x21, HEADER_MAX = 9, TOPIC_MAX = 112 };

// One message, made once for all peers.
struct message {
    uint32_t refs;
    uint8_t header[2][HEADER_MAX]; // one for tcp, one for ipc
    uint8_t header_n[2];
    size_t n;
    uint8_t body[];
};

struct peer {
    struct list node;
    struct feed *feed;
    struct transport_stream *stream;
    struct loop_timer *hello_timeout; // for the peer's hello
    uint8_t in[SP_HELLO_BYTES];
    size_t in_n;
    uint8_t hello[SP_HELLO_BYTES];
    bool local, greeted, closing, writing;
    size_t taken; // bytes already written of the hello, or of the first message
    size_t bytes;
    uint32_t first, n;
    struct message *queue[FEED_QUEUE_MAX];
};

struct feed {
    uv_loop_t *loop;
    struct events *events;
    struct transport *engine;
    struct list peers;
    uint32_t peers_n;
    struct events_sink sink;
    bool closed;
};

static const struct transport_ops *const ops = &transport_socket;

static void
message_drop(struct message *m)
{
    if (--m->refs == 0)
        free(m);
}

// ---- a peer

static void
peer_close(struct peer *p)
{
    if (p->closing)
        return;
    p->closing = true;
    loop_timer_stop(&p->hello_timeout);
    ops->close(p->stream);
}

static void
on_no_hello(void *cookie)
{
    peer_close(cookie);
}

// Starts to write the next message, unless a write is in progress.
static void
peer_flush(struct peer *p)
{
    struct iovec iov[2];
    if (p->writing || p->closing || (p->greeted && p->n == 0) || p->in_n < SP_HELLO_BYTES)
        return;
    p->writing = true;
    if (!p->greeted) {
        iov[0] = (struct iovec){p->hello + p->taken, SP_HELLO_BYTES - p->taken};
        ops->write(p->stream, iov, 1);
        return;
    }
    struct message *m = p->queue[p->first];
    size_t header_n = m->header_n[p->local];
    size_t skip = p->taken < header_n ? p->taken : header_n;
    iov[0] = (struct iovec){m->header[p->local] + skip, header_n - skip};
    iov[1] = (struct iovec){m->body + (p->taken - skip), m->n - (p->taken - skip)};
    ops->write(p->stream, iov[0].iov_len > 0 ? iov : iov + 1, iov[0].iov_len > 0 ? 2 : 1);
}

static void
on_written(void *stream, size_t n)
{
    struct peer *p = stream;
    p->writing = false;
    if (n == 0) {
        peer_close(p);
        return;
    }
    p->taken += n;
    if (!p->greeted) {
        p->greeted = p->taken >= SP_HELLO_BYTES;
        p->taken = p->greeted ? 0 : p->taken;
    } else {
        struct message *m = p->queue[p->first];
        size_t whole = m->header_n[p->local] + m->n;
        if (p->taken >= whole) {
            p->taken = 0;
            p->bytes -= whole;
            p->first = (p->first + 1) % FEED_QUEUE_MAX;
            p->n--;
            message_drop(m);
        }
    }
    peer_flush(p);
}

// A SUB socket sends only its hello.
static void
on_read(void *stream, size_t n)
{
    struct peer *p = stream;
    if (n == 0 || p->in_n == SP_HELLO_BYTES) {
        peer_close(p);
        return;
    }
    p->in_n += n;
    if (p->in_n == SP_HELLO_BYTES) {
        if (!sp_hello_is(p->in, SP_PROTO_SUB)) {
            peer_close(p);
            return;
        }
        loop_timer_stop(&p->hello_timeout);
        peer_flush(p);
        ops->read(p->stream, p->in,
                  1); // any further input, or the end of the stream, closes the peer
        return;
    }
    ops->read(p->stream, p->in + p->in_n, SP_HELLO_BYTES - p->in_n);
}

static void
on_closed(void *stream)
{
    struct peer *p = stream;
    for (uint32_t i = 0; i < p->n; i++)
        message_drop(p->queue[(p->first + i) % FEED_QUEUE_MAX]);
    list_remove(&p->node);
    p->feed->peers_n--;
    metrics_move(METRIC_FEED_PEERS, 0, -1);
    free(p);
}

static void
on_accept(void *cookie, struct transport_stream *s, const struct transport_peer *peer)
{
    struct feed *f = cookie;
    struct peer *p = f->peers_n < FEED_PEERS_MAX && !f->closed ? calloc(1, sizeof *p) : NULL;
    if (p == NULL) {
        metrics_add(METRIC_FEED_REFUSED, 1);
        ops->close(s);
        return;
    }
    p->feed = f;
    p->stream = s;
    p->local = peer->local;
    sp_hello(p->hello, SP_PROTO_PUB);
    list_append(&f->peers, &p->node);
    f->peers_n++;
    metrics_move(METRIC_FEED_PEERS, 0, 1);
    ops->start(s, p);
    if (loop_timer_start(f->loop, &p->hello_timeout, FEED_HELLO_MS, on_no_hello, p) < 0)
        peer_close(p);
    else
        ops->read(s, p->in, SP_HELLO_BYTES);
}

// ---- events

static struct message *
message_of(const struct event_packed *e)
{
    char topic[TOPIC_MAX];
    int topic_n = snprintf(topic, sizeof topic, "%s/%s/%s\n", event_kind_name(e->kind),
                           event_severity_name(e->severity), e->sandbox_id);
    size_t event_n = e->n - e->head_n;
    struct message *m = malloc(sizeof *m + (size_t)topic_n + event_n);
    if (m == NULL)
        return NULL;
    *m = (struct message){.refs = 1, .n = (size_t)topic_n + event_n};
    for (unsigned local = 0; local < 2; local++)
        m->header_n[local] = (uint8_t)sp_header(m->header[local], local == 1, m->n);
    memcpy(m->body, topic, (size_t)topic_n);
    memcpy(m->body + topic_n, e->bytes + e->head_n, event_n);
    return m;
}

static void
peer_give(struct peer *p, struct message *m)
{
    size_t whole = m->header_n[p->local] + m->n;
    if (p->closing || p->in_n < SP_HELLO_BYTES)
        return;
    if (p->n == FEED_QUEUE_MAX || p->bytes + whole > FEED_QUEUE_BYTES) {
        metrics_add(METRIC_FEED_LOST, 1);
        return;
    }
    p->queue[(p->first + p->n++) % FEED_QUEUE_MAX] = m;
    p->bytes += whole;
    m->refs++;
    peer_flush(p);
}

static int
on_event(void *cookie, const struct event_packed *e)
{
    struct feed *f = cookie;
    if (f->peers_n == 0)
        return 0;
    struct message *m = message_of(e);
    if (m == NULL) {
        metrics_add(METRIC_FEED_LOST, f->peers_n);
        return -ENOMEM;
    }
    list_each(it, &f->peers) peer_give(list_entry(it, struct peer, node), m);
    message_drop(m);
    return 0;
}

// ---- the whole

static void
on_shut(void *cookie)
{
    free(cookie);
}

int
feed_open(uv_loop_t *loop, struct events *events, const char *address, char *bound,
          struct feed **out, struct err *e)
{
    static const struct transport_events calls = {
        .on_accept = on_accept,
        .on_read = on_read,
        .on_written = on_written,
        .on_closed = on_closed,
        .on_shut = on_shut,
    };
    const struct transport_address a = {.url = address, .mode = 0600, .group = -1};
    struct feed *f = calloc(1, sizeof *f);
    if (f == NULL)
        return err_sys(e, ENOMEM, "open the feed");
    f->loop = loop;
    f->events = events;
    f->sink = (struct events_sink){.name = "feed", .on_event = on_event, .cookie = f};
    list_init(&f->sink.node);
    list_init(&f->peers);
    int r = ops->open(loop, &calls, f, &f->engine, e);
    if (r < 0) {
        free(f);
        return r;
    }
    r = ops->listen(f->engine, &a, bound, e);
    if (r < 0) {
        ops->shut(f->engine); // frees f
        return r;
    }
    r = events_sink_add(events, &f->sink, e);
    if (r < 0) {
        ops->shut(f->engine);
        return r;
    }
    *out = f;
    return 0;
}

void
feed_close(struct feed *f)
{
    if (f == NULL || f->closed)
        return;
    f->closed = true;
    events_sink_remove(f->events, &f->sink);
    list_each(it, &f->peers) peer_close(list_entry(it, struct peer, node));
    ops->shut(f->engine);
}

uint32_t
feed_peers(const struct feed *f)
{
    return f->peers_n;
}
