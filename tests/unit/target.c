// SPDX-License-Identifier: Apache-2.0
// Named sets of destinations become rules, count as such, and are found by what they cover.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "server/policy/network.h"
#include "server/policy/rule.h"
#include "server/policy/target.h"

static void
an_unknown_set_is_refused_with_the_known_ones(void **state)
{
    static const char *const bad[] = {"@", "@nope", "@PYPI", "@@pypi", "@pypi ", "@*.pypi"};
    struct err e;
    struct network *n = network_new();
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_true(network_add_target(n, bad[i], &e) < 0);
        assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
        for (const struct destination_set *s = destination_sets; s->name != NULL; s++)
            assert_non_null(strstr(e.text, s->name));
    }
    assert_int_equal(n->rules_n, 0);
    network_unref(n);
}

static void
a_set_has_no_other_ports(void **state)
{
    static const char *const bad[] = {"@pypi:443", "@pypi/tcp", "@pypi:443/udp"};
    struct err e;
    struct network *n = network_new();
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(network_add_target(n, bad[i], &e), -EINVAL);
        assert_non_null(strstr(e.text, "a set has its own ports"));
    }
    network_unref(n);
}

static void
the_rules_of_sets_count(void **state)
{
    struct err e;
    struct network *n = network_new();
    int r = 0;
    (void)state;
    for (int i = 0; i < NET_RULES && r == 0; i++)
        r = network_add_target(n, "@pypi", &e);
    assert_int_equal(r, -EINVAL);
    assert_non_null(strstr(e.text, "more than 256 rules"));
    assert_int_equal(n->rules_n, NET_RULES);
    network_unref(n);
}

static void
every_destination_of_every_set_is_a_name_with_one_port(void **state)
{
    struct relay_rule rules[DESTINATIONS_MAX];
    (void)state;
    for (const struct destination_set *s = destination_sets; s->name != NULL; s++) {
        struct err e;
        char word[64];
        struct network *n = network_new();
        uint32_t rules_n = network_set_rules(s, rules);
        (void)snprintf(word, sizeof word, "@%s", s->name);
        assert_in_range(rules_n, 1, DESTINATIONS_MAX);
        assert_ptr_equal(destination_set_find(s->name), s);
        assert_int_equal(strspn(s->name, "abcdefghijklmnopqrstuvwxyz"), strlen(s->name));
        assert_int_equal(network_add_target(n, word, &e), 0);
        assert_int_equal(n->rules_n, rules_n);
        for (uint32_t i = 0; i < rules_n; i++) {
            assert_int_equal(n->rules[i].number, i);
            assert_int_equal(n->rules[i].kind, RELAY_NAME);
            assert_int_equal(n->rules[i].ports_n, 1);
            assert_int_equal(n->rules[i].ports[0].protocol, IPPROTO_TCP);
            assert_non_null(network_set_around(&n->rules[i]));
        }
        network_unref(n);
    }
}

static void
only_what_a_set_covers_leads_to_it(void **state)
{
    static const struct {
        const char *name;
        uint16_t port;
        uint8_t protocol;
        const char *set;
    } rows[] = {
        {"example.com", 0, 0, NULL},
        {"pypi.org", 80, IPPROTO_TCP, NULL},
        {"pypi.org", 443, IPPROTO_UDP, NULL},
        {"x.pypi.org", 0, 0, NULL},
        {"pypi.org", 0, 0, "pypi"},
        {"deb.debian.org", 80, IPPROTO_TCP, "debian"},
        {"github.com", 22, IPPROTO_TCP, "github"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *what = "";
        struct relay_rule r = {0};
        assert_true(net_rule_domain(rows[i].name, &r, &what));
        if (rows[i].port != 0)
            (void)net_rule_add_ports(&r, rows[i].port, rows[i].port, rows[i].protocol);
        const struct destination_set *s = network_set_around(&r);
        assert_int_equal(s != NULL, rows[i].set != NULL);
        if (s != NULL)
            assert_string_equal(s->name, rows[i].set);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_set_is_refused_with_the_known_ones),
        cmocka_unit_test(a_set_has_no_other_ports),
        cmocka_unit_test(the_rules_of_sets_count),
        cmocka_unit_test(every_destination_of_every_set_is_a_name_with_one_port),
        cmocka_unit_test(only_what_a_set_covers_leads_to_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
