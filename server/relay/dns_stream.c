// SPDX-License-Identifier: Apache-2.0
// DNS over TCP (RFC 7766): messages that follow their length, one at a time. See dns.h.
#include "dns.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "dns_message.h"

enum { PREFIX = 2, IDLE_MS = 10000 };

struct dns_stream {
    struct watch watch;
    struct list node; // in the sandbox's list, or in the free list
    struct sandbox *sandbox;
    struct net_user user;
    uint64_t until_ms;
    bool asking; // nothing is read until the answer is sent
    bool busy;   // in ask_all()
    size_t have;
    uint8_t bytes[PREFIX + DNS_QUERY_MAX];
};

static struct {
    struct dns_stream all[STREAMS_MAX];
    struct list unused, open; // open: only needed to count them
    uint32_t open_n;
} t;

static void on_stream(uv_poll_t *uv, int status, int events);

void
dns_stream_init(void)
{
    list_init(&t.unused);
    for (size_t i = 0; i < STREAMS_MAX; i++)
        list_append(&t.unused, &t.all[i].node);
}

static void
on_closed(uv_handle_t *h)
{
    struct dns_stream *st = h->data;
    list_append(&t.unused, &st->node);
}

static void
stream_close(struct dns_stream *st)
{
    if (!st->watch.live)
        return;
    struct sandbox *s = st->sandbox;
    dns_forget(s, st);
    list_remove(&st->node);
    s->streams_n--;
    s->connections--;
    s->changed = true;
    t.open_n--;
    (void)watch_close(&st->watch, on_closed);
}

void
dns_stream_open(struct sandbox *s, int fd, const struct net_user *user)
{
    if (list_empty(&t.unused) || s->streams_n >= STREAMS_PER_SANDBOX ||
        !share_left(s->streams_n, t.open_n, STREAMS_MAX)) {
        (void)close(fd);
        return;
    }
    struct dns_stream *st = list_entry(t.unused.next, struct dns_stream, node);
    list_remove(&st->node);
    list_append(&s->streams, &st->node);
    s->streams_n++;
    s->connections++;
    s->changed = true;
    t.open_n++;
    st->sandbox = s;
    st->user = *user;
    st->asking = st->busy = false;
    st->have = 0;
    st->until_ms = s->relay->now_ms + IDLE_MS;
    watch_open(s->relay, &st->watch, fd, UV_READABLE, on_stream, st);
    tick_need(s->relay);
}

// Handles the complete message, and keeps the bytes after it. False: the stream must be closed.
static bool
ask(struct dns_stream *st)
{
    if (st->have < PREFIX)
        return true;
    size_t n = (size_t)st->bytes[0] << 8 | st->bytes[1];
    if (n < DNS_HEADER || n > DNS_QUERY_MAX)
        return false;
    if (st->have < PREFIX + n)
        return true;
    uint8_t message[DNS_QUERY_MAX];
    memcpy(message, st->bytes + PREFIX, n);
    st->have -= PREFIX + n;
    memmove(st->bytes, st->bytes + PREFIX + n, st->have);
    st->asking = true;
    watch_want(&st->watch, 0, on_stream);
    st->until_ms = st->sandbox->relay->now_ms + IDLE_MS;
    const struct dns_route route = {.stream = st, .user = st->user};
    return dns_ask(st->sandbox, &route, message, n);
}

// Handles messages as long as the answers are available immediately.
static void
ask_all(struct dns_stream *st)
{
    bool fine = true;
    st->busy = true;
    while (fine && st->watch.live && !st->asking) {
        size_t before = st->have;
        fine = ask(st);
        if (st->have == before)
            break;
    }
    st->busy = false;
    if (!fine)
        stream_close(st);
    else if (st->watch.live && !st->asking)
        watch_want(&st->watch, UV_READABLE, on_stream);
}

static void
on_stream(uv_poll_t *uv, int status, int events)
{
    struct dns_stream *st = uv->data;
    (void)events;
    st->sandbox->relay->now_ms = clock_ms();
    if (status < 0) {
        stream_close(st);
        return;
    }
    if (st->asking) // wait for errors only
        return;
    ssize_t n = recv(st->watch.fd, st->bytes + st->have, sizeof st->bytes - st->have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        stream_close(st);
        return;
    }
    st->have += (size_t)n;
    ask_all(st);
}

// Called from ask_all(), or later; then a query that arrived in the meantime is next.
void
dns_stream_answer(struct dns_stream *st, const uint8_t *bytes, size_t n)
{
    uint8_t out[PREFIX + DNS_ANSWER_MAX] = {(uint8_t)(n >> 8), (uint8_t)n};
    memcpy(out + PREFIX, bytes, n);
    ssize_t sent = send(st->watch.fd, out, PREFIX + n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent != (ssize_t)(PREFIX + n)) {
        stream_close(st); // the client does not read its answers
        return;
    }
    st->asking = false;
    if (!st->busy)
        ask_all(st);
}

void
dns_stream_drop(struct sandbox *s)
{
    list_each(it, &s->streams) stream_close(list_entry(it, struct dns_stream, node));
}

bool
dns_stream_tick(struct relay *r)
{
    list_each(it, &r->sandboxes)
    {
        struct sandbox *s = list_entry(it, struct sandbox, node);
        list_each(at, &s->streams)
        {
            struct dns_stream *st = list_entry(at, struct dns_stream, node);
            if (r->now_ms >= st->until_ms)
                stream_close(st);
        }
    }
    return t.open_n > 0;
}
