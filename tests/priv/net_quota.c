// SPDX-License-Identifier: Apache-2.0
// The programs count only payload for a quota. A listener of the test replaces the relay.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/harness/net_rig.h"
#include "tests/harness/wait.h"

enum { SLOT = 4, GENERATION = 8, RULES = 6, PORT = 7777, DOWN = 16 << 20, QUOTA = 65536 };
enum { SLACK = 4 << 20, WAIT_S = 20 };
static const char address[] = "::ffff:10.98.0.1";

static struct net_rig rig;
static int relay, datagrams;

static int
set_up(void **state)
{
    *state = net_rig_open(&rig);
    if (net_rig_namespace() < 0 || net_rig_allow(&rig, RULES, address, PORT, PORT) < 0)
        return -1;
    relay = net_rig_listener(SOCK_STREAM, 0, NET_RELAY_PORT);
    datagrams = net_rig_listener(SOCK_DGRAM, 0, NET_RELAY_PORT);
    return relay < 0 || datagrams < 0 ? -1 : 0;
}

// A sandbox that has sent nothing yet.
static void
begin(uint64_t quota)
{
    static const struct net_counters none;
    const uint32_t slot = SLOT;
    const struct bpf_sandbox b = {.slot = SLOT,
                                  .generation = GENERATION,
                                  .mode = NET_ALLOWLIST,
                                  .rule_set = RULES,
                                  .egress_bytes_max = quota};
    assert_int_equal(net_rig_put(&rig, &b), 0);
    assert_int_equal(
        bpf_map_update_elem(bpf_map__fd(rig.bpf->maps.net_counters), &slot, &none, BPF_ANY), 0);
}

static struct net_counters
counted(void)
{
    struct net_counters n;
    const uint32_t slot = SLOT;
    assert_int_equal(bpf_map_lookup_elem(bpf_map__fd(rig.bpf->maps.net_counters), &slot, &n), 0);
    return n;
}

// ---- the job: a process of the sandbox, which exits with the line number of its first failure

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__;                                                                       \
    } while (0)

static int
dial(int type, uint16_t port)
{
    static const int yes = 1;
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int fd = socket(AF_INET6, type | SOCK_CLOEXEC, 0);
    (void)inet_pton(AF_INET6, address, &at.sin6_addr);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return connect(fd, (const struct sockaddr *)&at, sizeof at) == 0 ? fd : -1;
}

static uint8_t block[1 << 16];

static int
reads_all_and_then_writes_byte_by_byte(void)
{
    int fd = dial(SOCK_STREAM, PORT);
    size_t got = 0;
    ssize_t n = 0;
    MUST(fd >= 0);
    while (got < DOWN && (n = recv(fd, block, sizeof block, 0)) > 0)
        got += (size_t)n;
    MUST(got == DOWN);
    for (int i = 0; i < 1000; i++)
        MUST(send(fd, "x", 1, MSG_NOSIGNAL) == 1);
    return 0;
}

static int
sends_datagrams_of_a_hundred_bytes_and_of_none(void)
{
    int fd = dial(SOCK_DGRAM, PORT);
    MUST(fd >= 0);
    for (int i = 0; i < 10; i++)
        MUST(send(fd, block, 100, MSG_NOSIGNAL) == 100 && send(fd, "", 0, MSG_NOSIGNAL) == 0);
    return 0;
}

static int
asks_a_name_server(void)
{
    int fd = dial(SOCK_DGRAM, NET_DNS_PORT);
    MUST(fd >= 0 && send(fd, block, 100, MSG_NOSIGNAL) == 100);
    return 0;
}

static int
writes_far_more_than_it_may(void)
{
    int fd = dial(SOCK_STREAM, PORT);
    MUST(fd >= 0);
    for (int i = 0; i < 2 * SLACK / (int)sizeof block; i++)
        if (send(fd, block, sizeof block, MSG_NOSIGNAL) < 0)
            return 0; // its peer has closed
    return __LINE__;
}

static pid_t
start(int (*fn)(void))
{
    pid_t child = fork();
    if (child == 0) {
        if (!net_rig_enter(&rig))
            _exit(255);
        alarm(WAIT_S);
        _exit(fn());
    }
    return child;
}

static void
await(pid_t child)
{
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

// The relay's end of the next connection.
static int
accept_one(void)
{
    static const struct timeval wait = {.tv_sec = 1};
    int fd = -1;
    wait_until("the connection", (fd = accept4(relay, NULL, NULL, SOCK_CLOEXEC)) >= 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    return fd;
}

static size_t
read_to_the_end(int fd)
{
    size_t got = 0;
    ssize_t n = 0;
    while ((n = recv(fd, block, sizeof block, 0)) > 0)
        got += (size_t)n;
    (void)close(fd);
    return got;
}

static void
incoming_data_and_headers_use_no_quota(void **state)
{
    (void)state;
    begin(QUOTA);
    pid_t job = start(reads_all_and_then_writes_byte_by_byte);
    int fd = accept_one();
    for (size_t sent = 0; sent < DOWN; sent += sizeof block)
        assert_int_equal(send(fd, block, sizeof block, MSG_NOSIGNAL), sizeof block);
    assert_int_equal(read_to_the_end(fd), 1000);
    await(job);
    struct net_counters n = counted();
    assert_int_equal(n.out_bytes, 1000);
    assert_in_range(n.in_bytes, DOWN, DOWN + DOWN / 10); // some bytes may be sent twice
    assert_int_equal(n.denied[NET_QUOTA], 0);
}

static void
datagrams_count_with_their_length_and_queries_do_not_count(void **state)
{
    (void)state;
    begin(QUOTA);
    await(start(sends_datagrams_of_a_hundred_bytes_and_of_none));
    assert_int_equal(counted().out_bytes, 1000);
    await(start(asks_a_name_server));
    assert_int_equal(counted().out_bytes, 1000);
    assert_int_equal(counted().out_packets, 21);
}

static void
nothing_leaves_beyond_the_quota_and_its_margin(void **state)
{
    (void)state;
    begin(QUOTA);
    pid_t job = start(writes_far_more_than_it_may);
    assert_in_range(read_to_the_end(accept_one()), QUOTA, QUOTA + QUOTA / 4 + SLACK);
    (void)kill(job, SIGKILL);
    (void)waitpid(job, NULL, 0);
    assert_in_range(counted().out_bytes, QUOTA, QUOTA + QUOTA / 4 + SLACK);
    assert_true(counted().denied[NET_QUOTA] > 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(incoming_data_and_headers_use_no_quota),
        cmocka_unit_test(datagrams_count_with_their_length_and_queries_do_not_count),
        cmocka_unit_test(nothing_leaves_beyond_the_quota_and_its_margin),
    };
    return cmocka_run_group_tests(tests, set_up, net_rig_close);
}
