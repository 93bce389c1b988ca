// SPDX-License-Identifier: Apache-2.0
// See transport.h. Sockets on the broker's loop, for ipc and tcp, without additional threads.
//
//   poll: readable -> recv -> on_read -> (conn.c replies) write -> sendmsg at once -> list of finished operations
//   prepare, before the loop waits again: on_written for each stream of the list
//
// So an exchange costs three system calls (wait, receive, send), and write() never calls back its caller. A socket
// stays watched for reading while no read is in progress, until bytes arrive that nobody reads: changing the events
// costs a system call, and usually the next read starts before the next bytes arrive.
#include "transport_engine.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "listen.h"
#include "proto/soon.h"
#include "server/base/metrics.h"
#include "server/base/unblock.h"

enum {
    ACCEPT_PAUSE_MS = 100, // after a failure, such as lack of descriptors
    ACCEPTS_MAX = 64,      // in one turn of the loop
    KEEPALIVE_IDLE_S = 60, // a peer that does not respond counts as gone after 2 minutes in total
    KEEPALIVE_INTERVAL_S = 15,
    KEEPALIVE_PROBES = 4,
};

struct engine {
    struct transport base;
    uv_prepare_t prepare;
    uv_idle_t again;  // active while the list must not wait for an event
    struct list over; // streams with a finished operation that was not reported yet
    struct soon soon; // of all streams
};

struct transport_listener {
    uv_poll_t poll;
    uv_timer_t pause;
    struct list node; // in the engine's listeners
    struct engine *engine;
    int fd;
    bool ipc, closing;
    unsigned handles; // not yet closed by libuv
    struct listen_bound bound;
};

struct transport_stream {
    uv_poll_t poll;
    struct list node; // in `over`
    struct engine *engine;
    void *cookie;
    int fd, watched;
    void *buf;
    size_t room;
    struct iovec iov[TRANSPORT_IOV_MAX];
    unsigned iov_n;
    size_t wrote_n;
    bool reading, writing; // an operation is in progress
    bool held;             // only the end of the stream is waited for
    bool wrote;            // the write is finished
    bool broken;           // libuv does not watch it any more
    bool closing;
};

// ---- streams

static void on_poll(uv_poll_t *poll, int status, int events);

// Reports the result from on_prepare in this turn of the loop.
static void
stream_over(struct transport_stream *s)
{
    list_remove(&s->node);
    list_append(&s->engine->over, &s->node);
}

// Watches for the needed events, and for `more`. A failed stream is not watched.
static void
stream_watch(struct transport_stream *s, int more)
{
    const int wanted = more | (s->reading ? UV_READABLE : 0) | (s->held ? UV_DISCONNECT : 0) |
                       (s->writing && !s->wrote ? UV_WRITABLE : 0);
    if (s->broken || s->closing || wanted == s->watched)
        return;
    s->watched = wanted;
    int rc = wanted == 0 ? uv_poll_stop(&s->poll) : uv_poll_start(&s->poll, wanted, on_poll);
    assert(rc == 0); // fails only for a closing handle
}

static void
stream_start(struct transport_stream *s, void *cookie)
{
    s->cookie = cookie;
}

static void
stream_read(struct transport_stream *s, void *buf, size_t n)
{
    assert(!s->closing && !s->reading);
    s->buf = buf;
    s->room = n;
    s->reading = true;
    s->held = false;
    if (s->broken)
        stream_over(s);
    stream_watch(s, s->watched & UV_READABLE);
}

static void
stream_hold(struct transport_stream *s)
{
    assert(!s->closing && !s->reading);
    s->held = true;
    if (s->broken)
        stream_over(s);
    stream_watch(s, 0);
}

static void
hung_up(struct transport_stream *s)
{
    s->held = false;
    s->engine->base.events->on_read(s->cookie, 0);
}

// Receives available bytes and reports them.
static void
receive(struct transport_stream *s)
{
    ssize_t n = unblock_recv(s->fd, s->buf, s->room);
    if (n < 0 && (errno == EAGAIN || errno == EINTR) && !s->broken)
        return;
    s->reading = false;
    soon_received(&s->engine->soon);
    s->engine->base.events->on_read(s->cookie, n > 0 ? (size_t)n : 0);
}

// Sends as much as the socket accepts; the event follows later.
static void
transmit(struct transport_stream *s)
{
    struct msghdr m = {.msg_iov = s->iov, .msg_iovlen = s->iov_n};
    ssize_t n = sendmsg(s->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR) && !s->broken)
        return;
    s->wrote_n = n > 0 ? (size_t)n : 0;
    s->wrote = true;
    soon_sent(&s->engine->soon);
    stream_over(s);
}

