// SPDX-License-Identifier: Apache-2.0
// The relay answers DNS queries: a name that the policy does not allow is not forwarded, a name with a private
// address is refused, and others get a synthetic address that leads to the name.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/harness/relay_world.h"

enum { PORT = 7000, NOERROR = 0, FORMERR = 1, SERVFAIL = 2, NXDOMAIN = 3, NOTIMP = 4, REFUSED = 5 };

static int
setup(void **state)
{
    int rc = box_setup(state);
    world_start();
    return rc;
}

static int
teardown(void **state)
{
    world_stop();
    return box_teardown(state);
}

// *.test, at any port.
static struct box_policy
test_policy(void)
{
    struct box_policy p = box_policy(NET_ALLOWLIST);
    p.rules_n = 1;
    box_name(&p.rules[0], RELAY_SUFFIX, "test");
    return p;
}

static int
resolver(void)
{
    return box_connect(SOCK_DGRAM, 0x08080808, NET_DNS_PORT); // for any address, the relay replies
}

static void
expect_denied(enum net_reason reason)
{
    struct relay_report r = box_await(RELAY_DENIED);
    assert_int_equal(r.reason, reason);
}

static bool
name_entry(uint32_t index, struct net_name *out)
{
    const struct net_name_key key = {.slot = BOX_SLOT, .index = index};
    return box_map_call(BPF_MAP_LOOKUP_ELEM, box.names_fd, &key, out) == 0;
}

static void
names_without_a_rule_are_nxdomain_and_not_forwarded(void **state)
{
    (void)state;
    static const char *const names[] = {"example.com",      "test",         "atest",
                                        "test.example.com", "secret.x.y.z", "127.0.0.1"};
    struct box_policy p = test_policy();
    box_open(&p);
    int fd = resolver();
    unsigned before = *world.asked;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct world_answer a = world_ask(fd, names[i], WORLD_TYPE_A);
        assert_int_equal(a.rcode, NXDOMAIN);
        assert_int_equal(a.answers, 0);
        struct relay_report r = box_await(RELAY_DENIED);
        assert_int_equal(r.reason, NET_NAME);
        assert_string_equal(r.name, names[i]);
    }
    assert_int_equal(*world.asked, before);
    (void)close(fd);
    box_close();
}

static void
an_invalid_query_gets_an_error_or_no_answer(void **state)
{
    (void)state;
    struct box_policy p = test_policy();
    box_open(&p);
    int fd = resolver();
    unsigned before = *world.asked;
    uint8_t query[WORLD_MESSAGE];
    uint8_t answer[WORLD_MESSAGE];
    struct {
        size_t at;
        uint8_t value;
        int rcode;                     // -1: the query is dropped
    } spoils[] = {{2, 0x81, -1},       // an answer
                  {2, 0x09, NOTIMP},   // another opcode
                  {5, 2, FORMERR},     // two questions
                  {7, 1, FORMERR},     // an answer record
                  {11, 1, FORMERR},    // a missing additional record
                  {12, 0xc0, FORMERR}, // a pointer
                  {12, 0x3f, FORMERR}, // a label beyond the end
                  {13, '.', FORMERR},  // a byte that is not allowed in a name
                  {13, '\0', FORMERR}};
    for (size_t i = 0; i < sizeof spoils / sizeof spoils[0]; i++) {
        size_t n = world_query("echo.test", WORLD_TYPE_A, query);
        query[spoils[i].at] = spoils[i].value;
        assert_int_equal(send(fd, query, n, 0), (ssize_t)n);
        if (spoils[i].rcode < 0)
            continue; // the answer to the next query comes first
        ssize_t got = recv(fd, answer, sizeof answer, 0);
        assert_true(got >= 12);
        assert_int_equal(answer[3] & 0xf, spoils[i].rcode);
    }
    assert_int_equal(*world.asked, before);
    (void)close(fd);
    box_close();
}

