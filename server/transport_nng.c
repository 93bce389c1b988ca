// See transport.h. nng's streams (never its SP sockets, which do not survive hostile peers in 1.5.2) under libuv.
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
//   - Listeners leave TCP_NODELAY off unless told otherwise: 20 times fewer messages per second.
#include "transport.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nng/nng.h>

#include "address.h"

enum {
    ACCEPT_PAUSE_MS = 100, // after a failure, such as no descriptor left
};

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
    struct op accept; // first: an op is cast back
    struct transport *engine;
    nng_stream_listener *listener;
    bool ipc, pausing, closing;
    struct transport_listener *next;
};

struct transport_stream {
    struct op closed;
    struct op rx, tx;
    struct transport *engine;
    nng_stream *stream;
    void *cookie;
    bool closing;
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
    if (!s->closing || s->rx.busy || s->tx.busy || s->closed.busy)
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
    nng_stream_free(s->stream);
    if (s->cookie != NULL)
        t->events->on_closed(s->cookie);
    free(s);
    t->alive--;
    engine_end_if_empty(t);
}

// Bytes that an op moved; 0 when it failed.
static size_t
op_bytes(const struct op *op)
{
    return nng_aio_result(op->aio) == 0 ? nng_aio_count(op->aio) : 0;
}

static void
on_rx(struct op *op)
{
    struct transport_stream *s = HOLDER(op, transport_stream, rx);
    if (s->closing)
        stream_end_if_idle(s);
    else
        s->engine->events->on_read(s->cookie, op_bytes(op));
}

static void
on_tx(struct op *op)
{
    struct transport_stream *s = HOLDER(op, transport_stream, tx);
    if (s->closing)
        stream_end_if_idle(s);
    else
        s->engine->events->on_written(s->cookie, op_bytes(op));
}

static void
stream_start(struct transport_stream *s, void *cookie)
{
    s->cookie = cookie;
}

static void
stream_read(struct transport_stream *s, void *buf, size_t n)
{
    assert(!s->closing && !s->rx.busy);
    nng_iov iov = {buf, n};
    (void)nng_aio_set_iov(s->rx.aio, 1, &iov); // fails above 8
    s->rx.busy = true;
    nng_stream_recv(s->stream, s->rx.aio);
}

static void
stream_write(struct transport_stream *s, const struct iovec *iov, unsigned n)
{
    assert(!s->closing && !s->tx.busy && n <= TRANSPORT_IOV_MAX);
    nng_iov pieces[TRANSPORT_IOV_MAX];
    for (unsigned i = 0; i < n; i++)
        pieces[i] = (nng_iov){iov[i].iov_base, iov[i].iov_len};
    (void)nng_aio_set_iov(s->tx.aio, n, pieces);
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

static bool
read_peer(nng_stream *stream, bool ipc, struct transport_peer *peer)
{
    uint64_t uid;
    uint64_t gid;
    uint64_t pid;
    *peer = (struct transport_peer){.local = ipc};
    if (!ipc)
        return true;
    if (nng_stream_get_uint64(stream, NNG_OPT_IPC_PEER_UID, &uid) != 0 ||
        nng_stream_get_uint64(stream, NNG_OPT_IPC_PEER_GID, &gid) != 0 ||
        nng_stream_get_uint64(stream, NNG_OPT_IPC_PEER_PID, &pid) != 0)
        return false;
    peer->uid = (uint32_t)uid;
    peer->gid = (uint32_t)gid;
    peer->pid = (int32_t)pid;
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
    struct transport_peer peer;
    bool known = read_peer(stream, l->ipc, &peer);
    struct transport_stream *s = stream_new(t, stream);
    if (s == NULL)
        return;
    if (!known) {
        stream_close(s); // whoever it is cannot be held to account
        return;
    }
    t->events->on_accept(t->cookie, s, &peer);
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
listen_ipc(nng_stream_listener *l, const struct transport_address *a, char *bound, struct err *e)
{
    int rc = nng_stream_listener_set_int(l, NNG_OPT_IPC_PERMISSIONS, 0600);
    if (rc == 0)
        rc = nng_stream_listener_listen(l);
    if (rc != 0)
        return nng_failed(rc, "listen on", a->url, e);
    (void)snprintf(bound, TRANSPORT_BOUND_BYTES, "%s", a->url);
    return address_open_socket(a, e);
}

static int
listen_tcp(nng_stream_listener *l, const struct transport_address *a, char *bound, struct err *e)
{
    const char *host_port = a->url + strlen("tcp://");
    int host_bytes = (int)(strrchr(host_port, ':') - host_port);
    int port = 0;
    int rc = nng_stream_listener_set_bool(l, NNG_OPT_TCP_NODELAY, true);
    if (rc == 0)
        rc = nng_stream_listener_set_bool(l, NNG_OPT_TCP_KEEPALIVE, true);
    if (rc == 0)
        rc = nng_stream_listener_listen(l);
    if (rc == 0)
        rc = nng_stream_listener_get_int(l, NNG_OPT_TCP_BOUND_PORT, &port);
    if (rc != 0)
        return nng_failed(rc, "listen on", a->url, e);
    (void)snprintf(bound, TRANSPORT_BOUND_BYTES, "tcp://%.*s:%d", host_bytes, host_port, port);
    return 0;
}

static int
engine_listen(struct transport *t, const struct transport_address *a, char *bound, struct err *e)
{
    bool ipc = false;
    int rc = address_prepare(a, nng_version(), &ipc, e);
    if (rc != 0)
        return rc;
    nng_stream_listener *listener = NULL;
    rc = nng_stream_listener_alloc(&listener, a->url);
    if (rc != 0)
        return nng_failed(rc, "listen on", a->url, e);
    struct transport_listener *l = calloc(1, sizeof *l);
    if (l == NULL || op_init(&l->accept, t, on_accept) != 0)
        rc = err_sys(e, ENOMEM, "listen on %s", a->url);
    else
        rc = ipc ? listen_ipc(listener, a, bound, e) : listen_tcp(listener, a, bound, e);
    if (rc != 0 || l == NULL) {
        if (l != NULL)
            op_free(&l->accept);
        free(l);
        nng_stream_listener_close(listener);
        nng_stream_listener_free(listener);
        return rc;
    }
    l->engine = t;
    l->listener = listener;
    l->ipc = ipc;
    l->next = t->listeners;
    t->listeners = l;
    t->alive++;
    listener_accept(l, false);
    return 0;
}

const char *
transport_nng_version(void)
{
    return nng_version();
}

const struct transport_ops transport_nng = {
    .name = "nng",
    .open = engine_open,
    .listen = engine_listen,
    .unlisten = engine_unlisten,
    .start = stream_start,
    .read = stream_read,
    .write = stream_write,
    .close = stream_close,
    .shut = engine_shut,
};
