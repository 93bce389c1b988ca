// SPDX-License-Identifier: Apache-2.0
// The relay forwards what the policy allows, and nothing else: TCP and UDP flows of a job to servers of the test.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/harness/relay_flow.h"

enum { PORT = 7000, OTHER_PORT = 7001 };

static struct box_policy
loopback_policy(uint16_t port)
{
    struct box_policy p = box_policy(NET_ALLOWLIST);
    p.rules_n = 1;
    box_prefix(&p.rules[0], INADDR_LOOPBACK, 32, port);
    return p;
}

static void
expect_refused(uint32_t address, uint16_t port, enum net_reason reason)
{
    unsigned before = box.denials;
    int job = box_connect(SOCK_STREAM, address, port);
    box_expect_reset(job);
    while (box.denials == before)
        (void)box_await(RELAY_DENIED);
    assert_int_equal(box.denied.reason, reason);
    assert_int_equal(box.denied.port, port);
}

static void
destinations_without_a_rule_are_reset_and_reported(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy(PORT);
    box_open(&p);
    int server = box_bound(SOCK_STREAM, INADDR_LOOPBACK, OTHER_PORT);
    expect_refused(INADDR_LOOPBACK, OTHER_PORT, NET_NO_RULE);
    expect_refused(0x0a000001, PORT, NET_NO_RULE);
    expect_refused(0xa9fea9fe, PORT, NET_NO_RULE);
    expect_refused(0x01010101, PORT, NET_NO_RULE);
    struct pollfd accepted = {.fd = server, .events = POLLIN};
    assert_int_equal(poll(&accepted, 1, 0), 0); // no connection arrived
    box_close();
    (void)close(server);
}

static void
open_mode_allows_no_address_of_the_host_or_its_networks(void **state)
{
    (void)state;
    struct box_policy p = box_policy(NET_OPEN);
    p.rules_n = 1;
    box_prefix(&p.rules[0], 0, 0, 0); // 0.0.0.0/0 names no private address
    box_open(&p);
    int server = box_bound(SOCK_STREAM, INADDR_ANY, PORT);
    static const uint32_t special[] = {0x7f000001, 0x0a000001, 0xc0a80101, 0xac100001, 0xa9fea9fe,
                                       0x64400001, 0x00000000, 0xe0000001, 0xa83f8110, 0xffffffff};
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
        expect_refused(special[i], PORT, NET_NO_RULE);
    static const uint8_t forms[][16] = {
        {[15] = 1},                                                // ::1
        {0xfd, 0x00, 0x0e, 0xc2, [14] = 2, [15] = 0x54},           // metadata
        {0x20, 0x02, 127, 0, 0, 1},                                // 6to4
        {0, 0x64, 0xff, 0x9b, [12] = 169, 254, 169, 254},          // NAT64
        {0x20, 0x01, [4] = 8, 8, 8, 8, [12] = 128, 255, 255, 254}, // Teredo, 127.0.0.1 inverted
        {0xfe, 0x80, [15] = 1},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        unsigned before = box.denials;
        box_expect_reset(box_connect_flow(SOCK_STREAM, box_flow(forms[i], PORT, IPPROTO_TCP)));
        while (box.denials == before)
            (void)box_await(RELAY_DENIED);
        assert_int_equal(box.denied.reason, NET_NO_RULE);
    }
    struct pollfd accepted = {.fd = server, .events = POLLIN};
    assert_int_equal(poll(&accepted, 1, 0), 0);
    box_close();
    (void)close(server);
}