static void
more_queries_than_allowed_are_refused_and_reported(void **state)
{
    (void)state;
    struct box_policy p = test_policy();
    p.queries_per_minute = 3;
    box_open(&p);
    int fd = resolver();
    for (int i = 0; i < 3; i++)
        assert_int_equal(world_ask(fd, "exfiltrated-bytes.com", WORLD_TYPE_A).rcode, NXDOMAIN);
    unsigned before = *world.asked;
    assert_int_equal(world_ask(fd, "public.test", WORLD_TYPE_A).rcode, REFUSED);
    assert_int_equal(*world.asked, before);
    while (box.denied.reason != NET_NAME_RATE)
        (void)box_await(RELAY_DENIED);
    box_close();
    p.queries_per_minute = 0;
    p.rules[0].queries_per_minute = 2; // of the rule
    box_open(&p);
    (void)close(fd);
    fd = resolver();
    assert_int_equal(world_ask(fd, "a.many.test", WORLD_TYPE_A).rcode, NOERROR);
    assert_int_equal(world_ask(fd, "b.many.test", WORLD_TYPE_A).rcode, NOERROR);
    assert_int_equal(world_ask(fd, "c.many.test", WORLD_TYPE_A).rcode, REFUSED);
    expect_denied(NET_NAME_RATE);
    (void)close(fd);
    box_close();
}

static void
names_with_private_addresses_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"loopback.bad.test", "private.bad.test",
                                        "metadata.bad.test", "six.bad.test",
                                        "mapped.bad.test",   "chain.bad.test"};
    for (uint32_t mode = NET_ALLOWLIST; mode <= NET_OPEN; mode++) {
        struct box_policy p = test_policy();
        p.mode = mode;
        box_open(&p);
        int fd = resolver();
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            struct world_answer a = world_ask(fd, names[i], WORLD_TYPE_A);
            if (a.rcode != NXDOMAIN)
                print_error("%s: %d\n", names[i], a.rcode);
            assert_int_equal(a.rcode, NXDOMAIN);
            struct relay_report r = box_await(RELAY_DENIED);
            assert_int_equal(r.reason, NET_NAME_ADDRESS);
            assert_string_equal(r.name, names[i]);
        }
        (void)close(fd);
        box_close();
    }
}

static void
a_name_whose_address_becomes_forbidden_is_refused(void **state)
{
    (void)state;
    struct box_policy p = test_policy();
    box_open(&p);
    int fd = resolver();
    int server = box_bound(SOCK_STREAM, INADDR_LOOPBACK, PORT);
    struct world_answer a = world_ask(fd, "rebind.test", WORLD_TYPE_A);
    assert_int_equal(a.answers, 1);
    time_passes("an answer older than a second is asked for again", 1300);
    uint8_t to[16] = {[10] = 0xff, [11] = 0xff};
    memcpy(to + 12, a.address, 4);
    box_expect_reset(box_connect_flow(SOCK_STREAM, box_flow(to, PORT, IPPROTO_TCP)));
    expect_denied(NET_NAME_ADDRESS);
    struct pollfd accepted = {.fd = server, .events = POLLIN};
    assert_int_equal(poll(&accepted, 1, 0), 0);
    (void)close(server);
    (void)close(fd);
    box_close();
}

static void
missing_and_empty_names_have_their_own_answers(void **state)
{
    (void)state;
    struct box_policy p = test_policy();
    box_open(&p);
    int fd = resolver();
    assert_int_equal(world_ask(fd, "nobody.test", WORLD_TYPE_A).rcode, NXDOMAIN);
    struct world_answer a = world_ask(fd, "empty.test", WORLD_TYPE_A);
    assert_int_equal(a.rcode, NOERROR);
    assert_int_equal(a.answers, 0);
    box_drain();
    assert_int_equal(box.denials, 0);
    (void)close(fd);
    box_close();
}

static void
other_types_of_an_allowed_name_are_empty_and_not_forwarded(void **state)
{
    (void)state;
    static const unsigned types[] = {2, 5, 12, 15, 16, 33, 64, 65, 255, 257};
    struct box_policy p = test_policy();
    box_open(&p);
    int fd = resolver();
    unsigned before = *world.asked;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct world_answer a = world_ask(fd, "public.test", types[i]);
        assert_int_equal(a.rcode, NOERROR);
        assert_int_equal(a.answers, 0);
    }
    assert_int_equal(*world.asked, before);
    (void)close(fd);
    box_close();
}

