// SPDX-License-Identifier: Apache-2.0
// server/snapshot/join.c: which layers are joined.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/snapshot/snapshots_private.h"

// A chain of `n` layers, of one byte each, numbered from the lowest.
static struct snapshots_box *
chain_of(uint32_t n)
{
    struct snapshots_box *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->layer = calloc(n, sizeof *b->layer);
    assert_non_null(b->layer);
    b->layers_n = b->top = n;
    for (uint32_t i = 0; i < n; i++)
        b->layer[i] = (struct layer){.there = true, .below = i, .bytes = 1, .inodes = 2};
    return b;
}

static void
drop(struct snapshots_box *b)
{
    free(b->layer);
    free(b);
}

// Every layer of a plan can be joined, and they lie on each other.
static void
assert_sound(const struct snapshots_box *b, const struct join_plan *p)
{
    uint32_t at = p->from;
    assert_in_range(p->n, JOIN_LEAST, JOIN_LAYERS);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct layer *l = layer_of(b, at);
        assert_non_null(l);
        assert_int_equal(l->pins, 0);
        assert_int_not_equal(l->below, 0);
        at = l->below;
    }
    assert_int_equal(at, p->below);
}

static void
a_short_chain_stays_as_it_is(void **state)
{
    struct join_plan p;
    (void)state;
    struct snapshots_box *b = chain_of(JOIN_DEPTH - 1);
    assert_false(join_choose(b, &p));
    b->top = 0;
    assert_false(join_choose(b, &p));
    drop(b);
}

static void
the_lowest_layer_and_one_of_a_transaction_stay(void **state)
{
    struct join_plan p;
    (void)state;
    struct snapshots_box *b = chain_of(LAYERS_DEPTH);
    for (uint32_t i = 0; i < LAYERS_DEPTH; i++)
        b->layer[i].pins = 1;
    assert_false(join_choose(b, &p));
    for (uint32_t i = 0; i < JOIN_LEAST; i++)
        b->layer[i].pins = 0;
    assert_false(join_choose(b, &p)); // three of them, and the lowest
    b->layer[JOIN_LEAST].pins = 0;
    assert_true(join_choose(b, &p));
    assert_sound(b, &p);
    assert_int_equal(p.below, 1);
    assert_int_equal(p.n, JOIN_LEAST);
    drop(b);
}

static void
a_large_layer_stays_where_it_is(void **state)
{
    struct join_plan p;
    (void)state;
    struct snapshots_box *b = chain_of(JOIN_DEPTH);
    b->layer[4].bytes = JOIN_BYTES_MAX;
    assert_true(join_choose(b, &p));
    assert_sound(b, &p);
    assert_int_equal(p.bytes, JOIN_LAYERS);
    assert_int_equal(p.inodes, 2 * JOIN_LAYERS);
    assert_true(p.below >= 5);
    for (uint32_t i = 1; i < JOIN_DEPTH; i++)
        b->layer[i].bytes = JOIN_BYTES_MAX;
    assert_false(join_choose(b, &p));
    for (uint32_t i = 1; i < JOIN_DEPTH; i++)
        b->layer[i] = (struct layer){.there = true, .below = i, .inodes = JOIN_INODES_MAX};
    assert_false(join_choose(b, &p)); // the spawner would refuse the request
    drop(b);
}

static void
what_takes_no_memory_yet_is_joined_later(void **state)
{
    struct join_plan p;
    (void)state;
    struct stored_layer *kept = (struct stored_layer *)1; // never read
    struct snapshots_box *b = chain_of(LAYERS_DEPTH);
    for (uint32_t i = 0; i < 30; i++)
        b->layer[i].kept = kept;
    assert_true(join_choose(b, &p));
    assert_sound(b, &p);
    assert_true(p.below >= 30);
    drop(b);
}

// A layer of the sandbox's own tree that names none ends a chain; so does one that the spawner never made.
static void
a_chain_that_is_cut_off_is_no_fault(void **state)
{
    struct join_plan p;
    (void)state;
    struct snapshots_box *b = chain_of(LAYERS_DEPTH);
    b->layer[40].below = 1201;
    assert_false(join_choose(b, &p)); // seven are left
    b->top = 1202;
    assert_false(join_choose(b, &p));
    b->layer[40].below = 40;
    b->layer[2].below = 30; // a circle
    b->top = LAYERS_DEPTH;
    if (join_choose(b, &p))
        assert_in_range(p.n, JOIN_LEAST, JOIN_LAYERS);
    drop(b);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_chain_stays_as_it_is),
        cmocka_unit_test(the_lowest_layer_and_one_of_a_transaction_stay),
        cmocka_unit_test(a_large_layer_stays_where_it_is),
        cmocka_unit_test(what_takes_no_memory_yet_is_joined_later),
        cmocka_unit_test(a_chain_that_is_cut_off_is_no_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
