// SPDX-License-Identifier: Apache-2.0
// Only the network programs: attached to a cgroup of the test, in a namespace where every address is reachable, so
// only they can stop a packet. Each technique (tests/escape/techniques.h) runs in a process of the cgroup, as root.
// It got out if its mark reached a forbidden listener, or if a packet with a forbidden address was seen on the wire.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <fcntl.h>
#include <net/ethernet.h>
#include <arpa/inet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <linux/if_packet.h>

#include "tests/harness/net_rig.h"

#include "tests/escape/techniques_inside.h"

enum { PORT = 7777, SLOT = 3, GENERATION = 9, RULES = 5, SMALL_FLOWS = 4096 };

struct world {
    struct net_rig rig;
    struct goal goal;
    int evil[3]; // TCP, UDP, UDP-Lite, of both families
    int wire;
    int relay4, relay6; // the listeners that replace the relay
};
static struct world w;

static int
set_up_network(void)
{
    if (net_rig_namespace() < 0 ||
        net_rig_command("ip addr add 10.99.0.1/32 dev lo && ip addr add 10.99.0.2/32 dev lo && "
                        "ip -6 addr add fd00::1/128 dev lo nodad && "
                        "ip -6 addr add fd00::2/128 dev lo nodad && "
                        "sysctl -qw net.ipv4.conf.all.accept_source_route=1 "
                        "net.ipv4.ping_group_range='0 65535' net.ipv6.conf.all.seg6_enabled=1 "
                        "net.ipv6.conf.lo.seg6_enabled=1 2>/dev/null") != 0)
        return -1;
    w.evil[0] = net_rig_listener(SOCK_STREAM, 0, PORT);
    w.evil[1] = net_rig_listener(SOCK_DGRAM, 0, PORT);
    w.evil[2] = net_rig_listener(SOCK_DGRAM, IPPROTO_UDPLITE, PORT); // -1: the kernel has none
    w.relay4 = net_rig_listener(SOCK_STREAM, 0, NET_RELAY_PORT);
    w.relay6 = net_rig_listener(SOCK_DGRAM, 0, NET_RELAY_PORT);
    w.wire = socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK, htons(ETH_P_ALL));
    struct goal *g = &w.goal;
    g->v4 = g->allowed4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(PORT)};
    g->v6 = g->allowed6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
    (void)inet_pton(AF_INET, "10.99.0.1", &g->allowed4.sin_addr);
    (void)inet_pton(AF_INET, "10.99.0.2", &g->v4.sin_addr);
    (void)inet_pton(AF_INET6, "fd00::1", &g->allowed6.sin6_addr);
    (void)inet_pton(AF_INET6, "fd00::2", &g->v6.sin6_addr);
    return w.wire < 0 || w.evil[0] < 0 || w.evil[1] < 0 || w.relay4 < 0 ? -1 : 0;
}

static int
set_up(void **state)
{
    w.rig.flows_max = SMALL_FLOWS;
    *state = net_rig_open(&w.rig);
    return set_up_network();
}

// ---- the sandbox's entry

static struct bpf_sandbox
entry(enum net_mode mode, uint32_t rules)
{
    return (struct bpf_sandbox){
        .slot = SLOT, .generation = GENERATION, .mode = mode, .rule_set = rules};
}

static void
put(const struct bpf_sandbox *b)
{
    int r = net_rig_put(&w.rig, b);
    assert_true(r == 0 || b == NULL);
}

static void
allow(const char *address, uint16_t port)
{
    assert_int_equal(net_rig_allow(&w.rig, RULES, address, port, port), 0);
}

static uint64_t
denied(enum net_reason reason)
{
    struct net_counters n;
    uint32_t slot = SLOT;
    assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(w.rig.bpf->maps.net_counters), &slot, &n), 0);
    return n.denied[reason];
}

// ---- runs one technique, and checks

