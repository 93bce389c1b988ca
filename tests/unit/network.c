// SPDX-License-Identifier: Apache-2.0
// Network policies: a malformed policy, or one wider than the template, is refused with the field's name.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/target.h"
#include "server/policy/rule.h"
#include "server/network/sets.h"
#include "server/policy/network.h"
#include "stockade/v1/sandbox_service.pb-c.h"
#include "tests/harness/policy.h"

// A request with one rule, which tests change.
struct request {
    Stockade__V1__NetworkPolicy m;
    Stockade__V1__NetworkRule rule;
    Stockade__V1__NetworkRule *rules[1];
    Stockade__V1__PortRange range;
    Stockade__V1__PortRange *ranges[1];
};

static void
request_init(struct request *q, int mode, const char *cidr, const char *domain)
{
    stockade__v1__network_policy__init(&q->m);
    stockade__v1__network_rule__init(&q->rule);
    stockade__v1__port_range__init(&q->range);
    q->m.mode = (Stockade__V1__NetworkMode)mode;
    q->rule.cidr = cidr;
    q->rule.domain = domain;
    q->rules[0] = &q->rule;
    q->ranges[0] = &q->range;
    if (cidr[0] != '\0' || domain[0] != '\0') {
        q->m.outbound = q->rules;
        q->m.n_outbound = 1;
    }
}

static void
set_ports(struct request *q, uint32_t first, uint32_t last)
{
    q->range.first = first;
    q->range.last = last;
    q->rule.ports = q->ranges;
    q->rule.n_ports = 1;
}

static void
malformed_policies_are_refused_with_the_field(void **state)
{
    static const struct {
        int mode;
        const char *cidr, *domain;
        uint32_t first, last;
        const char *field;
    } bad[] = {
        {9, "", "", 0, 0, "network.mode"},
        {2, "10.0.0.1/8", "", 0, 0, "network.outbound[0].cidr"},
        {2, "10.0.0.0/33", "", 0, 0, "network.outbound[0].cidr"},
        {2, "10.0.0.0/08", "", 0, 0, "network.outbound[0].cidr"},
        {2, "10.0.0.0/", "", 0, 0, "network.outbound[0].cidr"},
        {2, "10.0.0", "", 0, 0, "network.outbound[0].cidr"},
        {2, "2001:db8::1/32", "", 0, 0, "network.outbound[0].cidr"},
        {2, "2001:db8::/129", "", 0, 0, "network.outbound[0].cidr"},
        {2, "::g", "", 0, 0, "network.outbound[0].cidr"},
        {2, "", "exa mple.com", 0, 0, "network.outbound[0].domain"},
        {2, "", "-a.example", 0, 0, "network.outbound[0].domain"},
        {2, "", "a-.example", 0, 0, "network.outbound[0].domain"},
        {2, "", "a..example", 0, 0, "network.outbound[0].domain"},
        {2, "", "example.com.", 0, 0, "network.outbound[0].domain"},
        {2, "", "*.*.example", 0, 0, "network.outbound[0].domain"},
        {2, "", "*", 0, 0, "network.outbound[0].domain"},
        {2, "", "192.0.2.1", 0, 0, "network.outbound[0].domain"},
        {2, "192.0.2.1", "example.com", 0, 0, "network.outbound[0]"},
        {2, "192.0.2.1", "", 9, 8, "network.outbound[0].ports[0].last"},
        {2, "192.0.2.1", "", 70000, 0, "network.outbound[0].ports[0]"},
        {1, "1.1.1.1", "", 0, 0, "network.outbound"},
    };
    (void)state;
    struct network *usual = network_new();
    struct network *most = network_everything();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct request q;
        struct network *out = NULL;
        struct err e = {0};
        request_init(&q, bad[i].mode, bad[i].cidr, bad[i].domain);
        if (bad[i].first != 0)
            set_ports(&q, bad[i].first, bad[i].last);
        assert_true(network_read(&q.m, usual, most, &out, &e) < 0);
        assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
        assert_string_equal(e.subject, bad[i].field);
        assert_null(out);
    }
    network_unref(usual);
    network_unref(most);
}

