// SPDX-License-Identifier: Apache-2.0
// See transport.h. tls+tcp: OpenSSL between the connections of transport_socket.c and conn.c, on the same loop.
//
//   the socket's on_accept --caps--> HANDSHAKE --done--> on_accept --> OPEN: bytes in both directions
//                                       |                                |
//                                       '---(deadline, other bytes)------'--close--> the socket's on_closed: freed
//
// A stranger gets nothing but this before the handshake is done: one of HANDSHAKES_MAX slots, HANDSHAKES_PER_ADDRESS of
// them from one address, for the time of rpc.handshake. When all are taken, a newcomer gets one of an address with at least
// as many. A signature costs up to a millisecond, so a turn of the loop makes STEPS_MAX steps of handshakes at most, and
// other peers are served between them.
#include "transport_engine.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "listen.h"
#include "server/base/metrics.h"
#include "server/base/trim.h"
#include "tls.h"

enum {
    HANDSHAKES_MAX = 256,
    HANDSHAKES_PER_ADDRESS = 32,
    STEPS_MAX = 4,
    RECORD_BYTES = 16 * 1024, // of plain text (RFC 8446, 5.1)
    RX_BYTES = 8 * 1024,
    TX_BYTES = RECORD_BYTES + 512,
    WRITE_BYTES_MAX = 4 * RECORD_BYTES, // taken of one write
    BARREN_BYTES_MAX = 64 * 1024,       // without plain text, such as updates of keys
    UNREAD_BYTES_MAX = WRITE_BYTES_MAX + 2 * TX_BYTES, // of what TLS answers
};
#define NS_PER_MS UINT64_C(1000000)

enum failure { FAILED_HANDSHAKE, FAILED_LATE, FAILED_FULL, FAILED_ADDRESS, FAILURES_N };
static const char *const failure_reasons[FAILURES_N] = {
    "TLS_HANDSHAKE", "TLS_HANDSHAKE_LATE", "TLS_HANDSHAKES", "TLS_HANDSHAKES_OF_ADDRESS"};
_Static_assert((int)FAILURES_N == (int)METRIC_VALUES_TLS, "a value for each reason");

struct engine {
    struct transport base;
    struct transport *inner;
    const struct tls *tls;
    uint64_t handshake_ns;
    uv_prepare_t prepare;
    uv_idle_t again; // active while a list must not wait for an event
    uv_timer_t late;
    struct list shaking; // handshakes, the oldest first
    struct list ready;   // of those, with bytes to look at
    struct list over;    // open streams with a finished operation that was not reported yet
    unsigned shaking_n;
    struct trim trim; // of streams, also those whose handshake never ends
    struct transport_log log;
    uint8_t plain[RECORD_BYTES];
};

struct transport_stream {
    struct list node, step; // in shaking; in ready or over
    struct engine *engine;
    struct transport_stream *inner;
    SSL *ssl;
    void *cookie;
    struct transport_peer peer;
    uint64_t late_ns;
    unsigned nth; // handshake of its address at that time
    bool open, closing;
    bool inner_reading, inner_writing, ended; // ended: the peer sends no more
    bool reading, got, writing, wrote;        // the operation is in progress; it is finished
    bool broken, held;
    uint8_t *buf;
    size_t room, got_n, took_n;
    uint8_t *tx; // bytes that the socket writes, or NULL
    size_t tx_at, tx_n;
    size_t barren_n; // of the peer since its last plain text
    uint8_t rx[RX_BYTES];
};

// ---- the socket below

static const struct transport_ops *const below = &transport_socket;

static void
stream_over(struct transport_stream *s)
{
    list_remove(&s->step);
    list_append(s->open ? &s->engine->over : &s->engine->ready, &s->step);
    (void)uv_idle_start(&s->engine->again, transport_again);
}

static void
take_more(struct transport_stream *s)
{
    if (s->inner_reading || s->ended || s->closing)
        return;
    s->inner_reading = true;
    below->read(s->inner, s->rx, sizeof s->rx);
}

static void
write_tx(struct transport_stream *s)
{
    const struct iovec v = {s->tx + s->tx_at, s->tx_n - s->tx_at};
    s->inner_writing = true;
    below->write(s->inner, &v, 1);
}

