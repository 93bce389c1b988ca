// SPDX-License-Identifier: Apache-2.0
// Attempts from inside to reach destinations that the policy forbids: those of techniques.h, and those that need a
// sandbox. The harness (network.py) has the other ends, and checks what arrives there.
//
//   escape-job network matrix EVIL4 EVIL6 ALLOWED4 ALLOWED6 ABSTRACT PATH
//       one line for each: its name, 0 or the error, milliseconds
//   escape-job network held ALLOWED4 ALLOWED6   connects, reports it, waits for a line, continues
//   escape-job network listen                   listens without bind, the same way
//   escape-job network ask tcp|udp SERVER COUNT NAME       the answers' codes, and the last address
#include "network.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FAMILIES = 64, NETLINKS = 32, TECHNIQUE_S = 10 };

static struct goal goal;
static const char *host_abstract, *host_path;

static const struct sockaddr *
any(const void *address)
{
    return address;
}

static int
end(int fd, long result)
{
    int sys = result < 0 ? errno : 0;
    if (fd >= 0)
        (void)close(fd);
    return sys;
}

const char *
network_error(int sys)
{
    const char *name = strerrorname_np(sys);
    return sys == 0 || name == NULL ? "0" : name;
}

// ---- sockets of other kinds

// The first that can be made is a way out; otherwise the error that looks least like a refusal.
static int
none_of(int (*make)(int), int n)
{
    int worst = EPERM;
    for (int i = 0; i < n; i++) {
        int fd = make(i);
        if (fd >= 0)
            return end(fd, 0);
        if (errno != EPERM && errno != EAFNOSUPPORT && errno != EPROTONOSUPPORT)
            worst = errno;
    }
    return worst;
}

static int
packet_socket(int type)
{
    static const int types[] = {SOCK_RAW, SOCK_DGRAM, SOCK_PACKET};
    return socket(AF_PACKET, types[type] | SOCK_CLOEXEC, htons(3));
}

static int
packet_sockets(const struct goal *g)
{
    (void)g;
    return none_of(packet_socket, 3);
}

static int
vsock_socket(int type)
{
    return socket(AF_VSOCK, (type == 0 ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
}

static int
vsock_sockets(const struct goal *g)
{
    (void)g;
    return none_of(vsock_socket, 2);
}

static int
netlink_socket(int protocol)
{
    if (protocol == NETLINK_ROUTE) {
        errno = EPERM;
        return -1;
    }
    return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
}

static int
netlink_sockets_but_route(const struct goal *g)
{
    (void)g;
    return none_of(netlink_socket, NETLINKS);
}

static int
other_family(int family)
{
    if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK) {
        errno = EPERM;
        return -1;
    }
    return socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

static int
every_other_family(const struct goal *g)
{
    (void)g;
    return none_of(other_family, FAMILIES);
}

// The kernel's reply to a request of NETLINK_ROUTE.
static int
route_request(const struct nlmsghdr *request)
{
    struct {
        struct nlmsghdr h;
        struct nlmsgerr e;
        char more[512];
    } answer = {0};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        return errno;
    long r = send(fd, request, request->nlmsg_len, 0);
    if (r >= 0)
        r = recv(fd, &answer, sizeof answer, 0);
    if (r >= 0 && answer.h.nlmsg_type == NLMSG_ERROR) {
        errno = -answer.e.error;
        r = answer.e.error;
    }
    return end(fd, r);
}

static int
route_of_its_own(const struct goal *g)
{
    const struct {
        struct nlmsghdr h;
        struct rtmsg r;
        struct rtattr a;
        struct in_addr to;
    } request = {
        .h = {.nlmsg_len = sizeof request,
              .nlmsg_type = RTM_NEWROUTE,
              .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE},
        .r = {.rtm_family = AF_INET,
              .rtm_dst_len = 32,
              .rtm_table = RT_TABLE_LOCAL,
              .rtm_type = RTN_LOCAL,
              .rtm_scope = RT_SCOPE_HOST},
        .a = {.rta_len = sizeof(struct rtattr) + 4, .rta_type = RTA_DST},
        .to = g->v4.sin_addr,
    };
    return route_request(&request.h);
}

static int
link_of_its_own(const struct goal *g)
{
    static const char kind[] = "dummy";
    struct {
        struct nlmsghdr h;
        struct ifinfomsg i;
        struct rtattr info, kind;
        char name[8];
    } request = {
        .h = {.nlmsg_len = sizeof request,
              .nlmsg_type = RTM_NEWLINK,
              .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE},
        .info = {.rta_len = sizeof(struct rtattr) * 2 + 8, .rta_type = IFLA_LINKINFO},
        .kind = {.rta_len = sizeof(struct rtattr) + 8, .rta_type = IFLA_INFO_KIND},
    };
    (void)g;
    memcpy(request.name, kind, sizeof kind);
    return route_request(&request.h);
}

// ---- sockets of the host

static int
unix_to(const char *name, bool abstract)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = strlen(name);
    if (n + 1 >= sizeof to.sun_path)
        return ENAMETOOLONG;
    memcpy(to.sun_path + abstract, name, n);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + abstract + n);
    return end(fd, connect(fd, any(&to), size));
}

