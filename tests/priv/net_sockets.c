// SPDX-License-Identifier: Apache-2.0
// What a job may do with sockets, in the programs alone: the options it may set, the sizes of buffers, and the number
// of sockets.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/harness/net_rig.h"
#include "tests/harness/wait.h"

enum { SLOT = 6, GENERATION = 3, SOCKETS = 8, BUFFER_MOST = 212992 };

static struct net_rig rig;

static int
set_up(void **state)
{
    *state = net_rig_open(&rig);
    return net_rig_namespace();
}

static void
put(uint32_t sockets)
{
    const struct bpf_sandbox b = {
        .slot = SLOT, .generation = GENERATION, .mode = NET_NONE, .sockets_max = sockets};
    if (net_rig_put(&rig, &b) < 0)
        abort();
}

static struct net_counters
counters(void)
{
    struct net_counters n;
    uint32_t slot = SLOT;
    if (bpf_map_lookup_elem(bpf_map__fd(rig.bpf->maps.net_counters), &slot, &n) < 0)
        abort();
    return n;
}

// The kernel counts a released socket with delay.
static bool
held_becomes(uint32_t n)
{
    for (int i = 0; i < WAIT_MS && counters().held != n; i++)
        time_passes("the kernel is not through with it", 1);
    return counters().held == n;
}

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__;                                                                       \
    } while (0)

