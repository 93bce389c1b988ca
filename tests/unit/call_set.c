// SPDX-License-Identifier: Apache-2.0
// client/call_set.c: calls are found by id, and the nearest deadline is known, whatever was added, moved and removed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "client/call_set.h"
#include "client/pump.h"

enum { CALLS = 500, STEPS = 20000 };

static void
an_empty_set_finds_nothing(void **state)
{
    struct call_set set = {0};
    (void)state;
    assert_null(call_set_find(&set, 1));
    assert_null(call_set_first(&set));
    call_set_clear(&set);
}

static uint32_t
next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

// By looking at every call.
static uint64_t
nearest(const struct call *calls, const bool *in)
{
    uint64_t found = 0;
    for (size_t i = 0; i < CALLS; i++)
        if (in[i] && calls[i].deadline_ns != 0 && (found == 0 || calls[i].deadline_ns < found))
            found = calls[i].deadline_ns;
    return found;
}

static void
the_nearest_deadline_and_every_id_are_found_after_any_change(void **state)
{
    struct call_set set = {0};
    struct call *calls = calloc(CALLS, sizeof *calls);
    bool in[CALLS] = {false};
    uint32_t seed = 1;
    size_t n = 0;
    (void)state;
    assert_non_null(calls);
    for (size_t i = 0; i < CALLS; i++)
        calls[i].id = UINT64_C(7) << 32 | 0x80000001u | i << 1;
    for (int step = 0; step < STEPS; step++) {
        size_t i = next_random(&seed) % CALLS;
        if (!in[i]) {
            assert_int_equal(call_set_add(&set, &calls[i]), 0);
            in[i] = true;
            n++;
        } else if (next_random(&seed) % 4 == 0) {
            call_set_remove(&set, &calls[i]);
            in[i] = false;
            n--;
        } else {
            call_set_deadline(&set, &calls[i], next_random(&seed) % 1000);
        }
        const struct call *first = call_set_first(&set);
        assert_int_equal(first != NULL ? first->deadline_ns : 0, nearest(calls, in));
        assert_int_equal(set.n, n);
        assert_ptr_equal(call_set_find(&set, calls[i].id), in[i] ? &calls[i] : NULL);
    }
    for (size_t i = 0; i < CALLS; i++)
        assert_ptr_equal(call_set_find(&set, calls[i].id), in[i] ? &calls[i] : NULL);
    call_set_clear(&set);
    free(calls);
}

static void
count_one(struct call *c, void *cookie)
{
    *(uint64_t *)cookie += c->id;
}

static void
each_call_is_visited_once(void **state)
{
    struct call_set set = {0};
    struct call calls[100] = {{0}};
    uint64_t sum = 0;
    (void)state;
    for (size_t i = 0; i < 100; i++) {
        calls[i].id = i + 1;
        assert_int_equal(call_set_add(&set, &calls[i]), 0);
    }
    call_set_each(&set, count_one, &sum);
    assert_int_equal(sum, 5050);
    call_set_clear(&set);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_set_finds_nothing),
        cmocka_unit_test(the_nearest_deadline_and_every_id_are_found_after_any_change),
        cmocka_unit_test(each_call_is_visited_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
