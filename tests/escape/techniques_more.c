// SPDX-License-Identifier: Apache-2.0
// See techniques.h. Other forms of an address, options in control messages, flows by number, and calls whose
// arguments change while the kernel reads them.
#include "techniques_inside.h"

// ---- an IPv4 address inside an IPv6 address

static int
tcp_embedded(const struct goal *g, const unsigned char prefix[12], int shift)
{
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = g->v4.sin_port};
    memcpy(&to.sin6_addr, prefix, 12);
    memcpy(&to.sin6_addr.s6_addr[12 - shift], &g->v4.sin_addr, 4);
    return connect_send(AF_INET6, SOCK_STREAM, 0, &to, sizeof to);
}

static int
tcp_v4_compatible(const struct goal *g)
{
    static const unsigned char none[12];
    return tcp_embedded(g, none, 0);
}

static int
tcp_nat64(const struct goal *g)
{
    static const unsigned char prefix[12] = {0, 0x64, 0xff, 0x9b};
    return tcp_embedded(g, prefix, 0);
}

static int
tcp_6to4(const struct goal *g)
{
    static const unsigned char prefix[12] = {0x20, 0x02};
    return tcp_embedded(g, prefix, 10);
}

static int
tcp_isatap(const struct goal *g)
{
    static const unsigned char prefix[12] = {0xfe, 0x80, [10] = 0x5e, [11] = 0xfe};
    return tcp_embedded(g, prefix, 0);
}

// ---- multicast and unspecified addresses

static int
udp_multicast(const struct goal *g)
{
    const unsigned char all = 9;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = g->v4.sin_port};
    to.sin_addr.s_addr = htonl(0xefff0001);
    int fd = open_socket(AF_INET, SOCK_DGRAM, 0);
    (void)setsockopt(fd, IPPROTO_IP, IP_MULTICAST_TTL, &all, sizeof all);
    return ended(fd, sendto(fd, TECHNIQUE_MARK, MARK_N, 0, any(&to), sizeof to));
}

static int
udp6_multicast(const struct goal *g)
{
    struct sockaddr_in6 to = {
        .sin6_family = AF_INET6, .sin6_port = g->v6.sin6_port, .sin6_scope_id = 1};
    to.sin6_addr.s6_addr[0] = 0xff;
    to.sin6_addr.s6_addr[1] = 2;
    to.sin6_addr.s6_addr[15] = 0xfb;
    return send_to(AF_INET6, SOCK_DGRAM, 0, 0, &to, sizeof to);
}

static int
udp_broadcast(const struct goal *g)
{
    const int on = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = g->v4.sin_port};
    to.sin_addr.s_addr = htonl(INADDR_BROADCAST);
    int fd = open_socket(AF_INET, SOCK_DGRAM, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    return ended(fd, sendto(fd, TECHNIQUE_MARK, MARK_N, 0, any(&to), sizeof to));
}

static int
tcp_link_local(const struct goal *g)
{
    struct sockaddr_in6 to = {
        .sin6_family = AF_INET6, .sin6_port = g->v6.sin6_port, .sin6_scope_id = 1};
    to.sin6_addr.s6_addr[0] = 0xfe;
    to.sin6_addr.s6_addr[1] = 0x80;
    to.sin6_addr.s6_addr[15] = 9;
    return connect_send(AF_INET6, SOCK_STREAM, 0, &to, sizeof to);
}

static int
udp_of_no_bytes(const struct goal *g)
{
    int fd = open_socket(AF_INET, SOCK_DGRAM, 0);
    return ended(fd, sendto(fd, "", 0, 0, any(&g->v4), sizeof g->v4));
}

// The structure's length before the scope was added (RFC 2133).
static int
udp6_short_address(const struct goal *g)
{
    return send_to(AF_INET6, SOCK_DGRAM, 0, 0, &g->v6, 24);
}

static int
udp6_sendto_unspec_family(const struct goal *g)
{
    struct sockaddr_in6 to = g->v6;
    to.sin6_family = AF_UNSPEC;
    return send_to(AF_INET6, SOCK_DGRAM, 0, 0, &to, sizeof to);
}

