// SPDX-License-Identifier: Apache-2.0
// The addresses and names that a policy allows a sandbox; refusals first.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <cmocka.h>

#include "server/relay/permit.h"

enum { RULES = 4, WEB = 443 };

static struct relay_rule
cidr(const char *text, uint8_t bits, uint16_t first, uint16_t last, uint8_t protocol)
{
    struct relay_rule r = {.kind = RELAY_PREFIX, .prefix = bits};
    if (strchr(text, ':') == NULL) {
        r.address[10] = r.address[11] = 0xff;
        r.prefix = (uint8_t)(bits + 96);
    }
    assert_int_equal(inet_pton(r.prefix > bits ? AF_INET : AF_INET6, text,
                               r.address + (r.prefix > bits ? 12 : 0)),
                     1);
    if (last != 0)
        r.ports[r.ports_n++] =
            (struct net_ports){.first = first, .last = last, .protocol = protocol};
    return r;
}

static struct relay_rule
named(enum relay_rule_kind kind, const char *name, uint16_t port)
{
    struct relay_rule r = {.kind = (uint8_t)kind};
    (void)snprintf(r.name, sizeof r.name, "%s", name);
    if (port != 0)
        r.ports[r.ports_n++] = (struct net_ports){.first = port, .last = port};
    return r;
}

static struct permit *
policy(enum net_mode mode, uint32_t n, const struct relay_rule *rules)
{
    struct relay_order *o = calloc(1, sizeof *o + n * sizeof *rules);
    assert_non_null(o);
    o->mode = mode;
    o->rules_n = n;
    if (n > 0)
        memcpy(o->rules, rules, n * sizeof *rules);
    struct permit *p = permit_new(o);
    assert_non_null(p);
    free(o);
    return p;
}

static enum net_reason
ask(const struct permit *p, const char *text, uint16_t port, uint8_t protocol)
{
    const struct relay_rule r = cidr(text, 0, 0, 0, 0);
    return permit_address(p, r.address, ADDRESS_NOT_OWN, port, protocol).reason;
}

static void
without_a_rule_an_allowlist_refuses_everything(void **state)
{
    (void)state;
    struct permit *p = policy(NET_ALLOWLIST, 0, NULL);
    assert_int_equal(ask(p, "8.8.8.8", WEB, IPPROTO_TCP), NET_NO_RULE);
    assert_int_equal(ask(p, "2001:4860::8888", WEB, IPPROTO_TCP), NET_NO_RULE);
    assert_int_equal(permit_name(p, "example.com").reason, NET_NAME);
    assert_int_equal(permit_name_port(p, "example.com", WEB, IPPROTO_TCP).reason, NET_NO_RULE);
    free(p);
}

static void
mode_none_refuses_whatever_its_rules_say(void **state)
{
    (void)state;
    const struct relay_rule rules[] = {cidr("0.0.0.0", 0, 0, 0, 0),
                                       named(RELAY_NAME, "example.com", 0)};
    struct permit *p = policy(NET_NONE, 2, rules);
    struct net_name entry = {0};
    assert_int_equal(ask(p, "8.8.8.8", WEB, IPPROTO_TCP), NET_MODE_NONE);
    assert_int_equal(permit_name(p, "example.com").reason, NET_MODE_NONE);
    permit_ports(p, "example.com", &entry);
    assert_int_equal(entry.n, 0);
    free(p);
}

static void
a_cidr_rule_allows_only_its_range_ports_and_protocol(void **state)
{
    (void)state;
    const struct relay_rule rule = cidr("8.8.8.0", 24, 100, 200, IPPROTO_TCP);
    struct permit *p = policy(NET_ALLOWLIST, 1, &rule);
    assert_int_equal(ask(p, "8.8.9.0", 150, IPPROTO_TCP), NET_NO_RULE);
    assert_int_equal(ask(p, "8.8.8.1", 99, IPPROTO_TCP), NET_NO_RULE);
    assert_int_equal(ask(p, "8.8.8.1", 201, IPPROTO_TCP), NET_NO_RULE);
    assert_int_equal(ask(p, "8.8.8.1", 150, IPPROTO_UDP), NET_NO_RULE);
    assert_int_equal(ask(p, "8.8.8.0", 100, IPPROTO_TCP), NET_REASON_NONE);
    assert_int_equal(ask(p, "8.8.8.255", 200, IPPROTO_TCP), NET_REASON_NONE);
    free(p);
}

