// SPDX-License-Identifier: Apache-2.0
// Checks 224 to 234: the host's memory in sockets. A socket can own more than its two buffers, and most of that is
// not counted for anyone. The sockets are kept until the harness has checked the host's memory, which a job cannot
// see.
#include "job.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

// Enough to be noticed, but not so much that a host without the barrier suffers.
enum { PROCESSES = 4, MOST_BYTES = 320 << 20, DATAGRAM = 60000, LARGE = 4 << 20 };

static char block[DATAGRAM];

static struct sockaddr_in
loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static int
udp(void)
{
    const int large = LARGE;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &large, sizeof large);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &large, sizeof large);
    return fd;
}

// Sends many to a port where nothing listens. Returns the bytes.
static long
send_to_nobody(int fd, int n, size_t bytes)
{
    struct sockaddr_in to = loopback(9);
    for (int i = 0; i < n; i++) // an error of the previous one may be reported
        (void)sendto(fd, block, bytes, 0, (struct sockaddr *)&to, sizeof to);
    return (long)n * (long)bytes;
}

// ---- one socket and what it owns: the bytes, or -1 with errno if there are no more

static long
stamps(void)
{
    const unsigned flags = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;
    int fd = udp();
    if (fd < 0 || (setsockopt(fd, SOL_SOCKET, 37, &flags, sizeof flags) < 0 &&
                   setsockopt(fd, SOL_SOCKET, 65, &flags, sizeof flags) < 0))
        return -1;
    return send_to_nobody(fd, 140, sizeof block);
}

// A control message requests the same, and no program sees it.
static ssize_t
send_stamped(int fd, const struct sockaddr_in *to)
{
    const unsigned flags =
        SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_SCHED | SOF_TIMESTAMPING_TX_ACK;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof flags)];
    } control = {0};
    struct sockaddr_in name = to != NULL ? *to : (struct sockaddr_in){0};
    struct iovec iov = {block, sizeof block};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    if (to != NULL) {
        m.msg_name = &name;
        m.msg_namelen = sizeof name;
    }
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = 37;
    c->cmsg_len = CMSG_LEN(sizeof flags);
    memcpy(CMSG_DATA(c), &flags, sizeof flags);
    return sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static long
stamps_by_message(void)
{
    struct sockaddr_in to = loopback(9);
    int fd = udp();
    for (int i = 0; fd >= 0 && i < 140; i++)
        (void)send_stamped(fd, &to);
    return fd < 0 ? -1 : 140L * DATAGRAM;
}

// No call that waits for the other end takes longer. A sandbox that has as many sockets as it may have is refused a
// connection at once. But when another process takes the last one in between, the packet is dropped, and connect(2)
// repeats it for two minutes.
static int
with_timeout(int fd)
{
    const struct timeval most = {.tv_sec = 5};
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    return fd;
}

