// SPDX-License-Identifier: Apache-2.0
// The pool of network namespaces; NET_OPEN and NET_DIAL: sockets inside a sandbox's network namespace, for the relay and
// for the broker.
//
//   setns(pidfd of its first process)  ->  socket, bind or connect  ->  setns(home)
//
// The sockets belong to this process's cgroup, so the programs on the sandboxes' cgroup (bpf/net.bpf.c) check only
// the job's end of a connection. All of it takes about 0.1 ms, so it is done in the loop.
//
// To make and remove a namespace takes as long as the rest of a birth, so one that is still as new is used again, one
// sandbox after the other. That is so if no process in it could make a socket other than a unix one (DESTROY with arg 1),
// and none exists any more. Unix sockets leave nothing: their names end with them, and nothing counts them but the number of
// sockets. Everything else in a namespace (addresses, routes, settings, counters, cached connections) changes through sockets
// of other families or with capabilities over the initial user namespace, which owns all of these namespaces. Whatever this
// process itself changes in one (NET_OPEN, NET_DIAL, RESET) ends its reuse.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bpf/net.h"
#include "proto/auto.h"
#include "holder.h"
#include "io.h"
#include "netns.h"

enum {
    BACKLOG = 128,
    CONNECT_MS = 2,
    LO_INDEX = 1,
    SPARE_MAX = 16, // ready ones beyond `netns_pool`, of sandboxes that have ended
};

static const uint8_t flow_prefix[] = NET_FLOW_V6_PREFIX;

// Enters the sandbox's namespace, and returns. Returning must not fail, because the spawner would serve the next
// sandbox in this namespace.
static int
enter(const struct slot *slot, struct err *e)
{
    if (slot->pid_fd >= 0 && setns(slot->pid_fd, CLONE_NEWNET) == 0)
        return 0;
    if (slot->pid_fd < 0 || errno == ESRCH)
        return err_set(e, ERR_FAILED_PRECONDITION, "its first process has ended");
    return err_sys(e, errno, "enter its network namespace");
}

static void
leave(struct spawner *s)
{
    if (setns(s->net_home_fd, CLONE_NEWNET) < 0)
        broker_broken(s, "cannot go back to the host's network namespace: %s", strerror(errno));
}

// ---- the pool

bool
netns_fill(struct spawner *s)
{
    if (s->net_n >= s->config->netns_pool || s->net_n >= NETNS_POOL_MAX)
        return false;
    struct err ignored; // reported when a child makes its own
    int fd = holder_network_namespace(s->net_home_fd, s->proc_fd, &ignored);
    if (fd < 0)
        return false;
    s->net_pool[s->net_n++] = io_keep_fd(fd);
    return true;
}