// Gives the socket what OpenSSL has for the peer. A write of conn.c is finished when nothing is left of it.
static void
flush(struct transport_stream *s)
{
    if (s->inner_writing || s->closing)
        return;
    int n = 0;
    if (BIO_ctrl_pending(SSL_get_wbio(s->ssl)) > 0) {
        if (s->tx == NULL)
            s->tx = malloc(TX_BYTES);
        n = s->tx != NULL ? BIO_read(SSL_get_wbio(s->ssl), s->tx, TX_BYTES) : 0;
        if (n <= 0)
            s->broken = true;
    }
    if (n > 0) {
        s->tx_at = 0;
        s->tx_n = (size_t)n;
        write_tx(s);
        return;
    }
    free(s->tx);
    s->tx = NULL;
    if (s->writing && !s->wrote) {
        s->wrote = true;
        stream_over(s);
    }
}

static void
on_closed_below(void *stream)
{
    struct transport_stream *s = stream;
    struct engine *t = s->engine;
    if (s->cookie != NULL)
        t->base.events->on_closed(s->cookie);
    SSL_free(s->ssl);
    free(s->tx);
    free(s);
    trim_one_less(&t->trim);
    transport_gone(&t->base);
}

static void
shaken(struct transport_stream *s)
{
    if (list_empty(&s->node))
        return;
    list_remove(&s->node);
    s->engine->shaking_n--;
}

static void
stream_close(struct transport_stream *s)
{
    assert(!s->closing);
    shaken(s);
    list_remove(&s->step);
    if (s->open && !s->broken && !s->inner_writing && SSL_shutdown(s->ssl) >= 0) {
        s->writing = false;
        flush(s); // the socket takes what it has room for at once
    }
    s->closing = true;
    below->close(s->inner);
}

// ---- handshakes

static void
report_failure(struct engine *t, const struct transport_peer *peer, enum failure why,
               const char *text)
{
    metrics_add_by(METRIC_TLS_FAILED, why, 0, 1);
    if (t->base.events->on_refused != NULL)
        t->base.events->on_refused(t->base.cookie, peer, failure_reasons[why], text);
}

static void
handshake_failed(struct transport_stream *s, enum failure why, const char *text)
{
    report_failure(s->engine, &s->peer, why, text);
    transport_log(&s->engine->log, "tls", "a handshake failed", text);
    flush(s); // the alert
    stream_close(s);
}

static void
handshake_done(struct transport_stream *s)
{
    struct engine *t = s->engine;
    const struct tls_client *who = tls_client_of(t->tls, s->ssl);
    shaken(s);
    s->open = true;
    s->peer.tls = true;
    s->peer.client = who != NULL;
    if (who != NULL) {
        memcpy(s->peer.tenant, who->tenant, sizeof s->peer.tenant);
        s->peer.scopes = who->scopes;
    }
    metrics_add(METRIC_TLS_HANDSHAKES, 1);
    flush(s);
    t->base.events->on_accept(t->base.cookie, s, &s->peer);
}

static void
handshake_step(struct transport_stream *s)
{
    ERR_clear_error();
    int rc = SSL_do_handshake(s->ssl);
    if (rc == 1) {
        handshake_done(s);
        return;
    }
    if (SSL_get_error(s->ssl, rc) != SSL_ERROR_WANT_READ)
        handshake_failed(s, FAILED_HANDSHAKE, tls_why());
    else if (s->ended || s->broken)
        handshake_failed(s, FAILED_HANDSHAKE, "the peer has closed the connection");
    else {
        flush(s);
        take_more(s);
    }
}

static void
on_late(uv_timer_t *late)
{
    struct engine *t = late->data;
    uint64_t now = uv_hrtime();
    list_each(it, &t->shaking)
    {
        struct transport_stream *s = list_entry(it, struct transport_stream, node);
        if (s->late_ns > now) {
            (void)uv_timer_start(late, on_late, (s->late_ns - now) / NS_PER_MS + 1, 0);
            return;
        }
        handshake_failed(s, FAILED_LATE, "it took too long");
    }
}

// How many its address has; and which slot is freed first: an address with the most has it, of equal ones it is the oldest.
static unsigned
shaking_from(const struct engine *t, const struct transport_peer *peer,
             struct transport_stream **most)
{
    unsigned n = 0;
    *most = NULL;
    list_each(it, &t->shaking)
    {
        struct transport_stream *s = list_entry(it, struct transport_stream, node);
        n += transport_same_network(s->peer.address, peer->address);
        if (*most == NULL || s->nth > (*most)->nth)
            *most = s;
    }
    return n;
}

