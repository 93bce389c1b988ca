// SPDX-License-Identifier: Apache-2.0
// See http.h. libmicrohttpd has one epoll descriptor, which the loop polls, and says when it must be called at the latest.
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "proto/auto.h"
#include "proto/host_port.h"
#include "proto/now.h"
#include "http_private.h"

enum {
    MEMORY_PER_CONNECTION = 16 * 1024,
    BACKLOG = 64,
    LOOK_MS = 250, // interval of the look for slow clients
};

uint64_t
http_now_ms(void)
{
    return (uint64_t)(now_ns(CLOCK_MONOTONIC) / 1000000);
}

// ---- The loop

static void run(struct http *h);

static void
on_due(uv_timer_t *t)
{
    run(t->data);
}

static void
run(struct http *h)
{
    MHD_UNSIGNED_LONG_LONG ms = 0;
    if (h->closing || h->running)
        return;
    h->running = true;
    (void)MHD_run(h->daemon);
    h->running = false;
    if (MHD_get_timeout(h->daemon, &ms) == MHD_YES)
        (void)uv_timer_start(&h->due, on_due, ms, 0);
    else
        (void)uv_timer_stop(&h->due);
}

void
http_run_soon(struct http *h)
{
    if (!h->closing && !h->running)
        (void)uv_timer_start(&h->due, on_due, 0, 0);
}

static void
on_readable(uv_poll_t *p, int status, int events)
{
    (void)status;
    (void)events;
    run(p->data);
}

// The reader of a stream that has everything is not slow.
static bool
is_late(const struct http *h, struct http_client *c, uint64_t now)
{
    if (c->stream != NULL && http_stream_waiting(c->stream) == 0 && !c->stream->stream.ended)
        c->since_ms = now;
    return !c->cut && now - c->since_ms >= h->settings.timeout_ms;
}

// Disconnects clients whose request takes too long; libmicrohttpd's own timeout begins again with each byte.
static void
on_look(uv_timer_t *t)
{
    struct http *h = t->data;
    const uint64_t now = http_now_ms();
    bool any = false;
    list_each(it, &h->clients)
    {
        struct http_client *c = list_entry(it, struct http_client, node);
        if (!is_late(h, c, now))
            continue;
        c->cut = any = true;
        h->count[HTTP_CUT]++;
        (void)shutdown(c->fd, SHUT_RDWR);
    }
    if (any)
        run(h);
}

// ---- Connections

static void
on_connection(void *cookie, struct MHD_Connection *connection, void **socket_context,
              enum MHD_ConnectionNotificationCode what)
{
    struct http *h = cookie;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        struct http_client *c = calloc(1, sizeof *c);
        if (c == NULL)
            return; // its requests are refused
        c->fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        c->since_ms = http_now_ms();
        list_append(&h->clients, &c->node);
        *socket_context = c;
        h->count[HTTP_ACCEPTED]++;
        return;
    }
    struct http_client *c = *socket_context;
    if (c != NULL)
        list_remove(&c->node);
    free(c);
}

// ---- Begin and end

static void
name_address(struct http *h, int fd)
{
    char host[48], port[8];
    struct sockaddr_storage at = {0};
    socklen_t n = sizeof at;
    if (getsockname(fd, (struct sockaddr *)&at, &n) == 0 &&
        getnameinfo((struct sockaddr *)&at, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        (void)snprintf(h->address, sizeof h->address,
                       at.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

// A listening socket on the first address that works; -1: *e says why.
static int
listen_on(const char *where, struct err *e)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    struct host_port at;
    const int on = 1;
    if (!host_port_split(where, &at) || at.port == NULL)
        return err_set(e, ERR_INVALID_ARGUMENT, "listen on %s: no HOST:PORT", where);
    int failed = getaddrinfo(at.host, at.port, &hints, &found);
    if (failed != 0)
        return err_set(e, ERR_UNAVAILABLE, "listen on %s: %s", where, gai_strerror(failed));
    int fd = -1, sys = 0;
    for (const struct addrinfo *a = found; a != NULL && fd < 0; a = a->ai_next) {
        int auto_close one = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (one >= 0 && setsockopt(one, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
            bind(one, a->ai_addr, a->ai_addrlen) == 0 && listen(one, BACKLOG) == 0)
            fd = take_fd(&one);
        else
            sys = errno;
    }
    freeaddrinfo(found);
    return fd >= 0 ? fd : err_sys(e, sys, "listen on %s", where);
}

static struct MHD_Daemon *
start_daemon(struct http *h, int fd)
{
    const unsigned most = h->settings.connections;
    const unsigned seconds = (unsigned)(h->settings.timeout_ms / 1000) + 1;
    return MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
                            http_on_request, h, MHD_OPTION_LISTEN_SOCKET, fd,
                            MHD_OPTION_CONNECTION_LIMIT, most, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
                            most / 2, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)MEMORY_PER_CONNECTION, MHD_OPTION_CONNECTION_TIMEOUT, seconds,
                            MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
                            MHD_OPTION_NOTIFY_COMPLETED, http_on_completed, h, MHD_OPTION_END);
}

// -1: *e says why.
static int
watch(struct http *h, struct err *e)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    int r = info != NULL ? uv_poll_init(h->loop, &h->poll, info->epoll_fd) : UV_EINVAL;
    if (r == 0)
        r = uv_timer_init(h->loop, &h->due);
    if (r == 0)
        r = uv_timer_init(h->loop, &h->look);
    if (r == 0)
        r = uv_poll_start(&h->poll, UV_READABLE, on_readable);
    h->poll.data = h->due.data = h->look.data = h;
    if (r == 0)
        r = uv_timer_start(&h->look, on_look, LOOK_MS, LOOK_MS);
    return r < 0 ? err_sys(e, r, "watch the HTTP server") : 0;
}

struct http *
http_new(uv_loop_t *loop, const struct http_settings *settings, struct err *e)
{
    int auto_close fd = listen_on(settings->listen, e);
    if (fd < 0)
        return NULL;
    struct http *auto_free h = calloc(1, sizeof *h);
    if (h == NULL) {
        (void)err_sys(e, ENOMEM, "start the HTTP server");
        return NULL;
    }
    h->loop = loop;
    h->settings = *settings;
    list_init(&h->clients);
    name_address(h, fd);
    h->daemon = start_daemon(h, fd);
    if (h->daemon == NULL) {
        (void)err_set(e, ERR_INTERNAL, "libmicrohttpd does not start");
        return NULL;
    }
    (void)take_fd(&fd);
    if (watch(h, e) < 0) {
        MHD_stop_daemon(h->daemon);
        return NULL;
    }
    return take_ptr(h);
}

// A suspended request must continue before the daemon may be stopped: all have been answered by now.
void
http_close(struct http *h)
{
    if (h == NULL || h->closing)
        return;
    (void)MHD_run(h->daemon);
    h->closing = true;
    uv_close((uv_handle_t *)&h->poll, NULL);
    uv_close((uv_handle_t *)&h->due, NULL);
    uv_close((uv_handle_t *)&h->look, NULL);
    MHD_stop_daemon(take_ptr(h->daemon));
}

void
http_free(struct http *h)
{
    free(h);
}

const char *
http_address(const struct http *h)
{
    return h->address;
}

uint64_t
http_count(const struct http *h, enum http_count which)
{
    return h->count[which];
}
