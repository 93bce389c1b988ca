// SPDX-License-Identifier: Apache-2.0
// proto/sealed.h: what was changed, cut, reordered, swapped, or written with another key is refused; then that all sizes come back.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/auto.h"
#include "proto/sealed.h"

enum { LENGTH = 3 * SEALED_CHUNK + 100, PIECE = SEALED_CHUNK + SEALED_MORE };

static const struct sealed_what about = {SEALED_ABOUT, "one", 3};
static uint8_t contents[LENGTH];

static struct sealed_key
key(uint8_t number)
{
    struct sealed_key k;
    memset(k.id, number, sizeof k.id);
    memset(k.contents, number + 1, sizeof k.contents);
    memset(k.names, number + 2, sizeof k.names);
    return k;
}

static int
set_up(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof contents; i++)
        contents[i] = (uint8_t)(i * 7 + i / 251);
    return sodium_init() < 0 ? -1 : 0;
}

static uint8_t *
seal(size_t length, size_t *n)
{
    struct err e;
    uint8_t *out = NULL;
    const struct sealed_key k = key(1);
    assert_int_equal(sealed_bytes(&k, &about, contents, length, &out, n, &e), 0);
    return out;
}

static void
refused(const uint8_t *bytes, size_t n, const char *reason)
{
    struct err e = {.code = ERR_OK};
    uint8_t *out = NULL;
    size_t out_n = 0;
    const struct sealed_key k = key(1);
    assert_true(sealed_unbytes(&k, &about, bytes, n, &out, &out_n, &e) < 0);
    assert_null(out);
    assert_string_equal(e.reason, reason);
    assert_int_equal(e.code,
                     strcmp(reason, "SEALED_NEWER") == 0 ? ERR_FAILED_PRECONDITION : ERR_DATA_LOSS);
}

// ---- refusals

static void
every_length_but_the_whole_is_refused(void **unused)
{
    (void)unused;
    size_t n = 0;
    uint8_t *auto_free bytes = seal(2 * SEALED_CHUNK + 10, &n);
    static const size_t odd[] = {0, 1, 8, SEALED_HEAD - 1, SEALED_HEAD, SEALED_HEAD + 1};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        refused(bytes, odd[i], "SEALED_DAMAGED");
    for (size_t at = n - 40; at < n; at++)
        refused(bytes, at, "SEALED_DAMAGED");
    refused(bytes, SEALED_HEAD + PIECE, "SEALED_DAMAGED"); // between two chunks
    refused(bytes, SEALED_HEAD + 2 * PIECE, "SEALED_DAMAGED");
}

static void
what_goes_on_after_the_end_is_refused(void **unused)
{
    (void)unused;
    size_t n = 0;
    uint8_t *auto_free bytes = seal(10, &n);
    uint8_t more[1024] = {0};
    assert_true(2 * n <= sizeof more);
    memcpy(more, bytes, n);
    refused(more, n + 1, "SEALED_DAMAGED");
    memcpy(more + n, bytes, n); // twice the same object
    refused(more, 2 * n, "SEALED_DAMAGED");
}

static void
each_flipped_bit_is_found(void **unused)
{
    (void)unused;
    size_t n = 0;
    uint8_t *auto_free bytes = seal(300, &n);
    for (size_t at = 0; at < n; at++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[at] ^= (uint8_t)(1 << bit);
            const bool version = at >= 8 && at < 12, id = at >= 16 && at < 32;
            const bool none = at == 8 && bit == 0; // version 0
            refused(bytes, n,
                    version && !none ? "SEALED_NEWER"
                    : id             ? "SEALED_KEY"
                                     : "SEALED_DAMAGED");
            bytes[at] ^= (uint8_t)(1 << bit);
        }
}

