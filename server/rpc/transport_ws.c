// SPDX-License-Identifier: Apache-2.0
// See transport.h. Websockets: nng's HTTP server and framing under libuv, at nng 1.6 or later.
//
//   loop thread                                nng's threads
//     submit an aio ----------------------------> do it
//     on_async: take the list, handle each <----- op_done: put it on the list, wake the loop
//
// nng's callbacks do nothing else, so everything but the list belongs to the loop thread and needs no lock.
#include "transport_ws.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/container_of.h"
#include "proto/wire.h"
#include "server/base/metrics.h"
#include "listen.h"

enum {
    ACCEPT_PAUSE_MS = 100, // after a failure, such as lack of descriptors
};

// The subprotocol has the name of the server's side (sp-websocket-mapping of nanomsg).
static const char subprotocol[] = "rep.sp.nanomsg.org";

struct transport_listener {
    struct ws_op accept;
    struct list node; // in the engine's listeners
    struct ws_engine *engine;
    nng_stream_listener *listener;
    bool pausing, closing;
};

// Adds an operation to the list; any thread.
void
ws_op_push(struct ws_op *op)
{
    struct ws_engine *t = op->engine;
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
    ws_op_push(arg);
}

int
ws_op_init(struct ws_op *op, struct ws_engine *t, void (*done)(struct ws_op *))
{
    *op = (struct ws_op){.engine = t, .done = done};
    return nng_aio_alloc(&op->aio, op_done, op);
}

// Accepts NULL.
void
ws_op_free(struct ws_op *op)
{
    if (op->aio == NULL)
        return;
    nng_aio_stop(op->aio);
    nng_aio_free(op->aio);
}

static struct ws_op *
take_list(struct ws_engine *t)
{
    uv_mutex_lock(&t->lock);
    struct ws_op *list = t->first;
    t->first = NULL;
    t->last = &t->first;
    uv_mutex_unlock(&t->lock);
    return list;
}

static void
on_async(uv_async_t *async)
{
    struct ws_engine *t = async->data;
    struct ws_op *next;
    for (struct ws_op *op = take_list(t); op != NULL; op = next) {
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

// ---- listeners

// Refuses connections from web pages (DNS rebinding): a browser sends the origin of the page.
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
    struct transport *t = &l->engine->base;
    if (!l->closing || l->accept.busy)
        return;
    ws_op_free(&l->accept);
    nng_stream_listener_free(l->listener);
    free(l);
    transport_gone(t);
}

static void
hand_over(struct transport_listener *l, nng_stream *stream)
{
    struct ws_engine *t = l->engine;
    struct transport_peer peer = {.local = false};
    bool welcome = !is_from_a_page(stream);
    struct transport_stream *s = ws_stream_new(t, stream);
    if (s == NULL)
        return;
    if (welcome)
        t->base.events->on_accept(t->base.cookie, s, &peer);
    else
        ws_stream_close(s);
}

static void
on_accept(struct ws_op *op)
{
    struct transport_listener *l = container_of(op, struct transport_listener, accept);
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
    bool failed = !paused && rc != 0 && rc != NNG_ECONNABORTED;
    if (failed && !l->closing)
        metrics_add(METRIC_ACCEPT_FAILED, 1);
    if (l->closing)
        listener_end_if_idle(l);
    else
        listener_accept(l, failed);
}

static void
listener_close(struct list *node)
{
    struct transport_listener *l = list_entry(node, struct transport_listener, node);
    l->closing = true;
    nng_stream_listener_close(l->listener);
    nng_aio_cancel(l->accept.aio);
    listener_end_if_idle(l);
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

// The address, with the port that was chosen for port 0.
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
    if (l == NULL || ws_op_init(&l->accept, (struct ws_engine *)t, on_accept) != 0)
        rc = NNG_ENOMEM;
    if (rc == 0)
        rc = set_options(listener);
    if (rc == 0)
        rc = nng_stream_listener_listen(listener);
    if (rc == 0)
        rc = bound_url(listener, a->url, bound);
    if (rc != 0 || l == NULL) {
        if (l != NULL)
            ws_op_free(&l->accept);
        free(l);
        nng_stream_listener_close(listener);
        nng_stream_listener_free(listener);
        return nng_failed(rc, "listen on", a->url, e);
    }
    l->engine = (struct ws_engine *)t;
    l->listener = listener;
    transport_add_listener(t, &l->node);
    listener_accept(l, false);
    return 0;
}

// ---- the engine

static void
on_async_closed(uv_handle_t *handle)
{
    struct ws_engine *t = handle->data;
    uv_mutex_destroy(&t->lock);
    transport_ended(&t->base);
}

static void
engine_end(struct transport *t)
{
    uv_close((uv_handle_t *)&((struct ws_engine *)t)->async, on_async_closed);
}

static int
engine_open(uv_loop_t *loop, const struct transport_events *events, void *cookie,
            struct transport **out, struct err *e)
{
    struct ws_engine *t = calloc(1, sizeof *t);
    if (t == NULL)
        return err_sys(e, ENOMEM, "start the transport");
    int rc = uv_async_init(loop, &t->async, on_async);
    if (rc != 0) {
        free(t);
        return err_sys(e, rc, "start the transport");
    }
    rc = uv_mutex_init(&t->lock);
    assert(rc == 0);
    t->base = (struct transport){
        .events = events, .cookie = cookie, .close_listener = listener_close, .end = engine_end};
    list_init(&t->base.listeners);
    t->last = &t->first;
    t->async.data = t;
    *out = &t->base;
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
    .start = ws_stream_start,
    .read = ws_stream_read,
    .hold = ws_stream_hold,
    .write = ws_stream_write,
    .close = ws_stream_close,
    .shut = transport_shut,
};
