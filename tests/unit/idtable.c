// SPDX-License-Identifier: Apache-2.0
// Ids with and without a node name: how they are made, found, and refused on other nodes.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sodium.h>

#include "server/base/idtable.h"

#define DIGITS "18992bb4e848ab09f0f0197cd7dd5b51"

static void
a_node_name_is_short_and_plain(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "A", "a-b", "a.b", " ", "a/", "sixteen-is-a-lot", "0123456789abcdef"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(id_node_is_valid(bad[i]));
    assert_true(id_node_is_valid(""));
    assert_true(id_node_is_valid("eu1"));
    assert_true(id_node_is_valid("0123456789abcde"));
}

static void
the_id_of_another_node_is_refused_with_both_names(void **state)
{
    (void)state;
    static const struct {
        const char *node, *id, *text;
    } rows[] = {
        {"eu1", "us1-" DIGITS,
         "sandbox us1-" DIGITS " belongs to node us1; this broker is node eu1"},
        {"", "us1-" DIGITS,
         "sandbox us1-" DIGITS " belongs to node us1; this broker has no node name"},
        {"eu1", DIGITS,
         "sandbox " DIGITS " belongs to a broker without a node name; this broker is node eu1"},
        {"eu1", "eu-" DIGITS, "sandbox eu-" DIGITS " belongs to node eu; this broker is node eu1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err e;
        assert_true(id_not_found("sandbox", rows[i].node, rows[i].id, &e) < 0);
        assert_int_equal(e.code, ERR_NOT_FOUND);
        assert_string_equal(e.text, rows[i].text);
        assert_string_equal(e.reason, "OTHER_NODE");
    }
}

static void
invalid_and_own_ids_are_not_reported_as_another_nodes(void **state)
{
    (void)state;
    static const char *const texts[] = {"eu1-" DIGITS,
                                        "my-box",
                                        "us1-" DIGITS "0",
                                        "us1-18992BB4e848ab09f0f0197cd7dd5b51",
                                        "-" DIGITS,
                                        "0123456789abcdef-" DIGITS,
                                        "us1-x-" DIGITS,
                                        "",
                                        "-"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct err e;
        assert_true(id_not_found("process", "eu1", texts[i], &e) < 0);
        assert_int_equal(e.code, ERR_NOT_FOUND);
        assert_memory_equal(e.text, "there is no process ", 20);
        assert_string_equal(e.text + 20, texts[i]);
        assert_string_equal(e.reason, "PROCESS_UNKNOWN");
    }
}

static void
an_id_consists_of_its_node_and_its_bytes_as_digits(void **state)
{
    (void)state;
    uint8_t bytes[ID_BYTES];
    char text[ID_TEXT_MAX + 1];
    char hex[ID_HEX + 1];
    id_make("", bytes, text);
    assert_string_equal(text, sodium_bin2hex(hex, sizeof hex, bytes, sizeof bytes));
    id_make("0123456789abcde", bytes, text);
    assert_int_equal(strlen(text), ID_TEXT_MAX);
    assert_memory_equal(text, "0123456789abcde-", 16);
    assert_string_equal(text + 16, sodium_bin2hex(hex, sizeof hex, bytes, sizeof bytes));
}

static void
an_id_begins_with_its_node_or_with_its_digits(void **state)
{
    (void)state;
    assert_false(id_begins("eu1-" DIGITS, "992b"));
    assert_false(id_begins("eu1-" DIGITS, "us1"));
    assert_true(id_begins("eu1-" DIGITS, "eu1-1899"));
    assert_true(id_begins("eu1-" DIGITS, "1899"));
    assert_true(id_begins(DIGITS, "1899"));
}

// With a hash of the first bytes, all ids of a node would share a bucket.
static void
ids_of_one_node_are_spread_over_the_table(void **state)
{
    (void)state;
    enum { N = 2 * ID_BUCKETS };
    struct idtable *t = calloc(1, sizeof *t);
    struct idnode *nodes = calloc(N, sizeof *nodes);
    assert_non_null(t);
    assert_non_null(nodes);
    uint8_t bytes[ID_BYTES];
    for (size_t i = 0; i < N; i++) {
        id_make("longnodename", bytes, nodes[i].id);
        idtable_add(t, &nodes[i]);
    }
    for (size_t b = 0; b < ID_BUCKETS; b++) {
        unsigned n = 0;
        for (struct idnode *node = t->bucket[b]; node != NULL; node = node->next)
            n++;
        assert_true(n < 32);
    }
    for (size_t i = 0; i < N; i++)
        assert_ptr_equal(idtable_find(t, nodes[i].id), &nodes[i]);
    assert_null(idtable_find(t, DIGITS));
    assert_null(idtable_find(t, ""));
    free(nodes);
    free(t);
}

int
main(void)
{
    if (sodium_init() < 0)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_name_is_short_and_plain),
        cmocka_unit_test(the_id_of_another_node_is_refused_with_both_names),
        cmocka_unit_test(invalid_and_own_ids_are_not_reported_as_another_nodes),
        cmocka_unit_test(an_id_consists_of_its_node_and_its_bytes_as_digits),
        cmocka_unit_test(an_id_begins_with_its_node_or_with_its_digits),
        cmocka_unit_test(ids_of_one_node_are_spread_over_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