// ---- options of the socket

// Sets an option, then sends to the forbidden address.
static int
udp_with_option(const struct goal *g, int level, int name, int value)
{
    int fd = open_socket(AF_INET, SOCK_DGRAM, 0);
    (void)setsockopt(fd, level, name, &value, sizeof value);
    return ended(fd, sendto(fd, TECHNIQUE_MARK, MARK_N, 0, any(&g->v4), sizeof g->v4));
}

static int
udp_segmented(const struct goal *g)
{
    return udp_with_option(g, IPPROTO_UDP, 103 /* UDP_SEGMENT */, 2);
}

static int
udp_zero_copy(const struct goal *g)
{
    const int on = 1;
    int fd = open_socket(AF_INET, SOCK_DGRAM, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on);
    return ended(fd, sendto(fd, TECHNIQUE_MARK, MARK_N, MSG_ZEROCOPY, any(&g->v4), sizeof g->v4));
}

static int
udp_without_routing(const struct goal *g)
{
    return udp_with_option(g, SOL_SOCKET, SO_DONTROUTE, 1);
}

// Data that is held back for an allowed address, and then sent to another one.
static int
udp_corked_then_elsewhere(const struct goal *g)
{
    int fd = open_socket(AF_INET, SOCK_DGRAM, 0);
    (void)sendto(fd, "x", 1, MSG_MORE, any(&g->allowed4), sizeof g->allowed4);
    long r = sendto(fd, TECHNIQUE_MARK, MARK_N, MSG_MORE, any(&g->v4), sizeof g->v4);
    if (r >= 0)
        r = connect(fd, any(&g->v4), sizeof g->v4);
    if (r >= 0)
        r = send(fd, TECHNIQUE_MARK, MARK_N, 0);
    return ended(fd, r);
}

static int
mobile_routing_header(const struct goal *g)
{
    struct {
        unsigned char next, length, kind, left, zero[4];
        struct in6_addr home;
    } header = {.length = 2, .kind = 2, .left = 1};
    header.home = g->v6.sin6_addr;
    int fd = open_socket(AF_INET6, SOCK_DGRAM, 0);
    long r = setsockopt(fd, IPPROTO_IPV6, IPV6_RTHDR, &header, sizeof header);
    if (r == 0)
        r = sendto(fd, TECHNIQUE_MARK, MARK_N, 0, any(&g->allowed6), sizeof g->allowed6);
    return ended(fd, r);
}

// ---- options in control messages

static int
udp6_with_control(const struct goal *g, int type, const void *data, size_t n)
{
    union {
        struct cmsghdr align;
        char bytes[128];
    } control = {0};
    char mark[] = TECHNIQUE_MARK;
    struct iovec iov = {.iov_base = mark, .iov_len = MARK_N};
    struct sockaddr_in6 to = g->allowed6;
    struct msghdr m = {.msg_name = &to,
                       .msg_namelen = sizeof to,
                       .msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = CMSG_SPACE(n)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){.cmsg_level = IPPROTO_IPV6, .cmsg_type = type, .cmsg_len = CMSG_LEN(n)};
    memcpy(CMSG_DATA(c), data, n);
    int fd = open_socket(AF_INET6, SOCK_DGRAM, 0);
    return ended(fd, sendmsg(fd, &m, 0));
}

static int
segment_route_by_control_message(const struct goal *g)
{
    struct {
        unsigned char next, length, kind, left, last, flags, tag[2];
        struct in6_addr segment[2];
    } srh = {.length = 4, .kind = 4, .left = 1, .last = 1};
    srh.segment[0] = g->allowed6.sin6_addr;
    srh.segment[1] = g->v6.sin6_addr;
    return udp6_with_control(g, IPV6_RTHDR, &srh, sizeof srh);
}

static int
hop_by_hop_by_control_message(const struct goal *g)
{
    static const unsigned char none[8] = {0, 0, 1, 4};
    return udp6_with_control(g, IPV6_HOPOPTS, none, sizeof none);
}

