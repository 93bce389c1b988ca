// SPDX-License-Identifier: Apache-2.0
// The table of TCP flows, and their end. See tcp.h.
#include <linux/sockios.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "report.h"
#include "sandbox.h"
#include "tcp.h"

static struct {
    struct flow *all;
    uint32_t n, used; // used: entries that were ever used
    struct list unused;
    uint32_t open;
} t;

bool
tcp_init(uint32_t n)
{
    list_init(&t.unused);
    t.n = n;
    void *p = mmap(NULL, n * sizeof(struct flow), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return false;
    t.all = p;
    return true;
}

uint32_t
tcp_flows(void)
{
    return t.open;
}

struct flow *
tcp_take(void)
{
    if (!list_empty(&t.unused)) {
        struct flow *f = list_entry(t.unused.next, struct flow, node);
        list_remove(&f->node);
        t.open++;
        return f;
    }
    if (t.used == t.n)
        return NULL;
    t.open++;
    return &t.all[t.used++];
}

void
tcp_reset_at_close(int fd, bool on)
{
    const struct linger now = {.l_onoff = on, .l_linger = 0};
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

void
tcp_waiting(int fd, uint64_t *left, uint64_t *unsent)
{
    int n = 0;
    if (fd >= 0 && ioctl(fd, FIONREAD, &n) == 0 && n > 0)
        *left += (uint64_t)n;
    n = 0;
    if (fd >= 0 && ioctl(fd, SIOCOUTQ, &n) == 0 && n > 0)
        *unsent += (uint64_t)n;
}

void
tcp_leave(struct sandbox *s, int fd)
{
    tcp_waiting(fd, &s->carried.tcp_left, &s->carried.tcp_unsent);
}

static void
release(struct flow *f)
{
    list_append(&t.unused, &f->node);
}

void
tcp_on_closed(uv_handle_t *h)
{
    struct flow *f = h->data;
    f->handles--;
    if (f->ended && f->handles == 0)
        release(f);
    else if (!f->ended && f->state == FLOW_RETRYING)
        tcp_dial_next(f);
}

struct report_about
tcp_about(const struct flow *f)
{
    return (struct report_about){
        .address = f->state == FLOW_NAMING ? f->asked.address : f->address,
        .name = f->name != NULL ? f->name->text : NULL,
        .user = &f->asked.user,
        .rule = report_rule(f->sandbox, f->rule),
        .port = f->asked.port,
        .protocol = IPPROTO_TCP,
        .error = f->state != FLOW_OPEN ? f->error : 0,
        .out_bytes = f->out.bytes,
        .in_bytes = f->in.bytes,
        .first = f->state != FLOW_OPEN,
    };
}

void
tcp_set_open(struct flow *f)
{
    if (f->state != FLOW_OPEN)
        f->sandbox->dialling--;
    f->state = FLOW_OPEN;
}

// Whether there are bytes that the peer has not acknowledged.
static bool
is_sending(const struct flow *f)
{
    int n = 0;
    return f->peer.fd >= 0 && ioctl(f->peer.fd, SIOCOUTQ, &n) == 0 && n > 0;
}

// Data within the quota may still leave: resets the job's side now, and the destination's when it has all the data.
static bool
drain(struct flow *f, enum net_reason reason)
{
    if (f->state != FLOW_OPEN || f->draining || f->out.ended || !is_sending(f))
        return false;
    f->draining = true;
    f->drained_because = reason;
    f->dial_until_ms = f->sandbox->relay->now_ms + TCP_DRAIN_MS;
    f->sandbox->draining++;
    list_remove(&f->waits);
    tcp_leave(f->sandbox, f->job.fd);
    (void)watch_close(&f->job, tcp_on_closed);
    watch_want(&f->peer, 0, tcp_on_ready);
    return true;
}

void
tcp_drained(struct sandbox *s)
{
    list_each(it, &s->flows)
    {
        struct flow *f = list_entry(it, struct flow, node);
        if (f->draining && (!is_sending(f) || s->relay->now_ms >= f->dial_until_ms))
            tcp_end(f, true, f->drained_because);
    }
}

void
tcp_over_quota(struct flow *f, bool out)
{
    struct sandbox *s = f->sandbox;
    tcp_end(f, true, sandbox_quota_reason(s, out));
    list_each(it, &s->flows)
    {
        struct flow *other = list_entry(it, struct flow, node);
        if (out && other->out.blocked && !other->draining &&
            sandbox_left(s, true, other->rule) == 0)
            tcp_end(other, true, sandbox_quota_reason(s, true));
    }
}

void
tcp_end(struct flow *f, bool reset, enum net_reason reason)
{
    struct sandbox *s = f->sandbox;
    struct report_about about = tcp_about(f);
    about.reason = reason;
    if (!f->denied && !f->draining && report_is_quota(reason)) {
        report_denied(s, reason, &about);
        about.first = false;
        if (drain(f, reason))
            return;
    }
    if (f->sham.on)
        sham_report(s, &f->sham, &about);
    else if (!f->denied)
        report(s, RELAY_FLOW_END, &about);
    tcp_set_open(f);
    s->draining -= f->draining;
    if (!reset) {
        tcp_reset_at_close(f->job.fd, false);
        tcp_reset_at_close(f->peer.fd, false);
    }
    names_release(f->name);
    f->name = NULL;
    list_remove(&f->waiter.node);
    list_remove(&f->waits);
    list_remove(&f->node);
    s->connections--;
    s->flows_n--;
    t.open--;
    f->ended = true;
    tcp_leave(s, f->job.fd);
    (void)watch_close(&f->job, tcp_on_closed);
    (void)watch_close(&f->peer, tcp_on_closed);
    if (f->handles == 0)
        release(f);
}