static void
unassigned_flow_addresses_are_refused(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy(0);
    box_open(&p);
    uint8_t to[16];
    box_mapped(INADDR_LOOPBACK, to);
    box_expect_reset(box_connect_flow(SOCK_STREAM, box.flow + 1000)); // no such flow
    uint32_t udp = box_flow(to, PORT, IPPROTO_UDP);
    box_expect_reset(box_connect_flow(SOCK_STREAM, udp)); // a flow of the other protocol
    box.generation--;
    uint32_t old = box_flow(to, PORT, IPPROTO_TCP); // a flow of the slot's earlier sandbox
    box.generation++;
    box_expect_reset(box_connect_flow(SOCK_STREAM, old));
    box_expect_reset(box_connect_flow(SOCK_STREAM, INADDR_LOOPBACK - (uint32_t)NET_FLOW_V4));
    box_close();
}

static void
mode_none_reaches_nothing_at_all(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy(0);
    p.mode = NET_NONE;
    box_open(&p);
    expect_refused(INADDR_LOOPBACK, PORT, NET_MODE_NONE);
    box_close();
}

static void
a_refused_connection_appears_as_a_reset(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy(0);
    box_open(&p);
    box_expect_reset(box_connect(SOCK_STREAM, INADDR_LOOPBACK, OTHER_PORT));
    struct relay_report r = box_await(RELAY_FLOW_END);
    assert_int_equal(r.reason, NET_REASON_NONE);
    assert_int_equal(r.port, OTHER_PORT);
    assert_int_equal(r.error, ECONNREFUSED);
    box_close();
}

// Both ends of one flow, and the listening socket.
struct pair {
    int server, job, peer;
};

static struct pair
connect_pair(uint16_t port)
{
    struct pair p = {.server = box_bound(SOCK_STREAM, INADDR_LOOPBACK, port)};
    p.job = box_connect(SOCK_STREAM, INADDR_LOOPBACK, port);
    p.peer = accept4(p.server, NULL, NULL, SOCK_CLOEXEC);
    static const struct timeval wait = {.tv_sec = BOX_WAIT_S};
    assert_true(p.peer >= 0);
    (void)setsockopt(p.peer, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    return p;
}

static void
close_pair(const struct pair *p)
{
    if (p->job >= 0)
        (void)close(p->job);
    if (p->peer >= 0)
        (void)close(p->peer);
    (void)close(p->server);
}

static void
bytes_go_both_ways_and_a_half_close_is_passed_on(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy(PORT);
    box_open(&p);
    struct pair c = connect_pair(PORT);
    struct relay_report r = box_await(RELAY_FLOW);
    assert_int_equal(r.port, PORT);
    assert_int_equal(r.rule, 0);
    box_say(c.job, "question");
    box_hear(c.peer, "question");
    assert_int_equal(shutdown(c.job, SHUT_WR), 0);
    char byte = 0;
    assert_int_equal(recv(c.peer, &byte, 1, 0), 0); // end of file
    box_say(c.peer, "the answer");                  // the other direction is still open
    box_hear(c.job, "the answer");
    (void)close(c.peer);
    c.peer = -1;
    assert_int_equal(recv(c.job, &byte, 1, 0), 0);
    r = box_await(RELAY_FLOW_END);
    assert_int_equal(r.out_bytes, strlen("question"));
    assert_int_equal(r.in_bytes, strlen("the answer"));
    close_pair(&c);
    box_close();
}

static void
reset_now(int fd)
{
    static const struct linger now = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    (void)close(fd);
}

static void
a_reset_of_either_side_reaches_the_other(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy(PORT);
    box_open(&p);
    struct pair c = connect_pair(PORT);
    box_say(c.job, "x");
    box_hear(c.peer, "x");
    reset_now(c.job);
    c.job = -1;
    box_expect_reset(c.peer);
    c.peer = -1;
    close_pair(&c);
    c = connect_pair(PORT);
    box_say(c.job, "x");
    box_hear(c.peer, "x");
    reset_now(c.peer);
    c.peer = -1;
    box_expect_reset(c.job);
    c.job = -1;
    close_pair(&c);
    box_close();
}

enum { BULK_BYTES = 64 << 20, BLOCK = 1 << 16 };

// A process that writes BULK_BYTES of a pattern and exits.
static pid_t
start_writer(int fd)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    static uint8_t block[BLOCK];
    for (size_t i = 0; i < BLOCK; i++)
        block[i] = (uint8_t)(i * 31 >> 3);
    for (size_t sent = 0; sent < BULK_BYTES;) {
        ssize_t n = send(fd, block + sent % BLOCK, BLOCK - sent % BLOCK, MSG_NOSIGNAL);
        if (n <= 0)
            _exit(1);
        sent += (size_t)n;
    }
    (void)shutdown(fd, SHUT_WR);
    _exit(0);
}

