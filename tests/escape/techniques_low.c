// SPDX-License-Identifier: Apache-2.0
// See techniques.h. Below TCP and UDP, source routes, io_uring, other ends.
#include "techniques_inside.h"

// ---- below TCP and UDP

static int
ping_sendto(const struct goal *g)
{
    const struct icmphdr echo = {.type = ICMP_ECHO};
    int fd = open_socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
    if (fd < 0)
        return errno;
    return ended(fd, sendto(fd, &echo, sizeof echo, 0, any(&g->v4), sizeof g->v4));
}

static int
ping_connected(const struct goal *g)
{
    const struct icmphdr echo = {.type = ICMP_ECHO};
    int fd = open_socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
    if (fd < 0)
        return errno;
    long r = connect(fd, any(&g->v4), sizeof g->v4);
    return ended(fd, r == 0 ? send(fd, &echo, sizeof echo, 0) : r);
}

struct raw_packet {
    struct iphdr ip;
    struct udphdr udp;
    char mark[MARK_N];
};

static struct raw_packet
raw_packet(const struct goal *g)
{
    struct raw_packet p = {
        .ip = {.version = 4,
               .ihl = 5,
               .ttl = 9,
               .protocol = IPPROTO_UDP,
               .tot_len = htons(sizeof p),
               .saddr = htonl(INADDR_LOOPBACK),
               .daddr = g->v4.sin_addr.s_addr},
        .udp = {.source = htons(1234), .dest = g->v4.sin_port, .len = htons(sizeof p.udp + MARK_N)},
    };
    memcpy(p.mark, TECHNIQUE_MARK, MARK_N);
    return p;
}

static int
raw_to(const struct goal *g, const struct sockaddr_in *named)
{
    const struct raw_packet p = raw_packet(g);
    int fd = open_socket(AF_INET, SOCK_RAW, IPPROTO_RAW);
    if (fd < 0)
        return errno;
    return ended(fd, sendto(fd, &p, sizeof p, 0, any(named), sizeof *named));
}

static int
raw(const struct goal *g)
{
    return raw_to(g, &g->v4);
}

static int
raw_header_differs(const struct goal *g)
{
    return raw_to(g, &g->allowed4);
}

static int
raw6(const struct goal *g)
{
    struct sockaddr_in6 to = g->v6;
    to.sin6_port = 0;
    int fd = open_socket(AF_INET6, SOCK_RAW, 253);
    if (fd < 0)
        return errno;
    return ended(fd, sendto(fd, TECHNIQUE_MARK, MARK_N, 0, any(&to), sizeof to));
}

// ---- source routes

static const unsigned char *
route4(const struct goal *g, unsigned char kind, unsigned char out[8])
{
    out[0] = kind; // 131: loose, 137: strict
    out[1] = 7;
    out[2] = 4;
    // the final destination; the named address is the next hop
    memcpy(out + 3, &g->allowed4.sin_addr, 4);
    out[7] = 0;
    return out;
}

static int
source_route(const struct goal *g, unsigned char kind)
{
    unsigned char options[8];
    int fd = open_socket(AF_INET, SOCK_DGRAM, 0);
    long r = setsockopt(fd, IPPROTO_IP, IP_OPTIONS, route4(g, kind, options), sizeof options);
    // The packet goes to the first hop of the route.
    memcpy(options + 3, &g->v4.sin_addr, 4);
    if (r == 0)
        r = setsockopt(fd, IPPROTO_IP, IP_OPTIONS, options, sizeof options);
    if (r == 0)
        r = sendto(fd, TECHNIQUE_MARK, MARK_N, 0, any(&g->allowed4), sizeof g->allowed4);
    return ended(fd, r);
}

static int
loose_source_route(const struct goal *g)
{
    return source_route(g, 131);
}

static int
strict_source_route(const struct goal *g)
{
    return source_route(g, 137);
}

