// SPDX-License-Identifier: Apache-2.0
// Rules become entries of the kernel's table: whatever their order, the longest prefix contains everything that
// applies to it.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "bpf/net_ranges.h"
#include "server/policy/rule.h"
#include "server/policy/network.h"
#include "tests/harness/policy.h"

static const struct net_rule *
entry_of(const struct network *p, const char *cidr)
{
    struct relay_rule r = {0};
    const char *what;
    assert_true(net_rule_cidr(cidr, &r, &what));
    for (uint32_t i = 0; i < p->entries_n; i++)
        if (p->keys[i].prefixlen == (uint32_t)NET_BITS_SET + r.prefix &&
            memcmp(p->keys[i].address, r.address, 16) == 0)
            return &p->values[i];
    return NULL;
}

static void
more_ranges_on_a_prefix_than_an_entry_holds_are_refused(void **state)
{
    (void)state;
    struct network *p = network_new();
    struct err e = {0};
    const char *what;
    p->mode = NET_ALLOWLIST;
    for (unsigned i = 0; i <= NET_PORTS; i++) {
        struct relay_rule *r = network_add_rule(p);
        assert_true(net_rule_cidr("192.0.2.1", r, &what));
        assert_true(net_rule_add_ports(r, (uint16_t)(10 * i + 1), (uint16_t)(10 * i + 2), 0));
    }
    assert_true(network_compile(p, &e) < 0);
    assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
    assert_string_equal(e.subject, "network.outbound[8].ports");
    p->rules_n--;
    assert_int_equal(network_compile(p, &e), 0);
    network_unref(p);
}

static void
an_entry_contains_the_ports_of_enclosing_prefixes(void **state)
{
    (void)state;
    struct network *p = POLICY(NET_ALLOWLIST, "10.0.0.0/8:80/tcp", "10.1.0.0/16:443", "10.1.2.3:22",
                               "10.1.2.3:22/tcp", "0.0.0.0/0:9");
    assert_int_equal(p->entries_n, 4);
    const struct net_rule *host = entry_of(p, "10.1.2.3");
    assert_int_equal(host->n, 4); // 22/tcp is within 22
    const uint16_t ports[] = {22, 443, 80, 9};
    const uint8_t special[] = {128, 112, 104, 0};
    for (uint32_t i = 0; i < host->n; i++) {
        assert_int_equal(host->ports[i].first, ports[i]);
        assert_int_equal(host->ports[i].special, special[i]);
    }
    assert_int_equal(host->ports[2].protocol, IPPROTO_TCP);
    assert_int_equal(host->ports[2].rule, 0);
    assert_int_equal(entry_of(p, "10.1.0.0/16")->n, 3);
    assert_int_equal(entry_of(p, "0.0.0.0/0")->n, 1);
    network_unref(p);
}

static void
no_ipv6_prefix_contains_ipv4(void **state)
{
    (void)state;
    struct network *p = POLICY(NET_ALLOWLIST, "[::/0]:80", "192.0.2.1:81");
    assert_int_equal(entry_of(p, "0.0.0.0/0")->n, 0);
    assert_int_equal(entry_of(p, "192.0.2.1")->n, 1);
    assert_int_equal(entry_of(p, "::/0")->n, 1);
    network_unref(p);
}

// The same in each run.
static unsigned
any_of(unsigned n)
{
    static uint32_t seed = 1;
    seed = seed * 1664525 + 1013904223;
    return (seed >> 16) % n;
}

// Few addresses and ports, so that rules overlap: prefixes of every length around 10.0.0.0 to 10.3.3.3 and fd00::.
static void
add_some_rule(struct network *p)
{
    struct relay_rule *r = network_add_rule(p);
    bool v4 = any_of(4) != 0;
    unsigned prefix = any_of(v4 ? 33 : 129);
    uint8_t address[16] = {[10] = 0xff, [11] = 0xff, [12] = 10};
    for (unsigned i = 13; i < 16; i++)
        address[i] = (uint8_t)any_of(4);
    if (!v4)
        memset(address, any_of(2) != 0 ? 0 : 0xfd, 12);
    prefix += v4 ? 96 : 0;
    for (unsigned bit = prefix; bit < 128; bit++)
        address[bit / 8] &= (uint8_t) ~(0x80U >> bit % 8);
    r->kind = RELAY_PREFIX;
    r->prefix = (uint8_t)prefix;
    memcpy(r->address, address, sizeof address);
    assert_true(net_rule_add_ports(r, 80, (uint16_t)(80 + any_of(2)), 0));
}

static bool
holds(const uint8_t *prefix, unsigned bits, const uint8_t address[16])
{
    for (unsigned bit = 0; bit < bits; bit++)
        if (((prefix[bit / 8] ^ address[bit / 8]) >> (7 - bit % 8) & 1) != 0)
            return false;
    return true;
}