static int
abstract_socket_of_the_host(const struct goal *g)
{
    (void)g;
    return unix_to(host_abstract, true);
}

static int
path_socket_of_the_host(const struct goal *g)
{
    (void)g;
    return unix_to(host_path, false);
}

// ---- descriptors

static int
inherited_sockets(const struct goal *g)
{
    struct stat st;
    (void)g;
    for (int fd = 0; fd < 1024; fd++)
        if (fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode))
            return 0;
    return EBADF; // there is none
}

static int
pass(int over, int fd)
{
    char byte = 0;
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof fd)];
    } control = {0};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (fd >= 0) {
        *c = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
        return sendmsg(over, &m, 0) == 1 ? 0 : -1;
    }
    if (recvmsg(over, &m, MSG_CMSG_CLOEXEC) != 1 || (c = CMSG_FIRSTHDR(&m)) == NULL)
        return -1;
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

// A socket that another process opened, and connected to an allowed destination, if there is one.
static int
passed_socket(const struct goal *g)
{
    int over[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, over) < 0)
        return errno;
    pid_t child = fork();
    if (child == 0) {
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        (void)connect(fd, any(&g->allowed4), sizeof g->allowed4);
        _exit(pass(over[1], fd) == 0 ? 0 : 1);
    }
    int fd = pass(over[0], -1);
    (void)waitpid(child, NULL, 0);
    (void)close(over[0]);
    (void)close(over[1]);
    if (fd < 0)
        return EBADMSG;
    return end(fd,
               sendto(fd, TECHNIQUE_MARK, strlen(TECHNIQUE_MARK), 0, any(&g->v4), sizeof g->v4));
}

static const struct technique from_inside[] = {
    {"packet_sockets", packet_sockets, false},
    {"vsock_sockets", vsock_sockets, false},
    {"netlink_sockets_but_route", netlink_sockets_but_route, false},
    {"every_other_family", every_other_family, false},
    {"route_of_its_own", route_of_its_own, false},
    {"link_of_its_own", link_of_its_own, false},
    {"abstract_socket_of_the_host", abstract_socket_of_the_host, false},
    {"path_socket_of_the_host", path_socket_of_the_host, false},
    {"inherited_sockets", inherited_sockets, false},
    {"passed_socket", passed_socket, false},
    {0},
};

// ---- all of them

static long
now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void
run_all(const struct technique *list)
{
    for (const struct technique *t = list; t->name != NULL; t++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            alarm(TECHNIQUE_S);
            long from = now_ms();
            int sys = t->run(&goal);
            printf("%s %s %ld\n", t->name, network_error(sys), now_ms() - from);
            (void)fflush(stdout);
            _exit(0);
        }
        (void)waitpid(child, &status, 0);
        if (status != 0)
            printf("%s status-%d 0\n", t->name, status);
        (void)fflush(stdout);
    }
}

// Sends a byte to an echo server and waits for it. Returns "ok", or the error.
static const char *
echo(int fd)
{
    char byte = 'x';
    struct pollfd soon = {.fd = fd, .events = POLLIN};
    if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1)
        return network_error(errno);
    if (poll(&soon, 1, NETWORK_PEER_MS) != 1)
        return "silence";
    long n = recv(fd, &byte, 1, 0);
    return n == 1 ? "ok" : n == 0 ? "end" : network_error(errno);
}