static int
source_route_by_control_message(const struct goal *g)
{
    unsigned char options[8];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof options)];
    } control = {0};
    char mark[] = TECHNIQUE_MARK;
    struct iovec iov = {.iov_base = mark, .iov_len = MARK_N};
    struct sockaddr_in to = g->allowed4;
    struct msghdr m = {.msg_name = &to,
                       .msg_namelen = sizeof to,
                       .msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = IPPROTO_IP;
    c->cmsg_type = IP_RETOPTS;
    c->cmsg_len = CMSG_LEN(sizeof options);
    (void)route4(g, 131, options);
    memcpy(options + 3, &g->v4.sin_addr, 4);
    memcpy(CMSG_DATA(c), options, sizeof options);
    int fd = open_socket(AF_INET, SOCK_DGRAM, 0);
    return ended(fd, sendmsg(fd, &m, 0));
}

static int
segment_route(const struct goal *g, int type)
{
    struct {
        unsigned char next, length, kind, left, last, flags, tag[2];
        struct in6_addr segment[2];
    } srh = {.length = 4, .kind = 4, .left = 1, .last = 1};
    srh.segment[0] = g->allowed6.sin6_addr;
    srh.segment[1] = g->v6.sin6_addr;
    int fd = open_socket(AF_INET6, type, 0);
    long r = setsockopt(fd, IPPROTO_IPV6, IPV6_RTHDR, &srh, sizeof srh);
    if (r == 0)
        r = connect(fd, any(&g->allowed6), sizeof g->allowed6);
    if (r == 0)
        r = send(fd, TECHNIQUE_MARK, MARK_N, MSG_NOSIGNAL);
    return ended(fd, r);
}

static int
segment_route_tcp(const struct goal *g)
{
    return segment_route(g, SOCK_STREAM);
}

static int
segment_route_udp(const struct goal *g)
{
    return segment_route(g, SOCK_DGRAM);
}

static int
hop_by_hop_options(const struct goal *g)
{
    const unsigned char none[8] = {0, 0, 1, 4};
    int fd = open_socket(AF_INET6, SOCK_DGRAM, 0);
    long r = setsockopt(fd, IPPROTO_IPV6, IPV6_HOPOPTS, none, sizeof none);
    if (r == 0)
        r = sendto(fd, TECHNIQUE_MARK, MARK_N, 0, any(&g->v6), sizeof g->v6);
    return ended(fd, r);
}

// ---- io_uring: the same operations without their system calls

struct ring {
    int fd;
    struct io_uring_params p;
    char *sq;
    struct io_uring_sqe *sqe;
};

static int
ring_open(struct ring *r, unsigned flags)
{
    memset(r, 0, sizeof *r);
    r->p.flags = flags;
    r->fd = (int)syscall(SYS_io_uring_setup, 4, &r->p);
    if (r->fd < 0)
        return -1;
    size_t n = r->p.sq_off.array + r->p.sq_entries * sizeof(unsigned);
    r->sq = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
    r->sqe = mmap(NULL, r->p.sq_entries * sizeof *r->sqe, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
                  (off_t)IORING_OFF_SQES);
    return r->sq == MAP_FAILED || (void *)r->sqe == MAP_FAILED ? -1 : 0;
}

