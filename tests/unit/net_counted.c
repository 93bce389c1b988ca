// SPDX-License-Identifier: Apache-2.0
// Counters of earlier relays: the next relay gets those of the same sandbox, and they only increase.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "server/network/counted.h"

enum { SLOT = 3, GENERATION = 9 };

static struct relay_report
sums(uint64_t out, uint64_t in, uint32_t queries, uint32_t names)
{
    return (struct relay_report){.kind = RELAY_SUMS,
                                 .slot = SLOT,
                                 .generation = GENERATION,
                                 .rule = UINT32_MAX,
                                 .out_bytes = out,
                                 .in_bytes = in,
                                 .queries = queries,
                                 .names = names};
}

static struct relay_report
rule_sum(uint32_t rule, uint64_t bytes)
{
    struct relay_report r = sums(bytes, 0, 0, 0);
    r.kind = RELAY_RULE_SUM;
    r.rule = rule;
    return r;
}

static void
another_generation_starts_without_counts(void **state)
{
    (void)state;
    struct net_counted *all = net_counted_new(-1);
    const uint64_t *rules = NULL;
    struct relay_report r = sums(10, 20, 3, 4);
    assert_null(net_counted_of(all, SLOT, GENERATION, &rules));
    net_counted_report(all, &r);
    assert_null(net_counted_of(all, SLOT, GENERATION + 1, &rules));
    assert_null(net_counted_of(all, SLOT + 1, GENERATION, &rules));
    r.generation++;
    r.out_bytes = 1;
    net_counted_report(all, &r);
    assert_null(net_counted_of(all, SLOT, GENERATION, &rules));
    assert_int_equal(net_counted_of(all, SLOT, GENERATION + 1, &rules)->out_bytes, 1);
    net_counted_forget(all, SLOT);
    assert_null(net_counted_of(all, SLOT, GENERATION + 1, &rules));
    net_counted_free(all);
}

static void
other_reports_are_not_counted(void **state)
{
    (void)state;
    struct net_counted *all = net_counted_new(-1);
    const uint64_t *rules = NULL;
    for (uint32_t kind = RELAY_READY; kind <= RELAY_CLOSED; kind++) {
        struct relay_report r = sums(10, 20, 3, 4);
        r.kind = kind;
        net_counted_report(all, &r);
    }
    struct relay_report r = sums(10, 20, 3, 4);
    r.slot = BPF_SLOTS;
    net_counted_report(all, &r);
    assert_null(net_counted_of(all, SLOT, GENERATION, &rules));
    net_counted_free(all);
}

static void
counters_never_decrease(void **state)
{
    (void)state;
    struct net_counted *all = net_counted_new(-1);
    const uint64_t *rules = NULL;
    const struct relay_report said[] = {
        sums(10, 20, 3, 4),         sums(9, 21, 2, UINT32_MAX),
        rule_sum(5, 100),           rule_sum(5, 7),
        rule_sum(NET_RULES, 8),     rule_sum(UINT32_MAX, 8),
        rule_sum(NET_RULES - 1, 9),
    };
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++)
        net_counted_report(all, &said[i]);
    net_counted_relay_gone(all);
    const struct relay_counted *c = net_counted_of(all, SLOT, GENERATION, &rules);
    assert_int_equal(c->out_bytes, 10);
    assert_int_equal(c->in_bytes, 21);
    assert_int_equal(c->queries, 3);
    assert_int_equal(c->names, NET_SYNTHETIC_V4_MASK); // however many the relay claims
    assert_int_equal(rules[5], 100);
    assert_int_equal(rules[NET_RULES - 1], 9);
    assert_int_equal(rules[0], 0);
    net_counted_policy(all, SLOT); // the numbers belong to other rules now
    assert_int_equal(net_counted_of(all, SLOT, GENERATION, &rules)->out_bytes, 10);
    assert_null(rules);
    net_counted_policy(all, SLOT + 1);
    net_counted_free(all);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_generation_starts_without_counts),
        cmocka_unit_test(other_reports_are_not_counted),
        cmocka_unit_test(counters_never_decrease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
