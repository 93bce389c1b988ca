// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Which socket options a job may set: those that ordinary programs set, by level and number. All others are refused.
// Among them are options that choose a route, change the state of a connection or undo the pacing; options that give
// a socket memory which no limit counts (clones of sent packets, keys, groups, flow labels); options that use a table
// which the whole host shares; and options that patch the kernel's code for the whole host (static keys: time stamps,
// UDP_ENCAP, UDP_GRO). Numbers from asm-generic/socket.h, linux/in.h, in6.h, tcp.h, udp.h, netlink.h.
//
// server/rpc/socket_options.c lists the names of refused options for error messages.
#pragma once

#include "vmlinux_min.h"

enum {
    SOL_IP = 0,
    SOL_SOCKET = 1,
    SOL_TCP = 6,
    SOL_UDP = 17,
    SOL_IPV6 = 41,
    SOL_NETLINK = 270,
    // The kernel doubles it to 208 KiB, the default of a socket (net.core.rmem_default). Its buffers bound a UDP
    // socket's queue of errors and its corked datagrams, which no memory limit counts.
    NET_BUFFER_MAX = 106496,
};

// asm-generic/socket.h
enum {
    SO_DEBUG = 1,
    SO_REUSEADDR = 2,
    SO_DONTROUTE = 5,
    SO_BROADCAST = 6,
    SO_SNDBUF = 7,
    SO_RCVBUF = 8,
    SO_KEEPALIVE = 9,
    SO_OOBINLINE = 10,
    SO_NO_CHECK = 11,
    SO_PRIORITY = 12,
    SO_LINGER = 13,
    SO_BSDCOMPAT = 14,
    SO_REUSEPORT = 15,
    SO_PASSCRED = 16,
    SO_RCVLOWAT = 18,
    SO_SNDLOWAT = 19,
    SO_RCVTIMEO = 20,
    SO_SNDTIMEO = 21,
    SO_DETACH_FILTER = 27,
    SO_PASSSEC = 34,
    SO_RXQ_OVFL = 40,
    SO_PEEK_OFF = 42,
    SO_SELECT_ERR_QUEUE = 45,
    SO_MAX_PACING_RATE = 47,
    SO_INCOMING_CPU = 49,
    SO_RCVTIMEO_NEW = 66,
    SO_SNDTIMEO_NEW = 67,
    SO_PASSPIDFD = 76,
};

// linux/in.h
enum {
    IP_TOS = 1,
    IP_TTL = 2,
    IP_PKTINFO = 8,
    IP_MTU_DISCOVER = 10,
    IP_RECVERR = 11,
    IP_RECVTTL = 12,
    IP_RECVTOS = 13,
    IP_BIND_ADDRESS_NO_PORT = 24,
    IP_MULTICAST_IF = 32,
    IP_MULTICAST_TTL = 33,
    IP_MULTICAST_LOOP = 34,
    IP_MULTICAST_ALL = 49,
};

// linux/in6.h
enum {
    IPV6_UNICAST_HOPS = 16,
    IPV6_MULTICAST_IF = 17,
    IPV6_MULTICAST_HOPS = 18,
    IPV6_MULTICAST_LOOP = 19,
    IPV6_MTU_DISCOVER = 23,
    IPV6_MTU = 24,
    IPV6_RECVERR = 25,
    IPV6_V6ONLY = 26,
    IPV6_MULTICAST_ALL = 29,
    IPV6_RECVPKTINFO = 49,
    IPV6_RECVHOPLIMIT = 51,
    IPV6_DONTFRAG = 62,
    IPV6_RECVTCLASS = 66,
    IPV6_TCLASS = 67,
    IPV6_AUTOFLOWLABEL = 70,
    IPV6_ADDR_PREFERENCES = 72,
};

// linux/tcp.h
enum {
    TCP_NODELAY = 1,
    TCP_MAXSEG = 2,
    TCP_CORK = 3,
    TCP_KEEPIDLE = 4,
    TCP_KEEPINTVL = 5,
    TCP_KEEPCNT = 6,
    TCP_SYNCNT = 7,
    TCP_LINGER2 = 8,
    TCP_DEFER_ACCEPT = 9,
    TCP_WINDOW_CLAMP = 10,
    TCP_QUICKACK = 12,
    TCP_THIN_LINEAR_TIMEOUTS = 16,
    TCP_THIN_DUPACK = 17,
    TCP_USER_TIMEOUT = 18,
    TCP_FASTOPEN = 23,
    TCP_NOTSENT_LOWAT = 25,
    TCP_FASTOPEN_CONNECT = 30,
    TCP_INQ = 36,
};

// linux/udp.h
enum {
    UDP_CORK = 1,
    UDP_NO_CHECK6_TX = 101,
    UDP_NO_CHECK6_RX = 102,
    UDP_SEGMENT = 103,
};

// linux/netlink.h
enum {
    NETLINK_ADD_MEMBERSHIP = 1,
    NETLINK_DROP_MEMBERSHIP = 2,
    NETLINK_PKTINFO = 3,
    NETLINK_NO_ENOBUFS = 5,
    NETLINK_CAP_ACK = 10,
    NETLINK_EXT_ACK = 11,
    NETLINK_GET_STRICT_CHK = 12,
};

#define OPTION(n) (1ULL << ((n)&63))

struct option_set {
    __u64 low, high; // numbers below 64, below 128
};