static void
a_wide_range_names_no_special_address_and_not_the_host(void **state)
{
    (void)state;
    const struct relay_rule rules[] = {cidr("0.0.0.0", 0, 0, 0, 0), cidr("::", 0, 0, 0, 0),
                                       cidr("8.0.0.0", 7, 0, 0, 0)};
    for (enum net_mode mode = NET_ALLOWLIST; mode <= NET_OPEN; mode++) {
        struct permit *p = policy(mode, 3, rules);
        const struct relay_rule own = cidr("8.8.8.8", 32, 0, 0, 0);
        assert_int_equal(ask(p, "127.0.0.1", WEB, IPPROTO_TCP), NET_NO_RULE);
        assert_int_equal(ask(p, "10.0.0.1", WEB, IPPROTO_TCP), NET_NO_RULE);
        assert_int_equal(ask(p, "169.254.169.254", WEB, IPPROTO_TCP), NET_NO_RULE);
        assert_int_equal(ask(p, "::1", WEB, IPPROTO_TCP), NET_NO_RULE);
        assert_int_equal(ask(p, "fd00:ec2::254", WEB, IPPROTO_TCP), NET_NO_RULE);
        assert_int_equal(ask(p, "2002:7f00:1::", WEB, IPPROTO_TCP), NET_NO_RULE);
        assert_int_equal(permit_address(p, own.address, ADDRESS_OWN_HOST, WEB, IPPROTO_TCP).reason,
                         NET_NO_RULE);
        assert_int_equal(ask(p, "8.8.8.8", WEB, IPPROTO_TCP), NET_REASON_NONE);
        assert_int_equal(ask(p, "2001:4860::8888", WEB, IPPROTO_TCP), NET_REASON_NONE);
        free(p);
    }
}

static void
a_rule_within_a_special_range_names_it(void **state)
{
    (void)state;
    const struct relay_rule rules[] = {cidr("10.1.0.0", 16, 0, 0, 0), cidr("::1", 128, 0, 0, 0)};
    struct permit *p = policy(NET_OPEN, 2, rules);
    assert_int_equal(ask(p, "10.2.0.1", WEB, IPPROTO_TCP), NET_NO_RULE);
    assert_int_equal(ask(p, "10.1.0.1", WEB, IPPROTO_TCP), NET_REASON_NONE);
    assert_int_equal(ask(p, "::1", WEB, IPPROTO_UDP), NET_REASON_NONE);
    assert_false(
        permit_target(p, cidr("10.2.0.1", 32, 0, 0, 0).address, ADDRESS_NOT_OWN, WEB, IPPROTO_TCP));
    assert_true(
        permit_target(p, cidr("10.1.0.1", 32, 0, 0, 0).address, ADDRESS_NOT_OWN, WEB, IPPROTO_TCP));
    assert_true(
        permit_target(p, cidr("8.8.8.8", 32, 0, 0, 0).address, ADDRESS_NOT_OWN, WEB, IPPROTO_TCP));
    assert_false(
        permit_target(p, cidr("8.8.8.8", 32, 0, 0, 0).address, ADDRESS_OWN_HOST, WEB, IPPROTO_TCP));
    free(p);
}

static void
the_hosts_own_addresses_need_a_whole_address_or_the_word(void **state)
{
    (void)state;
    const struct relay_rule near[] = {cidr("44.0.0.0", 8, 0, 0, 0), cidr("44.99.0.0", 16, 0, 0, 0),
                                      cidr("44.99.1.2", 31, 0, 0, 0), cidr("10.0.0.0", 8, 0, 0, 0),
                                      cidr("2000::", 3, 0, 0, 0)};
    const struct relay_rule exact = cidr("44.99.1.2", 32, 80, 80, 0);
    const struct relay_rule host = {.kind = RELAY_HOST, .prefix = 128};
    const uint8_t *a = exact.address;
    struct permit *p = policy(NET_OPEN, 5, near);
    assert_int_equal(permit_address(p, a, ADDRESS_OWN_WHOLE, 80, IPPROTO_TCP).reason, NET_NO_RULE);
    assert_int_equal(permit_address(p, a, ADDRESS_OWN_HOST, 80, IPPROTO_TCP).reason, NET_NO_RULE);
    assert_false(permit_target(p, a, ADDRESS_OWN_HOST, 80, IPPROTO_TCP));
    free(p);
    p = policy(NET_ALLOWLIST, 1, &exact);
    assert_int_equal(permit_address(p, a, ADDRESS_OWN_WHOLE, 80, IPPROTO_TCP).reason,
                     NET_REASON_NONE);
    assert_int_equal(permit_address(p, a, ADDRESS_OWN_HOST, 81, IPPROTO_TCP).reason, NET_NO_RULE);
    free(p);
    p = policy(NET_ALLOWLIST, 1, &host);
    assert_int_equal(permit_address(p, a, ADDRESS_NOT_OWN, 80, IPPROTO_TCP).reason, NET_NO_RULE);
    assert_int_equal(permit_address(p, a, ADDRESS_OWN_WHOLE, 80, IPPROTO_TCP).reason, NET_NO_RULE);
    assert_int_equal(permit_address(p, a, ADDRESS_OWN_HOST, 80, IPPROTO_TCP).reason,
                     NET_REASON_NONE);
    free(p);
}