static int
destination_options_by_control_message(const struct goal *g)
{
    static const unsigned char none[8] = {0, 0, 1, 4};
    return udp6_with_control(g, IPV6_DSTOPTS, none, sizeof none);
}

// The forbidden address as the source address.
static int
source_by_control_message(const struct goal *g)
{
    const struct in6_pktinfo from = {.ipi6_addr = g->v6.sin6_addr};
    return udp6_with_control(g, IPV6_PKTINFO, &from, sizeof from);
}

// ---- flows of the relay that were not assigned

static int
flow_by_number6(const struct goal *g)
{
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(15)};
    static const unsigned char prefix[8] = {0xfd, 0x53, 0x74, 0x6f, 0x63, 0x6b};
    (void)g;
    memcpy(&to.sin6_addr, prefix, sizeof prefix);
    to.sin6_addr.s6_addr[14] = 3;
    return connect_send(AF_INET6, SOCK_STREAM, 0, &to, sizeof to);
}

static int
flow_by_number_udp_mapped(const struct goal *g)
{
    const struct sockaddr_in v4 = {
        .sin_family = AF_INET, .sin_port = htons(15), .sin_addr.s_addr = htonl(0x7f800000 + 778)};
    const struct sockaddr_in6 to = mapped(&v4);
    (void)g;
    return send_to(AF_INET6, SOCK_DGRAM, 0, 0, &to, sizeof to);
}

static int
relay_port_of_the_unspecified_address(const struct goal *g)
{
    const struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(15)};
    (void)g;
    return connect_send(AF_INET, SOCK_STREAM, 0, &to, sizeof to);
}

static int
synthetic_address_mapped(const struct goal *g)
{
    const struct sockaddr_in v4 = {
        .sin_family = AF_INET, .sin_port = g->v4.sin_port, .sin_addr.s_addr = htonl(0xc6120006)};
    const struct sockaddr_in6 to = mapped(&v4);
    return connect_send(AF_INET6, SOCK_STREAM, 0, &to, sizeof to);
}

// ---- arguments that change meanwhile

enum { RACES = 500, RACE_S = 20 };

// Runs in another process until it is killed.
static _Noreturn void
change_address(const struct goal *g, struct sockaddr_in *to)
{
    volatile in_addr_t *at = &to->sin_addr.s_addr;
    (void)alarm(RACE_S);
    for (;;) {
        *at = g->v4.sin_addr.s_addr;
        *at = g->allowed4.sin_addr.s_addr;
    }
}

// A destination in memory that another process changes all the time: the checked address must be the one that is
// used.
static int
address_that_changes_under_way(const struct goal *g)
{
    struct sockaddr_in *to =
        mmap(NULL, sizeof *to, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((void *)to == MAP_FAILED)
        return errno;
    *to = g->allowed4;
    pid_t child = fork();
    if (child == 0)
        change_address(g, to);
    int refused = send_to(AF_INET, SOCK_DGRAM, 0, 0, &g->v4, sizeof g->v4);
    for (int i = 0; i < RACES; i++) {
        int sys = send_to(AF_INET, SOCK_DGRAM, 0, 0, to, sizeof *to);
        refused = sys != 0 ? sys : refused;
    }
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    return refused;
}

static _Noreturn void
connect_and_leave(const struct goal *g, int fd)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    (void)alarm(RACE_S);
    for (;;) {
        (void)connect(fd, any(&g->allowed4), sizeof g->allowed4);
        (void)connect(fd, &none, sizeof none);
    }
}

// Two processes with one socket: one connects it to an allowed destination, the other to a forbidden one.
static int
two_connect_one_socket(const struct goal *g)
{
    int fd = open_socket(AF_INET, SOCK_DGRAM, 0);
    pid_t child = fork();
    if (child == 0)
        connect_and_leave(g, fd);
    long r = -1;
    int sys = 0;
    for (int i = 0; i < RACES && r < 0; i++) {
        r = connect(fd, any(&g->v4), sizeof g->v4);
        sys = errno;
        (void)send(fd, "x", 1, MSG_DONTWAIT);
    }
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    errno = sys;
    return ended(fd, r);
}

