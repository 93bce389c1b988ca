// See transport.h. Websockets: nng's HTTP server and framing under libuv, at nng 1.6 or later.
//
//   loop thread                                nng's threads
//     submit an aio ----------------------------> do it
//     on_async: take the list, handle each <----- op_done: put it on the list, wake the loop
//
// nng's callbacks do nothing else, so everything but the list belongs to the loop thread and needs no lock. Rules that
// were learnt the hard way:
//   - An aio submitted after nng_stream_close() never completes. Submitting and closing happen on one thread, and a
//     stream that is closing submits nothing.
//   - A stream is freed when none of its aios is in progress. nng_aio_free() waits for the callback to return, which
//     is a matter of microseconds here, since the callback has already told us that it is at its end.
//
// A websocket has messages, and what conn.c reads is a stream: messages.c makes the one of the other.
#include "transport.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nng/nng.h>

#include "listen.h"
#include "messages.h"

enum {
    ACCEPT_PAUSE_MS = 100, // after a failure, such as no descriptor left
};

// The subprotocol names the server's side (sp-websocket-mapping of nanomsg).
static const char subprotocol[] = "rep.sp.nanomsg.org";

// One asynchronous operation: at most one is in progress at a time.
struct op {
    struct transport *engine;
    nng_aio *aio; // NULL: never submitted, put on the list by ourselves
    void (*done)(struct op *op);
    bool busy;
    struct op *next; // in the engine's list
};

struct transport {
    uv_async_t async;
    uv_mutex_t lock; // over the list
    struct op *first, **last;
    const struct transport_events *events;
    void *cookie;
    struct transport_listener *listeners;
    size_t alive; // listeners and streams
    bool shutting;
};

struct transport_listener {
    struct op accept;
    struct transport *engine;
    nng_stream_listener *listener;
    bool pausing, closing;
    struct transport_listener *next;
};

struct transport_stream {
    struct op closed, ready, rx, tx;
    struct transport *engine;
    nng_stream *stream;
    void *cookie;
    bool closing;

    struct messages_in in;
    nng_msg *in_msg; // its bytes
    uint8_t *buf;    // of the read in progress
    size_t room;

    struct messages_out out;
    nng_msg *out_msg; // where its bytes go
    size_t took;
    bool told; // what was written is no whole message: nng has nothing to do with it
};

#define HOLDER(op_ptr, type, member)                                                               \
    ((struct type *)(void *)((char *)(op_ptr)-offsetof(struct type, member)))

// Puts an op on the list; any thread.
static void
op_push(struct op *op)
{
    struct transport *t = op->engine;
    uv_mutex_lock(&t->lock);
    bool first = t->first == NULL;
    op->next = NULL;
    *t->last = op;
    t->last = &op->next;
    uv_mutex_unlock(&t->lock);
    if (first)
        (void)uv_async_send(&t->async);
}

// The callback of every aio, on one of nng's threads.
static void
op_done(void *arg)
{
    op_push(arg);
}

static int
op_init(struct op *op, struct transport *t, void (*done)(struct op *))
{
    *op = (struct op){.engine = t, .done = done};
    return nng_aio_alloc(&op->aio, op_done, op);
}

// NULL is fine.
static void
op_free(struct op *op)
{
    if (op->aio == NULL)
        return;
    nng_aio_stop(op->aio);
    nng_aio_free(op->aio);
}

static struct op *
take_list(struct transport *t)
{
    uv_mutex_lock(&t->lock);
    struct op *list = t->first;
    t->first = NULL;
    t->last = &t->first;
    uv_mutex_unlock(&t->lock);
    return list;
}

static void
on_async(uv_async_t *async)
{
    struct transport *t = async->data;
    struct op *next;
    for (struct op *op = take_list(t); op != NULL; op = next) {
        next = op->next; // op may be submitted again, or freed
        op->busy = false;
        op->done(op);
    }
}

static int
nng_failed(int rc, const char *what, const char *url, struct err *e)
{
    if (rc & NNG_ESYSERR)
        return err_sys(e, rc & ~NNG_ESYSERR, "%s %s", what, url);
    return err_set(e, rc == NNG_EADDRINUSE ? ERR_ALREADY_EXISTS : ERR_INTERNAL, "%s %s: %s", what,
                   url, nng_strerror(rc));
}