static void
names_match_exactly_or_below_a_suffix_never_by_letters(void **state)
{
    (void)state;
    const struct relay_rule rules[] = {named(RELAY_NAME, "one.example", 0),
                                       named(RELAY_SUFFIX, "wild.example", 0)};
    static const char *const refused[] = {"",
                                          "example",
                                          "a.one.example",
                                          "aone.example",
                                          "one.example.com",
                                          "wild.example",
                                          ".wild.example",
                                          "awild.example",
                                          "wild.example.com"};
    struct permit *p = policy(NET_ALLOWLIST, 2, rules);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        assert_int_equal(permit_name(p, refused[i]).reason, NET_NAME);
    assert_int_equal(permit_name(p, "one.example").rule, 0);
    assert_int_equal(permit_name(p, "a.wild.example").rule, 1);
    assert_int_equal(permit_name(p, "a.b.wild.example").reason, NET_REASON_NONE);
    free(p);
}

static void
a_names_ports_come_from_all_rules_that_match_it(void **state)
{
    (void)state;
    struct relay_rule rules[] = {named(RELAY_NAME, "a.example", 80),
                                 named(RELAY_SUFFIX, "example", WEB),
                                 named(RELAY_NAME, "b.example", 0)};
    struct permit *p = policy(NET_ALLOWLIST, 3, rules);
    struct net_name entry = {0};
    assert_int_equal(permit_name_port(p, "a.example", 81, IPPROTO_TCP).reason, NET_NO_RULE);
    assert_int_equal(permit_name_port(p, "a.example", 80, IPPROTO_TCP).rule, 0);
    assert_int_equal(permit_name_port(p, "a.example", WEB, IPPROTO_TCP).rule, 1);
    assert_int_equal(permit_name_port(p, "b.example", 9, IPPROTO_UDP).rule, 2);
    permit_ports(p, "a.example", &entry);
    assert_int_equal(entry.n, 2);
    assert_int_equal(entry.ports[0].first, 80);
    assert_int_equal(entry.ports[1].first, WEB);
    free(p);
    rules[0].ports_n = rules[1].ports_n = 5; // more than an entry can hold, so it means "any"
    p = policy(NET_ALLOWLIST, 2, rules);
    permit_ports(p, "a.example", &entry);
    assert_int_equal(entry.n, NET_PORTS);
    assert_int_equal(entry.ports[NET_PORTS - 1].last, 65535);
    free(p);
}

static void
a_used_up_rule_refuses_and_keeps_its_count_after_a_change(void **state)
{
    (void)state;
    struct relay_rule rules[] = {named(RELAY_NAME, "a.example", 0), cidr("8.8.8.8", 32, 0, 0, 0)};
    rules[0].bytes_max = rules[1].bytes_max = 100;
    struct permit *p = policy(NET_OPEN, 2, rules);
    assert_int_equal(permit_rule_left(p, PERMIT_NO_RULE), UINT64_MAX);
    assert_int_equal(permit_rule_left(p, 0), 100);
    p->use[0].bytes = 100;
    p->use[1].bytes = 99;
    assert_int_equal(permit_name(p, "a.example").reason, NET_NAME_QUOTA);
    assert_int_equal(permit_name_port(p, "a.example", WEB, IPPROTO_TCP).reason, NET_NAME_QUOTA);
    assert_int_equal(ask(p, "8.8.8.8", WEB, IPPROTO_TCP), NET_REASON_NONE);
    const struct relay_rule swapped[] = {rules[1], rules[0]};
    struct permit *now = policy(NET_OPEN, 2, swapped);
    permit_inherit(now, p);
    assert_int_equal(permit_rule_left(now, 0), 1);
    assert_int_equal(permit_rule_left(now, 1), 0);
    free(p);
    free(now);
}

static void
a_window_allows_its_number_in_each_minute(void **state)
{
    (void)state;
    struct permit_window w = {0};
    for (uint64_t minute = 0; minute < 3; minute++) {
        for (int i = 0; i < 5; i++)
            assert_true(permit_window_take(&w, 5, 1000 + minute * 60000));
        assert_false(permit_window_take(&w, 5, 1000 + minute * 60000 + 59999));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_rule_an_allowlist_refuses_everything),
        cmocka_unit_test(mode_none_refuses_whatever_its_rules_say),
        cmocka_unit_test(a_cidr_rule_allows_only_its_range_ports_and_protocol),
        cmocka_unit_test(a_wide_range_names_no_special_address_and_not_the_host),
        cmocka_unit_test(a_rule_within_a_special_range_names_it),
        cmocka_unit_test(the_hosts_own_addresses_need_a_whole_address_or_the_word),
        cmocka_unit_test(names_match_exactly_or_below_a_suffix_never_by_letters),
        cmocka_unit_test(a_names_ports_come_from_all_rules_that_match_it),
        cmocka_unit_test(a_used_up_rule_refuses_and_keeps_its_count_after_a_change),
        cmocka_unit_test(a_window_allows_its_number_in_each_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
