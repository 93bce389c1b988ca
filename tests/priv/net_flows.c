// SPDX-License-Identifier: Apache-2.0
// Numbers of flows in the programs: a number that a socket holds is not given to another flow, however many
// destinations a sandbox uses, and while all are held another destination is refused. A listener replaces the relay.
// Each job is a process of the sandbox, and exits with the line number of its first failure.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/harness/net_rig.h"
#include "tests/harness/wait.h"

enum { SLOT = 5, GENERATION = 3, RULES = 7, PORT = 7777, NET = 0x0a620000, MORE = 3000 };

#define MUST(ok)                                                                                   \
    do {                                                                                           \
        if (!(ok))                                                                                 \
            _exit(__LINE__ % 250 + 1);                                                             \
    } while (0)

static struct net_rig rig;
static int relay_udp, relay_tcp;

static int
set_up(void **state)
{
    const int on = 1;
    const struct rlimit files = {8192, 8192};
    struct net_rule_key key = {.prefixlen = NET_BITS_SET + 96 + 16, .rule_set = RULES};
    const struct net_rule rule = {.n = 1, .ports = {{.last = UINT16_MAX, .special = 112}}};
    *state = net_rig_open(&rig);
    (void)setrlimit(RLIMIT_NOFILE, &files);
    (void)inet_pton(AF_INET6, "::ffff:10.98.0.0", key.address);
    if (net_rig_namespace() < 0 ||
        bpf_map_update_elem(bpf_map__fd(rig.bpf->maps.rules), &key, &rule, BPF_ANY) < 0)
        return -1;
    relay_tcp = net_rig_listener(SOCK_STREAM, 0, NET_RELAY_PORT);
    relay_udp = net_rig_listener(SOCK_DGRAM, 0, NET_RELAY_PORT);
    if (relay_tcp < 0 || relay_udp < 0)
        return -1;
    return setsockopt(relay_udp, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
}

// Each test has a sandbox of its own: a new generation of the slot.
static void
put_entry(void)
{
    static uint32_t generation = GENERATION;
    const struct net_counters none = {0};
    const uint32_t slot = SLOT;
    const struct bpf_sandbox b = {
        .slot = SLOT, .generation = ++generation, .mode = NET_ALLOWLIST, .rule_set = RULES};
    assert_int_equal(net_rig_put(&rig, &b), 0);
    int counters = bpf_map__fd(rig.bpf->maps.net_counters);
    assert_int_equal(bpf_map_update_elem(counters, &slot, &none, BPF_ANY), 0);
}

static struct net_counters
counters(void)
{
    struct net_counters n = {0};
    const uint32_t slot = SLOT;
    (void)bpf_map_lookup_elem(bpf_map__fd(rig.bpf->maps.net_counters), &slot, &n);
    return n;
}

static void
expect(void (*job)(void))
{
    put_entry();
    pid_t child = fork();
    if (child == 0) {
        MUST(net_rig_enter(&rig));
        alarm(60);
        job();
        _exit(0);
    }
    int status = -1;
    (void)waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("status %x: line %d of the job, or 250 more", status, WEXITSTATUS(status) - 1);
}

static struct sockaddr_in
destination(uint32_t i)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(NET + 1 + i)};
}

static int
connect_again(int fd, uint32_t i)
{
    const struct sockaddr_in to = destination(i);
    return connect(fd, (const struct sockaddr *)&to, sizeof to);
}

static int
connected(int type, uint32_t i)
{
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    MUST(fd >= 0);
    if (connect_again(fd, i) == 0)
        return fd;
    int sys = errno;
    (void)close(fd);
    errno = sys;
    return -1;
}

static bool
leads_to(int fd, uint32_t i)
{
    struct sockaddr_in at = {0};
    socklen_t n = sizeof at;
    return getpeername(fd, (struct sockaddr *)&at, &n) == 0 && at.sin_port == htons(PORT) &&
           at.sin_addr.s_addr == destination(i).sin_addr.s_addr;
}

