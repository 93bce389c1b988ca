// SPDX-License-Identifier: Apache-2.0
// Orders: exactly what a correct broker may send. Each refused order is a valid one with one change.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <cmocka.h>

#include "server/relay/orders.h"

enum { RULES = 2 };

struct packet {
    struct relay_order *o;
    size_t n, fds_n;
};

// A valid order of this kind: a CIDR rule and a name.
static struct packet
fine(uint32_t kind)
{
    static _Alignas(struct relay_order)
        uint8_t bytes[sizeof(struct relay_order) + RULES * sizeof(struct relay_rule)];
    struct packet p = {.o = (struct relay_order *)(void *)bytes, .n = sizeof(struct relay_order)};
    memset(bytes, 0, sizeof bytes);
    p.o->kind = kind;
    p.fds_n = kind == RELAY_OPEN ? 4 : 0;
    if (kind != RELAY_OPEN && kind != RELAY_POLICY)
        return p;
    p.o->mode = NET_ALLOWLIST;
    p.o->rules_n = RULES;
    p.n = sizeof bytes;
    struct relay_rule *r = p.o->rules;
    r[0] = (struct relay_rule){.kind = RELAY_PREFIX, .prefix = 104, .ports_n = 1};
    r[0].address[10] = r[0].address[11] = 0xff;
    r[0].address[12] = 10;
    r[0].ports[0] = (struct net_ports){.first = 1, .last = 2, .protocol = IPPROTO_UDP};
    r[1] = (struct relay_rule){.kind = RELAY_SUFFIX, .number = 1};
    (void)snprintf(r[1].name, sizeof r[1].name, "sub.example-1_x");
    return p;
}

static bool
check(const struct packet *p)
{
    return orders_check(p->o, p->n, p->fds_n);
}

static void
a_packet_of_another_size_is_refused(void **state)
{
    (void)state;
    struct packet p = fine(RELAY_POLICY);
    for (size_t n = 0; n < p.n; n++) {
        struct packet cut = p;
        cut.n = n;
        assert_false(check(&cut));
    }
    p.n++;
    assert_false(check(&p));
    p = fine(RELAY_CLOSE);
    p.o->rules_n = 1; // a kind without rules
    p.n += sizeof(struct relay_rule);
    assert_false(check(&p));
    p = fine(RELAY_POLICY);
    p.o->rules_n = UINT32_MAX;
    assert_false(check(&p));
}

static void
kinds_slots_modes_and_descriptors_beyond_their_bounds_are_refused(void **state)
{
    (void)state;
    struct packet p;
    static const uint32_t kinds[] = {0, RELAY_SETTLE + 1, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        p = fine(RELAY_CLOSE);
        p.o->kind = kinds[i];
        assert_false(check(&p));
    }
    for (uint32_t kind = RELAY_CONFIGURE; kind <= RELAY_SETTLE; kind++) {
        p = fine(kind);
        p.o->slot = BPF_SLOTS;
        assert_false(check(&p));
        p = fine(kind);
        p.fds_n += 1;
        assert_false(check(&p));
        p = fine(kind);
        p.o->servers_n = kind == RELAY_CONFIGURE ? RELAY_SERVERS + 1 : 1;
        assert_false(check(&p));
    }
    p = fine(RELAY_OPEN);
    p.fds_n = 0;
    assert_false(check(&p));
    p = fine(RELAY_CONFIGURE);
    p.o->servers_n = 1; // at port 0
    assert_false(check(&p));
    static const uint32_t modes[] = {0, NET_OPEN + 1, UINT32_MAX};
    for (size_t i = 0; i < 3; i++) {
        p = fine(RELAY_POLICY);
        p.o->mode = modes[i];
        assert_false(check(&p));
    }
}

static void
invalid_rules_are_refused(void **state)
{
    (void)state;
    enum { SPOILS = 13 };
    for (int i = 0; i < SPOILS; i++) {
        struct packet p = fine(RELAY_POLICY);
        struct relay_rule *cidr = &p.o->rules[0];
        struct relay_rule *name = &p.o->rules[1];
        switch (i) {
        case 0:
            cidr->kind = 0;
            break;
        case 1:
            cidr->kind = RELAY_SUFFIX + 1;
            break;
        case 2:
            cidr->prefix = 129;
            break;
        case 3:
            cidr->address[13] = 1; // beyond the prefix
            break;
        case 4:
            cidr->zero[1] = 1;
            break;
        case 5:
            cidr->number = NET_RULES;
            break;
        case 6:
            cidr->ports_n = NET_PORTS + 1;
            break;
        case 7:
            cidr->ports[0].first = 3;
            break;
        case 8:
            cidr->ports[0].protocol = 1;
            break;
        case 9:
            cidr->name[0] = 'a';
            break;
        case 10:
            name->prefix = 1;
            break;
        case 11:
            name->address[0] = 1;
            break;
        default:
            memset(name->name, 'a', sizeof name->name); // without a terminating NUL
            break;
        }
        assert_false(check(&p));
    }
}