static void
an_allowed_name_gets_an_address_of_its_own_and_an_entry(void **state)
{
    (void)state;
    static const uint8_t first_v4[4] = {198, 18, 0, 1};
    static const uint8_t first_v6[16] = {0x20, 0x01, 0, 2, [15] = 1};
    struct box_policy p = test_policy();
    p.rules[0].ports_n = 1;
    p.rules[0].ports[0] = (struct net_ports){.first = 443, .last = 444, .protocol = IPPROTO_TCP};
    box_open(&p);
    int fd = resolver();
    struct world_answer a = world_ask(fd, "PuBlic.tesT", WORLD_TYPE_A);
    assert_int_equal(a.rcode, NOERROR);
    assert_int_equal(a.answers, 1);
    assert_memory_equal(a.address, first_v4, 4);
    struct net_name entry = {0};
    assert_true(name_entry(1, &entry));
    assert_int_equal(entry.generation, box.generation);
    assert_int_equal(entry.n, 1);
    assert_int_equal(entry.ports[0].first, 443);
    assert_int_equal(entry.ports[0].last, 444);
    // the same, independent of its real addresses
    a = world_ask(fd, "public.test", WORLD_TYPE_AAAA);
    assert_int_equal(a.answers, 1);
    assert_memory_equal(a.address, first_v6, 16);
    a = world_ask(fd, "mixed.test", WORLD_TYPE_A); // only its public address
    assert_int_equal(a.address[3], 2);
    struct relay_report r = box_await(RELAY_LOOKUP);
    assert_string_equal(r.name, "public.test");
    r = box_await(RELAY_LOOKUP);
    assert_int_equal(r.address[12], 93); // not 10.0.0.1
    struct box_policy none = box_policy(NET_ALLOWLIST);
    box_change(&none);
    assert_false(name_entry(1, &entry)); // no longer allowed
    box_change(&p);
    assert_true(name_entry(1, &entry));
    (void)close(fd);
    box_close();
    assert_false(name_entry(1, &entry));
    assert_false(name_entry(2, &entry));
}

static void
a_flow_to_a_name_reaches_only_its_ports(void **state)
{
    (void)state;
    struct box_policy p = test_policy();
    p.rules_n = 2;
    p.rules[0].ports_n = 1;
    p.rules[0].ports[0] = (struct net_ports){.first = PORT, .last = PORT};
    box_prefix(&p.rules[1], INADDR_LOOPBACK, 32, PORT); // the address may be loopback
    box_open(&p);
    int fd = resolver();
    int server = box_bound(SOCK_STREAM, INADDR_LOOPBACK, PORT);
    int datagrams = box_bound(SOCK_DGRAM, INADDR_LOOPBACK, PORT);
    struct world_answer a = world_ask(fd, "echo.test", WORLD_TYPE_A);
    assert_int_equal(a.answers, 1);
    uint8_t to[16] = {[10] = 0xff, [11] = 0xff};
    memcpy(to + 12, a.address, 4);
    box_expect_reset(box_connect_flow(SOCK_STREAM, box_flow(to, PORT + 1, IPPROTO_TCP)));
    expect_denied(NET_NO_RULE);
    to[15] = 77; // an index without a name
    box_expect_reset(box_connect_flow(SOCK_STREAM, box_flow(to, PORT, IPPROTO_TCP)));
    expect_denied(NET_NO_RULE);
    memcpy(to + 12, a.address, 4);
    int job = box_connect_flow(SOCK_STREAM, box_flow(to, PORT, IPPROTO_TCP));
    int peer = accept4(server, NULL, NULL, SOCK_CLOEXEC);
    assert_true(peer >= 0);
    box_say(job, "by name");
    box_hear(peer, "by name");
    struct relay_report r = box_await(RELAY_FLOW);
    assert_string_equal(r.name, "echo.test");
    assert_int_equal(r.address[12], 127);
    int udp = box_connect_flow(SOCK_DGRAM, box_flow(to, PORT, IPPROTO_UDP));
    struct pollfd came = {.fd = datagrams, .events = POLLIN};
    for (int i = 0; i < BOX_WAIT_S && poll(&came, 1, 1000) == 0; i++)
        // a datagram that arrives while the name is being resolved again is lost
        box_say(udp, "datagram");
    box_hear(datagrams, "datagram");
    (void)close(udp);
    (void)close(job);
    (void)close(peer);
    (void)close(server);
    (void)close(datagrams);
    (void)close(fd);
    box_close();
}

