// SPDX-License-Identifier: Apache-2.0
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/utf8.h"

static void
invalid_characters_are_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "\x80",
        "\xbf", // a single continuation byte
        "\xc0\x80",
        "\xc0\xaf",
        "\xc1\xbf", // two bytes where one is enough
        "\xe0\x80\x80",
        "\xe0\x9f\xbf", // three instead of two
        "\xf0\x80\x80\x80",
        "\xf0\x8f\xbf\xbf", // four instead of three
        "\xed\xa0\x80",
        "\xed\xbf\xbf", // surrogates
        "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", // above U+10FFFF
        "\xf8\x88\x80\x80\x80",
        "\xfe",
        "\xff", // lengths of the old definition
        "\xc3",
        "\xe2\x82",
        "\xf0\x9f\x98", // truncated
        "\xc3(",
        "\xe2\x82(",
        "\xf0\x9f\x98(", // interrupted
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t code = 7;
        assert_int_equal(utf8_decode(rows[i], strlen(rows[i]), &code), 0);
        assert_int_equal(utf8_decode(rows[i], UTF8_MAX, NULL), 0);
        assert_int_equal(code, 7);
    }
}

static size_t
encode(uint32_t c, uint8_t out[UTF8_MAX])
{
    const size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)(first[n] | c);
    return n;
}

static void
every_code_point_is_decoded_and_no_surrogate(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110800; c++) {
        uint8_t bytes[UTF8_MAX];
        uint32_t code = 0;
        const size_t n = encode(c, bytes);
        const bool is_one = c <= 0x10ffff && (c < 0xd800 || c > 0xdfff);
        assert_int_equal(utf8_decode(bytes, n, &code), is_one ? n : 0);
        assert_int_equal(code, is_one ? c : 0);
        assert_int_equal(utf8_decode(bytes, n - 1 > 0 ? n - 1 : 1, NULL), n == 1);
    }
}

static void
text_is_not_cut_within_a_character(void **state)
{
    (void)state;
    static const char text[] = "a\xc3\xa4\xf0\x9f\x98\x80";
    static const size_t cut[] = {0, 1, 1, 3, 3, 3, 3, 7};
    for (size_t n = 0; n < sizeof cut / sizeof cut[0]; n++)
        assert_int_equal(utf8_cut(text, n), cut[n]);
    assert_int_equal(utf8_cut("\x80\x80\x80", 2), 0);
}

static void
text_has_valid_characters_and_no_nul(void **state)
{
    (void)state;
    assert_false(utf8_is_text("a\0b", 3));
    assert_false(utf8_is_text("a\xe2\x82\xac", 3)); // its last byte is missing
    assert_false(utf8_is_text("a\xff", 2));
    assert_true(utf8_is_text("a\xe2\x82\xac", 4));
    assert_true(utf8_is_text("", 0));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_characters_are_refused),
        cmocka_unit_test(text_has_valid_characters_and_no_nul),
        cmocka_unit_test(every_code_point_is_decoded_and_no_surrogate),
        cmocka_unit_test(text_is_not_cut_within_a_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