// Runs in a process of the sandbox. 0, or the line number of the first failure.
static int
job(int (*fn)(void))
{
    int *line = mmap(NULL, sizeof *line, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(line != MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        *line = net_rig_enter(&rig) ? fn() : __LINE__;
        _exit(*line != 0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    int failed = WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : *line != 0 ? *line : -1;
    (void)munmap(line, sizeof *line);
    return failed;
}

// ---- options

// Options that curl, glibc's resolver, asyncio, libuv, OpenJDK, Go, OpenSSH, git, Redis, nginx, PostgreSQL, BIND,
// quinn, iproute2 and others set, according to their sources.
struct option {
    int family, type, level, name, value;
};
static const struct option ordinary[] = {
    {AF_INET, SOCK_STREAM, SOL_SOCKET, SO_REUSEADDR, 1},
    {AF_INET, SOCK_STREAM, SOL_SOCKET, SO_REUSEPORT, 1},
    {AF_INET, SOCK_STREAM, SOL_SOCKET, SO_KEEPALIVE, 1},
    {AF_INET, SOCK_STREAM, SOL_SOCKET, SO_OOBINLINE, 1},
    {AF_INET, SOCK_STREAM, SOL_SOCKET, SO_PRIORITY, 2},
    {AF_INET, SOCK_STREAM, SOL_SOCKET, SO_RCVLOWAT, 1},
    {AF_INET, SOCK_STREAM, SOL_SOCKET, SO_SNDBUF, 65536},
    {AF_INET, SOCK_STREAM, SOL_SOCKET, SO_RCVBUF, 65536},
    {AF_INET, SOCK_DGRAM, SOL_SOCKET, SO_BROADCAST, 1},
    {AF_INET, SOCK_DGRAM, SOL_SOCKET, SO_INCOMING_CPU, 0},
    {AF_INET, SOCK_DGRAM, SOL_SOCKET, SO_RXQ_OVFL, 1},
    {AF_UNIX, SOCK_STREAM, SOL_SOCKET, SO_PASSCRED, 1},
    {AF_INET, SOCK_STREAM, SOL_TCP, TCP_NODELAY, 1},
    {AF_INET, SOCK_STREAM, SOL_TCP, TCP_MAXSEG, 1400},
    {AF_INET, SOCK_STREAM, SOL_TCP, TCP_CORK, 1},
    {AF_INET, SOCK_STREAM, SOL_TCP, TCP_KEEPIDLE, 60},
    {AF_INET, SOCK_STREAM, SOL_TCP, TCP_KEEPINTVL, 60},
    {AF_INET, SOCK_STREAM, SOL_TCP, TCP_KEEPCNT, 9},
    {AF_INET, SOCK_STREAM, SOL_TCP, TCP_SYNCNT, 3},
    {AF_INET, SOCK_STREAM, SOL_TCP, TCP_LINGER2, 5},
    {AF_INET, SOCK_STREAM, SOL_TCP, TCP_DEFER_ACCEPT, 1},
    {AF_INET, SOCK_STREAM, SOL_TCP, TCP_QUICKACK, 1},
    {AF_INET, SOCK_STREAM, SOL_TCP, TCP_USER_TIMEOUT, 1000},
    {AF_INET, SOCK_STREAM, SOL_TCP, TCP_FASTOPEN, 5},
    {AF_INET, SOCK_STREAM, SOL_TCP, 25 /* TCP_NOTSENT_LOWAT */, 16384},
    {AF_INET, SOCK_STREAM, SOL_TCP, 30 /* TCP_FASTOPEN_CONNECT */, 1},
    {AF_INET, SOCK_STREAM, SOL_TCP, 36 /* TCP_INQ */, 1},
    {AF_INET, SOCK_STREAM, SOL_IP, IP_TOS, 16},
    {AF_INET, SOCK_STREAM, SOL_IP, IP_TTL, 64},
    {AF_INET, SOCK_STREAM, SOL_IP, 24 /* IP_BIND_ADDRESS_NO_PORT */, 1},
    {AF_INET, SOCK_DGRAM, SOL_IP, IP_RECVERR, 1},
    {AF_INET, SOCK_DGRAM, SOL_IP, IP_PKTINFO, 1},
    {AF_INET, SOCK_DGRAM, SOL_IP, IP_RECVTTL, 1},
    {AF_INET, SOCK_DGRAM, SOL_IP, IP_RECVTOS, 1},
    {AF_INET, SOCK_DGRAM, SOL_IP, IP_MTU_DISCOVER, 0},
    {AF_INET, SOCK_DGRAM, SOL_IP, IP_MULTICAST_TTL, 1},
    {AF_INET, SOCK_DGRAM, SOL_IP, IP_MULTICAST_LOOP, 1},
    {AF_INET, SOCK_DGRAM, SOL_IP, 49 /* IP_MULTICAST_ALL */, 0},
    {AF_INET6, SOCK_STREAM, SOL_IPV6, IPV6_V6ONLY, 0},
    {AF_INET6, SOCK_STREAM, SOL_IPV6, IPV6_TCLASS, 16},
    {AF_INET6, SOCK_DGRAM, SOL_IPV6, IPV6_UNICAST_HOPS, 64},
    {AF_INET6, SOCK_DGRAM, SOL_IPV6, IPV6_RECVERR, 1},
    {AF_INET6, SOCK_DGRAM, SOL_IPV6, IPV6_RECVPKTINFO, 1},
    {AF_INET6, SOCK_DGRAM, SOL_IPV6, 51 /* IPV6_RECVHOPLIMIT */, 1},
    {AF_INET6, SOCK_DGRAM, SOL_IPV6, 66 /* IPV6_RECVTCLASS */, 1},
    {AF_INET6, SOCK_DGRAM, SOL_IPV6, IPV6_MTU_DISCOVER, 0},
    {AF_INET6, SOCK_DGRAM, SOL_IPV6, 62 /* IPV6_DONTFRAG */, 1},
    {AF_INET6, SOCK_DGRAM, SOL_IPV6, IPV6_MULTICAST_HOPS, 1},
    {AF_INET6, SOCK_DGRAM, SOL_IPV6, IPV6_MULTICAST_LOOP, 1},
    {AF_INET6, SOCK_DGRAM, SOL_IPV6, 29 /* IPV6_MULTICAST_ALL */, 0},
    {AF_INET6, SOCK_DGRAM, SOL_IPV6, 72 /* IPV6_ADDR_PREFERENCES */, 2},
    {AF_INET, SOCK_DGRAM, 17 /* SOL_UDP */, 1 /* UDP_CORK */, 1},
    {AF_INET, SOCK_DGRAM, 17, 103 /* UDP_SEGMENT */, 1200},
    {AF_NETLINK, SOCK_RAW, 270 /* SOL_NETLINK */, 11 /* NETLINK_EXT_ACK */, 1},
    {AF_NETLINK, SOCK_RAW, 270, 12 /* NETLINK_GET_STRICT_CHK */, 1},
};
enum { ORDINARY_N = sizeof ordinary / sizeof ordinary[0] };

static int
sets_what_programs_set(void)
{
    const struct linger linger = {.l_onoff = 1, .l_linger = 1};
    const struct timeval wait = {.tv_sec = 1};
    for (size_t i = 0; i < ORDINARY_N; i++) {
        const struct option *o = &ordinary[i];
        int fd = socket(o->family, o->type | SOCK_CLOEXEC, 0);
        if (fd < 0 || setsockopt(fd, o->level, o->name, &o->value, sizeof o->value) < 0) {
            (void)fprintf(stderr, "level %d, option %d: %s\n", o->level, o->name, strerror(errno));
            MUST(errno == ENOPROTOOPT || errno == EAFNOSUPPORT); // this kernel does not have it
        }
        (void)close(fd);
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0);
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0);
    MUST(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) == 0);
    return 0;
}

// All others, of every level, with any value.
static int
sets_all_others(void)
{
    static const int levels[] = {SOL_IP, SOL_SOCKET, SOL_TCP, 17,  SOL_IPV6, 58,  132,
                                 136,    255,        263,     270, 271,      277, 278,
                                 280,    282,        284,     286, -1};
    char value[64] = {1};
    int refused = 0;
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++)
        for (int name = -1; name < 300; name++)
            refused += setsockopt(fd, levels[l], name, value, sizeof value) < 0 && errno == EPERM;
    // An option that a new kernel adds is refused until it was reviewed.
    int listed = 27 + 12 + 16 + 18 + 4 + 7;
    (void)printf("%d refused\n", refused);
    MUST(refused == (int)(sizeof levels / sizeof levels[0]) * 301 - listed);
    static const int worst[][2] = {
        {SOL_SOCKET, 29}, {SOL_SOCKET, 35}, {SOL_SOCKET, 37}, {SOL_SOCKET, 60}, {SOL_SOCKET, 63},
        {SOL_SOCKET, 64}, {SOL_SOCKET, 65}, {SOL_SOCKET, 73}, {SOL_TCP, 14},    {SOL_TCP, 32},
        {SOL_TCP, 38},    {SOL_TCP, 31},    {SOL_IPV6, 20},   {SOL_IPV6, 27},   {SOL_IPV6, 32},
        {SOL_IPV6, 42},   {SOL_IP, 35},     {SOL_IP, 42},     {SOL_IP, 4},      {SOL_IPV6, 57},
        {17, 104}};
    for (size_t i = 0; i < sizeof worst / sizeof worst[0]; i++)
        MUST(setsockopt(fd, worst[i][0], worst[i][1], value, 4) < 0 && errno == EPERM);
    return 0;
}