static void
assert_malformed(const struct request *q, const char *field, const char *what)
{
    struct network *usual = network_new();
    struct network *most = network_everything();
    struct network *out = NULL;
    struct err e = {0};
    assert_true(network_read(&q->m, usual, most, &out, &e) < 0);
    assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
    assert_string_equal(e.subject, field);
    assert_non_null(strstr(e.text, what));
    network_unref(usual);
    network_unref(most);
}

static void
invalid_ports_are_refused_with_their_number(void **state)
{
    (void)state;
    struct request q;
    Stockade__V1__PortRange *many[NET_PORTS + 1];
    request_init(&q, 2, "192.0.2.1", "");
    set_ports(&q, 80, 70000);
    assert_malformed(&q, "network.outbound[0].ports[0].last", "70000 is not a port");
    set_ports(&q, 80, 0);
    for (size_t i = 0; i < NET_PORTS + 1; i++)
        many[i] = &q.range;
    q.rule.ports = many;
    q.rule.n_ports = NET_PORTS + 1;
    assert_malformed(&q, "network.outbound[0].ports[8]", "more than 8 ranges");
    q.rule.protocol = (Stockade__V1__NetworkProtocol)3;
    assert_malformed(&q, "network.outbound[0].protocol", "3 is not a protocol");
    request_init(&q, 2, "192.0.2.1", "");
    q.range.last = 80;
    q.m.inbound = q.ranges;
    q.m.n_inbound = 1;
    assert_malformed(&q, "network.inbound[0]", "0 is not a port");
}

static void
labels_and_names_have_a_maximum_length(void **state)
{
    (void)state;
    char name[300];
    struct relay_rule r = {0};
    const char *what;
    memset(name, 'a', sizeof name);
    memcpy(name + 64, ".example", 9);
    assert_false(net_rule_domain(name, &r, &what));
    memmove(name, name + 1, 80);
    assert_true(net_rule_domain(name, &r, &what));
    for (size_t i = 0; i < sizeof name - 1; i++)
        name[i] = i % 50 == 49 ? '.' : 'b';
    name[254] = '\0';
    assert_false(net_rule_domain(name, &r, &what));
    name[253] = '\0';
    assert_true(net_rule_domain(name, &r, &what));
}

static void
an_invalid_name_is_refused_with_a_suggestion(void **state)
{
    (void)state;
    char label[80] = "";
    char longest[300] = "";
    memset(label, 'a', 64);
    memset(longest, 'b', 254);
    const struct {
        const char *name, *words;
    } bad[] = {
        {"b\xc3\xbc"
         "cher.example",
         "xn--"},
        {"*.b\xc3\xbc"
         "cher.example",
         "xn--"},
        {"example.com.", "end with a dot"},
        {"*.example.com.", "end with a dot"},
        {"*", "a star must be"},
        {"*.*.example", "a star must be"},
        {"www*.example", "a star must be"},
        {"a.*", "a star must be"},
        {label, "63 characters"},
        {longest, "253 characters"},
        {"", "such as example.com"},
        {".", "such as example.com"},
        {"a..b", "such as example.com"},
        {"a.b..", "such as example.com"},
        {"a b", "such as example.com"},
        {"192.0.2.1", "belongs in cidr"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct relay_rule r = {0};
        const char *what = "";
        assert_false(net_rule_domain(bad[i].name, &r, &what));
        if (strstr(what, bad[i].words) == NULL)
            fail_msg("%s: %s", bad[i].name, what);
        assert_int_equal(r.kind, 0);
    }
}

static void
policies_wider_than_the_template_are_refused_with_the_field(void **state)
{
    static const struct {
        int mode;
        const char *cidr, *domain;
        uint32_t first, last;
        const char *field;
    } wide[] = {
        {3, "", "", 0, 0, "network.mode"},
        {2, "10.0.0.0/7", "", 80, 80, "network.outbound[0]"},
        {2, "10.0.0.0/8", "", 80, 81, "network.outbound[0]"},
        {2, "10.0.0.0/8", "", 0, 0, "network.outbound[0]"},
        {2, "192.0.2.1", "", 80, 80, "network.outbound[0]"},
        {2, "2001:db8::", "", 80, 80, "network.outbound[0]"},
        {2, "", "example.com", 443, 443, "network.outbound[0]"},
        {2, "", "notexample.com", 443, 443, "network.outbound[0]"},
        {2, "", "*.com", 443, 443, "network.outbound[0]"},
        {2, "", "a.example.com", 80, 80, "network.outbound[0]"},
    };
    (void)state;
    struct network *usual = network_new();
    struct network *most =
        POLICY(NET_ALLOWLIST, "10.0.0.0/8:80", "*.example.com:443", "0.0.0.0/0:99");
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        struct request q;
        struct network *out = NULL;
        struct err e = {0};
        request_init(&q, wide[i].mode, wide[i].cidr, wide[i].domain);
        if (wide[i].first != 0)
            set_ports(&q, wide[i].first, wide[i].last);
        assert_true(network_read(&q.m, usual, most, &out, &e) < 0);
        assert_int_equal(e.code, ERR_FAILED_PRECONDITION);
        assert_string_equal(e.reason, "NETWORK_POLICY_TOO_WIDE");
        assert_string_equal(e.subject, wide[i].field);
        assert_string_equal(e.rule, "network_max");
        assert_string_equal(e.allowed,
                            "network allowlist; outbound 10.0.0.0/8:80, *.example.com:443, "
                            "0.0.0.0/0:99; nothing inbound");
    }
    // A wide prefix names no special address, so it does not permit one to a request.
    struct request q;
    struct network *out = NULL;
    struct err e = {0};
    request_init(&q, 2, "192.168.0.0/16", "");
    set_ports(&q, 99, 99);
    assert_true(network_read(&q.m, usual, most, &out, &e) < 0);
    q.rule.cidr = "8.8.0.0/16";
    assert_int_equal(network_read(&q.m, usual, most, &out, &e), 0);
    network_unref(out);
    network_unref(usual);
    network_unref(most);
}

