// SPDX-License-Identifier: Apache-2.0
// See sandboxes.h.
#include "sandboxes.h"

#include <assert.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dns.h"
#include "names.h"
#include "rate.h"
#include "report.h"
#include "resolve.h"
#include "sham.h"
#include "tcp.h"
#include "udp.h"

enum {
    REPORTS_PER_SECOND = 512,
    REPORTS_AT_ONCE = 512,
    // A closed connection keeps a port to its destination for a minute (TIME_WAIT), and all sandboxes share about
    // 28,000 ports.
    DIALS_PER_SECOND = 150,
    DIALS_AT_ONCE = 2000,
};

static void
forget(struct sandbox *s)
{
    free(s->permit);
    s->permit = NULL;
    sham_free(s->sham);
    s->sham = NULL;
}

static void
on_tick(uv_timer_t *timer)
{
    struct relay *r = timer->data;
    r->now_ms = clock_ms();
    bool more = resolve_tick(r);
    more = tcp_tick(r) || more;
    more = udp_tick(r) || more;
    more = dns_stream_tick(r) || more;
    r->pong_due = r->pong_due && !report_pong(r->ping);
    more = more || r->pong_due;
    list_each(it, &r->sandboxes)
    {
        struct sandbox *s = list_entry(it, struct sandbox, node);
        if (s->changed)
            more = !report_sums(s) || more;
        sandbox_in_force(s);
        more = more || s->in_force_due > 0;
        if (s->closing && s->handles == 0 && !s->changed && s->in_force_due == 0 &&
            report_closed(s)) {
            s->closing = false;
            list_remove(&s->node);
            forget(s);
        }
        more = more || s->closing || s->resting;
    }
    if (more)
        return;
    (void)uv_timer_stop(&r->tick);
    r->ticking = false;
}

void
tick_need(struct relay *r)
{
    if (r->ticking)
        return;
    r->ticking = true;
    (void)uv_timer_start(&r->tick, on_tick, TICK_MS, TICK_MS);
}

void
sandboxes_init(struct relay *r)
{
    list_init(&r->sandboxes);
    (void)uv_timer_init(&r->loop, &r->tick);
    rate_init(r, tcp_turn);
    r->tick.data = r;
    for (uint32_t slot = 0; slot < BPF_SLOTS; slot++)
        r->table[slot].slot = slot;
}

static int
option(int fd, int name)
{
    int v = -1;
    socklen_t n = sizeof v;
    return getsockopt(fd, SOL_SOCKET, name, &v, &n) == 0 ? v : -1;
}

// The kind of listener of a descriptor; -1: none of the relay's kinds.
static int
kind_of(int fd)
{
    struct sockaddr_storage sa;
    socklen_t n = sizeof sa;
    uint8_t address[ADDRESS_BYTES];
    uint16_t port = 0;
    int domain = option(fd, SO_DOMAIN);
    int type = option(fd, SO_TYPE);
    int protocol = option(fd, SO_PROTOCOL);
    if (getsockname(fd, (struct sockaddr *)&sa, &n) < 0)
        return -1;
    address_from_sockaddr(&sa, address, &port);
    if (port != NET_RELAY_PORT || (domain != AF_INET && domain != AF_INET6))
        return -1;
    int v6 = domain == AF_INET6 ? LISTENER_TCP6 - LISTENER_TCP4 : 0;
    if (type == SOCK_STREAM && protocol == IPPROTO_TCP && option(fd, SO_ACCEPTCONN) == 1)
        return LISTENER_TCP4 + v6;
    if (type == SOCK_DGRAM && protocol == IPPROTO_UDP)
        return LISTENER_UDP4 + v6;
    return -1;
}

static void
reset(struct sandbox *s, struct relay *r, const struct relay_order *o)
{
    uint32_t slot = s->slot;
    assert(s->permit == NULL && s->handles == 0);
    memset(s, 0, sizeof *s);
    s->slot = slot;
    s->generation = o->generation;
    s->relay = r;
    for (size_t i = 0; i < LISTENERS; i++)
        s->listeners[i].watch.fd = -1;
    list_init(&s->node);
    list_init(&s->flows);
    list_init(&s->waiting);
    list_init(&s->associations);
    list_init(&s->streams);
    list_init(&s->queries);
    list_init(&s->names);
    s->out_bytes = o->counted.out_bytes;
    s->in_bytes = o->counted.in_bytes;
    s->queries_n = o->counted.queries;
    s->lost = o->counted.lost;
    s->names_last = o->counted.names;
    bucket_set(&s->denials, REPORTS_PER_SECOND, REPORTS_AT_ONCE);
    bucket_set(&s->reports, REPORTS_PER_SECOND, REPORTS_AT_ONCE);
    bucket_set(&s->dials, DIALS_PER_SECOND, DIALS_AT_ONCE);
}