void
netns_remember(struct spawner *s, struct slot *slot)
{
    struct err ignored; // then the namespace ends with the sandbox
    if (slot->net_again_fd >= 0 || enter(slot, &ignored) < 0)
        return;
    int fd = openat(s->proc_fd, "thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    leave(s);
    slot->net_again_fd = fd < 0 ? -1 : io_keep_fd(fd);
}

bool
netns_has_no_sockets(int sockets_fd)
{
    static const char none[] = "sockets: used 0\n";
    char text[sizeof none - 1];
    ssize_t n = pread(sockets_fd, text, sizeof text, 0);
    return n == (ssize_t)sizeof text && memcmp(text, none, sizeof text) == 0;
}

static bool
is_as_new(struct spawner *s, int ns_fd)
{
    if (setns(ns_fd, CLONE_NEWNET) < 0)
        return false;
    int auto_close fd = openat(s->proc_fd, "thread-self/net/sockstat", O_RDONLY | O_CLOEXEC);
    leave(s);
    return fd >= 0 && netns_has_no_sockets(fd);
}

void
netns_give(struct spawner *s, struct slot *slot)
{
    if (slot->net_again_fd < 0 || s->net_n >= s->config->netns_pool + SPARE_MAX ||
        s->net_n >= NETNS_POOL_MAX || !is_as_new(s, slot->net_again_fd))
        return;
    s->net_pool[s->net_n++] = take_fd(&slot->net_again_fd);
}

// ---- NET_OPEN, NET_DIAL

struct route {
    struct nlmsghdr head;
    struct rtmsg body;
    struct rtattr address_head;
    uint8_t address[16];
    struct rtattr device_head;
    uint32_t device;
};
_Static_assert(sizeof(struct route) == 16 + 12 + 4 + 16 + 4 + 4, "no room between the parts");

// "ip -6 route add local fd53:746f:636b::/64 dev lo" for rtnetlink(7): all IPv6 flow addresses become local, as
// 127.0.0.0/8 is for IPv4. The route is added once per namespace; later it exists already.
static int
add_flow_route(struct err *e)
{
    struct route r = {
        .head = {.nlmsg_len = sizeof r,
                 .nlmsg_type = RTM_NEWROUTE,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
                 .nlmsg_seq = 1},
        .body = {.rtm_family = AF_INET6,
                 .rtm_dst_len = 8 * sizeof flow_prefix,
                 .rtm_table = RT_TABLE_LOCAL,
                 .rtm_protocol = RTPROT_STATIC,
                 .rtm_scope = RT_SCOPE_HOST,
                 .rtm_type = RTN_LOCAL},
        .address_head = {.rta_len = RTA_LENGTH(16), .rta_type = RTA_DST},
        .device_head = {.rta_len = RTA_LENGTH(sizeof r.device), .rta_type = RTA_OIF},
        .device = LO_INDEX,
    };
    memcpy(r.address, flow_prefix, sizeof flow_prefix);
    struct {
        struct nlmsghdr head;
        struct nlmsgerr error;
    } answer = {.error = {.error = -EIO}};
    int auto_close fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0 || send(fd, &r, sizeof r, 0) != (ssize_t)sizeof r)
        return err_sys(e, errno, "add the route of flow addresses");
    // The kernel handles the request during send, so the reply is available.
    ssize_t n = recv(fd, &answer, sizeof answer, MSG_DONTWAIT);
    if (n < (ssize_t)sizeof answer || answer.head.nlmsg_type != NLMSG_ERROR)
        return err_sys(e, n < 0 ? errno : EIO, "add the route of flow addresses");
    int sys = -answer.error.error;
    return sys == 0 || sys == EEXIST ? 0 : err_sys(e, sys, "add the route of flow addresses");
}

struct listener {
    int family;
    int type;
    int level; // for setsockopt
    int packet_info;
};

// By enum spawn_net_fd.
static const struct listener listeners[] = {
    [NET_FD_TCP4] = {AF_INET, SOCK_STREAM, IPPROTO_IP, 0},
    [NET_FD_UDP4] = {AF_INET, SOCK_DGRAM, IPPROTO_IP, IP_PKTINFO},
    [NET_FD_TCP6] = {AF_INET6, SOCK_STREAM, IPPROTO_IPV6, 0},
    [NET_FD_UDP6] = {AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, IPV6_RECVPKTINFO},
};
enum { LISTENERS_N = sizeof listeners / sizeof listeners[0] };

static socklen_t
address_of(int family, bool loopback, uint16_t port, struct sockaddr_storage *out)
{
    *out = (struct sockaddr_storage){.ss_family = (sa_family_t)family};
    if (family == AF_INET) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)out;
        v4->sin_port = htons(port);
        v4->sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
        return sizeof *v4;
    }
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    v6->sin6_port = htons(port);
    v6->sin6_addr = loopback ? in6addr_loopback : in6addr_any;
    return sizeof *v6;
}