// In a process of the sandbox. Its exit status is the errno.
static int
inside(int (*fn)(const struct goal *))
{
    pid_t child = fork();
    if (child == 0) {
        if (!net_rig_enter(&w.rig))
            _exit(255);
        alarm(20);
        _exit(fn(&w.goal));
    }
    int status = 0;
    (void)waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static bool
is_evil(const unsigned char *p, ssize_t n, int protocol)
{
    if (protocol == ETH_P_IP && n >= 20)
        return memcmp(p + 16, &w.goal.v4.sin_addr, 4) == 0;
    return protocol == ETH_P_IPV6 && n >= 40 && memcmp(p + 24, &w.goal.v6.sin6_addr, 16) == 0;
}

// Whether anything reached the forbidden address since the last check.
static bool
got_out(void)
{
    bool out = false;
    unsigned char p[2048];
    struct sockaddr_ll from = {.sll_family = AF_PACKET};
    socklen_t from_n = sizeof from;
    ssize_t n = 0;
    struct pollfd soon = {.fd = w.evil[0], .events = POLLIN};
    (void)poll(&soon, 1, 2); // loopback delivers immediately, except from another CPU
    while ((n = recvfrom(w.wire, p, sizeof p, 0, (struct sockaddr *)&from, &from_n)) >= 0)
        out = out || is_evil(p, n, ntohs(from.sll_protocol));
    int fd = -1;
    while ((fd = accept(w.evil[0], NULL, NULL)) >= 0) {
        out = true;
        (void)close(fd);
    }
    for (int i = 1; i < 3; i++)
        while (w.evil[i] >= 0 && recv(w.evil[i], p, sizeof p, 0) >= 0)
            out = true;
    return out;
}

static void
drain_relay(void)
{
    char p[64];
    int fd = -1;
    while ((fd = accept(w.relay4, NULL, NULL)) >= 0)
        (void)close(fd);
    while (recv(w.relay6, p, sizeof p, 0) >= 0)
        ;
}

// Techniques that do not send, but request something that is refused.
static bool
wants_a_thing(const char *name)
{
    static const char *const things[] = {"bind_address", "bind_unspec_family", "bind_relay_port",
                                         "set_pacing"};
    for (size_t i = 0; i < sizeof things / sizeof things[0]; i++)
        if (strcmp(things[i], name) == 0)
            return true;
    return false;
}

// Counts over all tables; NULL after the last.
static const struct technique *
nth_technique(unsigned n)
{
    for (const struct technique *const *table = technique_tables; *table != NULL; table++) {
        for (const struct technique *t = *table; t->name != NULL; t++) {
            if (n-- == 0)
                return t;
        }
    }
    return NULL;
}

static int
run_called(const char *name)
{
    return inside(technique_called(name)->run);
}

static unsigned
run_all(const char *mode)
{
    unsigned n = 0;
    int no_socket = strcmp(mode, "no entry") == 0 ? EBADF : EPERM;
    for (const struct technique *t; (t = nth_technique(n)) != NULL; n++) {
        (void)got_out();
        int sys = inside(t->run);
        if (got_out())
            fail_msg("%s: %s got out (%s)", mode, t->name, strerror(sys));
        if (wants_a_thing(t->name) && sys != EPERM && sys != no_socket)
            fail_msg("%s: %s: %s", mode, t->name, strerror(sys));
        drain_relay();
    }
    return n;
}

// ---- tests

static void
without_programs_the_techniques_get_out(void **state)
{
    (void)state;
    unsigned out = 0;
    unsigned n = 0;
    for (const struct technique *t; (t = nth_technique(n)) != NULL; n++) {
        (void)got_out();
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            _exit(t->run(&w.goal));
        }
        (void)waitpid(child, NULL, 0);
        if (got_out())
            out++;
    }
    // Not all of them, because UDP-Lite, MPTCP, ICMP and others are not in every kernel.
    (void)printf("%u of them get out of here\n", out);
    assert_true(out >= 24);
}

static void
without_an_entry_nothing_gets_out_and_no_socket_is_made(void **state)
{
    (void)state;
    put(NULL);
    (void)run_all("no entry");
    assert_int_equal(run_called("tcp4"), EPERM);
    assert_int_equal(run_called("udp6_sendto"), EPERM);
}

static void
with_mode_none_nothing_gets_out(void **state)
{
    (void)state;
    const struct bpf_sandbox b = entry(NET_NONE, 0);
    put(&b);
    uint64_t before = denied(NET_MODE_NONE);
    (void)run_all("none");
    assert_true(denied(NET_MODE_NONE) >= before + 20);
    assert_int_equal(run_called("tcp4"), EPERM);
}