// Those that are refused get no byte, and nothing is allocated for them.
static void
on_accept_below(void *cookie, struct transport_stream *inner, const struct transport_peer *peer)
{
    struct engine *t = cookie;
    struct transport_stream *most;
    const unsigned nth = shaking_from(t, peer, &most) + 1;
    const bool full = most != NULL && t->shaking_n >= HANDSHAKES_MAX;
    if (t->base.shutting || nth > HANDSHAKES_PER_ADDRESS || (full && most->nth < nth)) {
        const bool many = nth > HANDSHAKES_PER_ADDRESS;
        report_failure(t, peer, many ? FAILED_ADDRESS : FAILED_FULL,
                       many ? "its address has too many handshakes"
                            : "there are too many handshakes");
        below->close(inner);
        return;
    }
    if (full)
        handshake_failed(most, FAILED_FULL, "others needed its place");
    struct transport_stream *s = calloc(1, sizeof *s);
    SSL *ssl = s != NULL ? tls_accept(t->tls) : NULL;
    if (s == NULL || ssl == NULL) {
        free(s);
        metrics_add(METRIC_ACCEPT_FAILED, 1);
        below->close(inner);
        return;
    }
    s->engine = t;
    s->inner = inner;
    s->ssl = ssl;
    s->peer = *peer;
    s->nth = nth;
    s->late_ns = uv_hrtime() + t->handshake_ns;
    list_init(&s->step);
    list_init(&s->node);
    if (list_empty(&t->shaking))
        (void)uv_timer_start(&t->late, on_late, t->handshake_ns / NS_PER_MS, 0);
    list_append(&t->shaking, &s->node);
    t->shaking_n++;
    t->base.alive++;
    trim_one_more(&t->trim);
    below->start(inner, s);
    take_more(s);
}

// ---- open streams

static void
protocol_error(struct transport_stream *s, const char *why)
{
    metrics_add(METRIC_PROTOCOL_ERRORS, 1);
    transport_log(&s->engine->log, "tls", "a peer was closed", why);
    s->broken = true;
}

// Decrypts what is there into the buffer of the read in progress. False: more bytes of the peer are needed.
static bool
decrypt(struct transport_stream *s)
{
    ERR_clear_error();
    int n = SSL_read(s->ssl, s->buf, s->room < INT_MAX ? (int)s->room : INT_MAX);
    s->got_n = n > 0 ? (size_t)n : 0;
    if (n > 0)
        s->barren_n = 0;
    if (BIO_ctrl_pending(SSL_get_wbio(s->ssl)) > UNREAD_BYTES_MAX)
        protocol_error(s, "it does not read what TLS answers");
    else if (s->barren_n > BARREN_BYTES_MAX)
        protocol_error(s, "it sends records without plain text");
    if (n > 0 || s->broken)
        return true;
    int why = SSL_get_error(s->ssl, n);
    if (why == SSL_ERROR_WANT_READ && !s->ended)
        return false;
    if (why == SSL_ERROR_SSL)
        protocol_error(s, tls_why());
    s->broken = s->broken || why != SSL_ERROR_ZERO_RETURN;
    return true;
}

static void
read_on(struct transport_stream *s)
{
    s->got = decrypt(s);
    flush(s); // what TLS itself answers, such as an update of keys
    if (s->got)
        stream_over(s);
    else
        take_more(s);
}

static void
stream_read(struct transport_stream *s, void *buf, size_t n)
{
    assert(!s->closing && !s->reading);
    s->buf = buf;
    s->room = n;
    s->reading = true;
    s->held = false;
    read_on(s);
}

// What was read already stays where it is.
static void
stream_hold(struct transport_stream *s)
{
    assert(!s->closing && !s->reading);
    s->held = true;
    s->got = s->ended || s->broken;
    s->got_n = 0;
    if (s->got)
        stream_over(s);
    else if (!s->inner_reading)
        below->hold(s->inner);
}

static void
on_read_below(void *stream, size_t n)
{
    struct transport_stream *s = stream;
    s->inner_reading = false;
    if (s->closing)
        return;
    if (n == 0)
        s->ended = true;
    else if (BIO_write(SSL_get_rbio(s->ssl), s->rx, (int)n) != (int)n)
        s->ended = s->broken = true; // out of memory
    s->barren_n += n;
    if (!s->open)
        stream_over(s);
    else if (s->held)
        stream_hold(s);
    else if (s->reading && !s->got)
        read_on(s);
}

static void
stream_write(struct transport_stream *s, const struct iovec *iov, unsigned n)
{
    struct engine *t = s->engine;
    assert(!s->closing && !s->writing && n <= TRANSPORT_IOV_MAX);
    s->writing = true;
    s->took_n = 0;
    while (s->took_n < WRITE_BYTES_MAX && !s->broken) {
        size_t part = transport_gather(iov, n, s->took_n, t->plain, sizeof t->plain);
        if (part == 0)
            break;
        ERR_clear_error();
        int took = SSL_write(s->ssl, t->plain, (int)part);
        if (took <= 0)
            s->broken = true;
        else
            s->took_n += (size_t)took;
    }
    OPENSSL_cleanse(t->plain, sizeof t->plain);
    if (s->broken) {
        s->took_n = 0;
        s->wrote = true;
        stream_over(s);
    } else {
        flush(s);
    }
}

