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
    for (size_t i = 0; i < p->fds_n; i++)
        (void)close(p->fds[i]);
    free(p);
}

// It leaves the queue.
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
        (void)err_set(e, ERR_INVALID_ARGUMENT, "%zu bytes; %s takes %zu at once", n, q->peer,
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

// 0: sent, or nobody is there any more; -EAGAIN: not now; another errno: never.
static int
send_packet(const struct packets *q, const struct packet *p)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof p->fds)];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)p->bytes, .iov_len = p->n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (p->fds_n > 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * p->fds_n);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * p->fds_n);
        memcpy(CMSG_DATA(c), p->fds, sizeof(int) * p->fds_n);
    }
    if (sendmsg(q->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 || errno == EPIPE ||
        errno == ECONNRESET || errno == ENOTCONN)
        return 0;
    return errno == ENOBUFS || errno == EINTR ? -EAGAIN : -errno;
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
    return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s does not read what it is sent", q->peer);
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
