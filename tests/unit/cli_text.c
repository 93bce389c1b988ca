// SPDX-License-Identifier: Apache-2.0
// client/cli/text.c: output to a terminal.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/cli/text.h"

static void
control_characters_are_removed(void **state)
{
    static const char *const hostile[] = {
        "\x1b[2Jx",
        "\x1b]0;title\a",
        "a\rb",
        "a\nb",
        "a\bb",
        "\xc2\x9b"
        "31m",
        "\x7f",
        "\xe2\x80\xae"
        "gnp.exe\xe2\x80\xac",
        "\x9b"
        "31m",
        "\xff\xfe",
        "\xf0\x9f",
        "\xc0\x80",
        "\xe2\x81\xa6x\xe2\x81\xa9",
    };
    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        char out[64];
        text_clean(hostile[i], out, sizeof out);
        for (const char *p = out; *p != '\0'; p++)
            assert_true((unsigned char)*p >= 0x20 && (unsigned char)*p < 0x7f);
        assert_non_null(strchr(out, '?'));
    }
}

static void
streams_cannot_control_a_terminal_wherever_they_are_cut(void **state)
{
    static const char stream[] =
        "\x1b]0;t\a a\tb\r\nc\b \xc2\x9b \x9b\xe2\x82\xac \xe2\x82x \xf0\x9f\x98\x80\xff"
        "\xe2\x80\xae.\xe2\x80\xac";
    static const char shown[] = "?]0;t? a\tb\r\nc? ? ?\xe2\x82\xac ?x \xf0\x9f\x98\x80??.?";
    (void)state;
    for (size_t at = 0; at < sizeof stream; at++) {
        char *text = NULL;
        size_t n = 0;
        struct text_stream t = {.n = 0};
        FILE *f = open_memstream(&text, &n);
        assert_non_null(f);
        text_put(&t, f, stream, at);
        text_put(&t, f, stream + at, sizeof stream - 1 - at);
        assert_int_equal(fclose(f), 0);
        assert_string_equal(text, shown);
        free(text);
    }
}

static void
a_text_is_never_cut_within_a_character(void **state)
{
    char out[5];
    (void)state;
    assert_string_equal(text_clean("a\u00e9\u00e9\u00e9", out, sizeof out), "a\u00e9");
    assert_string_equal(text_clean("\u20ac\u20ac", out, sizeof out), "\u20ac");
    assert_string_equal(text_clean("x", out, 1), "");
}

static void
a_text_of_many_lines_fits_on_one_line_without_cut_characters(void **state)
{
    (void)state;
    char out[16];
    assert_string_equal(text_flat("a\nb\r\n\tc", out, sizeof out), "a b   c");
    assert_string_equal(text_flat("", out, sizeof out), "");
    assert_string_equal(text_flat("\xc3\xa4\xc3\xb6", out, 4), "\xc3\xa4");
    assert_string_equal(text_flat("\xc3\xa4", out, 2), "");
    assert_string_equal(text_flat("abc", out, 1), "");
}

static void
columns_line_up_also_with_wide_characters(void **state)
{
    char *text = NULL;
    size_t n = 0;
    (void)state;
    assert_int_equal(text_width("abc"), 3);
    assert_int_equal(text_width("\u00e9"), 1);
    assert_int_equal(text_width("\u4f60\u597d"), 4);
    struct table *t = table_new((const char *[]){"A", "B"}, 2);
    assert_non_null(t);
    assert_true(table_row(t, (const char *[]){"\u4f60\u597d", "x"}));
    assert_true(table_row(t, (const char *[]){"ab\x1b[1m", "y"}));
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    table_print(t, f);
    assert_int_equal(fclose(f), 0);
    assert_string_equal(text, "A       B\n\u4f60\u597d    x\nab?[1m  y\n");
    free(text);
    table_free(t);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_characters_are_removed),
        cmocka_unit_test(streams_cannot_control_a_terminal_wherever_they_are_cut),
        cmocka_unit_test(a_text_is_never_cut_within_a_character),
        cmocka_unit_test(a_text_of_many_lines_fits_on_one_line_without_cut_characters),
        cmocka_unit_test(columns_line_up_also_with_wide_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
