// SPDX-License-Identifier: Apache-2.0
// A new relay continues where the earlier one ended: quotas, counters, and the addresses of names.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/harness/relay_world.h"

enum { PORT = 7000, NAMES_BEFORE = 77, NOERROR = 0 };

static int server;

static int
setup(void **state)
{
    int r = box_setup(state);
    world_start();
    server = box_bound(SOCK_STREAM, INADDR_LOOPBACK, PORT);
    return r;
}

static int
teardown(void **state)
{
    (void)close(server);
    world_stop();
    return box_teardown(state);
}

static struct box_policy
loopback_policy(void)
{
    struct box_policy p = box_policy(NET_ALLOWLIST);
    p.rules_n = 2;
    box_prefix(&p.rules[0], INADDR_LOOPBACK, 32, PORT);
    box_name(&p.rules[1], RELAY_SUFFIX, "test");
    return p;
}

// Sends `n` bytes over one connection, and one more byte that exceeds the quota.
static struct relay_report
say_and_be_cut(size_t n)
{
    static const char bytes[] = "0123456789";
    char got[sizeof bytes] = "";
    int job = box_connect(SOCK_STREAM, INADDR_LOOPBACK, PORT);
    int peer = accept(server, NULL, NULL);
    assert_true(job >= 0 && peer >= 0);
    assert_int_equal(send(job, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
    assert_int_equal(recv(peer, got, n, MSG_WAITALL), (ssize_t)n);
    box_say(job, "!");
    box_expect_reset(peer);
    (void)close(job);
    return box_await(RELAY_FLOW_END);
}

static void
a_used_up_quota_allows_no_bytes(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy();
    p.out_bytes_max = 1000;
    p.counted.out_bytes = 1000;
    box_open(&p);
    box_expect_reset(box_connect(SOCK_STREAM, INADDR_LOOPBACK, PORT));
    assert_int_equal(box_await(RELAY_DENIED).reason, NET_QUOTA);
    box_close();
    p = loopback_policy();
    p.rules[0].bytes_max = 10;
    p.rules[0].bytes_used = 11;
    box_open(&p);
    box_expect_reset(box_connect(SOCK_STREAM, INADDR_LOOPBACK, PORT));
    assert_int_equal(box_await(RELAY_DENIED).reason, NET_NAME_QUOTA);
    box_close();
}

static void
the_rest_of_a_quota_is_usable_and_counters_continue(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy();
    p.out_bytes_max = 1000;
    p.counted = (struct relay_counted){.out_bytes = 992, .in_bytes = 5, .queries = 3, .lost = 2};
    box_open(&p);
    assert_int_equal(say_and_be_cut(8).reason, NET_QUOTA);
    struct relay_report r = box_await(RELAY_SUMS);
    while (r.out_bytes < 1000)
        r = box_await(RELAY_SUMS);
    assert_int_equal(r.out_bytes, 1000);
    assert_int_equal(r.in_bytes, 5);
    assert_int_equal(r.queries, 3);
    assert_int_equal(r.lost, 2);
    box_close();
}

static void
the_rest_of_a_rules_quota_is_usable_and_its_sum_is_reported(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy();
    p.rules[0].bytes_max = 100;
    p.rules[0].bytes_used = 95;
    box_open(&p);
    assert_int_equal(say_and_be_cut(5).reason, NET_NAME_QUOTA);
    struct relay_report r = box_await(RELAY_RULE_SUM);
    while (r.out_bytes < 100)
        r = box_await(RELAY_RULE_SUM);
    assert_int_equal(r.out_bytes, 100);
    assert_int_equal(r.rule, 0);
    // In the new policy the rule has another number, and reports use that number.
    p.rules[2] = p.rules[0];
    p.rules[0] = p.rules[1];
    p.rules[2].bytes_used = 0;
    p.rules_n = 3;
    box_drain();
    box_change(&p);
    box_expect_reset(box_connect(SOCK_STREAM, INADDR_LOOPBACK, PORT));
    assert_int_equal(box_await(RELAY_DENIED).reason, NET_NAME_QUOTA);
    r = box_await(RELAY_RULE_SUM);
    assert_int_equal(r.rule, 2);
    assert_int_equal(r.out_bytes, 100);
    box_close();
}

static void
a_name_never_gets_the_earlier_address_of_another(void **state)
{
    (void)state;
    struct box_policy p = loopback_policy();
    p.counted.names = NAMES_BEFORE;
    box_open(&p);
    int fd = box_connect(SOCK_DGRAM, 0x08080808, NET_DNS_PORT);
    struct world_answer a = world_ask(fd, "public.test", WORLD_TYPE_A);
    assert_int_equal(a.rcode, NOERROR);
    const uint8_t next[4] = {198, 18, 0, NAMES_BEFORE + 1};
    assert_memory_equal(a.address, next, sizeof next);
    struct relay_report r = box_await(RELAY_SUMS);
    while (r.names <= NAMES_BEFORE)
        r = box_await(RELAY_SUMS);
    assert_int_equal(r.names, NAMES_BEFORE + 1);
    (void)close(fd);
    box_close();
    p.counted.names = NET_SYNTHETIC_V4_MASK; // none is left
    box_open(&p);
    fd = box_connect(SOCK_DGRAM, 0x08080808, NET_DNS_PORT);
    assert_int_not_equal(world_ask(fd, "public.test", WORLD_TYPE_A).rcode, NOERROR);
    assert_int_equal(box_await(RELAY_DENIED).reason, NET_FULL);
    (void)close(fd);
    box_close();
}

// Without SO_LINGER 0 the kernel would continue to send data of a dead process's sockets, which a policy may forbid
// by now.
static void
queued_data_of_a_killed_relay_is_not_sent(void **state)
{
    (void)state;
    enum { ROOM = 4096 };
    static const int room = ROOM;
    static uint8_t block[65536];
    struct box_policy p = loopback_policy();
    int tight = box_socket(AF_INET, SOCK_STREAM);
    const struct sockaddr_in sa = box_v4(INADDR_LOOPBACK, PORT + 1);
    assert_int_equal(setsockopt(tight, SOL_SOCKET, SO_RCVBUF, &room, sizeof room), 0);
    assert_int_equal(bind(tight, (const struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(tight, 8), 0);
    p.rules[0].ports[0].last = PORT + 1;
    box_open(&p);
    int job = box_connect(SOCK_STREAM, INADDR_LOOPBACK, PORT + 1);
    int peer = accept(tight, NULL, NULL);
    assert_true(job >= 0 && peer >= 0);
    size_t said = 0;
    struct pollfd room_again = {.fd = job, .events = POLLOUT};
    while (poll(&room_again, 1, 500) == 1) { // then all buffers on the path are full
        ssize_t n = send(job, block, sizeof block, MSG_NOSIGNAL | MSG_DONTWAIT);
        said += n > 0 ? (size_t)n : 0;
    }
    int there = 0;
    assert_int_equal(ioctl(peer, FIONREAD, &there), 0);
    assert_true(said > (size_t)there + 100000);
    (void)kill(box.relay, SIGKILL);
    (void)box_wait_relay();
    size_t heard = 0;
    ssize_t n = 0;
    while ((n = recv(peer, block, sizeof block, 0)) > 0)
        heard += (size_t)n;
    assert_true(n < 0 && errno == ECONNRESET);
    assert_true(heard <= (size_t)there);
    (void)close(job);
    (void)close(peer);
    (void)close(tight);
    (void)close(box.socket);
    box_start_relay(BOX_DNS_PORT);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_used_up_quota_allows_no_bytes),
        cmocka_unit_test(the_rest_of_a_quota_is_usable_and_counters_continue),
        cmocka_unit_test(the_rest_of_a_rules_quota_is_usable_and_its_sum_is_reported),
        cmocka_unit_test(a_name_never_gets_the_earlier_address_of_another),
        cmocka_unit_test(queued_data_of_a_killed_relay_is_not_sent),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