// Connects to a name at PORT, which must reach `server`.
static void
reach(int resolver_fd, int server, const char *name)
{
    uint8_t to[16] = {[10] = 0xff, [11] = 0xff};
    struct world_answer a = world_ask(resolver_fd, name, WORLD_TYPE_A);
    assert_int_equal(a.answers, 1);
    memcpy(to + 12, a.address, 4);
    int job = box_connect_flow(SOCK_STREAM, box_flow(to, PORT, IPPROTO_TCP));
    int peer = accept4(server, NULL, NULL, SOCK_CLOEXEC);
    assert_true(peer >= 0);
    box_say(job, name);
    box_hear(peer, name);
    (void)close(job);
    (void)close(peer);
}

static void
the_next_address_is_tried_if_one_refuses_or_does_not_respond(void **state)
{
    (void)state;
    struct box_policy p = test_policy();
    p.rules_n = 4;
    for (uint32_t i = 0; i < 3; i++)
        box_prefix(&p.rules[1 + i], INADDR_LOOPBACK + (i == 0 ? 0 : 6 + i), 32, PORT);
    box_open(&p);
    int fd = resolver();
    int server = box_bound(SOCK_STREAM, INADDR_LOOPBACK, PORT);
    int silent = box_bound(SOCK_STREAM, INADDR_LOOPBACK + 8, PORT);
    assert_int_equal(listen(silent, 0), 0); // one fits, further SYNs are dropped
    int filler[4];
    for (size_t i = 0; i < 4; i++) {
        struct sockaddr_in sa = box_v4(INADDR_LOOPBACK + 8, PORT);
        filler[i] = box_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK);
        (void)connect(filler[i], (const struct sockaddr *)&sa, sizeof sa);
    }
    reach(fd, server, "half.test");
    reach(fd, server, "slow.test");
    for (size_t i = 0; i < 4; i++)
        (void)close(filler[i]);
    (void)close(silent);
    (void)close(server);
    (void)close(fd);
    box_close();
}

static void
a_query_over_ipv6_is_answered_from_the_queried_address(void **state)
{
    (void)state;
    if (!box.v6) {
        (void)printf("skipped: no IPv6 here\n");
        skip();
    }
    static const uint8_t server[16] = {0x20, 0x01, 0x48, 0x60, [15] = 0x88};
    struct box_policy p = test_policy();
    box_open(&p);
    int fd = box_connect_flow6(SOCK_DGRAM, box_flow(server, NET_DNS_PORT, IPPROTO_UDP));
    struct world_answer a = world_ask(fd, "public.test", WORLD_TYPE_AAAA);
    assert_int_equal(a.rcode, NOERROR);
    assert_int_equal(a.answers, 1);
    assert_int_equal(world_ask(fd, "example.com", WORLD_TYPE_AAAA).rcode, NXDOMAIN);
    (void)close(fd);
    box_close();
}

// Both queries in one write, split at unusual positions.
static void
dns_over_tcp_is_answered_by_the_same_rules(void **state)
{
    (void)state;
    struct box_policy p = test_policy();
    box_open(&p);
    int fd = box_connect(SOCK_STREAM, 0x01010101, NET_DNS_PORT);
    uint8_t out[2 * WORLD_MESSAGE];
    uint8_t queries[2][WORLD_MESSAGE];
    size_t sizes[2];
    static const char *const names[] = {"example.com", "public.test"};
    size_t n = 0;
    for (size_t i = 0; i < 2; i++) {
        sizes[i] = world_query(names[i], WORLD_TYPE_A, queries[i]);
        out[n++] = (uint8_t)(sizes[i] >> 8);
        out[n++] = (uint8_t)sizes[i];
        memcpy(out + n, queries[i], sizes[i]);
        n += sizes[i];
    }
    assert_int_equal(send(fd, out, 7, MSG_NOSIGNAL), 7);
    assert_int_equal(send(fd, out + 7, n - 7, MSG_NOSIGNAL), (ssize_t)(n - 7));
    static const int rcodes[] = {NXDOMAIN, NOERROR};
    for (size_t i = 0; i < 2; i++) {
        uint8_t length[2];
        uint8_t answer[WORLD_MESSAGE];
        assert_int_equal(recv(fd, length, 2, MSG_WAITALL), 2);
        size_t want = (size_t)length[0] << 8 | length[1];
        assert_int_equal(recv(fd, answer, want, MSG_WAITALL), (ssize_t)want);
        assert_int_equal(world_read(answer, want, queries[i], sizes[i]).rcode, rcodes[i]);
    }
    static const uint8_t no_query[] = {0, 3, 1, 2, 3};
    assert_int_equal(send(fd, no_query, sizeof no_query, MSG_NOSIGNAL), sizeof no_query);
    char byte = 0;
    assert_true(recv(fd, &byte, 1, 0) <= 0); // closed
    (void)close(fd);
    box_close();
}

