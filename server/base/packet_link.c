// SPDX-License-Identifier: Apache-2.0
// See packet_link.h.
#include "packet_link.h"

#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/fdpass.h"
#include "loop.h"
#include "unblock.h"

static void on_ready(void *cookie, int events);

void *
packet_link_new(size_t owner_bytes, uv_loop_t *loop, int fd, const struct packet_link_kind *kind,
                struct err *e)
{
    struct packet_link *l = calloc(1, owner_bytes);
    int r = -ENOMEM;
    if (l != NULL) {
        l->kind = kind;
        l->fd = fd;
        if (!kind->takes_fd)
            unblock_refuse(fd);
        l->out = (struct packets){.fd = fd,
                                  .peer = kind->peer,
                                  .packet_max = kind->packet_max,
                                  .queue_max = kind->queue_max,
                                  .queue_bytes_max = kind->queue_bytes_max};
        packets_init(&l->out);
        r = loop_poll_start(loop, &l->poll, fd, UV_READABLE, on_ready, l);
    }
    if (r == 0)
        return l;
    (void)close(fd);
    free(l);
    (void)err_sys(e, r, "watch the socket of %s", kind->process);
    return NULL;
}

void
packet_link_free(struct packet_link *l)
{
    l->freed = true;
    loop_poll_stop(&l->poll);
    if (l->busy)
        return;
    packets_clear(&l->out);
    unblock_close(l->fd);
    free(l);
}

static void
watch(const struct packet_link *l)
{
    if (l->poll != NULL)
        loop_poll_want(l->poll, packets_events(&l->out) & ~(l->held ? UV_READABLE : 0));
}

int
packet_link_send(struct packet_link *l, struct packet *p, struct err *e)
{
    int r = packets_send(&l->out, p, e);
    watch(l);
    return r;
}

void
packet_link_hold(struct packet_link *l, bool held)
{
    l->held = held;
    watch(l);
}

void
packet_link_cut(const struct packet_link *l)
{
    (void)shutdown(l->fd, SHUT_RDWR);
}

// After a callback: frees the link if the callback requested it.
static void
leave(struct packet_link *l)
{
    l->busy = false;
    if (l->freed)
        packet_link_free(l);
}

static void
report_gone(struct packet_link *l, const struct err *why)
{
    loop_poll_stop(&l->poll);
    l->kind->gone(l, why);
}

void
packet_link_end(struct packet_link *l, const struct err *why)
{
    if (l->poll == NULL || l->busy)
        return;
    l->busy = true;
    report_gone(l, why);
    leave(l);
}

// Sets *e to the reason why fdpass_receive() returned r.
static int
explain(const struct packet_link *l, int r, struct err *e)
{
    const char *process = l->kind->process;
    if (r == 0 || r == -ECONNRESET)
        return err_set(e, l->kind->ended, "%s has ended", process);
    if (r == -EMSGSIZE)
        (void)err_set(e, ERR_INTERNAL, "a packet of more than %zu bytes", l->kind->in_max);
    else if (r == -EPROTO)
        (void)err_set(e, ERR_INTERNAL, "a packet with more descriptors than it may have");
    else if (r == -EBADF)
        (void)err_set(e, ERR_INTERNAL, "a descriptor that is no device");
    else
        return err_sys(e, r, "read from %s", process);
    return err_wrap(e, "%s broke the protocol", process);
}

// Receives a packet. A descriptor that came with it is a device (a terminal), which can be closed without waiting.
static int
receive(struct packet_link *l, struct fdpass *m)
{
    struct stat st;
    unblock_begin();
    int r = fdpass_receive(l->fd, m, MSG_DONTWAIT);
    if (r > 0 && m->fds_n > 0 && (fstat(*m->fds, &st) < 0 || !S_ISCHR(st.st_mode))) {
        fdpass_close(m->fds, m->fds_n);
        r = -EBADF;
    }
    unblock_end();
    return r;
}

// Handles one packet. 0: handled; 1: none is available; negative: the link has ended, with the reason in *e.
static int
turn(struct packet_link *l, struct err *e)
{
    static alignas(max_align_t) uint8_t bytes[PACKET_LINK_IN_MAX];
    int auto_close fd = -1;
    struct fdpass m = {bytes, l->kind->in_max, &fd, l->kind->takes_fd};
    int r = receive(l, &m);
    if (r == -EAGAIN)
        return 1;
    if (r <= 0)
        return explain(l, r, e);
    r = l->kind->packet(l, bytes, m.n, &fd, e);
    return r < 0 ? err_wrap(e, "%s broke the protocol", l->kind->process) : 0;
}

void
packet_link_rest(struct packet_link *l, unsigned most)
{
    struct err ignored; // the end of the socket; its owner knows of it already
    if (l->poll == NULL || l->busy)
        return;
    l->busy = true;
    for (unsigned i = 0; i < most && !l->freed && !l->held && turn(l, &ignored) == 0; i++)
        ;
    leave(l);
}

static void
on_ready(void *cookie, int events)
{
    struct packet_link *l = cookie;
    struct err e;
    l->busy = true;
    size_t queued = l->out.queued;
    int r = (events & UV_WRITABLE) != 0 ? packets_flush(&l->out, &e) : 0;
    watch(l);
    if (r == 0 && l->out.queued < queued && l->kind->moved != NULL)
        l->kind->moved(l);
    for (unsigned i = 0; i < l->kind->packets_per_turn && r == 0 && !l->freed && !l->held; i++)
        r = turn(l, &e);
    if (r < 0 && !l->freed)
        report_gone(l, &e);
    leave(l);
}