static void
stream_write(struct transport_stream *s, const struct iovec *iov, unsigned n)
{
    assert(!s->closing && !s->writing && n <= TRANSPORT_IOV_MAX);
    memcpy(s->iov, iov, n * sizeof *iov);
    s->iov_n = n;
    s->writing = true;
    transmit(s);
    stream_watch(s, s->watched & UV_READABLE);
}

static void
on_poll(uv_poll_t *poll, int status, int events)
{
    struct transport_stream *s = poll->data;
    if (status < 0) { // libuv has stopped watching; the pending operations will get the error
        s->broken = true;
        s->watched = 0;
        events = UV_READABLE | UV_WRITABLE | UV_DISCONNECT;
    }
    if ((events & UV_WRITABLE) && s->writing && !s->wrote)
        transmit(s);
    bool unwanted = !s->reading;
    if ((events & UV_READABLE) && s->reading)
        receive(s);
    if ((events & UV_DISCONNECT) && s->held)
        hung_up(s);
    stream_watch(s, (events & UV_READABLE) && unwanted ? 0 : s->watched & UV_READABLE);
}

static void
report_finished(struct transport_stream *s)
{
    if (s->wrote) {
        s->wrote = s->writing = false;
        s->engine->base.events->on_written(s->cookie, s->wrote_n);
    }
    if (s->broken && s->reading && !s->closing)
        receive(s);
    if (s->broken && s->held && !s->closing)
        hung_up(s);
}

// Calls each stream once, so that a fast peer does not delay the others.
static void
on_prepare(uv_prepare_t *prepare)
{
    struct engine *t = prepare->data;
    struct list now;
    transport_take(&now, &t->over);
    while (!list_empty(&now)) {
        struct list *node = now.next;
        list_remove(node);
        report_finished(list_entry(node, struct transport_stream, node));
    }
    if (list_empty(&t->over) && !soon_look(&t->soon))
        (void)uv_idle_stop(&t->again);
    else
        (void)uv_idle_start(&t->again, transport_again);
}

static void
on_stream_closed(uv_handle_t *handle)
{
    struct transport_stream *s = handle->data;
    struct transport *t = &s->engine->base;
    if (s->cookie != NULL)
        t->events->on_closed(s->cookie);
    free(s);
    transport_gone(t);
}

static void
stream_close(struct transport_stream *s)
{
    assert(!s->closing);
    s->closing = true;
    list_remove(&s->node);
    uv_close((uv_handle_t *)&s->poll, on_stream_closed);
    unblock_close(s->fd); // after libuv has closed the handle
}

// Takes ownership of the socket, also on failure. NULL: out of memory.
static struct transport_stream *
stream_new(struct engine *t, uv_loop_t *loop, int fd)
{
    struct transport_stream *s = calloc(1, sizeof *s);
    if (s == NULL || uv_poll_init(loop, &s->poll, fd) != 0) {
        free(s);
        (void)close(fd);
        return NULL;
    }
    s->poll.data = s;
    s->engine = t;
    s->fd = fd;
    list_init(&s->node);
    t->base.alive++;
    return s;
}

// ---- listeners

static bool
set_up_tcp(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        // a host that is down sends nothing; the kernel's own 2 hours
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S}, // are too long for the jobs of its calls
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES},
    };
    bool done = true;
    for (size_t i = 0; i < sizeof options / sizeof options[0] && done; i++)
        done = setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                          sizeof options[i].value) == 0;
    return done;
}

static bool
read_address(int fd, uint8_t out[16])
{
    struct sockaddr_in6 v6;
    struct sockaddr_in v4;
    struct sockaddr_storage got = {0};
    socklen_t n = sizeof got;
    if (getpeername(fd, (struct sockaddr *)&got, &n) < 0)
        return false; // it has gone
    if (got.ss_family == AF_INET6) {
        memcpy(&v6, &got, sizeof v6);
        memcpy(out, &v6.sin6_addr, sizeof v6.sin6_addr);
    } else {
        memcpy(&v4, &got, sizeof v4);
        memset(out + 10, 0xff, 2);
        memcpy(out + 12, &v4.sin_addr, sizeof v4.sin_addr);
    }
    return true;
}

static bool
read_peer(int fd, bool ipc, struct transport_peer *peer)
{
    struct ucred who;
    socklen_t n = sizeof who;
    *peer = (struct transport_peer){.local = ipc};
    if (!ipc)
        return set_up_tcp(fd) && read_address(fd, peer->address);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0)
        return false;
    peer->uid = who.uid;
    peer->gid = who.gid;
    peer->pid = who.pid;
    n = sizeof peer->groups;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, peer->groups, &n) == 0)
        peer->groups_n = (uint32_t)(n / sizeof peer->groups[0]);
    return true;
}

