// SPDX-License-Identifier: Apache-2.0
// See techniques.h. This file: TCP and UDP.
#include "techniques_inside.h"

const struct sockaddr *
any(const void *address)
{
    return address;
}

struct sockaddr_in6
mapped(const struct sockaddr_in *v4)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = v4->sin_port};
    a.sin6_addr.s6_addr[10] = a.sin6_addr.s6_addr[11] = 0xff;
    memcpy(&a.sin6_addr.s6_addr[12], &v4->sin_addr, 4);
    return a;
}

int
open_socket(int family, int type, int protocol)
{
    const struct timeval soon = {.tv_usec = 200000};
    int fd = socket(family, type | SOCK_CLOEXEC, protocol);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
    return fd;
}

int
ended(int fd, long result)
{
    int sys = result < 0 ? errno : 0;
    if (fd >= 0)
        (void)close(fd);
    return sys;
}

int
connect_send(int family, int type, int protocol, const void *to, socklen_t n)
{
    int fd = open_socket(family, type, protocol);
    if (fd < 0)
        return errno;
    long r = connect(fd, any(to), n);
    if (r == 0)
        r = send(fd, TECHNIQUE_MARK, MARK_N, MSG_NOSIGNAL);
    return ended(fd, r);
}

int
send_to(int family, int type, int protocol, int flags, const void *to, socklen_t n)
{
    int fd = open_socket(family, type, protocol);
    if (fd < 0)
        return errno;
    return ended(fd, sendto(fd, TECHNIQUE_MARK, MARK_N, flags | MSG_NOSIGNAL, any(to), n));
}

// ---- TCP

static int
tcp4(const struct goal *g)
{
    return connect_send(AF_INET, SOCK_STREAM, 0, &g->v4, sizeof g->v4);
}

static int
tcp6(const struct goal *g)
{
    return connect_send(AF_INET6, SOCK_STREAM, 0, &g->v6, sizeof g->v6);
}

static int
tcp_mapped(const struct goal *g)
{
    const struct sockaddr_in6 to = mapped(&g->v4);
    return connect_send(AF_INET6, SOCK_STREAM, 0, &to, sizeof to);
}

static int
tcp4_on_v6_socket(const struct goal *g)
{
    return connect_send(AF_INET6, SOCK_STREAM, 0, &g->v4, sizeof g->v4);
}

static int
tcp_fast_open4(const struct goal *g)
{
    return send_to(AF_INET, SOCK_STREAM, 0, MSG_FASTOPEN, &g->v4, sizeof g->v4);
}

static int
tcp_fast_open6(const struct goal *g)
{
    return send_to(AF_INET6, SOCK_STREAM, 0, MSG_FASTOPEN, &g->v6, sizeof g->v6);
}

static int
tcp_fast_open_mapped(const struct goal *g)
{
    const struct sockaddr_in6 to = mapped(&g->v4);
    return send_to(AF_INET6, SOCK_STREAM, 0, MSG_FASTOPEN, &to, sizeof to);
}

static int
tcp_fast_open_connect(const struct goal *g)
{
    const int on = 1;
    int fd = open_socket(AF_INET, SOCK_STREAM, 0);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on);
    long r = connect(fd, any(&g->v4), sizeof g->v4);
    if (r == 0)
        r = send(fd, TECHNIQUE_MARK, MARK_N, MSG_NOSIGNAL);
    return ended(fd, r);
}

static int
tcp_allowed_then_unspec_then_evil(const struct goal *g)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    int fd = open_socket(AF_INET, SOCK_STREAM, 0);
    (void)connect(fd, any(&g->allowed4), sizeof g->allowed4);
    (void)connect(fd, &none, sizeof none);
    long r = connect(fd, any(&g->v4), sizeof g->v4);
    if (r == 0)
        r = send(fd, TECHNIQUE_MARK, MARK_N, MSG_NOSIGNAL);
    return ended(fd, r);
}

static int
tcp_repair(const struct goal *g)
{
    const int on = 1;
    const int off = 0;
    int fd = open_socket(AF_INET, SOCK_STREAM, 0);
    long r = setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on);
    if (r == 0)
        r = connect(fd, any(&g->v4), sizeof g->v4);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &off, sizeof off);
    if (r == 0)
        r = send(fd, TECHNIQUE_MARK, MARK_N, MSG_NOSIGNAL);
    return ended(fd, r);
}

static int
mptcp4(const struct goal *g)
{
    return connect_send(AF_INET, SOCK_STREAM, IPPROTO_MPTCP, &g->v4, sizeof g->v4);
}

static int
mptcp6(const struct goal *g)
{
    return connect_send(AF_INET6, SOCK_STREAM, IPPROTO_MPTCP, &g->v6, sizeof g->v6);
}

static int
mptcp_fast_open(const struct goal *g)
{
    return send_to(AF_INET, SOCK_STREAM, IPPROTO_MPTCP, MSG_FASTOPEN, &g->v4, sizeof g->v4);
}

// ---- UDP

static int
udp4_connected(const struct goal *g)
{
    return connect_send(AF_INET, SOCK_DGRAM, 0, &g->v4, sizeof g->v4);
}

