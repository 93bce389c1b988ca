// SPDX-License-Identifier: Apache-2.0
// The arena refuses allocations above its maximum, and returns aligned, zeroed memory below it.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/arena.h"

static void
an_arena_refuses_allocations_above_its_maximum(void **state)
{
    (void)state;
    struct arena *auto_arena a = arena_new(1000);
    assert_null(arena_alloc(a, 1001));
    assert_null(arena_alloc(a, SIZE_MAX));
    assert_null(arena_copy(a, "x", SIZE_MAX));
    assert_non_null(arena_alloc(a, 992));
    assert_null(arena_alloc(a, 16));
    assert_int_equal(arena_used(a), 992);
}

static void
a_million_small_allocations_stop_at_the_maximum(void **state)
{
    (void)state;
    struct arena *auto_arena a = arena_new(1024 * 1024);
    size_t n = 0;
    while (arena_alloc(a, 0) != NULL)
        n++;
    assert_int_equal(n, 1024 * 1024 / 16);
}

static void
memory_is_zeroed_and_aligned_after_a_reset_too(void **state)
{
    (void)state;
    struct arena *auto_arena a = arena_new(1024 * 1024);
    for (int round = 0; round < 3; round++) {
        for (size_t size = 1; size < 100000; size = size * 3 + 1) {
            uint8_t *p = arena_alloc(a, size);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
            for (size_t i = 0; i < size; i++)
                assert_int_equal(p[i], 0);
            memset(p, 0xff, size);
        }
        arena_reset(a);
        assert_int_equal(arena_used(a), 0);
    }
}

static void
memory_for_a_data_frame_is_the_same_after_a_reset(void **state)
{
    (void)state;
    struct arena *auto_arena a = arena_new(1024 * 1024);
    const void *first = arena_alloc(a, 64 * 1024);
    const void *copy = arena_alloc(a, 64 * 1024);
    arena_reset(a);
    assert_ptr_equal(arena_alloc(a, 64 * 1024), first);
    assert_ptr_equal(arena_alloc(a, 64 * 1024), copy);
}

static void
a_copy_ends_with_nul(void **state)
{
    (void)state;
    struct arena *auto_arena a = arena_new(100);
    assert_string_equal(arena_copy(a, "abcdef", 3), "abc");
    assert_string_equal(arena_copy(a, NULL, 0), "");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_arena_refuses_allocations_above_its_maximum),
        cmocka_unit_test(a_million_small_allocations_stop_at_the_maximum),
        cmocka_unit_test(memory_is_zeroed_and_aligned_after_a_reset_too),
        cmocka_unit_test(memory_for_a_data_frame_is_the_same_after_a_reset),
        cmocka_unit_test(a_copy_ends_with_nul),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
