// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which socket options a job may set: those that ordinary programs do, by level and number. What is not listed is refused:
// options that choose a path, change what the kernel believes of a connection or undo the pacing, and those with which a
// socket owns memory that no limit counts (clones of what it sent, keys, groups, flow labels), that take of a table of
// which the host has one, or that patch the kernel's text for the whole host (static keys: time stamps, UDP_ENCAP,
// UDP_GRO). Numbers from asm-generic/socket.h, linux/in.h, in6.h, tcp.h, udp.h, netlink.h.
//
// A programmer's list of what is refused, with names, is server/socket_options.c.
#pragma once

#include "vmlinux_min.h"

enum {
    SOL_IP = 0,
    SOL_SOCKET = 1,
    SOL_TCP = 6,
    SOL_UDP = 17,
    SOL_IPV6 = 41,
    SOL_NETLINK = 270,
    SO_SNDBUF = 7,
    SO_RCVBUF = 8,
    SO_MAX_PACING_RATE = 47,
    // The kernel doubles it: 208 KiB, what a socket has by itself (net.core.rmem_default). A UDP socket's queue of errors
    // and its corked datagrams are bounded by its buffers, and charged to nobody.
    NET_BUFFER_MAX = 106496,
};

#define OPTION_BIT(n) (1ULL << ((n)&63))

struct option_set {
    __u64 low, high; // numbers below 64, below 128
};

static __always_inline struct option_set socket_options(void)
{
    return (struct option_set){
        OPTION_BIT(1 /* DEBUG */) | OPTION_BIT(2 /* REUSEADDR */) | OPTION_BIT(5 /* DONTROUTE */) |
            OPTION_BIT(6 /* BROADCAST */) | OPTION_BIT(SO_SNDBUF) | OPTION_BIT(SO_RCVBUF) |
            OPTION_BIT(9 /* KEEPALIVE */) | OPTION_BIT(10 /* OOBINLINE */) |
            OPTION_BIT(11 /* NO_CHECK */) | OPTION_BIT(12 /* PRIORITY */) |
            OPTION_BIT(13 /* LINGER */) | OPTION_BIT(14 /* BSDCOMPAT */) |
            OPTION_BIT(15 /* REUSEPORT */) | OPTION_BIT(16 /* PASSCRED */) |
            OPTION_BIT(18 /* RCVLOWAT */) | OPTION_BIT(19 /* SNDLOWAT */) |
            OPTION_BIT(20 /* RCVTIMEO */) | OPTION_BIT(21 /* SNDTIMEO */) |
            OPTION_BIT(27 /* DETACH_FILTER */) | OPTION_BIT(34 /* PASSSEC */) |
            OPTION_BIT(40 /* RXQ_OVFL */) | OPTION_BIT(42 /* PEEK_OFF */) |
            OPTION_BIT(45 /* SELECT_ERR_QUEUE */) | OPTION_BIT(49 /* INCOMING_CPU */),
        OPTION_BIT(66 /* RCVTIMEO_NEW */) | OPTION_BIT(67 /* SNDTIMEO_NEW */) |
            OPTION_BIT(76 /* PASSPIDFD */)};
}

static __always_inline struct option_set ip_options(void)
{
    return (struct option_set){
        .low = OPTION_BIT(1 /* TOS */) | OPTION_BIT(2 /* TTL */) | OPTION_BIT(8 /* PKTINFO */) |
               OPTION_BIT(10 /* MTU_DISCOVER */) | OPTION_BIT(11 /* RECVERR */) |
               OPTION_BIT(12 /* RECVTTL */) | OPTION_BIT(13 /* RECVTOS */) |
               OPTION_BIT(24 /* BIND_ADDRESS_NO_PORT */) | OPTION_BIT(32 /* MULTICAST_IF */) |
               OPTION_BIT(33 /* MULTICAST_TTL */) | OPTION_BIT(34 /* MULTICAST_LOOP */) |
               OPTION_BIT(49 /* MULTICAST_ALL */)};
}