static int
asks_for_large_buffers(void)
{
    static const int families[] = {AF_INET, AF_INET6, AF_NETLINK};
    static const int asked[] = {1 << 30, -1, BUFFER_MOST, BUFFER_MOST / 2 + 1};
    static const int names[] = {SO_SNDBUF, SO_RCVBUF};
    for (size_t i = 0; i < 3 * 4 * 2; i++) {
        int got = 0;
        socklen_t n = sizeof got;
        int fd = socket(families[i % 3], SOCK_DGRAM | SOCK_CLOEXEC, 0);
        MUST(setsockopt(fd, SOL_SOCKET, names[i / 12], &asked[i / 3 % 4], sizeof got) == 0);
        MUST(getsockopt(fd, SOL_SOCKET, names[i / 12], &got, &n) == 0);
        MUST(got > 0 && got <= BUFFER_MOST);
        (void)close(fd);
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int small = 4096;
    int got = 0;
    socklen_t n = sizeof got;
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    MUST(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &got, &n) == 0 && got == 2 * small);
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, 2) < 0 && errno == EINVAL);
    MUST(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, NULL, sizeof small) < 0 && errno == EFAULT);
    return 0;
}

static void
options_of_ordinary_programs_are_set(void **state)
{
    (void)state;
    put(0);
    uint64_t before = counters().denied[NET_OPTION];
    assert_int_equal(job(sets_what_programs_set), 0);
    assert_int_equal(counters().denied[NET_OPTION], before);
}

static void
every_other_option_is_refused_and_counted(void **state)
{
    (void)state;
    put(0);
    uint64_t before = counters().denied[NET_OPTION];
    assert_int_equal(job(sets_all_others), 0);
    assert_true(counters().denied[NET_OPTION] > before + 1000);
}