static void
only_OPEN_has_earlier_counters(void **state)
{
    (void)state;
    for (uint32_t kind = RELAY_CONFIGURE; kind <= RELAY_SETTLE; kind++) {
        struct packet p = fine(kind);
        p.o->counted.out_bytes = 1;
        assert_int_equal(check(&p), kind == RELAY_OPEN);
        p = fine(kind);
        p.o->counted.zero = 1;
        assert_false(check(&p));
    }
    struct packet p = fine(RELAY_POLICY);
    p.o->rules[1].bytes_used = 1;
    assert_false(check(&p));
    p = fine(RELAY_OPEN);
    p.o->counted.names = NET_SYNTHETIC_V4_MASK + 1;
    assert_false(check(&p));
    p.o->counted.names = NET_SYNTHETIC_V4_MASK;
    p.o->rules[1].bytes_used = 1;
    assert_true(check(&p));
}

static void
invalid_names_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"",    ".",   "a.",    ".a",    "a..b",
                                        "A.b", "a b", "*.a.b", "a\n.b", "\xc3\xa4.b"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct packet p = fine(RELAY_POLICY);
        (void)snprintf(p.o->rules[1].name, sizeof p.o->rules[1].name, "%s", names[i]);
        assert_false(check(&p));
    }
    struct packet p = fine(RELAY_POLICY);
    memset(p.o->rules[1].name, 'a', RELAY_NAME_MAX + 1);
    assert_false(check(&p));
}

static void
only_a_simulated_OPEN_has_replies(void **state)
{
    (void)state;
    static _Alignas(struct relay_order)
        uint8_t bytes[sizeof(struct relay_order) + 2 * sizeof(struct relay_rule) +
                      (RELAY_REPLIES_MAX + 1) * sizeof(struct relay_reply)];
    struct packet p = fine(RELAY_OPEN);
    memcpy(bytes, p.o, p.n);
    struct relay_order *o = (struct relay_order *)(void *)bytes;
    p.o = o;
    struct relay_reply *replies = (struct relay_reply *)(void *)(bytes + p.n);
    const size_t none = p.n;
    for (uint32_t i = 0; i <= RELAY_REPLIES_MAX; i++)
        replies[i] = (struct relay_reply){.to = o->rules[1], .n = RELAY_REPLY_MAX};
    o->replies_n = 1;
    p.n = none + sizeof *replies;
    assert_false(check(&p));
    o->simulated = 2;
    assert_false(check(&p));
    o->simulated = 1;
    assert_true(check(&p));
    p.n--;
    assert_false(check(&p));
    p.n = none + sizeof *replies;
    replies[0].n++;
    assert_false(check(&p));
    replies[0].n--;
    replies[0].zero = 1;
    assert_false(check(&p));
    replies[0].zero = 0;
    replies[0].to.kind = 0;
    assert_false(check(&p));
    replies[0].to = replies[1].to;
    o->replies_n = RELAY_REPLIES_MAX + 1;
    p.n = none + o->replies_n * sizeof *replies;
    assert_false(check(&p));
    o->replies_n--;
    p.n -= sizeof *replies;
    assert_true(check(&p));
    o->kind = RELAY_POLICY;
    p.fds_n = 0;
    assert_false(check(&p));
}

static void
every_valid_kind_is_accepted(void **state)
{
    (void)state;
    for (uint32_t kind = RELAY_CONFIGURE; kind <= RELAY_SETTLE; kind++) {
        struct packet p = fine(kind);
        assert_true(check(&p));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packet_of_another_size_is_refused),
        cmocka_unit_test(kinds_slots_modes_and_descriptors_beyond_their_bounds_are_refused),
        cmocka_unit_test(invalid_rules_are_refused),
        cmocka_unit_test(only_OPEN_has_earlier_counters),
        cmocka_unit_test(invalid_names_are_refused),
        cmocka_unit_test(only_a_simulated_OPEN_has_replies),
        cmocka_unit_test(every_valid_kind_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