static bool
lets_out(const struct net_ports *ports, uint32_t n, uint16_t port)
{
    for (uint32_t i = 0; i < n; i++)
        if (ports[i].first <= port && ports[i].last >= port)
            return true;
    return false;
}

// The verdict of the kernel, by the longest prefix only.
static bool
by_entries(const struct network *p, const uint8_t address[16], uint16_t port)
{
    const struct net_rule *best = NULL;
    unsigned longest = 0;
    for (uint32_t i = 0; i < p->entries_n; i++) {
        unsigned bits = p->keys[i].prefixlen - NET_BITS_SET;
        if ((best != NULL && bits <= longest) || !holds(p->keys[i].address, bits, address))
            continue;
        longest = bits;
        best = &p->values[i];
    }
    return best != NULL && lets_out(best->ports, best->n, port);
}

// The intended verdict: any rule of the address's family.
static bool
by_rules(const struct network *p, const uint8_t address[16], uint16_t port)
{
    for (uint32_t i = 0; i < p->rules_n; i++) {
        const struct relay_rule *r = &p->rules[i];
        if (net_is_v4(r->address) == net_is_v4(address) && holds(r->address, r->prefix, address) &&
            lets_out(r->ports, r->ports_n, port))
            return true;
    }
    return false;
}

static void
the_longest_prefix_allows_what_any_rule_allows_whatever_their_order(void **state)
{
    (void)state;
    for (int round = 0; round < 12; round++) {
        struct network *p = network_new();
        struct err e = {0};
        for (int i = 0; i < 8 * round; i++)
            add_some_rule(p);
        assert_int_equal(network_compile(p, &e), 0);
        for (unsigned i = 0; i < 256; i++) {
            uint8_t address[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = i & 3};
            address[14] = i >> 2 & 3;
            address[15] = i >> 4 & 3;
            if (i >> 6 == 3)
                memset(address, i & 1 ? 0 : 0xfd, 12);
            for (uint16_t port = 80; port <= 82; port++)
                assert_int_equal(by_entries(p, address, port), by_rules(p, address, port));
        }
        network_unref(p);
    }
}

static void
special_addresses_are_known(void **state)
{
    static const struct {
        const char *address;
        bool special;
    } all[] = {
        {"0.0.0.0", true},         {"10.255.0.1", true},        {"100.64.0.1", true},
        {"100.127.255.255", true}, {"100.128.0.0", false},      {"127.0.0.53", true},
        {"169.254.169.254", true}, {"172.15.255.255", false},   {"172.16.0.0", true},
        {"172.31.255.255", true},  {"172.32.0.0", false},       {"192.0.0.192", true},
        {"192.168.1.1", true},     {"198.17.255.255", false},   {"198.18.0.0", true},
        {"198.19.255.255", true},  {"198.20.0.0", false},       {"168.63.129.16", true},
        {"168.63.129.17", false},  {"223.255.255.255", false},  {"224.0.0.1", true},
        {"255.255.255.255", true}, {"8.8.8.8", false},          {"::1", true},
        {"fe80::1", true},         {"fd00:ec2::254", true},     {"ff02::1", true},
        {"64:ff9b::7f00:1", true}, {"64:ff9b::808:808", false}, {"2002:7f00:1::", true},
        {"2001:0:1::1", true},     {"2001:200::1", false},      {"2001:db8::1", true},
        {"3fff:fff::1", true},     {"3fff:1000::", false},      {"2606:4700::1111", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct relay_rule r = {0};
        const char *what;
        assert_true(net_rule_cidr(all[i].address, &r, &what));
        if ((net_special_bits(r.address) != 0) != all[i].special)
            fail_msg("%s", all[i].address);
    }
}

// The first row that contains an address is the result.
static void
ranges_come_before_the_ranges_that_contain_them(void **state)
{
#define X(a, b, c, d, bits, of) bits,
    static const int v4[] = {NET_RANGES_V4(X)};
    static const int v6[] = {NET_RANGES_V6(X)};
#undef X
    (void)state;
    for (size_t i = 1; i < sizeof v4 / sizeof v4[0]; i++)
        assert_true(v4[i] <= v4[i - 1]);
    for (size_t i = 1; i < sizeof v6 / sizeof v6[0]; i++)
        assert_true(v6[i] <= v6[i - 1]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_ranges_on_a_prefix_than_an_entry_holds_are_refused),
        cmocka_unit_test(an_entry_contains_the_ports_of_enclosing_prefixes),
        cmocka_unit_test(no_ipv6_prefix_contains_ipv4),
        cmocka_unit_test(the_longest_prefix_allows_what_any_rule_allows_whatever_their_order),
        cmocka_unit_test(special_addresses_are_known),
        cmocka_unit_test(ranges_come_before_the_ranges_that_contain_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