// A template's wider rule does not permit these to a request.
static void
only_a_templates_own_rule_allows_metadata(void **state)
{
    static const char *const asked[] = {"169.254.169.254",   "169.254.170.0/30", "100.100.100.200",
                                        "192.0.0.192/32",    "fd00:ec2::254",    "168.63.129.16",
                                        "64:ff9b::a9fe:a9fe"};
    (void)state;
    struct network *usual = network_new();
    struct network *around = POLICY(NET_OPEN, "0.0.0.0/0", "169.254.0.0/16", "100.64.0.0/10",
                                    "192.0.0.0/24", "fc00::/7", "64:ff9b::/96", "::/0");
    struct network *most =
        POLICY(NET_OPEN, "169.254.169.254", "169.254.170.0/24", "100.100.100.200", "192.0.0.192",
               "fd00:ec2::/32", "168.63.129.16", "64:ff9b::a9fe:a9fe");
    struct request q;
    struct network *out = NULL;
    struct err e = {0};
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        request_init(&q, 3, asked[i], "");
        if (network_read(&q.m, usual, around, &out, &e) == 0)
            fail_msg("%s", asked[i]);
        assert_string_equal(e.reason, "NETWORK_POLICY_TOO_WIDE");
        if (network_read(&q.m, usual, most, &out, &e) < 0)
            fail_msg("%s: %s", asked[i], e.text);
        network_unref(out);
    }
    request_init(&q, 3, "host", ""); // which is not narrower
    assert_true(network_read(&q.m, usual, around, &out, &e) < 0);
    struct network *host = POLICY(NET_OPEN, "host");
    assert_int_equal(network_read(&q.m, usual, host, &out, &e), 0);
    assert_int_equal(out->rules[0].kind, RELAY_HOST);
    network_unref(out);
    network_unref(host);
    network_unref(usual);
    network_unref(around);
    network_unref(most);
}

