// SPDX-License-Identifier: Apache-2.0
// SETTLE: the relay's figures of a sandbox at one moment (relay.h), as one of the two witnesses of a job's traffic. What a job sent
// before its end may still wait at the listeners, so that is taken first; a job that has opened thousands of connections gets
// no more than a turn, and the report says that others wait.
#include <linux/sock_diag.h>
#include <poll.h>
#include <sys/socket.h>

#include "report.h"
#include "sandboxes.h"
#include "tcp.h"
#include "udp.h"

enum { ROUNDS = 4 };

static bool
waits(const struct listener *l)
{
    struct pollfd p = {.fd = l->watch.fd, .events = POLLIN};
    return p.fd >= 0 && poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0;
}

static bool
is_udp(const struct listener *l)
{
    return l->kind == LISTENER_UDP4 || l->kind == LISTENER_UDP6;
}

// Datagrams or connections that the kernel dropped so far.
static uint32_t
lost_at(const struct listener *l)
{
    uint32_t info[SK_MEMINFO_VARS] = {0};
    socklen_t n = sizeof info;
    return getsockopt(l->watch.fd, SOL_SOCKET, SO_MEMINFO, info, &n) == 0 ? info[SK_MEMINFO_DROPS]
                                                                          : 0;
}

static void
add_listener(struct listener *l, struct relay_settled *now)
{
    if (l->sandbox == NULL || l->watch.fd < 0)
        return;
    for (int i = 0; i < ROUNDS && !l->sandbox->resting && waits(l); i++) {
        if (is_udp(l))
            udp_on_listener(&l->watch.uv, 0, 0);
        else
            tcp_on_listener(&l->watch.uv, 0, 0);
    }
    if (waits(l))
        now->waiting = 1;
    *(is_udp(l) ? &now->udp_lost : &now->tcp_lost) += lost_at(l);
}

void
sandbox_settle(struct sandbox *s, uint32_t number)
{
    struct relay_settled more = {0};
    for (size_t i = 0; i < LISTENERS; i++)
        add_listener(&s->listeners[i], &more);
    struct relay_settled now = s->carried; // with what was just taken
    now.waiting = more.waiting;
    now.udp_lost = more.udp_lost;
    now.tcp_lost = more.tcp_lost;
    now.undecided = s->dialling;
    list_each(it, &s->flows)
    {
        struct flow *f = list_entry(it, struct flow, node);
        tcp_waiting(f->job.fd, &now.tcp_left, &now.tcp_unsent);
    }
    report_settled(s, &now, number);
}
