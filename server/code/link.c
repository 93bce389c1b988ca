// SPDX-License-Identifier: Apache-2.0
// See link.h.
#include "link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/fdpass.h"
#include "server/base/loop.h"
#include "server/base/unblock.h"

enum { IN_SIZE = KERNEL_HEAD_MAX + KERNEL_PAYLOAD_MAX };

static void
want(struct kernel_link *l)
{
    int events = (l->held ? 0 : UV_READABLE) | (l->out_at < l->out_n ? UV_WRITABLE : 0);
    if (l->poll != NULL)
        loop_poll_want(l->poll, events);
}

static void
drop_out(struct kernel_link *l)
{
    free(l->out);
    l->out = NULL;
    l->out_at = l->out_n = 0;
}

// An error shows when the socket is read, or when the process ends.
static void
push(struct kernel_link *l)
{
    while (l->out_at < l->out_n) {
        ssize_t n = send(l->fd, l->out + l->out_at, l->out_n - l->out_at, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            drop_out(l);
            break;
        }
        l->out_at += (size_t)n;
    }
    if (l->out_at == l->out_n)
        drop_out(l);
    want(l);
}

static void
on_ready(void *cookie, int events)
{
    struct kernel_link *l = cookie;
    if ((events & UV_WRITABLE) != 0)
        push(l);
    if ((events & UV_READABLE) == 0)
        return;
    if (l->held)
        want(l);
    else
        l->wake(l->cookie);
}

int
kernel_link_open(struct kernel_link *l, uv_loop_t *loop, void (*wake)(void *cookie), void *cookie,
                 int *child, struct err *e)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return err_sys(e, errno, "make the link of an interpreter");
    unblock_refuse(ends[0]);
    *l = (struct kernel_link){.fd = ends[0], .wake = wake, .cookie = cookie};
    int r = loop_poll_start(loop, &l->poll, l->fd, UV_READABLE, on_ready, l);
    if (r < 0) {
        (void)close(ends[1]);
        kernel_link_close(l);
        return err_sys(e, -r, "watch the link of an interpreter");
    }
    *child = ends[1];
    return 0;
}

void
kernel_link_close(struct kernel_link *l)
{
    if (l->fd < 0)
        return;
    loop_poll_stop(&l->poll);
    unblock_close(l->fd);
    l->fd = -1;
    drop_out(l);
    free(l->in);
    l->in = NULL;
    l->in_at = l->in_n = 0;
}

// Queues what the socket did not take of the two parts.
static int
keep_rest(struct kernel_link *l, const struct iovec part[2], size_t sent, struct err *e)
{
    size_t all = part[0].iov_len + part[1].iov_len, at = 0;
    uint8_t *rest = malloc(all - sent);
    if (rest == NULL)
        return err_sys(e, ENOMEM, "send to an interpreter");
    for (int i = 0; i < 2; i++) {
        size_t skip = sent < part[i].iov_len ? sent : part[i].iov_len;
        sent -= skip;
        memcpy(rest + at, (const uint8_t *)part[i].iov_base + skip, part[i].iov_len - skip);
        at += part[i].iov_len - skip;
    }
    l->out = rest;
    l->out_n = at;
    want(l);
    return 0;
}

int
kernel_link_send(struct kernel_link *l, const char *kind, uint64_t run, const void *payload,
                 size_t n, struct err *e)
{
    char head[KERNEL_HEAD_MAX];
    static const char nothing[1];
    union { // sendmsg(2) reads only
        const void *from;
        void *to;
    } body = {.from = n > 0 ? payload : nothing};
    if (l->fd < 0)
        return err_set(e, ERR_UNAVAILABLE, "the interpreter has ended");
    if (l->out_n > 0)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "the interpreter does not read");
    struct iovec part[2] = {{head, kernel_head(head, kind, run, n)}, {body.to, n}};
    const struct msghdr m = {.msg_iov = part, .msg_iovlen = 2};
    ssize_t sent = sendmsg(l->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        return err_set(e, ERR_UNAVAILABLE, "the interpreter has ended");
    size_t done = sent > 0 ? (size_t)sent : 0;
    return done == part[0].iov_len + n ? 0 : keep_rest(l, part, done, e);
}

int
kernel_link_send_fd(struct kernel_link *l, const char *kind, int fd, struct err *e)
{
    char head[KERNEL_HEAD_MAX];
    int auto_close owned = fd;
    if (l->fd < 0)
        return err_set(e, ERR_UNAVAILABLE, "the interpreter has ended");
    if (l->out_n > 0)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "the interpreter does not read");
    const size_t n = kernel_head(head, kind, 0, 0);
    const struct fdpass m = {head, n, &owned, 1};
    int r = fdpass_send(l->fd, &m, MSG_DONTWAIT);
    return r < 0 ? err_set(e, ERR_UNAVAILABLE, "the interpreter has ended") : 0;
}

// Reads more bytes behind those that are not used yet. 1: some came.
static int
fill(struct kernel_link *l)
{
    if (l->in == NULL && (l->in = malloc(IN_SIZE)) == NULL)
        return -ENOMEM;
    if (l->in_at > 0)
        memmove(l->in, l->in + l->in_at, l->in_n - l->in_at);
    l->in_n -= l->in_at;
    l->in_at = 0;
    ssize_t n = unblock_recv(l->fd, l->in + l->in_n, IN_SIZE - l->in_n);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return -EPIPE;
    l->in_n += (size_t)n;
    return 1;
}

int
kernel_link_next(struct kernel_link *l, struct kernel_frame *out, struct err *e)
{
    if (l->fd < 0)
        return -EPIPE;
    for (;;) {
        int n = l->in != NULL ? kernel_frame_read(l->in + l->in_at, l->in_n - l->in_at, out, e) : 0;
        if (n < 0)
            return n == -EPIPE ? -EPROTO : n;
        l->in_at += (size_t)n;
        if (n > 0)
            return 1;
        int r = fill(l);
        if (r == -ENOMEM)
            return err_sys(e, ENOMEM, "read from an interpreter");
        if (r <= 0)
            return r;
    }
}

// Most interpreters are silent while they are held, so their sockets stay watched until one is not.
void
kernel_link_hold(struct kernel_link *l, bool held)
{
    if (l->held == held)
        return;
    l->held = held;
    if (!held)
        want(l);
}

void
kernel_link_ended(const struct kernel_link *l)
{
    if (l->fd >= 0)
        (void)shutdown(l->fd, SHUT_RD);
}

void
kernel_link_rest(struct kernel_link *l)
{
    if (l->in_at < l->in_n)
        return;
    free(l->in);
    l->in = NULL;
    l->in_at = l->in_n = 0;
}