// The destination in the programs' map of the last datagram that reached the relay.
static bool
relay_got(char what, uint32_t i)
{
    struct net_flow f;
    struct pollfd ready = {.fd = relay_udp, .events = POLLIN};
    char got;
    struct iovec iov = {.iov_base = &got, .iov_len = 1};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo))];
    } control;
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    if (poll(&ready, 1, WAIT_MS) != 1 || recvmsg(relay_udp, &m, 0) != 1 || got != what)
        return false;
    const struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    struct in6_pktinfo info;
    uint32_t address;
    if (c == NULL)
        return false;
    memcpy(&info, CMSG_DATA(c), sizeof info);
    memcpy(&address, info.ipi6_addr.s6_addr + 12, sizeof address);
    uint32_t number = ntohl(address) & NET_FLOW_V4_MASK;
    const struct net_flow_key key = {.slot = SLOT, .entry = NET_FLOW_ENTRY(number)};
    uint32_t to;
    if (bpf_map_lookup_elem(bpf_map__fd(rig.bpf->maps.flows), &key, &f) < 0)
        return false;
    memcpy(&to, f.address + 12, sizeof to);
    return f.number == number && to == destination(i).sin_addr.s_addr;
}

// ---- tests

static void
old_sockets_and_many_destinations(void)
{
    int tcp = connected(SOCK_STREAM, 0);
    int udp = connected(SOCK_DGRAM, 1);
    MUST(tcp >= 0 && udp >= 0);
    for (uint32_t i = 2; i < MORE; i++)
        MUST(close(connected(SOCK_DGRAM, i)) == 0);
    MUST(leads_to(tcp, 0) && leads_to(udp, 1));
    MUST(send(udp, "a", 1, 0) == 1 && relay_got('a', 1));
    MUST(send(tcp, "a", 1, 0) == 1 && leads_to(tcp, 0));
}

static void
a_socket_keeps_its_destination(void **state)
{
    (void)state;
    expect(old_sockets_and_many_destinations);
}

static void
one_socket_many_destinations(void)
{
    int fd = connected(SOCK_DGRAM, 0);
    for (uint32_t i = 1; i < MORE; i++)
        MUST(connect_again(fd, i) == 0);
    MUST(leads_to(fd, MORE - 1));
    MUST(send(fd, "a", 1, 0) == 1 && relay_got('a', MORE - 1));
}

static void
a_socket_that_connects_elsewhere_releases_its_flow(void **state)
{
    (void)state;
    expect(one_socket_many_destinations);
}

static void
all_are_held(void)
{
    int fds[NET_FLOWS_PER_SLOT];
    for (uint32_t i = 0; i < NET_FLOWS_PER_SLOT; i++)
        MUST((fds[i] = connected(SOCK_DGRAM, i)) >= 0);
    MUST(connected(SOCK_DGRAM, MORE) < 0 && errno == ENOBUFS);
    MUST(connected(SOCK_STREAM, MORE) < 0 && errno == ENOBUFS);
    const struct sockaddr_in to = destination(MORE);
    MUST(sendto(fds[0], "x", 1, 0, (const struct sockaddr *)&to, sizeof to) < 0);
    MUST(errno == ENOBUFS);
    int same = connected(SOCK_DGRAM, 7); // it shares the flow
    MUST(same >= 0 && leads_to(same, 7));
    MUST(close(fds[7]) == 0 && connected(SOCK_DGRAM, MORE) < 0 && errno == ENOBUFS);
    MUST(close(same) == 0);
    MUST((fds[7] = connected(SOCK_DGRAM, MORE)) >= 0 && leads_to(fds[7], MORE));
    for (uint32_t i = 0; i < NET_FLOWS_PER_SLOT; i++)
        MUST(leads_to(fds[i], i == 7 ? MORE : i));
}

static void
while_all_numbers_are_held_another_destination_is_refused(void **state)
{
    (void)state;
    expect(all_are_held);
    assert_int_equal(counters().denied[NET_FULL], 4);
    assert_int_equal(counters().failures, 0);
}

