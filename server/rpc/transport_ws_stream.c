// SPDX-License-Identifier: Apache-2.0
// See transport_ws.h. Rules found by experience:
//   - An aio submitted after nng_stream_close() never completes. Submitting and closing happen on one thread, and a
//     stream that is closing submits nothing.
//   - Nor does one that was submitted just after nng itself had found the connection closed: then nng_stream_close() does nothing,
//     and the aio stays in its queue. Cancelled, it completes.
//   - A stream is freed when none of its aios is in progress, and not on the loop thread: nng waits up to 100 ms for the
//     peer's closing handshake.
//   - nng reads ahead. If it finds the connection closed while no receive is pending, a later receive never
//     completes, but a send fails. So a silent stream sends an unsolicited PONG from time to time.
//   - An aio that has slept once reports later timeouts as success, without a message. So `nap` does nothing but sleep.
//
// A websocket carries messages, and conn.c reads a stream: messages.c converts between them.
#include "proto/container_of.h"
#include "transport_ws.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"
#include "stockade/v1/wire.pb-c.h"

enum {
    SILENCE_MS = 5000, // before the PONG
    HELD_MS = 1000,    // the same, while nobody reads
};

struct transport_stream {
    struct ws_op closed, ready, rx, tx, pong, nap;
    uv_work_t work; // frees it
    struct ws_engine *engine;
    nng_stream *stream;
    void *cookie;
    bool closing;

    bool held; // only the end of the stream is waited for
    struct messages_in in;
    nng_msg *in_msg; // contains its bytes
    uint8_t *buf;    // of the read in progress
    size_t room;

    struct messages_out out;
    nng_msg *out_msg; // the message that the bytes are copied to
    size_t took;
    bool partial; // no whole message was written yet, so nng has nothing to send
};

static void
stream_end_if_idle(struct transport_stream *s)
{
    if (!s->closing || s->rx.busy || s->tx.busy || s->pong.busy || s->nap.busy || s->ready.busy ||
        s->closed.busy)
        return;
    s->closed.busy = true;
    ws_op_push(&s->closed);
}

// Runs on a thread of libuv's pool.
static void
free_stream(uv_work_t *work)
{
    struct transport_stream *s = work->data;
    ws_op_free(&s->rx);
    ws_op_free(&s->tx);
    ws_op_free(&s->pong);
    ws_op_free(&s->nap);
    nng_msg_free(s->in_msg);
    nng_msg_free(s->out_msg);
    nng_stream_free(s->stream);
}

static void
on_stream_freed(uv_work_t *work, int status)
{
    struct transport_stream *s = work->data;
    struct transport *t = &s->engine->base;
    (void)status;
    if (s->cookie != NULL)
        t->events->on_closed(s->cookie);
    free(s);
    transport_gone(t);
}

static void
on_stream_closed(struct ws_op *op)
{
    struct transport_stream *s = container_of(op, struct transport_stream, closed);
    int rc = uv_queue_work(s->engine->async.loop, &s->work, free_stream, on_stream_freed);
    assert(rc == 0); // fails without a function
}

// Reports as many of the available bytes as fit into the reader's buffer.
static void
give(struct transport_stream *s)
{
    uint8_t *buf = s->buf;
    s->buf = NULL;
    s->engine->base.events->on_read(s->cookie, messages_in_read(&s->in, buf, s->room));
}

// See above. The id belongs to no call, and the Frame contains only its kind.
static void
send_pong(struct transport_stream *s)
{
    static const uint8_t pong[] = {0x80, 0, 0, 0, 0x08, STOCKADE__V1__FRAME_KIND__FRAME_KIND_PONG};
    nng_msg *m = NULL;
    if (s->pong.busy || nng_msg_alloc(&m, sizeof pong) != 0)
        return;
    memcpy(nng_msg_body(m), pong, sizeof pong);
    nng_aio_set_msg(s->pong.aio, m);
    s->pong.busy = true;
    nng_stream_send(s->stream, s->pong.aio);
}

static void
on_pong(struct ws_op *op)
{
    struct transport_stream *s = container_of(op, struct transport_stream, pong);
    const bool failed = nng_aio_result(op->aio) != 0;
    if (failed) {
        nng_msg_free(nng_aio_get_msg(op->aio));
        nng_aio_cancel(s->rx.aio);
    }
    nng_aio_set_msg(op->aio, NULL);
    if (s->closing) {
        stream_end_if_idle(s);
    } else if (failed && s->held && !s->rx.busy) {
        s->held = false;
        s->engine->base.events->on_read(s->cookie, 0);
    }
}

static void
stream_ready(struct transport_stream *s)
{
    if (s->ready.busy)
        return;
    s->ready.busy = true;
    ws_op_push(&s->ready);
}

static void
receive(struct transport_stream *s)
{
    s->rx.busy = true;
    nng_stream_recv(s->stream, s->rx.aio);
}

// For what is there already, or what comes.
static void
begin_read(struct transport_stream *s)
{
    if (!messages_in_empty(&s->in))
        stream_ready(s);
    else if (!s->rx.busy)
        receive(s);
}

// One message is taken while the stream is held. Beyond that only a send finds out that the peer has gone.
void
ws_stream_hold(struct transport_stream *s)
{
    assert(!s->closing && s->buf == NULL);
    s->held = true;
    if (s->rx.busy || s->nap.busy)
        return;
    if (messages_in_empty(&s->in)) {
        receive(s);
        return;
    }
    s->nap.busy = true;
    nng_sleep_aio(HELD_MS, s->nap.aio);
}