static void
with_an_allowlist_nothing_else_gets_out(void **state)
{
    (void)state;
    allow("::ffff:10.99.0.1", PORT);
    allow("fd00::1", PORT);
    const struct bpf_sandbox b = entry(NET_ALLOWLIST, RULES);
    put(&b);
    uint64_t before = denied(NET_NO_RULE);
    uint64_t types = denied(NET_SOCKET_TYPE);
    unsigned n = run_all("allowlist");
    (void)printf("%u techniques\n", n);
    assert_true(denied(NET_NO_RULE) >= before + 15);
    assert_true(denied(NET_SOCKET_TYPE) >= types + 5);
    assert_int_equal(run_called("tcp4"), EPERM);
    assert_int_equal(run_called("udp6_connected"), EPERM);
}

static void
with_mode_open_private_addresses_stay_out_of_reach(void **state)
{
    (void)state;
    const struct bpf_sandbox b = entry(NET_OPEN, 0);
    put(&b);
    (void)run_all("open");
    assert_int_equal(run_called("tcp_mapped"), EPERM);
}

static int
to_port_zero(int type)
{
    struct sockaddr_in to = {.sin_family = AF_INET}; // public: open, except for the port
    (void)inet_pton(AF_INET, "93.184.216.34", &to.sin_addr);
    return connect_send(AF_INET, type, 0, &to, sizeof to);
}

static int
tcp_port_zero(const struct goal *g)
{
    (void)g;
    return to_port_zero(SOCK_STREAM);
}

static int
udp_port_zero(const struct goal *g)
{
    (void)g;
    return to_port_zero(SOCK_DGRAM);
}

static void
port_zero_is_refused_at_once_in_every_mode(void **state)
{
    (void)state;
    for (enum net_mode mode = NET_NONE; mode <= NET_OPEN; mode++) {
        const struct bpf_sandbox b = entry(mode, mode == NET_ALLOWLIST ? RULES : 0);
        put(&b);
        assert_int_equal(inside(tcp_port_zero), EPERM);
        assert_int_equal(inside(udp_port_zero), EPERM);
    }
}

static int
allowed_tcp(const struct goal *g)
{
    return connect_send(AF_INET, SOCK_STREAM, 0, &g->allowed4, sizeof g->allowed4);
}

static int
allowed_udp6(const struct goal *g)
{
    return send_to(AF_INET6, SOCK_DGRAM, 0, 0, &g->allowed6, sizeof g->allowed6);
}

static void
allowed_connections_reach_the_relay_with_their_flow(void **state)
{
    (void)state;
    const struct bpf_sandbox b = entry(NET_ALLOWLIST, RULES);
    put(&b);
    drain_relay();
    (void)got_out();
    assert_int_equal(inside(allowed_tcp), 0);
    int fd = accept(w.relay4, NULL, NULL);
    assert_true(fd >= 0);
    struct sockaddr_in6 at;
    socklen_t n = sizeof at;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    (void)close(fd);
    uint32_t address;
    memcpy(&address, &at.sin6_addr.s6_addr[12], sizeof address);
    const struct net_flow_key key = {.slot = SLOT, .entry = NET_FLOW_ENTRY(ntohl(address))};
    struct net_flow flow;
    assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(w.rig.bpf->maps.flows), &key, &flow), 0);
    assert_int_equal(flow.port, PORT);
    assert_int_equal(flow.protocol, IPPROTO_TCP);
    assert_memory_equal(flow.address + 12, &w.goal.allowed4.sin_addr, 4);
    assert_int_equal(inside(allowed_udp6), 0);
    char mark[8];
    assert_int_equal(recv(w.relay6, mark, sizeof mark, 0), (ssize_t)strlen(TECHNIQUE_MARK));
    assert_false(got_out());
}

// A pipe that informs the child about a change of the policy.
static int changed[2];

static int
established_then_forbidden(const struct goal *g)
{
    char c;
    int fd = open_socket(AF_INET, SOCK_DGRAM, 0);
    if (connect(fd, any(&g->allowed4), sizeof g->allowed4) < 0 || send(fd, "1", 1, 0) != 1)
        return 255;
    (void)!write(changed[1], "r", 1);
    while (read(changed[0], &c, 1) == 1 && c != 'g')
        (void)!write(changed[1], &c, 1);
    return ended(fd, send(fd, "2", 1, 0));
}

