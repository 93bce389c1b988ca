// SPDX-License-Identifier: Apache-2.0
// Options are suggested only if the template permits them and the kernel and the relay can enforce them.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "server/network/hint.h"
#include "server/policy/rule.h"

static struct relay_rule lent; // 10.77.0.0/24
static struct network most, now;

static int
set_up(void **state)
{
    const char *what = "";
    (void)state;
    assert_true(net_rule_cidr("10.77.0.0/24", &lent, &what));
    most = (struct network){.mode = NET_OPEN, .rules_n = 1, .rules = &lent};
    most.limit[NETWORK_INGRESS_BYTES] = 1000;
    now = (struct network){.mode = NET_ALLOWLIST};
    now.limit[NETWORK_EGRESS_BYTES] = 1 << 20;
    now.limit[NETWORK_INGRESS_BYTES] = 1000;
    return 0;
}

static const char *
hint(enum net_reason reason, const char *address, const char *name, uint16_t port, uint8_t protocol)
{
    static char out[256];
    char mapped[64];
    struct net_refused r = {.template = "default",
                            .most = &most,
                            .now = &now,
                            .reason = reason,
                            .name = name,
                            .port = port,
                            .protocol = protocol};
    if (address != NULL) {
        (void)snprintf(mapped, sizeof mapped, "%s%s", strchr(address, ':') == NULL ? "::ffff:" : "",
                       address);
        assert_int_equal(inet_pton(AF_INET6, mapped, r.address), 1);
    }
    return net_hint(&r, out, sizeof out);
}

static void
flow_and_synthetic_addresses_get_no_hint(void **state)
{
    (void)state;
    static const struct {
        const char *address;
        uint16_t port;
    } ours[] = {
        {"198.18.0.1", 443}, {"198.19.255.255", 80},    {"2001:2::1", 443},
        {"127.128.0.3", 15}, {"fd53:746f:636b::1", 15}, {"127.0.0.1", 15},
    };
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        assert_string_equal(hint(NET_NO_RULE, ours[i].address, NULL, ours[i].port, IPPROTO_TCP),
                            "");
    assert_string_equal(hint(NET_NAME, NULL, "no such name", 0, 0), "");
    assert_string_equal(hint(NET_DEVICE, NULL, NULL, 0, 0), "");
}

static void
options_that_the_template_forbids_are_not_suggested(void **state)
{
    (void)state;
    assert_string_equal(hint(NET_NO_RULE, "169.254.169.254", NULL, 80, IPPROTO_TCP),
                        "template default does not allow 169.254.169.254:80/tcp");
    assert_string_equal(hint(NET_NO_RULE, "10.78.0.1", NULL, 80, IPPROTO_TCP),
                        "template default does not allow 10.78.0.1:80/tcp");
    assert_string_equal(hint(NET_NAME_ADDRESS, "169.254.169.254", "metadata.test", 0, 0),
                        "template default does not allow 169.254.169.254");
    assert_string_equal(hint(NET_IN_QUOTA, NULL, NULL, 0, 0),
                        "the maximum of template default is 1000");
    most.mode = NET_NONE;
    assert_string_equal(hint(NET_MODE_NONE, "192.0.2.1", NULL, 80, IPPROTO_TCP),
                        "template default does not allow 192.0.2.1:80/tcp");
    assert_string_equal(hint(NET_NAME, NULL, "example.com", 0, 0),
                        "template default does not allow example.com");
}

static void
permitted_options_are_suggested(void **state)
{
    (void)state;
    assert_string_equal(hint(NET_NO_RULE, "93.184.216.34", NULL, 443, IPPROTO_TCP),
                        "--allow 93.184.216.34:443/tcp");
    assert_string_equal(hint(NET_MODE_NONE, "2606:2800::1", NULL, 80, IPPROTO_UDP),
                        "--allow [2606:2800::1]:80/udp");
    assert_string_equal(hint(NET_NO_RULE, "10.77.0.5", NULL, 80, IPPROTO_TCP),
                        "--allow 10.77.0.5:80/tcp");
    assert_string_equal(hint(NET_NAME_ADDRESS, "10.77.0.5", "web.test", 0, 0),
                        "--allow 10.77.0.5 --allow web.test");
    assert_string_equal(hint(NET_NAME_ADDRESS, "10.77.0.5", NULL, 80, IPPROTO_TCP),
                        "--allow 10.77.0.5:80/tcp");
    assert_string_equal(hint(NET_NO_RULE, "198.18.0.1", "web.test", 81, IPPROTO_TCP),
                        "--allow web.test:81/tcp");
    assert_string_equal(hint(NET_NAME, NULL, "example.com", 0, 0), "--allow example.com");
    assert_string_equal(hint(NET_QUOTA, NULL, NULL, 0, 0), "--egress-bytes 2097152");
    assert_string_equal(hint(NET_NAME_RATE, NULL, "a.test", 0, 0), "--dns-queries 1200");
    now.mode = NET_OPEN;
    assert_string_equal(hint(NET_NO_RULE, "10.77.0.5", NULL, 80, IPPROTO_TCP),
                        "--network open --allow 10.77.0.5:80/tcp");
    assert_string_equal(hint(NET_NAME_ADDRESS, "10.77.0.5", "web.test", 0, 0),
                        "--network open --allow 10.77.0.5");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(flow_and_synthetic_addresses_get_no_hint, set_up),
        cmocka_unit_test_setup(options_that_the_template_forbids_are_not_suggested, set_up),
        cmocka_unit_test_setup(permitted_options_are_suggested, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
