// SPDX-License-Identifier: Apache-2.0
// See fdpass.h.
#include "fdpass.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

// Has room for one descriptor more than a packet may have, to detect one too many.
union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * (FDPASS_MAX + 1))];
};

void
fdpass_close(int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (fds[i] >= 0)
            (void)close(fds[i]);
        fds[i] = -1;
    }
}

int
fdpass_send(int socket, const struct fdpass *m, int flags)
{
    union control control;
    struct iovec iov = {.iov_base = m->bytes, .iov_len = m->n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    assert(m->fds_n <= FDPASS_MAX);
    if (m->fds_n > 0) {
        const size_t n = m->fds_n * sizeof(int);
        memset(&control, 0, CMSG_SPACE(n));
        msg.msg_control = control.bytes;
        msg.msg_controllen = (socklen_t)CMSG_SPACE(n); // musl's type; glibc's is wider
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = (socklen_t)CMSG_LEN(n);
        memcpy(CMSG_DATA(c), m->fds, n);
    }
    ssize_t sent = 0;
    do
        sent = sendmsg(socket, &msg, flags | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

// Moves n descriptors into m, and closes those that do not fit. False: some did not fit.
static bool
take_fds(const char *data, size_t n, struct fdpass *m, size_t room)
{
    const bool fits = n <= room - m->fds_n;
    for (size_t i = 0; i < n; i++) {
        int fd = -1;
        memcpy(&fd, data + i * sizeof fd, sizeof fd);
        if (m->fds_n < room)
            m->fds[m->fds_n++] = fd;
        else
            (void)close(fd);
    }
    return fits;
}

// Reads n bytes of control data. False: it contains something unexpected.
static bool
take(const char *bytes, size_t n, struct fdpass *m, size_t room)
{
    bool fits = true;
    struct cmsghdr c;
    for (size_t at = 0; at + sizeof c <= n; at += CMSG_SPACE(c.cmsg_len - CMSG_LEN(0))) {
        memcpy(&c, bytes + at, sizeof c);
        // the kernel guarantees these lengths
        assert(c.cmsg_len >= CMSG_LEN(0) && c.cmsg_len <= n - at);
        const size_t fds_n = (c.cmsg_len - CMSG_LEN(0)) / sizeof(int);
        const bool rights = c.cmsg_level == SOL_SOCKET && c.cmsg_type == SCM_RIGHTS;
        if (!rights || !take_fds(bytes + at + CMSG_LEN(0), fds_n, m, room))
            fits = false;
    }
    return fits;
}

// Why a received packet is refused: 0, or a negative errno. The kernel discards descriptors if the control data is
// full, which `fits` shows, or if this process has no free descriptors.
static int
refusal(int flags, bool fits)
{
    if ((flags & MSG_TRUNC) != 0)
        return -EMSGSIZE;
    if (!fits)
        return -EPROTO;
    return (flags & MSG_CTRUNC) != 0 ? -EMFILE : 0;
}

int
fdpass_receive(int socket, struct fdpass *m, int flags)
{
    union control control;
    const size_t room = m->fds_n;
    struct iovec iov = {.iov_base = m->bytes, .iov_len = m->n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    assert(room <= FDPASS_MAX);
    if (room > 0) { // without control data the kernel installs no descriptors
        msg.msg_control = control.bytes;
        msg.msg_controllen = (socklen_t)CMSG_LEN((room + 1) * sizeof(int));
    }
    m->n = m->fds_n = 0;
    for (size_t i = 0; i < room; i++)
        m->fds[i] = -1;
    ssize_t n = 0;
    do
        n = recvmsg(socket, &msg, flags | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    const bool fits = take(control.bytes, msg.msg_controllen, m, room);
    const bool refused_any = room == 0 && (msg.msg_flags & MSG_CTRUNC) != 0;
    const int r = refusal(msg.msg_flags, fits && !refused_any);
    m->n = (size_t)n;
    if (r == 0 && n > 0)
        return 1;
    fdpass_close(m->fds,
                 room); // an empty packet looks like the end of the socket, even with descriptors
    m->fds_n = 0;
    return r;
}