int
network_connect(int type, const void *to, socklen_t n)
{
    int fd = socket(any(to)->sa_family, type | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, any(to), n) == 0)
        return fd;
    int sys = errno;
    if (fd >= 0)
        (void)close(fd);
    errno = sys;
    return -1;
}

const char *
network_reach(int type, const void *to, socklen_t n)
{
    int fd = network_connect(type, to, n);
    const char *said = fd < 0 ? network_error(errno) : echo(fd);
    if (fd >= 0)
        (void)close(fd);
    return said;
}

bool
network_address(const char *text, uint16_t port, struct sockaddr_in *to)
{
    *to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    return inet_pton(AF_INET, text, &to->sin_addr) == 1;
}

static bool
address6(const char *text, uint16_t port, struct sockaddr_in6 *to)
{
    *to = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
    return inet_pton(AF_INET6, text, &to->sin6_addr) == 1;
}

static int
matrix(char **argv)
{
    if (!network_address(argv[0], NETWORK_PORT, &goal.v4) ||
        !address6(argv[1], NETWORK_PORT, &goal.v6) ||
        !network_address(argv[2], NETWORK_PORT, &goal.allowed4) ||
        !address6(argv[3], NETWORK_PORT, &goal.allowed6))
        return 2;
    host_abstract = argv[4];
    host_path = argv[5];
    for (const struct technique *const *t = technique_tables; *t != NULL; t++)
        run_all(*t);
    run_all(from_inside);
    run_all(network_inside);
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM};
    for (int i = 0; i < 2; i++) {
        printf("allowed4 %s 0\n", network_reach(types[i], &goal.allowed4, sizeof goal.allowed4));
        printf("allowed6 %s 0\n", network_reach(types[i], &goal.allowed6, sizeof goal.allowed6));
    }
    return 0;
}

// ---- in two steps: reports that it is ready, and continues after a line from the harness

static bool
wait_for_order(const char *ready)
{
    char line[8];
    printf("%s\n", ready);
    (void)fflush(stdout);
    return fgets(line, sizeof line, stdin) != NULL;
}

static int
hold(char **argv)
{
    if (!network_address(argv[0], NETWORK_PORT, &goal.allowed4) ||
        !address6(argv[1], NETWORK_PORT, &goal.allowed6))
        return 2;
    int fds[] = {network_connect(SOCK_STREAM, &goal.allowed4, sizeof goal.allowed4),
                 network_connect(SOCK_STREAM, &goal.allowed6, sizeof goal.allowed6),
                 network_connect(SOCK_DGRAM, &goal.allowed4, sizeof goal.allowed4),
                 network_connect(SOCK_DGRAM, &goal.allowed6, sizeof goal.allowed6)};
    for (int i = 0; i < 4; i++)
        printf("%s\n", fds[i] < 0 ? "unconnected" : echo(fds[i]));
    if (!wait_for_order("held"))
        return 2;
    for (int i = 0; i < 4; i++) {
        long from = now_ms();
        const char *said = echo(fds[i]);
        printf("%s %ld\n", said, now_ms() - from);
    }
    printf("%s 0\n", network_reach(SOCK_STREAM, &goal.allowed4, sizeof goal.allowed4));
    return 0;
}

static int
listen_anywhere(void)
{
    struct sockaddr_in at = {0};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    char ready[16];
    if (listen(fd, 8) < 0 || getsockname(fd, (struct sockaddr *)&at, &n) < 0) {
        printf("%s\n", network_error(errno));
        return 0;
    }
    (void)snprintf(ready, sizeof ready, "%d", ntohs(at.sin_port));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int own = network_connect(SOCK_STREAM, &at, sizeof at);
    int other = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    printf("%s\n", own >= 0 && other >= 0 ? "own" : network_error(errno));
    if (!wait_for_order(ready))
        return 2;
    printf("%s\n", accept4(fd, NULL, NULL, SOCK_CLOEXEC) >= 0 ? "visited" : network_error(errno));
    return 0;
}

int
network_job(int argc, char **argv)
{
    if (argc == 7 && strcmp(argv[0], "matrix") == 0)
        return matrix(argv + 1);
    if (argc == 3 && strcmp(argv[0], "held") == 0)
        return hold(argv + 1);
    if (argc == 1 && strcmp(argv[0], "listen") == 0)
        return listen_anywhere();
    if (argc == 5 && strcmp(argv[0], "ask") == 0)
        return network_ask(argv + 1);
    return 2;
}
