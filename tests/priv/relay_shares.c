// SPDX-License-Identifier: Apache-2.0
// A relay with few descriptors and two sandboxes: the share of one in the common tables leaves room for the other,
// and empty datagrams count.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/harness/relay_flow.h"

enum { PORT = 7000, FLOWS = 64, OTHER_SLOT = 9 };

static struct box_policy
loopback_policy(void)
{
    struct box_policy p = box_policy(NET_ALLOWLIST);
    p.rules_n = 1;
    box_prefix(&p.rules[0], INADDR_LOOPBACK, 32, PORT);
    return p;
}

struct sandbox {
    uint32_t slot, generation;
    int ns;
};

// The sandbox for the next calls.
static struct sandbox
turn_to(struct sandbox next)
{
    const struct sandbox now = {box.slot, box.generation, box.sandbox_ns};
    box.slot = next.slot;
    box.generation = next.generation;
    box.sandbox_ns = next.ns;
    return now;
}

static struct sandbox
another_sandbox(const struct box_policy *p)
{
    struct sandbox other = {OTHER_SLOT, 100, box_netns()};
    box_enter(box.host_ns);
    struct sandbox first = turn_to(other);
    box_open(p);
    return first;
}

// How many of `most` flows the relay opens, one after the other.
static unsigned
open_flows(int type, unsigned most, int *fds)
{
    unsigned n = 0;
    for (unsigned i = 0; i < most; i++) {
        unsigned denials = box.denials;
        fds[i] = box_connect(type, INADDR_LOOPBACK, PORT);
        if (fds[i] >= 0 && type == SOCK_DGRAM)
            box_say(fds[i], "x");
        struct relay_report r = {0};
        while (r.kind != RELAY_FLOW && box.denials == denials)
            assert_true(box_report(&r, BOX_WAIT_S * 1000));
        n += r.kind == RELAY_FLOW;
    }
    return n;
}

static void
close_all(const int *fds, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
}

// One sandbox takes as many as it can, then another, then the first again.
static void
two_share(int type)
{
    int greedy[FLOWS];
    int modest[FLOWS];
    struct box_policy p = loopback_policy();
    int server = box_bound(type, INADDR_LOOPBACK, PORT);
    box_open(&p);
    assert_int_equal(open_flows(type, FLOWS, greedy), FLOWS / 2);
    assert_int_equal(box.denied.reason, NET_FULL);
    struct sandbox first = another_sandbox(&p);
    assert_int_equal(open_flows(type, FLOWS, modest), FLOWS / 4);
    assert_int_equal(box.denied.reason, NET_FULL);
    close_all(modest, FLOWS);
    box_close();
    (void)close(box.sandbox_ns);
    (void)turn_to(first);
    close_all(greedy, FLOWS);
    box_close();
    (void)close(server);
}

static void
a_sandbox_with_all_possible_connections_leaves_as_many_for_others(void **state)
{
    (void)state;
    two_share(SOCK_STREAM);
}

static void
a_sandbox_with_all_possible_associations_leaves_as_many_for_others(void **state)
{
    (void)state;
    two_share(SOCK_DGRAM);
}

static unsigned
arrived(int server, int wait_ms)
{
    char byte;
    unsigned n = 0;
    struct pollfd p = {.fd = server, .events = POLLIN};
    for (; poll(&p, 1, wait_ms) > 0 && recv(server, &byte, 1, 0) >= 0; n++)
        wait_ms = wait_ms < 100 ? wait_ms : 100;
    return n;
}

static void
empty_datagrams_use_the_rate_and_stop_at_a_used_up_quota(void **state)
{
    (void)state;
    enum { MANY = 8000, MOST = 6000 };
    struct box_policy p = loopback_policy();
    int server = box_bound(SOCK_DGRAM, INADDR_LOOPBACK, PORT);
    p.out_rate = 1000;
    box_open(&p);
    int job = box_connect(SOCK_DGRAM, INADDR_LOOPBACK, PORT);
    unsigned n = 0;
    for (unsigned i = 0; i < MANY; i++) {
        (void)send(job, "", 0, MSG_NOSIGNAL);
        n += i % 16 == 0 ? arrived(server, 1) : 0; // slowly, so that no socket overflows
    }
    n += arrived(server, 300);
    (void)printf("%u of %d empty datagrams arrived\n", n, MANY);
    assert_true(n > 0 && n < MOST); // 128 KiB at once are 4,681 times 28 bytes
    (void)close(job);
    box_close();
    p = loopback_policy();
    p.out_bytes_max = 2;
    box_open(&p);
    job = box_connect(SOCK_DGRAM, INADDR_LOOPBACK, PORT);
    box_say(job, "ab");
    assert_int_equal(arrived(server, 2000), 1);
    (void)send(job, "", 0, MSG_NOSIGNAL);
    assert_int_equal(box_await(RELAY_FLOW_END).reason, NET_QUOTA);
    assert_int_equal(arrived(server, 300), 0);
    (void)close(job);
    box_close();
    (void)close(server);
}

// Bytes that a server can send to a job that reads `first` bytes and then stops.
static size_t
held_up(int server, size_t first)
{
    static uint8_t block[1 << 16];
    static const int small = 16 << 10;
    int job = box_connect(SOCK_STREAM, INADDR_LOOPBACK, PORT);
    int peer = accept(server, NULL, NULL);
    assert_true(job >= 0 && peer >= 0);
    // The job's buffers belong to the sandbox; the server's do not count.
    (void)setsockopt(job, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    (void)setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    struct pollfd both[2] = {{.fd = peer, .events = POLLOUT}, {.fd = job, .events = POLLIN}};
    size_t said = 0;
    size_t heard = 0;
    while (poll(both, heard < first ? 2 : 1, heard < first ? BOX_WAIT_S * 1000 : 500) > 0) {
        ssize_t n = send(peer, block, sizeof block, MSG_NOSIGNAL | MSG_DONTWAIT);
        said += n > 0 ? (size_t)n : 0;
        n = heard < first ? recv(job, block, sizeof block, MSG_DONTWAIT) : 0;
        heard += n > 0 ? (size_t)n : 0;
    }
    assert_true(heard >= first);
    (void)close(job);
    (void)close(peer);
    return said - heard;
}

static void
unread_connections_use_little_memory_each(void **state)
{
    (void)state;
    enum { MANY = 20, FIRST = 1 << 20, MOST_HELD = 1 << 20 };
    int held[MANY];
    struct box_policy p = loopback_policy();
    int server = box_bound(SOCK_STREAM, INADDR_LOOPBACK, PORT);
    box_open(&p);
    size_t alone = held_up(server, FIRST);
    for (int i = 0; i < MANY; i++) {
        held[i] = box_connect(SOCK_STREAM, INADDR_LOOPBACK, PORT);
        (void)close(accept(server, NULL, NULL));
        (void)box_await(RELAY_FLOW);
    }
    size_t among_many = held_up(server, FIRST);
    (void)printf("%zu KiB, %zu of one of many\n", alone >> 10, among_many >> 10);
    assert_true(among_many < MOST_HELD);
    close_all(held, MANY);
    box_close();
    (void)close(server);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sandbox_with_all_possible_connections_leaves_as_many_for_others),
        cmocka_unit_test(a_sandbox_with_all_possible_associations_leaves_as_many_for_others),
        cmocka_unit_test(empty_datagrams_use_the_rate_and_stop_at_a_used_up_quota),
        cmocka_unit_test(unread_connections_use_little_memory_each),
    };
    box_files = 512; // as few flows as the relay works with: 64
    return cmocka_run_group_tests(tests, box_setup, box_teardown);
}
