// SPDX-License-Identifier: Apache-2.0
// Accepts, connects and ends TCP flows. See tcp.h.
#include "tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/auto.h"
#include "address.h"
#include "dns.h"
#include "report.h"
#include "sandbox.h"

static void
refuse(struct sandbox *s, int fd)
{
    tcp_leave(s, fd);
    tcp_reset_at_close(fd, true);
    (void)close(fd);
}

static void
deny(struct flow *f, enum net_reason reason)
{
    struct report_about about = tcp_about(f);
    report_denied(f->sandbox, reason, &about);
    f->denied = true;
    tcp_end(f, true, reason);
}

static void
keep_small(int fd)
{
    static const int bytes = TCP_BUFFER;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

// Limits the bytes in transit from the job to the relay, which the kernel has already counted when a quota cuts the
// flow.
static void
keep_window_small(int fd)
{
    static const int bytes = TCP_BUFFER;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

static int
connect_to(const uint8_t address[16], uint16_t port, bool small)
{
    static const int yes = 1;
    static const int idle_s = 120;
    struct sockaddr_storage to;
    socklen_t n = address_to_sockaddr(address, port, &to);
    int auto_close fd = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    tcp_reset_at_close(fd, true);
    if (small) // must be set before the window is announced
        keep_small(fd);
    if (connect(fd, (const struct sockaddr *)&to, n) < 0 && errno != EINPROGRESS)
        return -1;
    return take_fd(&fd);
}

void
tcp_dial_next(struct flow *f)
{
    struct sandbox *s = f->sandbox;
    bool forbidden = false;
    f->state = FLOW_DIALLING;
    while (f->next < f->addresses_n && s->relay->now_ms < f->dial_until_ms) {
        memcpy(f->address, f->addresses[f->next++], sizeof f->address);
        // A literal address was judged by its rule; a name's address is judged here.
        if (f->name != NULL && !sandbox_may_reach(s, f->address, f->asked.port, IPPROTO_TCP)) {
            forbidden = true;
            continue;
        }
        int fd = connect_to(f->address, f->asked.port, f->small);
        if (fd < 0) {
            f->error = errno;
            continue;
        }
        bool last = f->next == f->addresses_n;
        f->attempt_until_ms = last ? f->dial_until_ms : s->relay->now_ms + TCP_ATTEMPT_MS;
        f->handles++;
        watch_open(s->relay, &f->peer, fd, UV_WRITABLE, tcp_on_ready, f);
        return;
    }
    if (forbidden)
        deny(f, NET_NAME_ADDRESS);
    else
        tcp_end(f, true, NET_REASON_NONE);
}

static void
retry(struct flow *f, int error)
{
    f->error = error;
    f->state = FLOW_RETRYING;
    (void)watch_close(&f->peer, tcp_on_closed); // then tcp_dial_next() is called
}

// Alternates IPv6 and IPv4, so that an unreachable family costs one attempt.
static void
take_addresses(struct flow *f, const struct name *name)
{
    uint32_t at[2] = {0, 0};
    f->addresses_n = 0;
    while (f->addresses_n < name->n)
        for (unsigned v4 = 0; v4 < 2; v4++) {
            uint32_t *i = &at[v4];
            while (*i < name->n && address_is_v4(name->addresses[*i]) != (v4 == 1))
                ++*i;
            if (*i < name->n)
                memcpy(f->addresses[f->addresses_n++], name->addresses[(*i)++], ADDRESS_BYTES);
        }
}

static void
on_resolved(struct resolve_waiter *w, enum resolve_result result, struct name *name)
{
    struct flow *f = list_entry(w, struct flow, waiter);
    if (result != RESOLVE_OK) {
        f->error = result == RESOLVE_FAILED ? EAGAIN : result <= RESOLVE_NO_DATA ? ENOENT : 0;
        tcp_end(f, true, result == RESOLVE_FORBIDDEN ? NET_NAME_ADDRESS : NET_REASON_NONE);
        return;
    }
    take_addresses(f, name);
    tcp_dial_next(f);
}

// Judges the flow by the current policy, and sets its rule.
static enum net_reason
judge(struct flow *f)
{
    const struct permit *p = f->sandbox->permit;
    struct permit_verdict v;
    if (f->name != NULL)
        v = permit_name_port(p, f->name->text, f->asked.port, IPPROTO_TCP);
    else
        v = sandbox_judge(f->sandbox, f->asked.address, f->asked.port, IPPROTO_TCP);
    f->rule = v.rule;
    if (v.reason != NET_REASON_NONE)
        return v.reason;
    if (f->name != NULL && f->state != FLOW_NAMING && !f->sham.on &&
        !sandbox_may_reach(f->sandbox, f->address, f->asked.port, IPPROTO_TCP))
        return NET_NAME_ADDRESS;
    return sandbox_left(f->sandbox, true, v.rule) == 0 ? sandbox_quota_reason(f->sandbox, true)
                                                       : NET_REASON_NONE;
}

static void
begin(struct sandbox *s, struct flow *f, int fd, const struct net_flow *asked)
{
    static const int yes = 1;
    *f = (struct flow){.sandbox = s,
                       .asked = *asked,
                       .rule = PERMIT_NO_RULE,
                       .dial_until_ms = s->relay->now_ms + TCP_DIAL_MS};
    f->peer.fd = -1;
    list_init(&f->node);
    list_init(&f->waiter.node);
    list_init(&f->waits);
    f->waiter.done = on_resolved;
    f->waiter.user = &f->asked.user;
    list_append(&s->flows, &f->node);
    s->connections++;
    s->flows_n++;
    f->small = s->flows_n > TCP_FLOWS_LARGE;
    s->dialling++;
    s->changed = true;
    tick_need(s->relay);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    // an urgent byte is passed on as an ordinary one
    (void)setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &yes, sizeof yes);
    tcp_reset_at_close(fd, true);
    if (f->small)
        keep_small(fd);
    else if (s->permit->out_bytes_max > 0)
        keep_window_small(fd);
    f->handles = 1;
    watch_open(s->relay, &f->job, fd, 0, tcp_on_ready, f);
    uint32_t index = names_index(asked->address);
    f->name = index != 0 ? names_at(s, index) : NULL;
    names_hold(s, f->name);
    enum net_reason reason = index != 0 && f->name == NULL ? NET_NO_RULE : judge(f);
    if (reason != NET_REASON_NONE) {
        deny(f, reason);
        return;
    }
    if (s->sham != NULL) {
        tcp_sham_begin(f);
        return;
    }
    if (f->name != NULL) {
        resolve_name(s, f->name->text, &f->waiter);
        return;
    }
    memcpy(f->addresses[f->addresses_n++], asked->address, sizeof asked->address);
    tcp_dial_next(f);
}

static void
accepted(struct listener *l, int fd)
{
    struct sandbox *s = l->sandbox;
    struct sockaddr_storage sa;
    socklen_t sa_n = sizeof sa;
    uint8_t local[16];
    uint16_t port = 0;
    struct net_flow asked;
    bool known = getsockname(fd, (struct sockaddr *)&sa, &sa_n) == 0;
    if (known) {
        address_from_sockaddr(&sa, local, &port);
        known = sandbox_flow(s, local, IPPROTO_TCP, &asked);
    }
    bool room = s->connections < RELAY_CONNECTIONS;
    if (known && asked.port == NET_DNS_PORT && room) {
        dns_stream_open(s, fd, &asked.user);
        return;
    }
    s->carried.connections += !known || asked.port != NET_DNS_PORT;
    if (!known) {
        refuse(s, fd); // not a flow: the job connected to the listener directly
        return;
    }
    struct flow *f =
        room && share_left(s->flows_n, tcp_flows(), s->relay->flows_max) ? tcp_take() : NULL;
    if (f == NULL) {
        const struct report_about about = {.address = asked.address,
                                           .user = &asked.user,
                                           .rule = UINT32_MAX,
                                           .port = asked.port,
                                           .protocol = IPPROTO_TCP,
                                           .first = asked.port != NET_DNS_PORT};
        report_denied(s, NET_FULL, &about);
        refuse(s, fd);
    } else {
        begin(s, f, fd, &asked);
    }
}

static void
rest(struct listener *l)
{
    watch_want(&l->watch, 0, tcp_on_listener);
    l->sandbox->resting = true;
    tick_need(l->sandbox->relay);
}

void
tcp_on_listener(uv_poll_t *uv, int status, int events)
{
    struct listener *l = uv->data;
    struct relay *r = l->sandbox->relay;
    (void)events;
    r->now_ms = clock_ms();
    if (status < 0)
        watch_stopped(&l->watch);
    for (int i = 0; i < TCP_ACCEPTS_PER_TURN; i++) {
        if (!bucket_take(&l->sandbox->dials, 1, r->now_ms)) {
            rest(l); // further connections wait in the listener's queue
            return;
        }
        int fd = accept4(l->watch.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            accepted(l, fd);
            continue;
        }
        int error = errno;
        bucket_give(&l->sandbox->dials, 1);
        if (error == EAGAIN)
            break;
        if (error != EINTR && error != ECONNABORTED) {
            // Out of descriptors or memory: try again at the next tick, to avoid a busy loop.
            rest(l);
            return;
        }
    }
    watch_want(&l->watch, UV_READABLE, tcp_on_listener);
}

static void
opened(struct flow *f)
{
    struct report_about about = tcp_about(f);
    tcp_set_open(f);
    report(f->sandbox, RELAY_FLOW, &about);
    tcp_copy(f);
}

static int
error_of(int fd)
{
    int error = 0;
    socklen_t n = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
        return errno;
    return error;
}

void
tcp_on_ready(uv_poll_t *uv, int status, int events)
{
    struct flow *f = uv->data;
    bool is_peer = uv == &f->peer.uv;
    struct watch *w = is_peer ? &f->peer : &f->job;
    f->sandbox->relay->now_ms = clock_ms();
    if (status < 0)
        watch_stopped(w);
    if (f->sham.on) {
        tcp_sham_ready(f, status);
        return;
    }
    int error = status < 0 || f->state == FLOW_DIALLING ? error_of(w->fd) : 0;
    if (error != 0 && is_peer && f->state == FLOW_DIALLING)
        retry(f, error);
    else if (error != 0)
        tcp_end(f, true, f->draining ? f->drained_because : NET_REASON_NONE);
    else if (f->draining)
        watch_want(w, 0, tcp_on_ready);
    else if (f->state == FLOW_OPEN)
        tcp_copy(f);
    else if (is_peer && (events & UV_WRITABLE) != 0)
        opened(f);
    else if (status < 0)
        watch_want(w, is_peer ? UV_WRITABLE : 0, tcp_on_ready);
}

void
tcp_recheck(struct sandbox *s)
{
    list_each(it, &s->flows)
    {
        struct flow *f = list_entry(it, struct flow, node);
        enum net_reason reason = judge(f);
        if (f->draining && report_is_quota(reason))
            continue;
        if (reason != NET_REASON_NONE)
            tcp_end(f, true, reason);
    }
}

void
tcp_drop(struct sandbox *s)
{
    if (s->sham != NULL)
        tcp_sham_last(s);
    list_each(it, &s->flows) tcp_end(list_entry(it, struct flow, node), true, NET_REASON_NONE);
}

static void
look_at_dials(struct sandbox *s)
{
    list_each(it, &s->flows)
    {
        struct flow *f = list_entry(it, struct flow, node);
        if (f->state == FLOW_OPEN || f->state == FLOW_RETRYING)
            continue;
        if (s->relay->now_ms >= f->dial_until_ms) {
            f->error = ETIMEDOUT;
            tcp_end(f, true, NET_REASON_NONE);
        } else if (f->state == FLOW_DIALLING && s->relay->now_ms >= f->attempt_until_ms) {
            retry(f, ETIMEDOUT);
        }
    }
}

bool
tcp_tick(struct relay *r)
{
    list_each(it, &r->sandboxes)
    {
        struct sandbox *s = list_entry(it, struct sandbox, node);
        if (s->dialling > 0)
            look_at_dials(s);
        if (s->sham != NULL)
            tcp_sham_tick(s);
        if (s->draining > 0)
            tcp_drained(s);
        if (!s->resting)
            continue;
        s->resting = false;
        for (int i = LISTENER_TCP4; i <= LISTENER_TCP6; i += LISTENER_TCP6 - LISTENER_TCP4)
            if (s->listeners[i].sandbox != NULL)
                watch_want(&s->listeners[i].watch, UV_READABLE, tcp_on_listener);
    }
    return tcp_flows() > 0;
}