static void
chunks_in_another_order_are_refused(void **unused)
{
    (void)unused;
    size_t n = 0;
    uint8_t *auto_free bytes = seal(LENGTH, &n);
    static uint8_t other[LENGTH + 1024];
    assert_true(n <= sizeof other);
    uint8_t *first = other + SEALED_HEAD;
    memcpy(other, bytes, n);
    memcpy(first, bytes + SEALED_HEAD + PIECE, PIECE);
    memcpy(first + PIECE, bytes + SEALED_HEAD, PIECE);
    refused(other, n, "SEALED_DAMAGED");
    memcpy(first, bytes + SEALED_HEAD, PIECE); // the first one twice
    refused(other, n, "SEALED_DAMAGED");
    memmove(first, first + PIECE, n - SEALED_HEAD - PIECE); // without the first
    refused(other, n - PIECE, "SEALED_DAMAGED");
}

static void
chunks_of_another_object_are_refused(void **unused)
{
    (void)unused;
    size_t n = 0, m = 0;
    uint8_t *auto_free one = seal(LENGTH, &n);
    uint8_t *auto_free two = seal(LENGTH, &m);
    assert_int_equal(n, m);
    assert_memory_not_equal(one + SEALED_HEAD, two + SEALED_HEAD, 64); // not the same bytes twice
    memcpy(one + SEALED_HEAD + PIECE, two + SEALED_HEAD + PIECE, PIECE);
    refused(one, n, "SEALED_DAMAGED");
}

static void
the_object_of_another_subject_kind_or_key_is_refused(void **unused)
{
    (void)unused;
    struct err e;
    size_t n = 0, out_n = 0;
    uint8_t *out = NULL;
    uint8_t *auto_free bytes = seal(100, &n);
    const struct sealed_key same = key(1), tenant = key(2);
    struct sealed_key forged = key(2); // with the number of the right one
    const struct sealed_what others[] = {{SEALED_ABOUT, "two", 3},
                                         {SEALED_ABOUT, "on", 2},
                                         {SEALED_ABOUT, NULL, 0},
                                         {SEALED_LAYER, "one", 3}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_true(sealed_unbytes(&same, &others[i], bytes, n, &out, &out_n, &e) < 0);
        assert_string_equal(e.reason, "SEALED_DAMAGED");
    }
    assert_true(sealed_unbytes(&tenant, &about, bytes, n, &out, &out_n, &e) < 0);
    assert_string_equal(e.reason, "SEALED_KEY");
    memcpy(forged.id, same.id, sizeof forged.id);
    assert_true(sealed_unbytes(&forged, &about, bytes, n, &out, &out_n, &e) < 0);
    assert_string_equal(e.reason, "SEALED_DAMAGED");
    assert_null(out);
}

static void
plain_bytes_are_refused(void **unused)
{
    (void)unused;
    refused(contents, sizeof contents, "SEALED_DAMAGED");
}

// ---- it comes back

static void
all_sizes_come_back(void **unused)
{
    (void)unused;
    static const size_t sizes[] = {
        0, 1, SEALED_CHUNK - 1, SEALED_CHUNK, SEALED_CHUNK + 1, 2 * SEALED_CHUNK, LENGTH};
    const struct sealed_key k = key(1);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct err e;
        size_t n = 0, out_n = 0;
        uint8_t *out = NULL;
        uint8_t *auto_free bytes = seal(sizes[i], &n);
        assert_int_equal(sealed_unbytes(&k, &about, bytes, n, &out, &out_n, &e), 0);
        assert_int_equal(out_n, sizes[i]);
        assert_memory_equal(out, contents, sizes[i]);
        free(out);
    }
}

static void
a_key_is_wiped(void **unused)
{
    (void)unused;
    struct sealed_key k = key(3);
    assert_false(sealed_id_is_none(k.id));
    sealed_key_wipe(&k);
    assert_true(sealed_id_is_none(k.id));
    assert_int_equal(sodium_is_zero((const unsigned char *)&k, sizeof k), 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_but_the_whole_is_refused),
        cmocka_unit_test(what_goes_on_after_the_end_is_refused),
        cmocka_unit_test(each_flipped_bit_is_found),
        cmocka_unit_test(chunks_in_another_order_are_refused),
        cmocka_unit_test(chunks_of_another_object_are_refused),
        cmocka_unit_test(the_object_of_another_subject_kind_or_key_is_refused),
        cmocka_unit_test(plain_bytes_are_refused),
        cmocka_unit_test(all_sizes_come_back),
        cmocka_unit_test(a_key_is_wiped),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
