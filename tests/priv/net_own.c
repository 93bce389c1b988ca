// SPDX-License-Identifier: Apache-2.0
// The host's own addresses in the programs: only a rule for the whole address or "host" allows one.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <sys/wait.h>

#include "tests/harness/net_rig.h"

enum { SLOT = 6, GENERATION = 2, PORT = 80 };

static struct net_rig rig;

static int
set_up(void **state)
{
    *state = net_rig_open(&rig);
    return net_rig_namespace() < 0 || net_rig_own(&rig, "::ffff:44.99.1.2", true) < 0 ||
                   net_rig_own(&rig, "::ffff:10.5.5.5", true) < 0 ||
                   net_rig_own(&rig, "2600::5", true) < 0 ||
                   net_rig_own(&rig, "::ffff:169.254.3.3", false) < 0
               ? -1
               : 0;
}

// Adds to rule set `set` `bits` of the v4-mapped address, marked like the broker's.
static void
rule(uint32_t set, const char *address, uint32_t bits, uint8_t named)
{
    struct net_rule_key key = {.prefixlen = NET_BITS_SET + bits, .rule_set = set};
    const struct net_rule r = {.n = 1, .ports = {{.first = PORT, .last = PORT, .special = named}}};
    assert_int_equal(inet_pton(AF_INET6, address, key.address), 1);
    assert_int_equal(bpf_map_update_elem(bpf_map__fd(rig.bpf->maps.rules), &key, &r, BPF_ANY), 0);
}

// The errno of a connect() in a sandbox with this policy.
static int
reach(enum net_mode mode, uint32_t set, const char *address)
{
    const struct bpf_sandbox b = {
        .slot = SLOT, .generation = GENERATION, .mode = mode, .rule_set = set};
    struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
    assert_int_equal(inet_pton(AF_INET6, address, &to.sin6_addr), 1);
    assert_int_equal(net_rig_put(&rig, &b), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = net_rig_enter(&rig) ? socket(AF_INET6, SOCK_DGRAM, 0) : -1;
        _exit(connect(fd, (const struct sockaddr *)&to, sizeof to) == 0 ? 0 : errno);
    }
    int status = -1;
    (void)waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void
a_wide_rule_or_an_open_network_does_not_allow_them(void **state)
{
    (void)state;
    rule(1, "::ffff:44.0.0.0", 104, 0);
    rule(1, "::ffff:10.0.0.0", 104, 104);
    rule(1, "::", 0, 0);
    rule(1, "64:ff9b::", 96, 0);
    for (enum net_mode mode = NET_ALLOWLIST; mode <= NET_OPEN; mode++) {
        assert_int_equal(reach(mode, 1, "::ffff:44.99.1.2"), EPERM);
        assert_int_equal(reach(mode, 1, "::ffff:10.5.5.5"), EPERM);
        assert_int_equal(reach(mode, 1, "2600::5"), EPERM);
        assert_int_equal(reach(mode, 1, "64:ff9b::2c63:102"), EPERM); // NAT64
        assert_int_equal(reach(mode, 1, "2002:2c63:102::1"), EPERM);  // 6to4
        assert_int_equal(reach(mode, 1, "2600::5efe:2c63:102"), EPERM);
        assert_int_equal(reach(mode, 1, "::ffff:44.99.1.3"), 0);
        assert_int_equal(reach(mode, 1, "::ffff:10.5.5.6"), 0);
        assert_int_equal(reach(mode, 1, "2600::6"), 0);
        assert_int_equal(reach(mode, 1, "64:ff9b::2c63:103"), 0);
    }
}

static void
a_rule_for_one_address_allows_only_it(void **state)
{
    (void)state;
    rule(2, "::ffff:44.99.1.2", 128, 128);
    rule(2, "::ffff:10.5.5.4", 127, 127);
    assert_int_equal(reach(NET_ALLOWLIST, 2, "::ffff:44.99.1.2"), 0);
    assert_int_equal(reach(NET_ALLOWLIST, 2, "::ffff:10.5.5.5"), EPERM);
    assert_int_equal(reach(NET_ALLOWLIST, 2, "::ffff:10.5.5.4"), 0);
}

static void
the_word_host_allows_them_except_link_local(void **state)
{
    (void)state;
    rule(3, "::", 128, 128);
    assert_int_equal(reach(NET_ALLOWLIST, 3, "::ffff:44.99.1.2"), 0);
    assert_int_equal(reach(NET_ALLOWLIST, 3, "::ffff:10.5.5.5"), 0);
    assert_int_equal(reach(NET_ALLOWLIST, 3, "2600::5"), 0);
    assert_int_equal(reach(NET_ALLOWLIST, 3, "::ffff:169.254.3.3"), EPERM);
    assert_int_equal(reach(NET_ALLOWLIST, 3, "::ffff:44.99.1.3"), EPERM);
    assert_int_equal(reach(NET_ALLOWLIST, 3, "2002:2c63:102::1"), EPERM);
}

static void
a_rule_that_contains_metadata_addresses_does_not_allow_them(void **state)
{
    (void)state;
    rule(4, "::ffff:100.64.0.0", 106, 106);
    rule(4, "::ffff:169.254.0.0", 112, 112);
    rule(4, "::ffff:192.0.0.192", 128, 128);
    rule(4, "fc00::", 7, 7);
    assert_int_equal(reach(NET_OPEN, 4, "::ffff:100.100.100.200"), EPERM);
    assert_int_equal(reach(NET_OPEN, 4, "::ffff:100.100.100.201"), 0);
    assert_int_equal(reach(NET_OPEN, 4, "::ffff:169.254.169.254"), EPERM);
    assert_int_equal(reach(NET_OPEN, 4, "::ffff:169.254.7.7"), 0);
    assert_int_equal(reach(NET_OPEN, 4, "fd00:ec2::254"), EPERM);
    assert_int_equal(reach(NET_OPEN, 4, "fd00:5::1"), 0);
    assert_int_equal(reach(NET_OPEN, 4, "::ffff:192.0.0.192"), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wide_rule_or_an_open_network_does_not_allow_them),
        cmocka_unit_test(a_rule_for_one_address_allows_only_it),
        cmocka_unit_test(the_word_host_allows_them_except_link_local),
        cmocka_unit_test(a_rule_that_contains_metadata_addresses_does_not_allow_them),
    };
    return cmocka_run_group_tests(tests, set_up, net_rig_close);
}
