// SPDX-License-Identifier: Apache-2.0
// Rule sets in a kernel table that is too small for all of them: if the table is full, an error is returned and
// nothing is left in the table, and unused sets make room immediately.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <bpf/bpf.h>
#include <uv.h>

#include "server/policy/rule.h"
#include "server/network/sets.h"
#include "server/policy/network.h"
#include "tests/harness/skip.h"

enum { ROOM = 300, LARGE = 200, SMALL = 50, TURNS = 1000 };

struct fixture {
    uv_loop_t loop;
    struct net_sets *sets;
    int map;
};

static int
setup(void **state)
{
    LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_NO_PREALLOC);
    struct fixture *f = calloc(1, sizeof *f);
    (void)need_root(state);
    f->map = bpf_map_create(BPF_MAP_TYPE_LPM_TRIE, "small_rules", sizeof(struct net_rule_key),
                            sizeof(struct net_rule), ROOM, &opts);
    assert_true(f->map >= 0);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->sets = net_sets_new(&f->loop, f->map);
    *state = f;
    return 0;
}

static int
teardown(void **state)
{
    struct fixture *f = *state;
    net_sets_free(f->sets);
    (void)uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    (void)close(f->map);
    free(f);
    return 0;
}

static uint32_t
entries(const struct fixture *f)
{
    struct net_rule_key key;
    struct net_rule_key *last = NULL;
    uint32_t n = 0;
    for (; bpf_map_get_next_key(f->map, last, &key) == 0; last = &key)
        n++;
    return n;
}

// A policy with `n` prefixes that no other policy has.
static struct network *
policy(unsigned n, uint8_t number)
{
    struct network *p = network_new();
    struct err e;
    p->mode = NET_ALLOWLIST;
    for (unsigned i = 0; i < n; i++) {
        char cidr[32];
        const char *what;
        (void)snprintf(cidr, sizeof cidr, "93.184.%u.%u", number, i);
        assert_true(net_rule_cidr(cidr, network_add_rule(p), &what));
    }
    assert_int_equal(network_compile(p, &e), 0);
    return p;
}

static void
a_set_that_does_not_fit_is_refused_completely(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    struct network *a = policy(LARGE, 1);
    struct network *b = policy(LARGE, 2);
    assert_int_equal(net_sets_take(f->sets, a, &e), 0);
    assert_true(net_sets_take(f->sets, b, &e) < 0);
    assert_int_equal(e.code, ERR_RESOURCE_EXHAUSTED);
    assert_string_equal(e.reason, "NETWORK_RULES_FULL");
    assert_null(b->set);
    assert_int_equal(entries(f), LARGE);
    assert_int_equal(net_sets_kept(f->sets), 1);
    network_unref(a);
    assert_int_equal(net_sets_take(f->sets, b, &e), 0); // the other set is not used any more
    assert_int_equal(entries(f), LARGE);
    network_unref(b);
}

static void
unused_sets_make_room_the_longest_unused_first(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    struct network *last = policy(SMALL, 5);
    for (uint8_t i = 0; i < 6; i++) {
        struct network *p = policy(SMALL, i);
        assert_int_equal(net_sets_take(f->sets, p, &e), 0);
        network_unref(p);
    }
    struct network *large = policy(LARGE, 9);
    assert_int_equal(net_sets_take(f->sets, large, &e), 0);
    assert_int_equal(entries(f), LARGE + 2 * SMALL);
    assert_int_equal(net_sets_take(f->sets, last, &e), 0); // it still exists
    assert_int_equal(entries(f), LARGE + 2 * SMALL);
    network_unref(last);
    network_unref(large);
}

static void
a_few_unused_sets_are_kept_and_the_others_removed(void **state)
{
    struct fixture *f = *state;
    struct err e = {0};
    struct network *all[NET_SETS_IDLE + 20];
    const unsigned n = sizeof all / sizeof all[0];
    for (unsigned i = 0; i < n; i++) {
        all[i] = policy(2, (uint8_t)i);
        assert_int_equal(net_sets_take(f->sets, all[i], &e), 0);
    }
    assert_int_equal(entries(f), 2 * n);
    for (unsigned i = 0; i < n; i++)
        network_unref(all[i]);
    for (int i = 0; i < TURNS && net_sets_kept(f->sets) > NET_SETS_IDLE; i++)
        (void)uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(net_sets_kept(f->sets), NET_SETS_IDLE);
    assert_int_equal(entries(f), 2 * NET_SETS_IDLE);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_set_that_does_not_fit_is_refused_completely, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(unused_sets_make_room_the_longest_unused_first, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_few_unused_sets_are_kept_and_the_others_removed, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