static void
send_without_connecting(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to;
    for (uint32_t i = 0; i < NET_FLOWS_PER_SLOT; i++) {
        to = destination(i);
        MUST(sendto(fd, "a", 1, 0, (const struct sockaddr *)&to, sizeof to) == 1);
        MUST(relay_got('a', i));
    }
    to = destination(NET_FLOWS_PER_SLOT);
    MUST(sendto(fd, "secret", 6, 0, (const struct sockaddr *)&to, sizeof to) < 0);
    MUST(errno == ENOBUFS);
    to = destination(0);
    MUST(sendto(fd, "b", 1, 0, (const struct sockaddr *)&to, sizeof to) == 1);
    MUST(relay_got('b', 0));
    char none;
    MUST(recv(relay_udp, &none, 1, 0) < 0 && errno == EAGAIN);
}

static void
a_datagram_to_one_destination_too_many_is_dropped(void **state)
{
    (void)state;
    expect(send_without_connecting);
    assert_int_equal(counters().denied[NET_FULL], 1);
}

// Makes the flows as old as if nothing was sent for as long as a flow is kept.
static void
let_a_minute_pass(void)
{
    struct net_flow_key key = {.slot = SLOT};
    struct net_flow f;
    int flows = bpf_map__fd(rig.bpf->maps.flows);
    for (; key.entry < NET_FLOWS_PER_SLOT; key.entry++)
        if (bpf_map_lookup_elem(flows, &key, &f) == 0 && f.loose_ns != 0) {
            f.loose_ns -= (uint64_t)NET_FLOW_LOOSE_MS * 1000000;
            MUST(bpf_map_update_elem(flows, &key, &f, BPF_ANY) == 0);
        }
}

static void
send_for_more_than_a_minute(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (uint32_t i = 0; i < MORE; i++) {
        const struct sockaddr_in to = destination(i);
        if (i % NET_FLOWS_PER_SLOT == 0)
            let_a_minute_pass();
        MUST(sendto(fd, "a", 1, 0, (const struct sockaddr *)&to, sizeof to) == 1);
        MUST(relay_got('a', i));
    }
}

static void
a_reused_entry_has_another_number(void **state)
{
    (void)state;
    expect(send_for_more_than_a_minute);
}

static void
closed_but_not_done(void)
{
    int fd = connected(SOCK_STREAM, 0);
    int size = 0;
    static char bytes[65536];
    struct net_flow before;
    struct net_flow f;
    const struct net_flow_key key = {.slot = SLOT}; // the first place
    MUST(bpf_map_lookup_elem(bpf_map__fd(rig.bpf->maps.flows), &key, &before) == 0);
    MUST(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
    while (send(fd, bytes, sizeof bytes, 0) > 0)
        size++;
    MUST(size > 0 && close(fd) == 0); // the relay has read none of it
    for (uint32_t i = 1; i < MORE; i++)
        MUST(close(connected(SOCK_DGRAM, i)) == 0);
    MUST(bpf_map_lookup_elem(bpf_map__fd(rig.bpf->maps.flows), &key, &f) == 0);
    MUST(f.number == before.number && f.holders == 1);
    struct sockaddr_in6 from;
    socklen_t n = sizeof from;
    int at = -1; // earlier tests have connected older ones
    ssize_t got = 0;
    while ((at = accept(relay_tcp, (struct sockaddr *)&from, &n)) >= 0) {
        ssize_t all = 0;
        while ((got = recv(at, bytes, sizeof bytes, 0)) > 0)
            all += got;
        if (all > 65536)
            break;
        (void)close(at);
    }
    MUST(at >= 0 && got == 0); // all data, and end of file
    (void)close(at);
    wait_until("nobody holds the number",
               bpf_map_lookup_elem(bpf_map__fd(rig.bpf->maps.flows), &key, &f) != 0 ||
                   f.holders == 0);
}

static void
a_tcp_socket_holds_its_number_until_all_data_is_sent(void **state)
{
    (void)state;
    expect(closed_but_not_done);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(while_all_numbers_are_held_another_destination_is_refused),
        cmocka_unit_test(a_datagram_to_one_destination_too_many_is_dropped),
        cmocka_unit_test(a_socket_keeps_its_destination),
        cmocka_unit_test(a_socket_that_connects_elsewhere_releases_its_flow),
        cmocka_unit_test(a_reused_entry_has_another_number),
        cmocka_unit_test(a_tcp_socket_holds_its_number_until_all_data_is_sent),
    };
    return cmocka_run_group_tests(tests, set_up, net_rig_close);
}