// Opens one listener in the current namespace. UDP sockets report the flow address that each packet was sent to.
static int
open_listener(const struct listener *l, struct err *e)
{
    const int on = 1;
    struct sockaddr_storage at;
    socklen_t at_n = address_of(l->family, false, NET_RELAY_PORT, &at);
    int auto_close fd = socket(l->family, l->type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(e, errno, "make a listener");
    bool fine = true;
    if (l->family == AF_INET6)
        fine = setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0;
    if (fine && l->packet_info)
        fine = setsockopt(fd, l->level, l->packet_info, &on, sizeof on) == 0;
    if (fine && l->type == SOCK_STREAM) // connections of an earlier relay may still be closing
        fine = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0;
    if (!fine)
        return err_sys(e, errno, "set options of a listener");
    if (bind(fd, (const struct sockaddr *)&at, at_n) < 0 ||
        (l->type == SOCK_STREAM && listen(fd, BACKLOG) < 0)) {
        if (errno == EADDRINUSE)
            return err_set(e, ERR_FAILED_PRECONDITION, "listeners of a relay already exist");
        return err_sys(e, errno, "listen");
    }
    return take_fd(&fd);
}

// Opens all listeners, or only those of IPv4 if the kernel has no IPv6 or it is disabled there.
static int
open_listeners(int fds[LISTENERS_N], struct err *e)
{
    int r = 0;
    for (int i = 0; i < LISTENERS_N && r >= 0; i++) {
        r = open_listener(&listeners[i], e);
        bool absent = r == -EAFNOSUPPORT || r == -EADDRNOTAVAIL;
        fds[i] = r >= 0 ? r : -1;
        if (absent && listeners[i].family == AF_INET6)
            r = 0;
    }
    if (r >= 0 && fds[NET_FD_TCP6] >= 0)
        r = add_flow_route(e);
    return r < 0 ? r : 0;
}

void
netns_open(struct spawner *s, struct slot *slot, const struct spawn_request *q, struct answer *a)
{
    (void)q;
    struct err e;
    int fds[LISTENERS_N] = {-1, -1, -1, -1};
    int send[LISTENERS_N];
    unsigned n = 0;
    io_close(&slot->net_again_fd);
    int r = enter(slot, &e);
    if (r == 0) {
        r = open_listeners(fds, &e);
        leave(s);
    }
    for (int i = 0; i < LISTENERS_N; i++) {
        if (r < 0)
            io_close(&fds[i]);
        if (fds[i] < 0)
            continue;
        send[n++] = fds[i];
        answer_reply(a)->fds |= 1u << i;
    }
    if (r < 0) {
        (void)err_wrap(&e, "open the network of sandbox %s", slot->name);
        answer_err(s, a, &e);
        return;
    }
    answer_reply(a)->ok = 1;
    answer_send(s, a, send, n);
}

// Connects on loopback, where the other end responds immediately; a socket that is still connecting is passed on as
// it is.
static int
dial_one(int family, uint16_t port, struct err *e)
{
    struct sockaddr_storage to;
    socklen_t to_n = address_of(family, true, port, &to);
    int auto_close fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(e, errno, "make a socket");
    int sys = connect(fd, (const struct sockaddr *)&to, to_n) < 0 ? errno : 0;
    if (sys == EINPROGRESS) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        socklen_t n = sizeof sys;
        sys = 0;
        if (poll(&p, 1, CONNECT_MS) == 1)
            (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys, &n);
    }
    return sys == 0 ? take_fd(&fd) : err_sys(e, sys, "connect");
}

void
netns_dial(struct spawner *s, struct slot *slot, const struct spawn_request *q, struct answer *a)
{
    struct err e;
    uint16_t port = (uint16_t)q->arg;
    io_close(&slot->net_again_fd);
    int fd = enter(slot, &e);
    if (fd == 0) {
        fd = dial_one(AF_INET, port, &e);
        if (fd < 0)
            fd = dial_one(AF_INET6, port, &e);
        leave(s);
    }
    if (fd < 0) {
        if (fd == -ECONNREFUSED || fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL) {
            (void)err_set(&e, ERR_FAILED_PRECONDITION, "nothing listens on port %u", port);
            err_detail(&e, "PORT_CLOSED", NULL, "start the server in the sandbox first");
        }
        (void)err_wrap(&e, "connect to sandbox %s", slot->name);
        answer_err(s, a, &e);
        return;
    }
    answer_reply(a)->ok = 1;
    answer_reply(a)->fds = 1;
    answer_send(s, a, &fd, 1);
}