// ---- the engine

static int
engine_open(uv_loop_t *loop, const struct transport_events *events, void *cookie,
            struct transport **out, struct err *e)
{
    struct transport *t = calloc(1, sizeof *t);
    if (t == NULL)
        return err_sys(e, ENOMEM, "start the transport");
    int rc = uv_async_init(loop, &t->async, on_async);
    if (rc != 0) {
        free(t);
        return err_sys(e, rc, "start the transport");
    }
    rc = uv_mutex_init(&t->lock);
    assert(rc == 0);
    t->last = &t->first;
    t->async.data = t;
    t->events = events;
    t->cookie = cookie;
    *out = t;
    return 0;
}

static void
on_async_closed(uv_handle_t *handle)
{
    struct transport *t = handle->data;
    const struct transport_events *events = t->events;
    void *cookie = t->cookie;
    uv_mutex_destroy(&t->lock);
    free(t);
    events->on_shut(cookie);
}

// Ends the engine when nothing is left that could still put an op on its list.
static void
engine_end_if_empty(struct transport *t)
{
    if (t->shutting && t->alive == 0 && !uv_is_closing((uv_handle_t *)&t->async))
        uv_close((uv_handle_t *)&t->async, on_async_closed);
}

// ---- streams

static void
stream_end_if_idle(struct transport_stream *s)
{
    if (!s->closing || s->rx.busy || s->tx.busy || s->ready.busy || s->closed.busy)
        return;
    s->closed.busy = true;
    op_push(&s->closed);
}

static void
on_stream_closed(struct op *op)
{
    struct transport_stream *s = HOLDER(op, transport_stream, closed);
    struct transport *t = s->engine;
    op_free(&s->rx);
    op_free(&s->tx);
    nng_msg_free(s->in_msg);
    nng_msg_free(s->out_msg);
    nng_stream_free(s->stream);
    if (s->cookie != NULL)
        t->events->on_closed(s->cookie);
    free(s);
    t->alive--;
    engine_end_if_empty(t);
}

// Tells as much of what is there as the reader has room for.
static void
give(struct transport_stream *s)
{
    uint8_t *buf = s->buf;
    s->buf = NULL;
    s->engine->events->on_read(s->cookie, messages_in_read(&s->in, buf, s->room));
}

static void
on_rx(struct op *op)
{
    struct transport_stream *s = HOLDER(op, transport_stream, rx);
    int rc = nng_aio_result(op->aio);
    if (rc == 0) {
        nng_msg_free(s->in_msg);
        s->in_msg = nng_aio_get_msg(op->aio);
        nng_aio_set_msg(op->aio, NULL);
    }
    if (s->closing) {
        stream_end_if_idle(s);
    } else if (rc != 0) {
        s->buf = NULL;
        s->engine->events->on_read(s->cookie, 0);
    } else {
        messages_in_put(&s->in, nng_msg_body(s->in_msg), nng_msg_len(s->in_msg));
        give(s);
    }
}

static void
on_tx(struct op *op)
{
    struct transport_stream *s = HOLDER(op, transport_stream, tx);
    int rc = nng_aio_result(op->aio);
    if (rc != 0)
        nng_msg_free(nng_aio_get_msg(op->aio)); // nng frees what it has sent
    nng_aio_set_msg(op->aio, NULL);
    if (s->closing)
        stream_end_if_idle(s);
    else
        s->engine->events->on_written(s->cookie, rc == 0 ? s->took : 0);
}

// What needs nothing of nng, told at the loop's next turn as everything is.
static void
on_ready(struct op *op)
{
    struct transport_stream *s = HOLDER(op, transport_stream, ready);
    if (!s->closing && s->told) {
        s->told = false;
        s->engine->events->on_written(s->cookie, s->took);
    }
    if (!s->closing && s->buf != NULL && !s->rx.busy)
        give(s);
    if (s->closing)
        stream_end_if_idle(s);
}