static void
each_query_comes_from_a_port_of_its_own(void **state)
{
    (void)state;
    enum { NAMES = 20, QUERIES = 2 * NAMES, SAME = 4 }; // equal ports by chance
    struct box_policy p = test_policy();
    box_open(&p);
    int fd = resolver();
    char name[64];
    unsigned before = *world.asked;
    unsigned same = 0;
    for (int i = 0; i < NAMES; i++) {
        (void)snprintf(name, sizeof name, "port%d.many.test", i);
        assert_int_equal(world_ask(fd, name, WORLD_TYPE_A).rcode, NOERROR);
    }
    assert_int_equal(*world.asked - before, QUERIES);
    for (unsigned i = 0; i < QUERIES; i++)
        for (unsigned k = 0; k < i; k++)
            same += world.asked[1 + (before + i) % WORLD_PORTS] ==
                    world.asked[1 + (before + k) % WORLD_PORTS];
    assert_true(same < SAME);
    (void)close(fd);
    box_close();
}

static void
a_sandbox_with_the_maximum_of_names_loses_the_least_used(void **state)
{
    (void)state;
    struct box_policy p = test_policy();
    p.queries_per_minute = 60000;
    box_open(&p);
    int fd = resolver();
    char name[64];
    for (int i = 0; i < NET_NAMES_PER_SLOT; i++) {
        (void)snprintf(name, sizeof name, "n%d.many.test", i);
        assert_int_equal(world_ask(fd, name, WORLD_TYPE_A).rcode, NOERROR);
        box_drain();
    }
    struct net_name entry;
    // it is used again
    assert_int_equal(world_ask(fd, "n0.many.test", WORLD_TYPE_A).rcode, NOERROR);
    struct world_answer more = world_ask(fd, "one-more.many.test", WORLD_TYPE_A);
    const uint8_t next[4] = {198, 18, (NET_NAMES_PER_SLOT + 1) >> 8,
                             (NET_NAMES_PER_SLOT + 1) & 255};
    assert_int_equal(more.rcode, NOERROR);
    assert_memory_equal(more.address, next, sizeof next);
    assert_true(name_entry(1, &entry));
    assert_false(name_entry(2, &entry)); // the least recently used one
    assert_true(name_entry(NET_NAMES_PER_SLOT + 1, &entry));
    assert_int_equal(world_ask(fd, "n1.many.test", WORLD_TYPE_A).rcode, NOERROR); // resolved again
    (void)close(fd);
    box_close();
    assert_false(name_entry(1, &entry));
    assert_false(name_entry(NET_NAMES_PER_SLOT, &entry));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_without_a_rule_are_nxdomain_and_not_forwarded),
        cmocka_unit_test(an_invalid_query_gets_an_error_or_no_answer),
        cmocka_unit_test(more_queries_than_allowed_are_refused_and_reported),
        cmocka_unit_test(names_with_private_addresses_are_refused),
        cmocka_unit_test(a_name_whose_address_becomes_forbidden_is_refused),
        cmocka_unit_test(missing_and_empty_names_have_their_own_answers),
        cmocka_unit_test(other_types_of_an_allowed_name_are_empty_and_not_forwarded),
        cmocka_unit_test(an_allowed_name_gets_an_address_of_its_own_and_an_entry),
        cmocka_unit_test(a_flow_to_a_name_reaches_only_its_ports),
        cmocka_unit_test(the_next_address_is_tried_if_one_refuses_or_does_not_respond),
        cmocka_unit_test(a_query_over_ipv6_is_answered_from_the_queried_address),
        cmocka_unit_test(dns_over_tcp_is_answered_by_the_same_rules),
        cmocka_unit_test(each_query_comes_from_a_port_of_its_own),
        cmocka_unit_test(a_sandbox_with_the_maximum_of_names_loses_the_least_used),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