static void
buffers_are_at_most_as_large_as_the_default(void **state)
{
    (void)state;
    put(0);
    assert_int_equal(job(asks_for_large_buffers), 0);
}

// ---- number of sockets

static int
has_as_many_as_it_may(void)
{
    int fd[SOCKETS];
    for (int i = 0; i < SOCKETS; i++) {
        fd[i] = socket(i % 2 ? AF_INET : AF_INET6, i % 3 ? SOCK_STREAM : SOCK_DGRAM, 0);
        MUST(fd[i] >= 0);
    }
    MUST(counters().held == SOCKETS);
    uint64_t before = counters().denied[NET_SOCKETS];
    MUST(socket(AF_INET, SOCK_DGRAM, 0) < 0 && errno == EPERM);
    MUST(counters().denied[NET_SOCKETS] == before + 1);
    MUST(socket(AF_INET, SOCK_RAW, 1) < 0); // refused because of its type, and not counted
    MUST(counters().held == SOCKETS);
    MUST(socket(AF_UNIX, SOCK_STREAM, 0) >= 0);
    int copy = dup(fd[0]);
    (void)close(fd[0]);
    MUST(socket(AF_INET, SOCK_DGRAM, 0) < 0 && errno == EPERM); // a copy of the descriptor keeps it
    (void)close(copy);
    MUST(held_becomes(SOCKETS - 1));
    MUST(socket(AF_INET, SOCK_DGRAM, 0) >= 0);
    return 0; // the end of the process closes the others
}

static int
connects(const struct sockaddr_in *to)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1;
    (void)setsockopt(fd, SOL_TCP, TCP_NODELAY, &on, sizeof on);
    int r = connect(fd, (const struct sockaddr *)to, sizeof *to);
    return fd < 0 ? -2 : r == 0 || errno == EINPROGRESS ? fd : -1;
}

static bool
is_connected(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, ms) == 1 && (p.revents & POLLERR) == 0;
}

// Opens a listener with a long queue. Returns its address.
static int
listens(struct sockaddr_in *at)
{
    socklen_t n = sizeof *at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(fd, (struct sockaddr *)at, n) < 0 || listen(fd, 4 * SOCKETS) < 0 ||
        getsockname(fd, (struct sockaddr *)at, &n) < 0)
        return -1;
    return fd;
}

// Waiting and accepted connections count, until they are closed.
static int
takes_connections(void)
{
    struct sockaddr_in at;
    int fd[SOCKETS];
    int l = listens(&at);
    MUST(l >= 0);
    for (int i = 0; i < 3; i++) { // the listener, three and three
        fd[i] = connects(&at);
        MUST(fd[i] >= 0 && is_connected(fd[i], WAIT_MS));
    }
    MUST(held_becomes(7));
    uint64_t before = counters().denied[NET_SOCKETS];
    MUST(connects(&at) == -1 && errno == EPERM); // one for the client, but none for the listener
    MUST(held_becomes(8) && counters().denied[NET_SOCKETS] == before + 1);
    int taken = accept(l, NULL, NULL);
    MUST(taken >= 0 && held_becomes(8)); // accepting does not change the count
    (void)close(fd[0]);
    (void)close(taken);
    MUST(held_becomes(6));
    (void)close(l); // connections that were not accepted are closed with it
    MUST(held_becomes(3));
    return 0;
}

// Closes the client's ends and not the listener's, so these add up.
static int
leaves_connections_to_the_listener(void)
{
    struct sockaddr_in at;
    int l = listens(&at);
    int connected = 0;
    MUST(l >= 0);
    for (int i = 0; i < 4 * SOCKETS; i++) {
        int fd = connects(&at);
        if (fd >= 0 && is_connected(fd, WAIT_MS))
            connected++;
        (void)close(fd);
    }
    MUST(connected == SOCKETS - 2 && counters().held <= SOCKETS);
    return 0;
}

static void
sockets_are_counted_until_their_last_descriptor_is_closed(void **state)
{
    (void)state;
    put(SOCKETS);
    assert_true(held_becomes(0));
    assert_int_equal(job(has_as_many_as_it_may), 0);
    assert_true(held_becomes(0));
    assert_int_equal(job(has_as_many_as_it_may), 0);
    assert_true(held_becomes(0));
}