// Both ends of a connection. The process has one listener for all of them.
static int
tcp_pair(int pair[2])
{
    static int listener = -1;
    static struct sockaddr_in at;
    socklen_t n = sizeof at;
    if (listener < 0) {
        at = loopback(0);
        listener = with_timeout(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (bind(listener, (struct sockaddr *)&at, n) < 0 || listen(listener, 64) < 0 ||
            getsockname(listener, (struct sockaddr *)&at, &n) < 0)
            return -1;
    }
    pair[0] = with_timeout(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (pair[0] < 0 || connect(pair[0], (struct sockaddr *)&at, sizeof at) < 0)
        return -1;
    pair[1] = accept(listener, NULL, NULL);
    return pair[1] < 0 ? -1 : 0;
}

// The low-water mark raises the receive buffer to its maximum, and with it the room for errors.
static long
stamps_on_tcp(void)
{
    const int low = 1 << 30;
    int pair[2];
    long sent = 0;
    if (tcp_pair(pair) < 0)
        return -1;
    (void)setsockopt(pair[0], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
    for (int i = 0; i < 300; i++) {
        ssize_t r = send_stamped(pair[0], NULL);
        sent += r > 0 ? r : 0;
        while (recv(pair[1], block, sizeof block, MSG_DONTWAIT) > 0)
            ;
    }
    return sent;
}

static long
errors(void)
{
    const int on = 1;
    int fd = udp();
    if (fd < 0 || setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof on) < 0)
        return -1;
    return send_to_nobody(fd, 4000, 512);
}

static long
corked(void)
{
    struct sockaddr_in to = loopback(9);
    int fd = udp();
    ssize_t n = sendto(fd, block, sizeof block, MSG_MORE, (struct sockaddr *)&to, sizeof to);
    return fd < 0 ? -1 : n;
}

static long
unread(void)
{
    struct sockaddr_in at = loopback(0);
    socklen_t n = sizeof at;
    int to = udp();
    int from = udp();
    long sent = 0;
    if (from < 0 || to < 0 || bind(to, (struct sockaddr *)&at, n) < 0 ||
        getsockname(to, (struct sockaddr *)&at, &n) < 0)
        return -1;
    for (int i = 0; i < 140; i++)
        sent += sendto(from, block, sizeof block, 0, (struct sockaddr *)&at, n);
    (void)close(from);
    return sent;
}

static long
unaccepted(void)
{
    static struct sockaddr_in at;
    static int listener = -1;
    socklen_t n = sizeof at;
    if (listener < 0) {
        at = loopback(0);
        listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(listener, (struct sockaddr *)&at, n) < 0 || listen(listener, 4096) < 0 ||
            getsockname(listener, (struct sockaddr *)&at, &n) < 0)
            return -1;
    }
    int fd = with_timeout(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ssize_t r = connect(fd, (struct sockaddr *)&at, sizeof at);
    if (r == 0)
        r = send(fd, block, sizeof block, MSG_DONTWAIT);
    (void)close(fd); // the other end stays, and the data that it received
    return fd < 0 ? -1 : r;
}

static long
left_behind(void)
{
    int pair[2];
    if (tcp_pair(pair) < 0)
        return -1;
    (void)close(pair[0]);
    (void)close(pair[1]);
    return 2048; // TIME_WAIT, and a port
}

static long
keys(void)
{
    struct tcp_md5sig key = {.tcpm_keylen = 8, .tcpm_key = "12345678"};
    struct sockaddr_in *to = (struct sockaddr_in *)&key.tcpm_addr;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *to = loopback(0);
    for (uint32_t i = 1; i <= 20000; i++) {
        to->sin_addr.s_addr = htonl(INADDR_LOOPBACK + i);
        if (setsockopt(fd, IPPROTO_TCP, TCP_MD5SIG, &key, sizeof key) < 0 && errno != ENOMEM)
            return -1;
    }
    return 20000L * 128;
}

static long
groups(void)
{
    struct ipv6_mreq group = {.ipv6mr_interface = 1};
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    (void)inet_pton(AF_INET6, "ff02::1:0:0", &group.ipv6mr_multiaddr);
    for (int i = 0; i < 2000; i++) {
        group.ipv6mr_multiaddr.s6_addr[14] = (unsigned char)(i >> 8);
        group.ipv6mr_multiaddr.s6_addr[15] = (unsigned char)i;
        if (setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &group, sizeof group) < 0 &&
            errno != ENOBUFS && errno != ENOMEM)
            return -1;
    }
    return 2000L * 256;
}

static long
labels(void)
{
    // struct in6_flowlabel_req of linux/in6.h
    struct {
        struct in6_addr to;
        uint32_t label;
        uint8_t action, share;
        uint16_t flags, expires, linger;
        uint32_t pad;
    } get = {.action = 0, .share = 255, .flags = 1, .expires = 6};
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    get.to.s6_addr[15] = 1;
    for (int i = 0; i < 32; i++) {
        get.label = htonl((uint32_t)rand() & 0xfffff); // NOLINT: any number
        if (setsockopt(fd, IPPROTO_IPV6, 32, &get, sizeof get) < 0 && errno != ENOBUFS)
            return -1;
    }
    return 32L * 128;
}

// ---- as many of them as possible

static void
one_process(long (*fill)(void), int done_fd, int stay_fd)
{
    struct {
        long bytes, sockets;
        int why;
    } sum = {0};
    struct rlimit files;
    char c;
    (void)getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    for (long n = 0; sum.bytes < MOST_BYTES && sum.sockets < 6000; sum.bytes += n, sum.sockets++) {
        n = fill();
        if (n < 0) {
            sum.why = errno;
            break;
        }
    }
    (void)!write(done_fd, &sum, sizeof sum);
    (void)close(done_fd);
    (void)!read(stay_fd, &c, 1);
    _exit(0);
}

// Prints how much, and waits until the harness has checked. The harness decides the verdict.
static int
as_many_as_can_be(long (*fill)(void))
{
    struct {
        long bytes, sockets;
        int why;
    } sum, all = {0};
    int done[2], stay[2];
    if (pipe(done) != 0 || pipe(stay) != 0)
        return escaped("no pipe");
    for (int i = 0; i < PROCESSES; i++)
        if (fork() == 0) {
            (void)close(stay[1]);
            one_process(fill, done[1], stay[0]);
        }
    (void)close(done[1]);
    while (read(done[0], &sum, sizeof sum) == (ssize_t)sizeof sum) {
        all.bytes += sum.bytes;
        all.sockets += sum.sockets;
        all.why = sum.why != 0 ? sum.why : all.why;
    }
    int verdict = held("%ld sockets, %ld KiB given to them; %s", all.sockets, all.bytes / 1024,
                       all.why != 0 ? strerror(all.why) : "no end");
    if (parameter("ESCAPE_STAY")[0] != '\0')
        (void)pause();
    return verdict;
}

#define CHECK(name)                                                                                \
    static int check_##name(void)                                                                  \
    {                                                                                              \
        return as_many_as_can_be(name);                                                            \
    }
CHECK(stamps)
CHECK(stamps_by_message)
CHECK(stamps_on_tcp)
CHECK(errors)
CHECK(corked)
CHECK(unread)
CHECK(unaccepted)
CHECK(left_behind)
CHECK(keys)
CHECK(groups)
CHECK(labels)

#define COUNT "sockets of a sandbox are counted"
const struct check socket_checks[] = {
    {224, "time stamps keep no copies of what was sent", "options are listed", check_stamps},
    {225, "nor when a message asks for them", COUNT, check_stamps_by_message},
    {226, "nor on a connection", "net.ipv4.tcp_rmem of the namespace; " COUNT, check_stamps_on_tcp},
    {227, "errors that nobody reads are bounded", "SO_RCVBUF is capped; " COUNT, check_errors},
    {228, "corked datagrams are bounded", "SO_SNDBUF is capped; " COUNT, check_corked},
    {229, "datagrams that nobody reads are bounded", "SO_RCVBUF is capped; " COUNT, check_unread},
    {230, "connections that nobody accepts are bounded", COUNT, check_unaccepted},
    {231, "closed connections are bounded", "net.ipv4.tcp_max_tw_buckets of the namespace",
     check_left_behind},
    {232, "a socket has no keys", "options are listed", check_keys},
    {233, "a socket joins no groups", "options are listed", check_groups},
    {234, "a socket takes no flow labels", "options are listed", check_labels},
    {0, NULL, NULL, NULL},
};