// Runs one operation and waits for it. Returns its result: 0 or more, or -1 with errno.
static int
ring_do(struct ring *r, const struct io_uring_sqe *op)
{
    unsigned tail;
    r->sqe[0] = *op;
    memcpy(&tail, r->sq + r->p.sq_off.tail, sizeof tail);
    memset(r->sq + r->p.sq_off.array, 0, sizeof tail);
    tail++;
    memcpy(r->sq + r->p.sq_off.tail, &tail, sizeof tail);
    if (syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
        return -1;
    size_t n = r->p.cq_off.cqes + r->p.cq_entries * sizeof(struct io_uring_cqe);
    const char *cq = mmap(NULL, n, PROT_READ, MAP_SHARED, r->fd, IORING_OFF_CQ_RING);
    struct io_uring_cqe done;
    memcpy(&done, cq + r->p.cq_off.cqes, sizeof done);
    errno = done.res < 0 ? -done.res : 0;
    return done.res < 0 ? -1 : done.res;
}

static int
uring_connect(const struct goal *g)
{
    struct ring r;
    if (ring_open(&r, 0) < 0)
        return errno;
    int fd = open_socket(AF_INET, SOCK_STREAM, 0);
    const struct io_uring_sqe op = {.opcode = IORING_OP_CONNECT,
                                    .fd = fd,
                                    .addr = (unsigned long)&g->v4,
                                    .off = sizeof g->v4,
                                    .flags = IOSQE_ASYNC};
    int rc = ring_do(&r, &op);
    (void)close(r.fd);
    return ended(fd, rc);
}

static int
uring_sendmsg(const struct goal *g)
{
    struct ring r;
    struct sockaddr_in to = g->v4;
    char mark[] = TECHNIQUE_MARK;
    struct iovec iov = {.iov_base = mark, .iov_len = MARK_N};
    const struct msghdr m = {
        .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &iov, .msg_iovlen = 1};
    if (ring_open(&r, 0) < 0)
        return errno;
    int fd = open_socket(AF_INET, SOCK_DGRAM, 0);
    const struct io_uring_sqe op = {
        .opcode = IORING_OP_SENDMSG, .fd = fd, .addr = (unsigned long)&m, .len = 1};
    int rc = ring_do(&r, &op);
    (void)close(r.fd);
    return ended(fd, rc);
}

// ---- the relay's own ports

static int
flow_by_number(const struct goal *g)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(15), .sin_addr.s_addr = htonl(0x7f800000 + 777)};
    (void)g;
    return connect_send(AF_INET, SOCK_STREAM, 0, &to, sizeof to);
}

static int
synthetic_address_of_nobody(const struct goal *g)
{
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = g->v4.sin_port, .sin_addr.s_addr = htonl(0xc6120005)};
    return connect_send(AF_INET, SOCK_STREAM, 0, &to, sizeof to);
}

// ---- other ends

static int
bind_address(const struct goal *g)
{
    struct sockaddr_in at = g->allowed4;
    at.sin_port = htons(9999);
    int fd = open_socket(AF_INET, SOCK_STREAM, 0);
    return ended(fd, bind(fd, any(&at), sizeof at));
}

static int
bind_unspec_family(const struct goal *g)
{
    const struct sockaddr_in at = {.sin_family = AF_UNSPEC, .sin_port = htons(15)};
    (void)g;
    int fd = open_socket(AF_INET, SOCK_STREAM, 0);
    return ended(fd, bind(fd, any(&at), sizeof at));
}

static int
bind_relay_port(const struct goal *g)
{
    const struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(15)};
    (void)g;
    int fd = open_socket(AF_INET6, SOCK_DGRAM, 0);
    return ended(fd, bind(fd, any(&at), sizeof at));
}

static int
set_pacing(const struct goal *g)
{
    const unsigned long much = ~0UL;
    (void)g;
    int fd = open_socket(AF_INET, SOCK_STREAM, 0);
    return ended(fd, setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &much, sizeof much));
}

static int
open_tun(const struct goal *g)
{
    (void)g;
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    return ended(fd, fd);
}

static int
sctp(const struct goal *g)
{
    return connect_send(AF_INET, SOCK_STREAM, IPPROTO_SCTP, &g->v4, sizeof g->v4);
}

const struct technique techniques_low[] = {
    {"ping_sendto", ping_sendto, false},
    {"ping_connected", ping_connected, false},
    {"raw", raw, true},
    {"raw_header_differs", raw_header_differs, true},
    {"raw6", raw6, true},
    {"loose_source_route", loose_source_route, true},
    {"strict_source_route", strict_source_route, true},
    {"source_route_by_control_message", source_route_by_control_message, true},
    {"segment_route_tcp", segment_route_tcp, false},
    {"segment_route_udp", segment_route_udp, false},
    {"hop_by_hop_options", hop_by_hop_options, true},
    {"uring_connect", uring_connect, false},
    {"uring_sendmsg", uring_sendmsg, false},
    {"flow_by_number", flow_by_number, false},
    {"synthetic_address_of_nobody", synthetic_address_of_nobody, false},
    {"bind_address", bind_address, false},
    {"bind_unspec_family", bind_unspec_family, true},
    {"bind_relay_port", bind_relay_port, true},
    {"set_pacing", set_pacing, false},
    {"open_tun", open_tun, true},
    {"sctp", sctp, false},
    {0},
};