static void
connections_of_listeners_are_counted_until_they_close(void **state)
{
    (void)state;
    put(SOCKETS);
    assert_int_equal(job(takes_connections), 0);
    assert_true(held_becomes(0));
    assert_int_equal(job(leaves_connections_to_the_listener), 0);
    assert_true(held_becomes(0));
}

// The client is outside of the sandbox here, so no program sees its call.
static void
a_listener_takes_connections_up_to_the_limit_of_sockets(void **state)
{
    (void)state;
    int pipes[2][2];
    struct sockaddr_in at = {.sin_family = AF_INET};
    assert_int_equal(pipe2(pipes[0], O_CLOEXEC) | pipe2(pipes[1], O_CLOEXEC), 0);
    put(SOCKETS);
    pid_t child = fork();
    if (child == 0) {
        char c;
        if (!net_rig_enter(&rig) || listens(&at) < 0 ||
            write(pipes[0][1], &at, sizeof at) != (ssize_t)sizeof at)
            _exit(1);
        (void)close(pipes[1][1]);
        (void)!read(pipes[1][0], &c, 1);
        _exit(0);
    }
    assert_int_equal(read(pipes[0][0], &at, sizeof at), (ssize_t)sizeof at);
    uint64_t before = counters().denied[NET_SOCKETS];
    int connected = 0;
    for (int i = 0; i < SOCKETS + 2; i++)
        connected += is_connected(connects(&at), connected < SOCKETS - 1 ? WAIT_MS : 50);
    assert_int_equal(connected, SOCKETS - 1);
    assert_true(counters().denied[NET_SOCKETS] > before);
    (void)close(pipes[1][0]);
    (void)close(pipes[1][1]);
    (void)waitpid(child, NULL, 0);
    assert_true(held_becomes(0));
}

// A removed sandbox has no count; the next one in its slot starts at 0.
static void
sockets_of_a_removed_sandbox_are_not_counted(void **state)
{
    (void)state;
    int gate[2];
    assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
    put(SOCKETS);
    assert_true(held_becomes(0));
    pid_t child = fork();
    if (child == 0) {
        char c;
        if (!net_rig_enter(&rig) || socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0) < 0)
            _exit(1);
        (void)close(gate[1]);
        (void)!read(gate[0], &c, 1);
        _exit(0);
    }
    assert_true(held_becomes(1));
    assert_int_equal(net_rig_put(&rig, NULL), 0);
    const struct net_counters none = {0};
    const uint32_t slot = SLOT;
    assert_int_equal(
        bpf_map_update_elem(bpf_map__fd(rig.bpf->maps.net_counters), &slot, &none, BPF_ANY), 0);
    (void)close(gate[0]);
    (void)close(gate[1]);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(counters().held, 0);
}

static int
no_inet_socket(void)
{
    static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM};
    for (size_t i = 0; i < 2; i++) {
        MUST(socket(AF_INET, kinds[i], 0) < 0 && errno == EPERM);
        MUST(socket(AF_INET6, kinds[i], 0) < 0 && errno == EPERM);
    }
    MUST(socket(AF_UNIX, SOCK_STREAM, 0) >= 0);
    return 0;
}

static void
a_sandbox_whose_network_is_off_makes_no_inet_socket(void **state)
{
    const struct bpf_sandbox b = {.slot = SLOT, .generation = GENERATION, .mode = NET_OFF};
    (void)state;
    assert_true(net_rig_put(&rig, &b) >= 0);
    assert_int_equal(job(no_inet_socket), 0);
    assert_true(held_becomes(0));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sandbox_whose_network_is_off_makes_no_inet_socket),
        cmocka_unit_test(every_other_option_is_refused_and_counted),
        cmocka_unit_test(options_of_ordinary_programs_are_set),
        cmocka_unit_test(buffers_are_at_most_as_large_as_the_default),
        cmocka_unit_test(sockets_are_counted_until_their_last_descriptor_is_closed),
        cmocka_unit_test(connections_of_listeners_are_counted_until_they_close),
        cmocka_unit_test(a_listener_takes_connections_up_to_the_limit_of_sockets),
        cmocka_unit_test(sockets_of_a_removed_sandbox_are_not_counted),
    };
    return cmocka_run_group_tests(tests, set_up, net_rig_close);
}