static void
on_written_below(void *stream, size_t n)
{
    struct transport_stream *s = stream;
    s->inner_writing = false;
    if (s->closing)
        return;
    s->tx_at += n;
    if (n == 0) {
        s->broken = s->ended = true;
        s->took_n = 0;
        s->tx_at = s->tx_n;
        if (s->writing)
            s->wrote = true;
        stream_over(s);
    } else if (s->tx_at < s->tx_n) {
        write_tx(s);
    } else {
        flush(s);
    }
}

static void
stream_start(struct transport_stream *s, void *cookie)
{
    s->cookie = cookie;
}

// Each receiver may close the stream, which is then freed in a later turn.
static void
report(struct transport_stream *s)
{
    const struct transport_events *events = s->engine->base.events;
    if (s->wrote) {
        s->wrote = s->writing = false;
        events->on_written(s->cookie, s->took_n);
    }
    if (s->got && !s->closing) {
        s->got = s->reading = false;
        events->on_read(s->cookie, s->got_n);
    }
}

// ---- the engine

static void
on_prepare(uv_prepare_t *prepare)
{
    struct engine *t = prepare->data;
    struct list now;
    for (unsigned i = 0; i < STEPS_MAX && !list_empty(&t->ready); i++) {
        struct list *node = t->ready.next;
        list_remove(node);
        handshake_step(list_entry(node, struct transport_stream, step));
    }
    transport_take(&now, &t->over);
    while (!list_empty(&now)) {
        struct list *node = now.next;
        list_remove(node);
        report(list_entry(node, struct transport_stream, step));
    }
    if (list_empty(&t->over) && list_empty(&t->ready))
        (void)uv_idle_stop(&t->again);
}

static void
engine_end(struct transport *base)
{
    struct engine *t = (struct engine *)base;
    uv_close((uv_handle_t *)&t->prepare, transport_handle_closed);
    uv_close((uv_handle_t *)&t->again, transport_handle_closed);
    uv_close((uv_handle_t *)&t->late, transport_handle_closed);
}

static void
on_shut_below(void *cookie)
{
    struct engine *t = cookie;
    transport_gone(&t->base);
}

static const struct transport_events events_below = {
    .on_accept = on_accept_below,
    .on_read = on_read_below,
    .on_written = on_written_below,
    .on_closed = on_closed_below,
    .on_shut = on_shut_below,
};

static int
engine_open(uv_loop_t *loop, const struct transport_events *events, void *cookie,
            struct transport **out, struct err *e)
{
    struct engine *t = calloc(1, sizeof *t);
    if (t == NULL)
        return err_sys(e, ENOMEM, "start the transport");
    t->base = (struct transport){.events = events, .cookie = cookie, .end = engine_end, .alive = 1};
    int rc = below->open(loop, &events_below, t, &t->inner, e);
    if (rc < 0) {
        free(t);
        return rc;
    }
    static const char *const names[FAILURES_N] = {"handshake", "late", "full", "address"};
    for (uint32_t i = 0; i < FAILURES_N; i++)
        metrics_name_value(METRIC_BY_TLS, i, names[i]);
    list_init(&t->base.listeners);
    list_init(&t->shaking);
    list_init(&t->ready);
    list_init(&t->over);
    t->base.handles = 3;
    (void)uv_prepare_init(loop, &t->prepare);
    (void)uv_idle_init(loop, &t->again);
    (void)uv_timer_init(loop, &t->late);
    t->prepare.data = t->again.data = t->late.data = t;
    (void)uv_prepare_start(&t->prepare, on_prepare);
    *out = &t->base;
    return 0;
}

static int
engine_listen(struct transport *base, const struct transport_address *a, char *bound, struct err *e)
{
    struct engine *t = (struct engine *)base;
    t->tls = a->tls;
    t->handshake_ns = a->handshake_ms * NS_PER_MS;
    return below->listen(t->inner, a, bound, e);
}

static void
engine_shut(struct transport *base)
{
    struct engine *t = (struct engine *)base;
    base->shutting = true;
    list_each(it, &t->shaking) stream_close(list_entry(it, struct transport_stream, node));
    below->shut(t->inner);
}

const struct transport_ops transport_tls = {
    .name = "tls",
    .open = engine_open,
    .listen = engine_listen,
    .start = stream_start,
    .read = stream_read,
    .hold = stream_hold,
    .write = stream_write,
    .close = stream_close,
    .shut = engine_shut,
};