static void
on_nap(struct ws_op *op)
{
    struct transport_stream *s = container_of(op, struct transport_stream, nap);
    if (s->closing) {
        stream_end_if_idle(s);
    } else if (s->held) {
        send_pong(s);
        ws_stream_hold(s);
    }
}

static void
on_rx(struct ws_op *op)
{
    struct transport_stream *s = container_of(op, struct transport_stream, rx);
    int rc = nng_aio_result(op->aio);
    if (rc == NNG_ETIMEDOUT && !s->closing) {
        receive(s);
        send_pong(s);
        return;
    }
    if (rc == 0) {
        nng_msg_free(s->in_msg);
        s->in_msg = nng_aio_get_msg(op->aio);
        nng_aio_set_msg(op->aio, NULL);
    }
    if (s->closing) {
        stream_end_if_idle(s);
    } else if (rc != 0) {
        s->buf = NULL;
        s->engine->base.events->on_read(s->cookie, 0);
    } else {
        messages_in_put(&s->in, nng_msg_body(s->in_msg), nng_msg_len(s->in_msg));
        if (s->buf != NULL)
            give(s);
        else if (s->held)
            ws_stream_hold(s);
    }
}

static void
on_tx(struct ws_op *op)
{
    struct transport_stream *s = container_of(op, struct transport_stream, tx);
    int rc = nng_aio_result(op->aio);
    if (rc != 0)
        nng_msg_free(nng_aio_get_msg(op->aio)); // nng frees the messages that it has sent
    nng_aio_set_msg(op->aio, NULL);
    if (s->closing)
        stream_end_if_idle(s);
    else
        s->engine->base.events->on_written(s->cookie, rc == 0 ? s->took : 0);
}

// Operations that need no call of nng; reported in the loop's next turn like all others.
static void
on_ready(struct ws_op *op)
{
    struct transport_stream *s = container_of(op, struct transport_stream, ready);
    if (!s->closing && s->partial) {
        s->partial = false;
        s->engine->base.events->on_written(s->cookie, s->took);
    }
    if (!s->closing && s->buf != NULL && !s->rx.busy)
        give(s);
    if (s->closing)
        stream_end_if_idle(s);
}

void
ws_stream_start(struct transport_stream *s, void *cookie)
{
    s->cookie = cookie;
}

void
ws_stream_read(struct transport_stream *s, void *buf, size_t n)
{
    assert(!s->closing && s->buf == NULL);
    s->buf = buf;
    s->room = n;
    s->held = false;
    begin_read(s);
}

static uint8_t *
new_message(void *cookie, size_t n)
{
    struct transport_stream *s = cookie;
    return nng_msg_alloc(&s->out_msg, n) == 0 ? nng_msg_body(s->out_msg) : NULL;
}

void
ws_stream_write(struct transport_stream *s, const struct iovec *iov, unsigned n)
{
    assert(!s->closing && !s->tx.busy && !s->partial && n <= TRANSPORT_IOV_MAX);
    ptrdiff_t more = 0;
    s->took = 0;
    for (unsigned i = 0; i < n && more >= 0; i++) {
        more = messages_out_take(&s->out, iov[i].iov_base, iov[i].iov_len, new_message, s);
        s->took += more > 0 ? (size_t)more : 0;
    }
    if (more < 0)
        s->took = 0; // the write fails
    if (more < 0 || !messages_out_whole(&s->out)) {
        s->partial = true;
        stream_ready(s);
        return;
    }
    nng_aio_set_msg(s->tx.aio, s->out_msg);
    s->out_msg = NULL;
    messages_out_next(&s->out);
    s->tx.busy = true;
    nng_stream_send(s->stream, s->tx.aio);
}

void
ws_stream_close(struct transport_stream *s)
{
    const struct ws_op *const begun[] = {&s->rx, &s->tx, &s->pong, &s->nap};
    assert(!s->closing);
    s->closing = true;
    nng_stream_close(s->stream);
    for (size_t i = 0; i < sizeof begun / sizeof begun[0]; i++)
        if (begun[i]->busy)
            nng_aio_cancel(begun[i]->aio);
    stream_end_if_idle(s);
}

// Takes ownership of the stream, also on failure. NULL: out of memory.
struct transport_stream *
ws_stream_new(struct ws_engine *t, nng_stream *stream)
{
    struct transport_stream *s = calloc(1, sizeof *s);
    if (s != NULL && ws_op_init(&s->rx, t, on_rx) == 0 && ws_op_init(&s->tx, t, on_tx) == 0 &&
        ws_op_init(&s->pong, t, on_pong) == 0 && ws_op_init(&s->nap, t, on_nap) == 0) {
        nng_aio_set_timeout(s->rx.aio, SILENCE_MS);
        s->work.data = s;
        s->closed = (struct ws_op){.engine = t, .done = on_stream_closed};
        s->ready = (struct ws_op){.engine = t, .done = on_ready};
        messages_in_init(&s->in);
        s->engine = t;
        s->stream = stream;
        t->base.alive++;
        return s;
    }
    if (s != NULL) {
        ws_op_free(&s->rx);
        ws_op_free(&s->tx);
        ws_op_free(&s->pong);
    }
    free(s);
    nng_stream_close(stream);
    nng_stream_free(stream);
    return NULL;
}