static void
sixty_four_megabytes_arrive_unchanged_at_a_slow_reader(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy(PORT);
    box_open(&p);
    struct pair c = connect_pair(PORT);
    pid_t writer = start_writer(c.job);
    static uint8_t block[BLOCK];
    size_t got = 0;
    bool right = true;
    time_passes("every buffer between is full", 200);
    for (;;) {
        ssize_t n = recv(c.peer, block, sizeof block, 0);
        if (n <= 0)
            break;
        for (size_t i = 0; i < (size_t)n; i++)
            right = right && block[i] == (uint8_t)(((got + i) % BLOCK) * 31 >> 3);
        got += (size_t)n;
    }
    int status = -1;
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_int_equal(status, 0);
    assert_int_equal(got, BULK_BYTES);
    assert_true(right);
    close_pair(&c);
    box_close();
}

static void
quotas_allow_exactly_their_bytes_and_then_cut(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy(PORT);
    p.out_bytes_max = 10;
    box_open(&p);
    struct pair c = connect_pair(PORT);
    box_say(c.job, "0123456789");
    box_hear(c.peer, "0123456789");
    box_say(c.job, "!");
    box_expect_reset(c.peer);
    c.peer = -1;
    struct relay_report r = box_await(RELAY_FLOW_END);
    assert_int_equal(r.reason, NET_QUOTA);
    assert_int_equal(r.out_bytes, 10);
    close_pair(&c);
    expect_refused(INADDR_LOOPBACK, PORT, NET_QUOTA);
    p.out_bytes_max = 0; // the other direction, and both directions of a rule
    p.rules[0].bytes_max = 20;
    box_change(&p);
    c = connect_pair(PORT);
    box_say(c.peer, "0123456789");
    box_hear(c.job, "0123456789"); // 10 earlier bytes are counted: unchanged rules keep their use
    box_say(c.peer, "!");
    box_expect_reset(c.job);
    c.job = -1;
    r = box_await(RELAY_FLOW_END);
    assert_int_equal(r.reason, NET_NAME_QUOTA);
    close_pair(&c);
    expect_refused(INADDR_LOOPBACK, PORT, NET_NAME_QUOTA);
    box_close();
}

static void
a_kernel_that_counts_more_than_the_quota_has_everything_cut(void **state)
{
    (void)state;
    size_t n = 0;
    struct box_policy p = loopback_policy(PORT);
    p.out_bytes_max = 10;
    box_open(&p);
    struct pair c = connect_pair(PORT);
    box_say(c.job, "x");
    box_hear(c.peer, "x");
    struct relay_order *o = box_order(RELAY_SPENT, 0, &n);
    box_send(o, n, NULL, 0);
    free(o);
    box_expect_reset(c.job);
    box_expect_reset(c.peer);
    c.job = c.peer = -1;
    assert_int_equal(box_await(RELAY_DENIED).reason, NET_QUOTA);
    assert_int_equal(box_await(RELAY_FLOW_END).reason, NET_QUOTA);
    close_pair(&c);
    expect_refused(INADDR_LOOPBACK, PORT, NET_QUOTA);
    box_change(&p); // data that the new policy allows is forwarded
    c = connect_pair(PORT);
    close_pair(&c);
    box_close();
}

