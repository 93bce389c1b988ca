// SPDX-License-Identifier: Apache-2.0
// See packets.h.
#include "packets.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "proto/fdpass.h"

void
packets_init(struct packets *q)
{
    list_init(&q->queue);
    q->queued = q->queued_bytes = 0;
}

void
packet_free(struct packet *p)
{
    if (p == NULL)
        return;
    fdpass_close(p->fds, p->fds_n);
    free(p);
}

// Removes the packet from the queue.
static void
drop(struct packets *q, struct packet *p)
{
    list_remove(&p->node);
    q->queued--;
    q->queued_bytes -= p->n;
    packet_free(p);
}

void
packets_clear(struct packets *q)
{
    list_each(it, &q->queue) drop(q, list_entry(it, struct packet, node));
}

struct packet *
packet_new(const struct packets *q, size_t n, struct err *e)
{
    if (n > q->packet_max) {
        (void)err_set(e, ERR_INVALID_ARGUMENT, "%zu bytes; %s accepts at most %zu", n, q->peer,
                      q->packet_max);
        return NULL;
    }
    struct packet *p = calloc(1, sizeof *p + n);
    if (p == NULL) {
        (void)err_sys(e, ENOMEM, "make a packet for %s", q->peer);
        return NULL;
    }
    list_init(&p->node);
    p->n = n;
    return p;
}

// 0: sent, or the peer has ended; -EAGAIN: try again later; another errno: it cannot be sent.
static int
send_packet(const struct packets *q, const struct packet *p)
{
    const struct fdpass m = {.bytes = (void *)(uintptr_t)p->bytes,
                             .n = p->n,
                             .fds = (int *)(uintptr_t)p->fds,
                             .fds_n = p->fds_n};
    int r = fdpass_send(q->fd, &m, MSG_DONTWAIT);
    if (r == -EPIPE || r == -ECONNRESET || r == -ENOTCONN)
        return 0;
    return r == -ENOBUFS ? -EAGAIN : r;
}

static int
fail(const struct packets *q, int sys, struct err *e)
{
    if (sys == -ETOOMANYREFS)
        return err_set(e, ERR_RESOURCE_EXHAUSTED,
                       "send to %s: too many descriptors wait for sandboxes that do not read",
                       q->peer);
    return err_sys(e, -sys, "send to %s", q->peer);
}

int
packets_room(const struct packets *q, const struct packet *p, struct err *e)
{
    if (q->queued < q->queue_max && p->n <= q->queue_bytes_max - q->queued_bytes)
        return 0;
    return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s does not read its messages", q->peer);
}

int
packets_send(struct packets *q, struct packet *p, struct err *e)
{
    assert(p->fds_n <= PACKET_FDS);
    int sent = list_empty(&q->queue) ? send_packet(q, p) : -EAGAIN;
    if (sent != -EAGAIN) {
        packet_free(p);
        return sent == 0 ? 0 : fail(q, sent, e);
    }
    int r = packets_room(q, p, e);
    if (r < 0) {
        packet_free(p);
        return r;
    }
    list_append(&q->queue, &p->node);
    q->queued++;
    q->queued_bytes += p->n;
    return 0;
}

int
packets_flush(struct packets *q, struct err *e)
{
    list_each(it, &q->queue)
    {
        struct packet *p = list_entry(it, struct packet, node);
        int sent = send_packet(q, p);
        if (sent == -EAGAIN)
            return 0;
        drop(q, p);
        if (sent < 0)
            return fail(q, sent, e);
    }
    return 0;
}

int
packets_events(const struct packets *q)
{
    return UV_READABLE | (list_empty(&q->queue) ? 0 : UV_WRITABLE);
}