static void
connections_are_cut_when_the_policy_forbids_them(void **state)
{
    (void)state;
    struct bpf_sandbox b = entry(NET_ALLOWLIST, RULES);
    put(&b);
    drain_relay();
    int down[2];
    int up[2];
    assert_int_equal(pipe2(down, O_CLOEXEC) | pipe2(up, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0) {
        changed[0] = down[0];
        changed[1] = up[1];
        _exit(inside(established_then_forbidden));
    }
    char c = 0;
    assert_int_equal(read(up[0], &c, 1), 1);
    b.rule_set = RULES + 1; // an empty set
    put(&b);
    assert_int_equal(write(down[1], "g", 1), 1);
    int status = 0;
    (void)waitpid(child, &status, 0);
    assert_int_equal(WEXITSTATUS(status), EPERM);
    char got[8];
    assert_int_equal(recv(w.relay6, got, sizeof got, 0), 1);
    assert_int_equal(got[0], '1');
    assert_int_equal(recv(w.relay6, got, sizeof got, 0), -1);
    for (int i = 0; i < 2; i++) {
        (void)close(down[i]);
        (void)close(up[i]);
    }
}

// Fills the table of flows with those of other sandboxes, because a sandbox cannot fill it with its own entries.
static void
without_room_for_its_flow_a_connect_is_refused(void **state)
{
    (void)state;
    int flows = bpf_map__fd(w.rig.bpf->maps.flows);
    struct net_flow_key key = {.slot = SLOT + 1};
    const struct net_flow other = {.port = 1, .generation = 1};
    const struct bpf_sandbox b = entry(NET_ALLOWLIST, RULES);
    put(&b);
    allow("::ffff:10.99.0.1", PORT + 1);
    struct goal g = w.goal;
    w.goal.allowed4.sin_port = htons(PORT + 1); // a flow that does not exist yet
    while (bpf_map_update_elem(flows, &key, &other, BPF_ANY) == 0)
        key.entry++;
    assert_int_equal(errno, E2BIG);
    assert_true(key.entry > SMALL_FLOWS / 2);
    uint64_t before = denied(NET_FULL);
    assert_int_equal(inside(allowed_tcp), ENOBUFS);
    assert_int_equal(denied(NET_FULL), before + 1);
    while (key.entry-- > 0) // the other sandbox was removed
        assert_int_equal(bpf_map_delete_elem(flows, &key), 0);
    assert_int_equal(inside(allowed_tcp), 0);
    assert_int_equal(denied(NET_FULL), before + 1);
    drain_relay();
    w.goal = g;
    allow("::ffff:10.99.0.1", PORT);
}

static void
denials_are_reported_with_destination_and_reason(void **state)
{
    (void)state;
    const struct bpf_sandbox b = entry(NET_NONE, 0);
    put(&b);
    struct net_counters before;
    uint32_t slot = SLOT;
    (void)bpf_map_lookup_elem(bpf_map__fd(w.rig.bpf->maps.net_counters), &slot, &before);
    assert_int_equal(run_called("tcp4"), EPERM);
    struct net_counters after;
    (void)bpf_map_lookup_elem(bpf_map__fd(w.rig.bpf->maps.net_counters), &slot, &after);
    assert_int_equal(after.connects_denied, before.connects_denied + 1);
    assert_int_equal(after.failures, before.failures);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_an_entry_nothing_gets_out_and_no_socket_is_made),
        cmocka_unit_test(with_mode_none_nothing_gets_out),
        cmocka_unit_test(with_an_allowlist_nothing_else_gets_out),
        cmocka_unit_test(with_mode_open_private_addresses_stay_out_of_reach),
        cmocka_unit_test(port_zero_is_refused_at_once_in_every_mode),
        cmocka_unit_test(without_programs_the_techniques_get_out),
        cmocka_unit_test(allowed_connections_reach_the_relay_with_their_flow),
        cmocka_unit_test(connections_are_cut_when_the_policy_forbids_them),
        cmocka_unit_test(without_room_for_its_flow_a_connect_is_refused),
        cmocka_unit_test(denials_are_reported_with_destination_and_reason),
    };
    return cmocka_run_group_tests(tests, set_up, net_rig_close);
}