static void
hand_over(struct transport_listener *l, int fd)
{
    struct engine *t = l->engine;
    struct transport_peer peer;
    if (!read_peer(fd, l->ipc, &peer)) { // the peer cannot be identified, or has gone
        (void)close(fd);
        return;
    }
    struct transport_stream *s = stream_new(t, l->poll.loop, fd);
    if (s != NULL)
        t->base.events->on_accept(t->base.cookie, s, &peer);
}

static void on_connections(uv_poll_t *poll, int status, int events);

static void
on_pause_over(uv_timer_t *pause)
{
    struct transport_listener *l = pause->data;
    (void)uv_poll_start(&l->poll, UV_READABLE, on_connections);
}

static void
on_connections(uv_poll_t *poll, int status, int events)
{
    struct transport_listener *l = poll->data;
    (void)status;
    (void)events;
    for (unsigned i = 0; i < ACCEPTS_MAX && !l->closing; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            hand_over(l, fd);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != ECONNABORTED && errno != EINTR) {
            metrics_add(METRIC_ACCEPT_FAILED, 1);
            (void)uv_poll_stop(&l->poll);
            (void)uv_timer_start(&l->pause, on_pause_over, ACCEPT_PAUSE_MS, 0);
            return;
        }
    }
}

static void
on_listener_closed(uv_handle_t *handle)
{
    struct transport_listener *l = handle->data;
    struct transport *t = &l->engine->base;
    if (--l->handles > 0)
        return;
    free(l);
    transport_gone(t);
}

static void
listener_close(struct list *node)
{
    struct transport_listener *l = list_entry(node, struct transport_listener, node);
    l->closing = true;
    uv_close((uv_handle_t *)&l->poll, on_listener_closed);
    uv_close((uv_handle_t *)&l->pause, on_listener_closed);
    listen_remove_file(&l->bound);
    (void)close(l->fd);
}

// Takes ownership of the socket, also on failure.
static int
listener_new(struct engine *t, int fd, const struct listen_bound *bound, bool ipc, struct err *e)
{
    uv_loop_t *loop = t->prepare.loop;
    struct transport_listener *l = calloc(1, sizeof *l);
    int rc = l == NULL ? UV_ENOMEM : uv_poll_init(loop, &l->poll, fd);
    if (rc != 0 || l == NULL) {
        free(l);
        (void)close(fd);
        return err_sys(e, rc, "listen on %s", bound->url);
    }
    (void)uv_timer_init(loop, &l->pause);
    l->poll.data = l->pause.data = l;
    l->handles = 2;
    l->engine = t;
    l->fd = fd;
    l->ipc = ipc;
    l->bound = *bound;
    transport_add_listener(&t->base, &l->node);
    on_pause_over(&l->pause);
    return 0;
}

// ---- the engine

static void
engine_end(struct transport *base)
{
    struct engine *t = (struct engine *)base;
    uv_close((uv_handle_t *)&t->prepare, transport_handle_closed);
    uv_close((uv_handle_t *)&t->again, transport_handle_closed);
}

static int
engine_open(uv_loop_t *loop, const struct transport_events *events, void *cookie,
            struct transport **out, struct err *e)
{
    struct engine *t = calloc(1, sizeof *t);
    if (t == NULL)
        return err_sys(e, ENOMEM, "start the transport");
    t->base = (struct transport){
        .events = events, .cookie = cookie, .close_listener = listener_close, .end = engine_end};
    list_init(&t->base.listeners);
    list_init(&t->over);
    t->base.handles = 2;
    (void)uv_prepare_init(loop, &t->prepare);
    (void)uv_idle_init(loop, &t->again);
    t->prepare.data = t->again.data = t;
    (void)uv_prepare_start(&t->prepare, on_prepare);
    *out = &t->base;
    return 0;
}

static int
engine_listen(struct transport *t, const struct transport_address *a, char *bound, struct err *e)
{
    struct listen_bound where;
    bool ipc = false;
    int fd = -1;
    int rc = listen_open(a, &fd, &ipc, &where, e);
    if (rc == 0)
        rc = listener_new((struct engine *)t, fd, &where, ipc, e);
    if (rc == 0)
        memcpy(bound, where.url, sizeof where.url);
    return rc;
}

const struct transport_ops transport_socket = {
    .name = "socket",
    .open = engine_open,
    .listen = engine_listen,
    .start = stream_start,
    .read = stream_read,
    .hold = stream_hold,
    .write = stream_write,
    .close = stream_close,
    .shut = transport_shut,
};