static int
udp6_connected(const struct goal *g)
{
    return connect_send(AF_INET6, SOCK_DGRAM, 0, &g->v6, sizeof g->v6);
}

static int
udp_mapped_connected(const struct goal *g)
{
    const struct sockaddr_in6 to = mapped(&g->v4);
    return connect_send(AF_INET6, SOCK_DGRAM, 0, &to, sizeof to);
}

static int
udp4_sendto(const struct goal *g)
{
    return send_to(AF_INET, SOCK_DGRAM, 0, 0, &g->v4, sizeof g->v4);
}

static int
udp6_sendto(const struct goal *g)
{
    return send_to(AF_INET6, SOCK_DGRAM, 0, 0, &g->v6, sizeof g->v6);
}

static int
udp_mapped_sendto(const struct goal *g)
{
    const struct sockaddr_in6 to = mapped(&g->v4);
    return send_to(AF_INET6, SOCK_DGRAM, 0, 0, &to, sizeof to);
}

static int
udp4_sendto_on_v6_socket(const struct goal *g)
{
    return send_to(AF_INET6, SOCK_DGRAM, 0, 0, &g->v4, sizeof g->v4);
}

static int
udp_sendto_unspec_family(const struct goal *g)
{
    struct sockaddr_in to = g->v4;
    to.sin_family = AF_UNSPEC;
    return send_to(AF_INET, SOCK_DGRAM, 0, 0, &to, sizeof to);
}

static int
udp_connected_to_allowed_then_sendto(const struct goal *g)
{
    int fd = open_socket(AF_INET, SOCK_DGRAM, 0);
    (void)connect(fd, any(&g->allowed4), sizeof g->allowed4);
    return ended(fd, sendto(fd, TECHNIQUE_MARK, MARK_N, 0, any(&g->v4), sizeof g->v4));
}

static int
udp_sendmmsg(const struct goal *g)
{
    struct sockaddr_in to[2] = {g->allowed4, g->v4};
    char mark[] = TECHNIQUE_MARK;
    struct iovec iov = {.iov_base = mark, .iov_len = MARK_N};
    struct mmsghdr m[2] = {0};
    for (int i = 0; i < 2; i++)
        m[i].msg_hdr = (struct msghdr){
            .msg_name = &to[i], .msg_namelen = sizeof to[i], .msg_iov = &iov, .msg_iovlen = 1};
    int fd = open_socket(AF_INET, SOCK_DGRAM, 0);
    int n = sendmmsg(fd, m, 2, 0);
    errno = EPERM; // of the second message, which sendmmsg does not report
    return ended(fd, n == 2 ? 0 : -1);
}

static int
udplite_sendto(const struct goal *g)
{
    return send_to(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE, 0, &g->v4, sizeof g->v4);
}

static int
udplite_connected(const struct goal *g)
{
    return connect_send(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE, &g->v4, sizeof g->v4);
}

static int
udplite6_connected(const struct goal *g)
{
    return connect_send(AF_INET6, SOCK_DGRAM, IPPROTO_UDPLITE, &g->v6, sizeof g->v6);
}

const struct technique techniques_of_sockets[] = {
    {"tcp4", tcp4, false},
    {"tcp6", tcp6, false},
    {"tcp_mapped", tcp_mapped, false},
    {"tcp4_on_v6_socket", tcp4_on_v6_socket, false},
    {"tcp_fast_open4", tcp_fast_open4, false},
    {"tcp_fast_open6", tcp_fast_open6, false},
    {"tcp_fast_open_mapped", tcp_fast_open_mapped, false},
    {"tcp_fast_open_connect", tcp_fast_open_connect, false},
    {"tcp_allowed_then_unspec_then_evil", tcp_allowed_then_unspec_then_evil, false},
    {"tcp_repair", tcp_repair, true},
    {"mptcp4", mptcp4, false},
    {"mptcp6", mptcp6, false},
    {"mptcp_fast_open", mptcp_fast_open, false},
    {"udp4_connected", udp4_connected, false},
    {"udp6_connected", udp6_connected, false},
    {"udp_mapped_connected", udp_mapped_connected, false},
    {"udp4_sendto", udp4_sendto, false},
    {"udp6_sendto", udp6_sendto, false},
    {"udp_mapped_sendto", udp_mapped_sendto, false},
    {"udp4_sendto_on_v6_socket", udp4_sendto_on_v6_socket, false},
    {"udp_sendto_unspec_family", udp_sendto_unspec_family, false},
    {"udp_connected_to_allowed_then_sendto", udp_connected_to_allowed_then_sendto, false},
    {"udp_sendmmsg", udp_sendmmsg, false},
    {"udplite_sendto", udplite_sendto, false},
    {"udplite_connected", udplite_connected, false},
    {"udplite6_connected", udplite6_connected, false},
    {0},
};

const struct technique *const technique_tables[] = {techniques_of_sockets, techniques_low,
                                                    techniques_more, NULL};

const struct technique *
technique_called(const char *name)
{
    for (const struct technique *const *table = technique_tables; *table != NULL; table++) {
        for (const struct technique *t = *table; t->name != NULL; t++) {
            if (strcmp(t->name, name) == 0)
                return t;
        }
    }
    return NULL;
}