static void
a_new_policy_cuts_only_the_flows_that_it_forbids(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy(0);
    box_open(&p);
    struct pair cut = connect_pair(PORT);
    struct pair kept = connect_pair(OTHER_PORT);
    struct box_policy narrow = loopback_policy(OTHER_PORT);
    box_change(&narrow);
    box_expect_reset(cut.job);
    box_expect_reset(cut.peer);
    cut.job = cut.peer = -1;
    struct relay_report r = box_await(RELAY_FLOW_END);
    assert_int_equal(r.reason, NET_NO_RULE);
    box_say(kept.job, "still");
    box_hear(kept.peer, "still");
    close_pair(&cut);
    close_pair(&kept);
    box_close();
}

static double
now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void
a_rate_is_enforced(void **state)
{
    (void)state;
    enum { RATE = 4 << 20, BYTES = 6 << 20 };
    struct box_policy p = loopback_policy(PORT);
    p.out_rate = RATE;
    box_open(&p);
    struct pair c = connect_pair(PORT);
    (void)box_await(RELAY_FLOW);
    pid_t writer = start_writer(c.job);
    static uint8_t block[BLOCK];
    double begin = now_s();
    size_t got = 0;
    while (got < BYTES) {
        ssize_t n = recv(c.peer, block, sizeof block, 0);
        assert_true(n > 0);
        got += (size_t)n;
    }
    double took = now_s() - begin;
    (void)kill(writer, SIGKILL);
    (void)waitpid(writer, NULL, 0);
    assert_true(took > 0.75 * BYTES / RATE); // never faster, even on a slow machine
    close_pair(&c);
    box_close();
}

static void
only_the_destination_of_datagrams_can_answer(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy(PORT);
    box_open(&p);
    int server = box_bound(SOCK_DGRAM, INADDR_LOOPBACK, PORT);
    int stranger = box_bound(SOCK_DGRAM, INADDR_LOOPBACK, OTHER_PORT);
    int refused = box_connect(SOCK_DGRAM, INADDR_LOOPBACK, OTHER_PORT);
    box_say(refused, "no");
    assert_int_equal(box_await(RELAY_DENIED).reason, NET_NO_RULE);
    int job = box_connect(SOCK_DGRAM, INADDR_LOOPBACK, PORT);
    box_say(job, "ping");
    char got[16] = "";
    struct sockaddr_in from;
    socklen_t from_n = sizeof from;
    assert_int_equal(recvfrom(server, got, sizeof got, 0, (struct sockaddr *)&from, &from_n), 4);
    assert_int_equal(box_await(RELAY_FLOW).protocol, IPPROTO_UDP);
    assert_int_equal(sendto(stranger, "evil", 4, 0, (const struct sockaddr *)&from, sizeof from),
                     4);
    assert_int_equal(sendto(server, "pong", 4, 0, (const struct sockaddr *)&from, sizeof from), 4);
    box_hear(job, "pong"); // connected, so it came from the flow's address
    struct pollfd more = {.fd = stranger, .events = POLLIN};
    assert_int_equal(poll(&more, 1, 0), 0);
    (void)close(refused);
    (void)close(job);
    (void)close(server);
    (void)close(stranger);
    box_close();
}

