// SPDX-License-Identifier: Apache-2.0
// Which addresses are special.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <arpa/inet.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "bpf/net_ranges.h"
#include "server/relay/address.h"

static void
parse(const char *text, uint8_t out[16])
{
    memset(out, 0, 16);
    if (strchr(text, ':') != NULL) {
        assert_int_equal(inet_pton(AF_INET6, text, out), 1);
        return;
    }
    out[10] = out[11] = 0xff;
    assert_int_equal(inet_pton(AF_INET, text, out + 12), 1);
}

static void
special_addresses_are_known_in_every_form(void **state)
{
    (void)state;
    static const char *const special[] = {
        "0.0.0.0",
        "0.255.255.255",
        "10.0.0.0",
        "10.255.255.255",
        "100.64.0.1",
        "100.100.100.200",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.255",
        "168.63.129.16",
        "169.254.169.254",
        "169.254.0.0",
        "172.16.0.0",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.0",
        "192.168.255.255",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.255",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.1.2.3",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "::1.1.1.1", // deprecated IPv4-compatible form
        "64:ff9b::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::1",
        "100::1",
        "2001:2::1",
        "2001:10::1",
        "2001:20::1",
        "2001:db8::1",
        "3fff::1",
        "2002:7f00:1::1",
        "2002:a00:1::",
        "2002:a9fe:a9fe::",
        "2002:c0a8:101::",
        "2001:0:7f00:1::",              // Teredo: server 127.0.0.1
        "2001:0:808:808:0:0:80ff:fffe", // Teredo: client 127.0.0.1
        "2001:0:808:808:0:0:5601:5601", // Teredo: client 169.254.169.254
        "2002:808:808::1",              // 6to4, with any content
        "2001:0:808:808:0:0:f7f7:f7f7", // Teredo, too
        "2606:4700::5efe:10.0.0.1",
        "2606:4700::200:5efe:10.0.0.1", // ISATAP
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fd53:746f:636b::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "ffff::1"};
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        uint8_t a[16];
        parse(special[i], a);
        if (net_special_bits(a) == 0)
            print_error("%s is not known as special\n", special[i]);
        assert_true(net_special_bits(a) != 0);
    }
}

static void
public_addresses_are_public(void **state)
{
    (void)state;
    static const char *const public[] = {"1.0.0.0",
                                         "1.1.1.1",
                                         "8.8.8.8",
                                         "9.255.255.255",
                                         "11.0.0.0",
                                         "100.63.255.255",
                                         "100.128.0.0",
                                         "126.255.255.255",
                                         "128.0.0.0",
                                         "168.63.129.15",
                                         "169.253.255.255",
                                         "172.15.255.255",
                                         "172.32.0.0",
                                         "192.0.1.0",
                                         "192.167.255.255",
                                         "192.169.0.0",
                                         "198.17.255.255",
                                         "198.20.0.0",
                                         "223.255.255.255",
                                         "::ffff:8.8.8.8",
                                         "2001:4860::8888",
                                         "2606:4700::1111",
                                         "2a00::1",
                                         "64:ff9b::8.8.8.8",
                                         "2606:4700::5efe:8.8.8.8",
                                         "3ffe::1"};
    for (size_t i = 0; i < sizeof public / sizeof public[0]; i++) {
        uint8_t a[16];
        parse(public[i], a);
        if (net_special_bits(a) != 0)
            print_error("%s is not known as public\n", public[i]);
        assert_true(net_special_bits(a) == 0);
    }
}

static void
a_prefix_of_one_family_holds_no_address_of_the_other(void **state)
{
    (void)state;
    uint8_t v4[16];
    uint8_t v6[16];
    uint8_t any6[16] = {0};
    uint8_t any4[16];
    parse("8.8.8.8", v4);
    parse("2001:4860::8888", v6);
    parse("0.0.0.0", any4);
    assert_false(address_within(v4, any6, 0));
    assert_true(address_within(v6, any6, 0));
    assert_true(address_within(v4, any4, 96));
    assert_false(address_within(v6, any4, 96));
    assert_false(address_within(v4, any4, 129));
    for (unsigned bits = 0; bits <= 32; bits++)
        assert_true(address_within(v4, v4, 96 + bits));
    uint8_t other[16];
    parse("8.8.8.9", other);
    assert_true(address_within(other, v4, 127));
    assert_false(address_within(other, v4, 128));
}

static void
a_socket_address_and_back_is_the_same(void **state)
{
    (void)state;
    static const char *const texts[] = {"1.2.3.4", "2001:4860::8888"};
    static const socklen_t sizes[] = {sizeof(struct sockaddr_in), sizeof(struct sockaddr_in6)};
    for (size_t i = 0; i < 2; i++) {
        uint8_t a[16];
        uint8_t back[16];
        uint16_t port = 0;
        struct sockaddr_storage sa;
        parse(texts[i], a);
        assert_int_equal(address_to_sockaddr(a, 443, &sa), sizes[i]);
        address_from_sockaddr(&sa, back, &port);
        assert_memory_equal(a, back, 16);
        assert_int_equal(port, 443);
    }
}

static void
loopback_is_the_hosts_own(void **state)
{
    (void)state;
    uint8_t a[16];
    parse("127.0.0.1", a);
    assert_int_equal(address_own(a), ADDRESS_OWN_WHOLE);
}

static void
without_a_free_descriptor_an_address_counts_as_own(void **state)
{
    (void)state;
    struct rlimit before;
    uint8_t a[16];
    parse("127.0.0.1", a);
    assert_int_equal(address_own(a), ADDRESS_OWN_WHOLE);
    parse("240.0.0.1", a); // assigned to no host, and without a route
    assert_int_equal(address_own(a), ADDRESS_NOT_OWN);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    enum address_own own = address_own(a);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_not_equal(own, ADDRESS_NOT_OWN);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_addresses_are_known_in_every_form),
        cmocka_unit_test(public_addresses_are_public),
        cmocka_unit_test(a_prefix_of_one_family_holds_no_address_of_the_other),
        cmocka_unit_test(a_socket_address_and_back_is_the_same),
        cmocka_unit_test(without_a_free_descriptor_an_address_counts_as_own),
        cmocka_unit_test(loopback_is_the_hosts_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