static void
stream_ready(struct transport_stream *s)
{
    if (s->ready.busy)
        return;
    s->ready.busy = true;
    op_push(&s->ready);
}

static void
stream_start(struct transport_stream *s, void *cookie)
{
    s->cookie = cookie;
}

static void
stream_read(struct transport_stream *s, void *buf, size_t n)
{
    assert(!s->closing && s->buf == NULL);
    s->buf = buf;
    s->room = n;
    if (!messages_in_empty(&s->in)) {
        stream_ready(s);
        return;
    }
    s->rx.busy = true;
    nng_stream_recv(s->stream, s->rx.aio);
}

static uint8_t *
new_message(void *cookie, size_t n)
{
    struct transport_stream *s = cookie;
    return nng_msg_alloc(&s->out_msg, n) == 0 ? nng_msg_body(s->out_msg) : NULL;
}

static void
stream_write(struct transport_stream *s, const struct iovec *iov, unsigned n)
{
    assert(!s->closing && !s->tx.busy && !s->told && n <= TRANSPORT_IOV_MAX);
    ptrdiff_t more = 0;
    s->took = 0;
    for (unsigned i = 0; i < n && more >= 0; i++) {
        more = messages_out_take(&s->out, iov[i].iov_base, iov[i].iov_len, new_message, s);
        s->took += more > 0 ? (size_t)more : 0;
    }
    if (more < 0)
        s->took = 0; // the stream fails
    if (more < 0 || !messages_out_whole(&s->out)) {
        s->told = true;
        stream_ready(s);
        return;
    }
    nng_aio_set_msg(s->tx.aio, s->out_msg);
    s->out_msg = NULL;
    messages_out_next(&s->out);
    s->tx.busy = true;
    nng_stream_send(s->stream, s->tx.aio);
}

static void
stream_close(struct transport_stream *s)
{
    assert(!s->closing);
    s->closing = true;
    nng_stream_close(s->stream);
    stream_end_if_idle(s);
}

// Takes the stream over, also on failure. NULL without memory.
static struct transport_stream *
stream_new(struct transport *t, nng_stream *stream)
{
    struct transport_stream *s = calloc(1, sizeof *s);
    if (s != NULL && op_init(&s->rx, t, on_rx) == 0 && op_init(&s->tx, t, on_tx) == 0) {
        s->closed = (struct op){.engine = t, .done = on_stream_closed};
        s->ready = (struct op){.engine = t, .done = on_ready};
        messages_in_init(&s->in);
        s->engine = t;
        s->stream = stream;
        t->alive++;
        return s;
    }
    if (s != NULL)
        op_free(&s->rx);
    free(s);
    nng_stream_close(stream);
    nng_stream_free(stream);
    return NULL;
}

// ---- listeners

// A browser says where the page came from that makes it call; no page has any business here (DNS rebinding).
static bool
is_from_a_page(nng_stream *stream)
{
    char *origin = NULL;
    if (nng_stream_get_string(stream, NNG_OPT_WS_REQUEST_HEADER "Origin", &origin) != 0)
        return false;
    nng_strfree(origin);
    return true;
}

static void
listener_accept(struct transport_listener *l, bool pause)
{
    l->pausing = pause;
    l->accept.busy = true;
    if (pause)
        nng_sleep_aio(ACCEPT_PAUSE_MS, l->accept.aio);
    else
        nng_stream_listener_accept(l->listener, l->accept.aio);
}

static void
listener_end_if_idle(struct transport_listener *l)
{
    struct transport *t = l->engine;
    if (!l->closing || l->accept.busy)
        return;
    op_free(&l->accept);
    nng_stream_listener_free(l->listener);
    free(l);
    t->alive--;
    engine_end_if_empty(t);
}

static void
hand_over(struct transport_listener *l, nng_stream *stream)
{
    struct transport *t = l->engine;
    struct transport_peer peer = {.local = false};
    bool welcome = !is_from_a_page(stream);
    struct transport_stream *s = stream_new(t, stream);
    if (s == NULL)
        return;
    if (welcome)
        t->events->on_accept(t->cookie, s, &peer);
    else
        stream_close(s);
}