static __always_inline struct option_set socket_options(void)
{
    return (struct option_set){
        OPTION(SO_DEBUG) | OPTION(SO_REUSEADDR) | OPTION(SO_DONTROUTE) | OPTION(SO_BROADCAST) |
            OPTION(SO_SNDBUF) | OPTION(SO_RCVBUF) | OPTION(SO_KEEPALIVE) | OPTION(SO_OOBINLINE) |
            OPTION(SO_NO_CHECK) | OPTION(SO_PRIORITY) | OPTION(SO_LINGER) | OPTION(SO_BSDCOMPAT) |
            OPTION(SO_REUSEPORT) | OPTION(SO_PASSCRED) | OPTION(SO_RCVLOWAT) | OPTION(SO_SNDLOWAT) |
            OPTION(SO_RCVTIMEO) | OPTION(SO_SNDTIMEO) | OPTION(SO_DETACH_FILTER) |
            OPTION(SO_PASSSEC) | OPTION(SO_RXQ_OVFL) | OPTION(SO_PEEK_OFF) |
            OPTION(SO_SELECT_ERR_QUEUE) | OPTION(SO_INCOMING_CPU),
        OPTION(SO_RCVTIMEO_NEW) | OPTION(SO_SNDTIMEO_NEW) | OPTION(SO_PASSPIDFD)};
}

static __always_inline struct option_set ip_options(void)
{
    return (struct option_set){
        .low = OPTION(IP_TOS) | OPTION(IP_TTL) | OPTION(IP_PKTINFO) | OPTION(IP_MTU_DISCOVER) |
               OPTION(IP_RECVERR) | OPTION(IP_RECVTTL) | OPTION(IP_RECVTOS) |
               OPTION(IP_BIND_ADDRESS_NO_PORT) | OPTION(IP_MULTICAST_IF) |
               OPTION(IP_MULTICAST_TTL) | OPTION(IP_MULTICAST_LOOP) | OPTION(IP_MULTICAST_ALL)};
}

static __always_inline struct option_set ipv6_options(void)
{
    return (struct option_set){
        OPTION(IPV6_UNICAST_HOPS) | OPTION(IPV6_MULTICAST_IF) | OPTION(IPV6_MULTICAST_HOPS) |
            OPTION(IPV6_MULTICAST_LOOP) | OPTION(IPV6_MTU_DISCOVER) | OPTION(IPV6_MTU) |
            OPTION(IPV6_RECVERR) | OPTION(IPV6_V6ONLY) | OPTION(IPV6_MULTICAST_ALL) |
            OPTION(IPV6_RECVPKTINFO) | OPTION(IPV6_RECVHOPLIMIT) | OPTION(IPV6_DONTFRAG),
        OPTION(IPV6_RECVTCLASS) | OPTION(IPV6_TCLASS) | OPTION(IPV6_AUTOFLOWLABEL) |
            OPTION(IPV6_ADDR_PREFERENCES)};
}

static __always_inline struct option_set tcp_options(void)
{
    return (struct option_set){
        .low = OPTION(TCP_NODELAY) | OPTION(TCP_MAXSEG) | OPTION(TCP_CORK) | OPTION(TCP_KEEPIDLE) |
               OPTION(TCP_KEEPINTVL) | OPTION(TCP_KEEPCNT) | OPTION(TCP_SYNCNT) |
               OPTION(TCP_LINGER2) | OPTION(TCP_DEFER_ACCEPT) | OPTION(TCP_WINDOW_CLAMP) |
               OPTION(TCP_QUICKACK) | OPTION(TCP_THIN_LINEAR_TIMEOUTS) | OPTION(TCP_THIN_DUPACK) |
               OPTION(TCP_USER_TIMEOUT) | OPTION(TCP_FASTOPEN) | OPTION(TCP_NOTSENT_LOWAT) |
               OPTION(TCP_FASTOPEN_CONNECT) | OPTION(TCP_INQ)};
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
        return (struct option_set){OPTION(UDP_CORK), OPTION(UDP_NO_CHECK6_TX) |
                                                         OPTION(UDP_NO_CHECK6_RX) |
                                                         OPTION(UDP_SEGMENT)};
    case SOL_NETLINK:
        return (struct option_set){
            .low = OPTION(NETLINK_ADD_MEMBERSHIP) | OPTION(NETLINK_DROP_MEMBERSHIP) |
                   OPTION(NETLINK_PKTINFO) | OPTION(NETLINK_NO_ENOBUFS) | OPTION(NETLINK_CAP_ACK) |
                   OPTION(NETLINK_EXT_ACK) | OPTION(NETLINK_GET_STRICT_CHK)};
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

// Passes the caller's own bytes of any length to the kernel. The size of a buffer is reduced here instead: the kernel
// then uses the program's copy, so no other thread can change it in between.
static __always_inline void option_pass(struct bpf_sockopt *ctx)
{
    bool buffer = ctx->level == SOL_SOCKET &&
                  (ctx->optname == SO_SNDBUF || ctx->optname == SO_RCVBUF) &&
                  ctx->optlen >= (int)sizeof(__u32);
    struct bpf_sock *sk = ctx->sk;
    __u32 *size = ctx->optval;
    void *end = ctx->optval_end;
    // Not AF_UNIX (1): its buffers count as the job's memory.
    if (buffer && sk && sk->family != 1 && (void *)(size + 1) <= end) {
        if (*size > NET_BUFFER_MAX)
            *size = NET_BUFFER_MAX;
        ctx->optlen = sizeof *size;
        return;
    }
    ctx->optlen = 0;
}