static void
limits_and_inbound_ports_above_the_template_are_refused(void **state)
{
    (void)state;
    struct request q;
    struct network *out = NULL;
    struct err e = {0};
    struct network *usual = network_new();
    struct network *most = network_everything();
    most->limit[NETWORK_EGRESS_BYTES] = 1000;
    most->inbound[0] = (struct network_range){8000, 8010};
    request_init(&q, 3, "", "");
    q.m.egress_bytes_max = 1001;
    assert_true(network_read(&q.m, usual, most, &out, &e) < 0);
    assert_string_equal(e.subject, "network.egress_bytes_max");
    q.m.egress_bytes_max = 0;
    q.m.inbound = q.ranges;
    q.m.n_inbound = 1;
    q.range.first = 8005;
    q.range.last = 8011;
    assert_true(network_read(&q.m, usual, most, &out, &e) < 0);
    assert_string_equal(e.subject, "network.inbound[0]");
    q.range.last = 8010;
    assert_int_equal(network_read(&q.m, usual, most, &out, &e), 0);
    // omitted values come from the template
    assert_int_equal(out->limit[NETWORK_EGRESS_BYTES], 1000);
    assert_false(network_lets_in(out, 8004));
    assert_true(network_lets_in(out, 8005));
    assert_true(network_lets_in(out, 8010));
    assert_false(network_lets_in(out, 8011));
    network_unref(out);
    network_unref(usual);
    network_unref(most);
}

static void
a_request_without_a_policy_gets_the_templates(void **state)
{
    (void)state;
    struct err e = {0};
    struct network *usual = POLICY(NET_ALLOWLIST, "example.com:443");
    struct network *out = NULL;
    assert_int_equal(network_read(NULL, usual, usual, &out, &e), 0);
    assert_ptr_equal(out, usual);
    network_unref(out);
    struct request q;
    request_init(&q, 2, "", "");
    assert_int_equal(network_read(&q.m, usual, usual, &out, &e), 0);
    assert_int_equal(out->rules_n, 1);
    assert_string_equal(out->rules[0].name, "example.com");
    network_unref(out);
    network_unref(usual);
}

// Its number is the greatest, and it is the narrowest.
static void
off_is_narrower_than_none(void **state)
{
    (void)state;
    struct err e = {0};
    static const enum net_mode modes[] = {NET_OFF, NET_NONE, NET_ALLOWLIST, NET_OPEN};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 4; k++) {
            struct network *asked = network_new();
            struct network *most = network_new();
            asked->mode = modes[i];
            most->mode = modes[k];
            assert_int_equal(network_narrow(asked, most, "network", &e) == 0, i <= k);
            assert_int_equal(network_leads_out(asked), i >= 2);
            network_unref(asked);
            network_unref(most);
        }
}

static void
off_has_neither_rules_nor_ports_of_its_template(void **state)
{
    (void)state;
    struct err e = {0};
    struct network *most = network_everything();
    struct network *out = NULL;
    struct request q;
    request_init(&q, 4, "", "");
    assert_int_equal(network_read(&q.m, most, most, &out, &e), 0);
    assert_int_equal(out->mode, NET_OFF);
    assert_int_equal(out->inbound_n, 0);
    network_unref(out);
    request_init(&q, 4, "192.0.2.1", "");
    assert_true(network_read(&q.m, most, most, &out, &e) < 0);
    assert_string_equal(e.subject, "network.outbound");
    network_unref(most);
}

static void
a_template_that_is_repeated_rule_by_rule_is_within_itself(void **state)
{
    (void)state;
    struct err e = {0};
    struct network *most = POLICY(NET_ALLOWLIST, "0.0.0.0/0:443", "192.0.2.1:443");
    struct network *asked = POLICY(NET_ALLOWLIST, "0.0.0.0/0:443", "192.0.2.1:443");
    most->rules[0].bytes_max = 1000;
    most->rules[1].bytes_max = asked->rules[1].bytes_max = 5000;
    assert_int_equal(network_narrow(asked, most, "network", &e), 0);
    assert_int_equal(asked->rules[0].bytes_max, 1000);
    asked->rules[1].bytes_max = 5001;
    assert_true(network_narrow(asked, most, "network", &e) < 0);
    assert_string_equal(e.subject, "network.outbound[1].bytes_max");
    network_unref(asked);
    network_unref(most);
}