static void
on_accept(struct op *op)
{
    struct transport_listener *l = HOLDER(op, transport_listener, accept);
    int rc = nng_aio_result(op->aio);
    bool paused = l->pausing;
    if (!paused && rc == 0) {
        nng_stream *stream = nng_aio_get_output(op->aio, 0);
        if (l->closing) {
            nng_stream_close(stream);
            nng_stream_free(stream);
        } else {
            hand_over(l, stream);
        }
    }
    if (l->closing)
        listener_end_if_idle(l);
    else
        listener_accept(l, !paused && rc != 0 && rc != NNG_ECONNABORTED);
}

static void
listener_close(struct transport_listener *l)
{
    l->closing = true;
    nng_stream_listener_close(l->listener);
    nng_aio_cancel(l->accept.aio);
    listener_end_if_idle(l);
}

static void
engine_unlisten(struct transport *t)
{
    while (t->listeners != NULL) {
        struct transport_listener *l = t->listeners;
        t->listeners = l->next;
        listener_close(l);
    }
}

static void
engine_shut(struct transport *t)
{
    t->shutting = true;
    engine_unlisten(t);
    engine_end_if_empty(t);
}

// ---- addresses

static int
set_options(nng_stream_listener *l)
{
    size_t most = WIRE_FRAME_BYTES_MAX;
    int rc = nng_stream_listener_set_bool(l, "ws:msgmode", true);
    if (rc == 0)
        rc = nng_stream_listener_set_string(l, NNG_OPT_WS_PROTOCOL, subprotocol);
    if (rc == 0)
        rc = nng_stream_listener_set_size(l, NNG_OPT_RECVMAXSZ, most);
    if (rc == 0)
        rc = nng_stream_listener_set_size(l, NNG_OPT_WS_RECVMAXFRAME, most);
    return rc;
}

// The address with the port that was chosen.
static int
bound_url(nng_stream_listener *l, const char *url, char *bound)
{
    int port = 0;
    int rc = nng_stream_listener_get_int(l, NNG_OPT_TCP_BOUND_PORT, &port);
    size_t host = strlen("ws://");
    size_t colon = host + strcspn(url + host, "]");
    colon = url[colon] == ']' ? colon + 1 : host + strcspn(url + host, ":");
    if (rc == 0)
        (void)snprintf(bound, TRANSPORT_BOUND_BYTES, "%.*s:%d%s", (int)colon, url, port,
                       url + colon + strcspn(url + colon, "/"));
    return rc;
}

static int
engine_listen(struct transport *t, const struct transport_address *a, char *bound, struct err *e)
{
    int rc = listen_check_ws(a, nng_version(), e);
    if (rc != 0)
        return rc;
    nng_stream_listener *listener = NULL;
    rc = nng_stream_listener_alloc(&listener, a->url);
    if (rc != 0)
        return nng_failed(rc, "listen on", a->url, e);
    struct transport_listener *l = calloc(1, sizeof *l);
    if (l == NULL || op_init(&l->accept, t, on_accept) != 0)
        rc = NNG_ENOMEM;
    if (rc == 0)
        rc = set_options(listener);
    if (rc == 0)
        rc = nng_stream_listener_listen(listener);
    if (rc == 0)
        rc = bound_url(listener, a->url, bound);
    if (rc != 0 || l == NULL) {
        if (l != NULL)
            op_free(&l->accept);
        free(l);
        nng_stream_listener_close(listener);
        nng_stream_listener_free(listener);
        return nng_failed(rc, "listen on", a->url, e);
    }
    l->engine = t;
    l->listener = listener;
    l->next = t->listeners;
    t->listeners = l;
    t->alive++;
    listener_accept(l, false);
    return 0;
}

const char *
transport_ws_version(void)
{
    return nng_version();
}

const struct transport_ops transport_ws = {
    .name = "ws",
    .open = engine_open,
    .listen = engine_listen,
    .unlisten = engine_unlisten,
    .start = stream_start,
    .read = stream_read,
    .write = stream_write,
    .close = stream_close,
    .shut = engine_shut,
};