static void
ipv6_flows_go_the_same_way(void **state)
{
    (void)state;
    if (!box.v6) {
        (void)printf("skipped: no IPv6 here\n");
        skip();
    }
    static const uint8_t loopback[16] = {[15] = 1};
    struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
    struct box_policy p = box_policy(NET_ALLOWLIST);
    p.rules_n = 1;
    p.rules[0] = (struct relay_rule){.kind = RELAY_PREFIX, .prefix = 128};
    memcpy(p.rules[0].address, loopback, sizeof loopback);
    memcpy(&sa.sin6_addr, loopback, sizeof loopback);
    box_open(&p);
    static const uint8_t other[16] = {0x20, 0x01, 0x48, 0x60, [15] = 0x88};
    box_expect_reset(box_connect_flow6(SOCK_STREAM, box_flow(other, PORT, IPPROTO_TCP)));
    int server = box_socket(AF_INET6, SOCK_STREAM);
    int datagrams = box_socket(AF_INET6, SOCK_DGRAM);
    assert_int_equal(bind(server, (const struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(bind(datagrams, (const struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(server, 8), 0);
    int job = box_connect_flow6(SOCK_STREAM, box_flow(loopback, PORT, IPPROTO_TCP));
    int peer = accept4(server, NULL, NULL, SOCK_CLOEXEC);
    assert_true(peer >= 0);
    box_say(job, "six");
    box_hear(peer, "six");
    int udp = box_connect_flow6(SOCK_DGRAM, box_flow(loopback, PORT, IPPROTO_UDP));
    box_say(udp, "ping");
    char got[16] = "";
    socklen_t n = sizeof sa;
    assert_int_equal(recvfrom(datagrams, got, sizeof got, 0, (struct sockaddr *)&sa, &n), 4);
    assert_int_equal(sendto(datagrams, "pong", 4, 0, (const struct sockaddr *)&sa, n), 4);
    box_hear(udp, "pong");
    (void)close(job);
    (void)close(peer);
    (void)close(udp);
    (void)close(server);
    (void)close(datagrams);
    box_close();
}

static void
a_thousand_connections_work_and_the_next_is_refused(void **state)
{
    (void)state;
    if (!box.many) {
        (void)printf("skipped: too few descriptors\n");
        skip();
    }
    struct box_policy p = loopback_policy(PORT);
    unsigned before = box_relay_fds();
    box_open(&p);
    int server = box_bound(SOCK_STREAM, INADDR_LOOPBACK, PORT);
    static int jobs[RELAY_CONNECTIONS], peers[RELAY_CONNECTIONS];
    for (int i = 0; i < RELAY_CONNECTIONS; i++) {
        jobs[i] = box_connect(SOCK_STREAM, INADDR_LOOPBACK, PORT);
        peers[i] = accept4(server, NULL, NULL, SOCK_CLOEXEC);
        assert_true(peers[i] >= 0);
        box_drain();
    }
    expect_refused(INADDR_LOOPBACK, PORT, NET_FULL);
    for (int i = 0; i < RELAY_CONNECTIONS; i++) {
        box_say(jobs[i], "x");
        box_hear(peers[i], "x");
    }
    for (int i = 0; i < RELAY_CONNECTIONS; i += 2) {
        (void)close(jobs[i]);
        (void)close(peers[i]);
    }
    box_close(); // the others are closed
    for (int i = 1; i < RELAY_CONNECTIONS; i += 2) {
        box_expect_reset(jobs[i]);
        box_expect_reset(peers[i]);
    }
    (void)close(server);
    assert_int_equal(box_relay_fds(), before);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(destinations_without_a_rule_are_reset_and_reported),
        cmocka_unit_test(open_mode_allows_no_address_of_the_host_or_its_networks),
        cmocka_unit_test(unassigned_flow_addresses_are_refused),
        cmocka_unit_test(mode_none_reaches_nothing_at_all),
        cmocka_unit_test(a_refused_connection_appears_as_a_reset),
        cmocka_unit_test(bytes_go_both_ways_and_a_half_close_is_passed_on),
        cmocka_unit_test(a_reset_of_either_side_reaches_the_other),
        cmocka_unit_test(sixty_four_megabytes_arrive_unchanged_at_a_slow_reader),
        cmocka_unit_test(quotas_allow_exactly_their_bytes_and_then_cut),
        cmocka_unit_test(a_kernel_that_counts_more_than_the_quota_has_everything_cut),
        cmocka_unit_test(a_new_policy_cuts_only_the_flows_that_it_forbids),
        cmocka_unit_test(a_rate_is_enforced),
        cmocka_unit_test(only_the_destination_of_datagrams_can_answer),
        cmocka_unit_test(ipv6_flows_go_the_same_way),
        cmocka_unit_test(a_thousand_connections_work_and_the_next_is_refused),
    };
    return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
