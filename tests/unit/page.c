// SPDX-License-Identifier: Apache-2.0
// Pages of lists: invalid tokens, the end of a page, and the start of the next one.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#include "server/api/page.h"

static void
invalid_tokens_are_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {"1",
                                       "0000000000000001 ",
                                       "000000000000000G",
                                       "000000000000000A",
                                       "00000000000000001",
                                       "-000000000000001",
                                       "0x00000000000001"};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct page auto_page p = {0};
        struct err e;
        assert_true(page_begin(&p, 0, rows[i], &e) < 0);
        assert_int_equal(e.code, ERR_INVALID_ARGUMENT);
        assert_string_equal(e.subject, "page_token");
        assert_null(p.arena);
    }
}

static void
an_element_without_memory_ends_the_page(void **state)
{
    (void)state;
    struct page auto_page p = {0};
    struct err e;
    int element = 0;
    assert_int_equal(page_begin(&p, 2, "", &e), 0);
    assert_true(page_has_room(&p) && page_add(&p, 1, &element));
    assert_false(page_add(&p, 2, NULL));
    assert_false(page_has_room(&p));
    assert_false(page_add(&p, 3, &element));
    assert_true(p.no_memory && !p.full);
}

// Reads elements 1 to n in pages of this size. Returns the number of pages.
static unsigned
walk(uint32_t size, uint64_t n, size_t element_bytes)
{
    char token[PAGE_TOKEN_BYTES] = "";
    uint64_t expected = 1;
    unsigned pages = 0;
    do {
        struct page auto_page p = {0};
        struct err e;
        assert_int_equal(page_begin(&p, size, token, &e), 0);
        assert_int_equal(p.last, expected - 1);
        for (uint64_t order = p.last + 1; order <= n && page_has_room(&p); order++) {
            assert_int_equal(order, expected++);
            assert_true(page_add(&p, order, arena_alloc(p.arena, element_bytes)));
        }
        assert_int_equal(p.full, p.token[0] != '\0');
        memcpy(token, p.token, sizeof token);
        pages++;
    } while (token[0] != '\0');
    assert_int_equal(expected, n + 1);
    return pages;
}

static void
a_page_ends_at_its_size_and_the_next_continues_after_it(void **state)
{
    (void)state;
    assert_int_equal(walk(3, 0, 8), 1);
    assert_int_equal(walk(3, 3, 8), 1);
    assert_int_equal(walk(3, 4, 8), 2);
    assert_int_equal(walk(3, 10, 8), 4);
    assert_int_equal(walk(0, 101, 8), 2); // the default size is 100
}

static void
a_page_is_also_bounded_by_its_bytes(void **state)
{
    (void)state;
    assert_int_equal(walk(1000, 10, 700 * 1024), 4);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_tokens_are_refused),
        cmocka_unit_test(an_element_without_memory_ends_the_page),
        cmocka_unit_test(a_page_ends_at_its_size_and_the_next_continues_after_it),
        cmocka_unit_test(a_page_is_also_bounded_by_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