static void
set_rates(struct sandbox *s)
{
    rate_set(&s->rate_out, s->permit->out_rate, clock_ns());
    rate_set(&s->rate_in, s->permit->in_rate, clock_ns());
}

static bool
listen_on(struct sandbox *s, int fd)
{
    int kind = kind_of(fd);
    int flags = fcntl(fd, F_GETFL);
    if (kind < 0 || s->listeners[kind].sandbox != NULL || flags < 0 ||
        fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return false;
    bool udp = kind == LISTENER_UDP4 || kind == LISTENER_UDP6;
    if (udp && !udp_listener_prepare(fd, kind == LISTENER_UDP6))
        return false;
    struct listener *l = &s->listeners[kind];
    l->sandbox = s;
    l->kind = kind;
    s->handles++;
    watch_open(s->relay, &l->watch, fd, UV_READABLE, udp ? udp_on_listener : tcp_on_listener, l);
    return true;
}

bool
sandbox_open(struct relay *r, const struct relay_order *o, const int *fds, size_t fds_n)
{
    struct sandbox *s = &r->table[o->slot];
    size_t i = 0;
    const bool is_free = !s->open && !s->closing;
    if (is_free) {
        reset(s, r, o);
        s->permit = permit_new(o);
        s->sham = o->simulated != 0 ? sham_new(o) : NULL;
    }
    if (is_free && s->permit != NULL && (s->sham != NULL) == (o->simulated != 0)) {
        s->open = true;
        set_rates(s);
        list_append(&r->sandboxes, &s->node);
        while (i < fds_n && listen_on(s, fds[i]))
            i++;
    }
    bool done = i == fds_n; // false: the process ends
    for (; i < fds_n; i++)
        (void)close(fds[i]);
    return done;
}

bool
sandbox_policy(struct sandbox *s, const struct relay_order *o)
{
    struct permit *now = permit_new(o);
    if (now == NULL)
        return false;
    permit_inherit(now, s->permit);
    free(s->permit);
    s->permit = now;
    s->spent = false;
    set_rates(s);
    names_renew(s);
    tcp_recheck(s);
    udp_recheck(s);
    return true;
}

void
sandbox_spent(struct sandbox *s)
{
    s->spent = true;
    tcp_recheck(s);
    udp_recheck(s);
}

void
sandbox_in_force(struct sandbox *s)
{
    while (s->in_force_due > 0 && report_in_force(s))
        s->in_force_due--;
    if (s->in_force_due > 0)
        tick_need(s->relay);
}

static void
on_listener_closed(uv_handle_t *h)
{
    struct listener *l = h->data;
    struct sandbox *s = l->sandbox;
    l->sandbox = NULL;
    s->handles--;
}

void
sandbox_close(struct sandbox *s)
{
    tcp_drop(s);
    udp_drop(s);
    dns_stream_drop(s);
    dns_drop(s);
    resolve_drop(s);
    names_drop(s);
    s->open = false;
    s->closing = true;
    for (size_t i = 0; i < LISTENERS; i++)
        (void)watch_close(&s->listeners[i].watch, on_listener_closed);
    // Run the tick soon, because the broker waits for CLOSED.
    s->relay->ticking = true;
    (void)uv_timer_start(&s->relay->tick, on_tick, 1, TICK_MS);
}

void
sandboxes_end(struct relay *r)
{
    list_each(it, &r->sandboxes)
    {
        struct sandbox *s = list_entry(it, struct sandbox, node);
        if (s->open)
            sandbox_close(s);
    }
    uv_close((uv_handle_t *)&r->tick, NULL); // the broker has gone, so there are no more reports
    uv_close((uv_handle_t *)&r->rates, NULL);
}

void
sandboxes_free(struct relay *r)
{
    list_each(it, &r->sandboxes)
    {
        struct sandbox *s = list_entry(it, struct sandbox, node);
        list_remove(&s->node);
        forget(s);
    }
}