// ---- options that would be a way out

static int
option_that_is_set(int level, int name, const void *value, socklen_t n)
{
    int fd = open_socket(AF_INET, SOCK_STREAM, 0);
    return ended(fd, setsockopt(fd, level, name, value, n));
}

static int
set_upper_protocol(const struct goal *g)
{
    (void)g;
    return option_that_is_set(IPPROTO_TCP, TCP_ULP, "tls", 4);
}

static int
set_mark(const struct goal *g)
{
    const int one = 1;
    (void)g;
    return option_that_is_set(SOL_SOCKET, SO_MARK, &one, sizeof one);
}

static int
set_device(const struct goal *g)
{
    (void)g;
    return option_that_is_set(SOL_SOCKET, SO_BINDTODEVICE, "lo", 3);
}

static int
set_transparent(const struct goal *g)
{
    const int one = 1;
    (void)g;
    return option_that_is_set(IPPROTO_IP, IP_TRANSPARENT, &one, sizeof one);
}

// ---- kinds of sockets

static int
ping6_sendto(const struct goal *g)
{
    const unsigned char echo[8] = {128};
    int fd = open_socket(AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6);
    if (fd < 0)
        return errno;
    return ended(fd, sendto(fd, echo, sizeof echo, 0, any(&g->v6), sizeof g->v6));
}

static int
raw_icmp(const struct goal *g)
{
    return send_to(AF_INET, SOCK_RAW, IPPROTO_ICMP, 0, &g->v4, sizeof g->v4);
}

static int
dccp(const struct goal *g)
{
    return connect_send(AF_INET, 6 /* SOCK_DCCP */, 33, &g->v4, sizeof g->v4);
}

static int
stream_of_another_protocol(const struct goal *g)
{
    return connect_send(AF_INET, SOCK_SEQPACKET, 132, &g->v4, sizeof g->v4);
}

const struct technique techniques_more[] = {
    {"tcp_v4_compatible", tcp_v4_compatible, false},
    {"tcp_nat64", tcp_nat64, false},
    {"tcp_6to4", tcp_6to4, false},
    {"tcp_isatap", tcp_isatap, false},
    {"udp_multicast", udp_multicast, false},
    {"udp6_multicast", udp6_multicast, false},
    {"udp_broadcast", udp_broadcast, false},
    {"tcp_link_local", tcp_link_local, false},
    {"udp_of_no_bytes", udp_of_no_bytes, false},
    {"udp6_short_address", udp6_short_address, false},
    {"udp6_sendto_unspec_family", udp6_sendto_unspec_family, false},
    {"udp_segmented", udp_segmented, false},
    {"udp_zero_copy", udp_zero_copy, false},
    {"udp_without_routing", udp_without_routing, false},
    {"udp_corked_then_elsewhere", udp_corked_then_elsewhere, false},
    {"mobile_routing_header", mobile_routing_header, false},
    {"segment_route_by_control_message", segment_route_by_control_message, false},
    {"hop_by_hop_by_control_message", hop_by_hop_by_control_message, true},
    {"destination_options_by_control_message", destination_options_by_control_message, true},
    {"source_by_control_message", source_by_control_message, true},
    {"flow_by_number6", flow_by_number6, false},
    {"flow_by_number_udp_mapped", flow_by_number_udp_mapped, false},
    {"relay_port_of_the_unspecified_address", relay_port_of_the_unspecified_address, false},
    {"synthetic_address_mapped", synthetic_address_mapped, false},
    {"address_that_changes_under_way", address_that_changes_under_way, false},
    {"two_connect_one_socket", two_connect_one_socket, false},
    {"set_upper_protocol", set_upper_protocol, false},
    {"set_mark", set_mark, true},
    {"set_device", set_device, false},
    {"set_transparent", set_transparent, true},
    {"ping6_sendto", ping6_sendto, false},
    {"raw_icmp", raw_icmp, true},
    {"dccp", dccp, false},
    {"stream_of_another_protocol", stream_of_another_protocol, false},
    {0},
};