static void
one_set_is_shared_and_kept_for_the_next(void **state)
{
    (void)state;
    struct err e = {0};
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    struct net_sets *sets = net_sets_new(&loop, -1);
    struct network *a = POLICY(NET_ALLOWLIST, "10.0.0.0/8:80");
    struct network *b = POLICY(NET_ALLOWLIST, "10.0.0.0/8:80");
    struct network *c = POLICY(NET_ALLOWLIST, "10.0.0.0/8:81");
    struct network *names = POLICY(NET_ALLOWLIST, "example.com");
    assert_int_equal(net_sets_take(sets, a, &e), 0);
    assert_int_equal(net_sets_take(sets, b, &e), 0);
    assert_int_equal(net_sets_take(sets, c, &e), 0);
    assert_int_equal(net_sets_take(sets, names, &e), 0);
    assert_ptr_equal(a->set, b->set);
    assert_int_not_equal(net_set_number(a->set), net_set_number(c->set));
    assert_null(names->set);
    assert_int_equal(net_sets_kept(sets), 2);
    uint32_t number = net_set_number(a->set);
    network_unref(a);
    network_unref(b);
    a = POLICY(NET_ALLOWLIST, "10.0.0.0/8:80");
    assert_int_equal(net_sets_take(sets, a, &e), 0);
    assert_int_equal(net_set_number(a->set), number);
    network_unref(a);
    network_unref(c);
    network_unref(names);
    for (int i = 0; i < NET_SETS_IDLE + 10; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "10.0.%d.0/24", i);
        a = POLICY(NET_ALLOWLIST, text);
        assert_int_equal(net_sets_take(sets, a, &e), 0);
        network_unref(a);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(net_sets_kept(sets), NET_SETS_IDLE);
    net_sets_free(sets);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void
destinations_are_split_into_their_parts(void **state)
{
    static const struct {
        const char *text, *host;
        bool is_name;
        uint16_t first, last;
        uint8_t protocol;
    } good[] = {
        {"example.com", "example.com", true, 0, 0, 0},
        {"*.example.com:443", "*.example.com", true, 443, 443, 0},
        {"192.0.2.0/24:80-90/tcp", "192.0.2.0/24", false, 80, 90, IPPROTO_TCP},
        {"192.0.2.0/24/udp", "192.0.2.0/24", false, 0, 0, IPPROTO_UDP},
        {"2001:db8::1", "2001:db8::1", false, 0, 0, 0},
        {"[2001:db8::/32]:53/udp", "2001:db8::/32", false, 53, 53, IPPROTO_UDP},
        {"[::1]", "::1", false, 0, 0, 0},
        {"host:80", "host", false, 80, 80, 0},
    };
    static const char *const bad[] = {
        "",     ":80",     "a:0",   "a:65536", "a:9-8",    "a:",    "a:80x", "a:-1",
        "[::1", "[::1]80", "[]:80", "a:80-",   "a:80-90-", "a: 80", "a]:80", "a:]b:c",
    };
    (void)state;
    struct target_text t;
    struct err e;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (target_parse(bad[i], &t, &e) == 0)
            fail_msg("\"%s\" became %s %u", bad[i], t.host, t.first);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(target_parse(good[i].text, &t, &e), 0);
        assert_string_equal(t.host, good[i].host);
        assert_int_equal(t.is_name, good[i].is_name);
        assert_int_equal(t.first, good[i].first);
        assert_int_equal(t.last, good[i].last);
        assert_int_equal(t.protocol, good[i].protocol);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(off_is_narrower_than_none),
        cmocka_unit_test(off_has_neither_rules_nor_ports_of_its_template),
        cmocka_unit_test(malformed_policies_are_refused_with_the_field),
        cmocka_unit_test(invalid_ports_are_refused_with_their_number),
        cmocka_unit_test(labels_and_names_have_a_maximum_length),
        cmocka_unit_test(an_invalid_name_is_refused_with_a_suggestion),
        cmocka_unit_test(policies_wider_than_the_template_are_refused_with_the_field),
        cmocka_unit_test(only_a_templates_own_rule_allows_metadata),
        cmocka_unit_test(limits_and_inbound_ports_above_the_template_are_refused),
        cmocka_unit_test(a_request_without_a_policy_gets_the_templates),
        cmocka_unit_test(a_template_that_is_repeated_rule_by_rule_is_within_itself),
        cmocka_unit_test(one_set_is_shared_and_kept_for_the_next),
        cmocka_unit_test(destinations_are_split_into_their_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