static __always_inline struct option_set ipv6_options(void)
{
    return (struct option_set){
        OPTION_BIT(16 /* UNICAST_HOPS */) | OPTION_BIT(17 /* MULTICAST_IF */) |
            OPTION_BIT(18 /* MULTICAST_HOPS */) | OPTION_BIT(19 /* MULTICAST_LOOP */) |
            OPTION_BIT(23 /* MTU_DISCOVER */) | OPTION_BIT(24 /* MTU */) |
            OPTION_BIT(25 /* RECVERR */) | OPTION_BIT(26 /* V6ONLY */) |
            OPTION_BIT(29 /* MULTICAST_ALL */) | OPTION_BIT(49 /* RECVPKTINFO */) |
            OPTION_BIT(51 /* RECVHOPLIMIT */) | OPTION_BIT(62 /* DONTFRAG */),
        OPTION_BIT(66 /* RECVTCLASS */) | OPTION_BIT(67 /* TCLASS */) |
            OPTION_BIT(70 /* AUTOFLOWLABEL */) | OPTION_BIT(72 /* ADDR_PREFERENCES */)};
}

static __always_inline struct option_set tcp_options(void)
{
    return (struct option_set){
        .low = OPTION_BIT(1 /* NODELAY */) | OPTION_BIT(2 /* MAXSEG */) | OPTION_BIT(3 /* CORK */) |
               OPTION_BIT(4 /* KEEPIDLE */) | OPTION_BIT(5 /* KEEPINTVL */) |
               OPTION_BIT(6 /* KEEPCNT */) | OPTION_BIT(7 /* SYNCNT */) |
               OPTION_BIT(8 /* LINGER2 */) | OPTION_BIT(9 /* DEFER_ACCEPT */) |
               OPTION_BIT(10 /* WINDOW_CLAMP */) | OPTION_BIT(12 /* QUICKACK */) |
               OPTION_BIT(16 /* THIN_LINEAR_TIMEOUTS */) | OPTION_BIT(17 /* THIN_DUPACK */) |
               OPTION_BIT(18 /* USER_TIMEOUT */) | OPTION_BIT(23 /* FASTOPEN */) |
               OPTION_BIT(25 /* NOTSENT_LOWAT */) | OPTION_BIT(30 /* FASTOPEN_CONNECT */) |
               OPTION_BIT(36 /* INQ */)};
}

static __always_inline struct option_set options_of(int level)
{
    switch (level) {
    case SOL_SOCKET:
        return socket_options();
    case SOL_IP:
        return ip_options();
    case SOL_IPV6:
        return ipv6_options();
    case SOL_TCP:
        return tcp_options();
    case SOL_UDP:
        return (struct option_set){OPTION_BIT(1 /* CORK */),
                                   OPTION_BIT(101 /* NO_CHECK6_TX */) |
                                       OPTION_BIT(102 /* NO_CHECK6_RX */) |
                                       OPTION_BIT(103 /* SEGMENT */)};
    case SOL_NETLINK:
        return (struct option_set){
            .low = OPTION_BIT(1 /* ADD_MEMBERSHIP */) | OPTION_BIT(2 /* DROP_MEMBERSHIP */) |
                   OPTION_BIT(3 /* PKTINFO */) | OPTION_BIT(5 /* NO_ENOBUFS */) |
                   OPTION_BIT(10 /* CAP_ACK */) | OPTION_BIT(11 /* EXT_ACK */) |
                   OPTION_BIT(12 /* GET_STRICT_CHK */)};
    default:
        return (struct option_set){0, 0};
    }
}

static __always_inline bool option_allowed(int level, __u32 name)
{
    struct option_set set = options_of(level);
    if (name >= 128)
        return false;
    return (((name < 64 ? set.low : set.high) >> (name & 63)) & 1) != 0;
}

// The caller's own bytes, however long, go to the kernel; but a buffer's size, which is made less here: the kernel then
// takes what is left in the program's copy, so that no other thread can change it in between.
static __always_inline void option_pass(struct bpf_sockopt *ctx)
{
    bool buffer = ctx->level == SOL_SOCKET &&
                  (ctx->optname == SO_SNDBUF || ctx->optname == SO_RCVBUF) &&
                  ctx->optlen >= (int)sizeof(__u32);
    struct bpf_sock *sk = ctx->sk;
    __u32 *size = ctx->optval;
    void *end = ctx->optval_end;
    // Not those of AF_UNIX (1), which are charged to the job.
    if (buffer && sk && sk->family != 1 && (void *)(size + 1) <= end) {
        if (*size > NET_BUFFER_MAX)
            *size = NET_BUFFER_MAX;
        ctx->optlen = sizeof *size;
        return;
    }
    ctx->optlen = 0;
}
