// SPDX-License-Identifier: Apache-2.0
// Compressed archives: what is hostile is refused with the bound that it breaks, and the rest comes back as it was.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "proto/zst.h"

enum { ROOM = 4 << 20, PIECE = 60 * 1024, ONE_MIB = 1 << 20 };

static struct {
    uint8_t bytes[ROOM];
    size_t n, at;
    size_t step; // most bytes of one read
} archive;
static uint8_t got[ROOM];

static int
setup(void **state)
{
    (void)state;
    archive.n = archive.at = 0;
    archive.step = sizeof archive.bytes;
    return 0;
}

static ssize_t
take(void *cookie, void *bytes, size_t n, struct err *e)
{
    (void)cookie;
    (void)e;
    size_t part = archive.n - archive.at < n ? archive.n - archive.at : n;
    part = part < archive.step ? part : archive.step;
    memcpy(bytes, archive.bytes + archive.at, part);
    archive.at += part;
    return (ssize_t)part;
}

static int
keep(void *cookie, const void *bytes, size_t n, struct err *e)
{
    (void)cookie;
    (void)e;
    assert_true(archive.n + n <= sizeof archive.bytes);
    memcpy(archive.bytes + archive.n, bytes, n);
    archive.n += n;
    return 0;
}

// Reads everything. Returns the number of bytes, or the error.
static ssize_t
read_all(uint64_t ratio_max, struct err *e)
{
    static const struct tar_source source = {.read = take};
    struct zst_reader *r = zst_reader_new(&source, ratio_max, e);
    size_t total = 0;
    ssize_t n = 0;
    assert_non_null(r);
    do {
        uint8_t piece[PIECE];
        n = zst_read(r, piece, sizeof piece, e);
        if (n > 0 && total + (size_t)n <= sizeof got)
            memcpy(got + total, piece, (size_t)n);
        total += n > 0 ? (size_t)n : 0;
    } while (n > 0);
    zst_reader_free(r);
    return n < 0 ? n : (ssize_t)total;
}

static void
assert_refused(uint64_t ratio_max, int code, const char *reason, const char *words)
{
    struct err e = {0};
    archive.at = 0;
    assert_true(read_all(ratio_max, &e) < 0);
    if (e.code != code || strcmp(e.reason, reason) != 0 || strstr(e.text, words) == NULL)
        fail_msg("code %d, %s, %s", e.code, e.reason, e.text);
}

static void
add_zeros(size_t n, int window_log)
{
    uint8_t *zeros = calloc(1, n);
    ZSTD_CCtx *z = ZSTD_createCCtx();
    assert_true(zeros != NULL && z != NULL);
    (void)ZSTD_CCtx_setParameter(z, ZSTD_c_windowLog, window_log);
    (void)ZSTD_CCtx_setParameter(z, ZSTD_c_contentSizeFlag, 0);
    ZSTD_inBuffer in = {.src = zeros, .size = n};
    ZSTD_outBuffer out = {archive.bytes, sizeof archive.bytes, archive.n};
    while (in.pos < in.size) // a stream, so that the frame has a window
        assert_false(ZSTD_isError(ZSTD_compressStream2(z, &out, &in, ZSTD_e_continue)));
    assert_int_equal(ZSTD_compressStream2(z, &out, &in, ZSTD_e_end), 0);
    archive.n = out.pos;
    (void)ZSTD_freeCCtx(z);
    free(zeros);
}

static void
a_bomb_is_refused_with_the_ratio(void **state)
{
    struct err e;
    (void)state;
    add_zeros((size_t)64 * ONE_MIB, 0);
    assert_true(archive.n < 8192);
    assert_refused(0, ERR_RESOURCE_EXHAUSTED, "ARCHIVE_TOO_LARGE", "more than 1000 times");
    assert_refused(7, ERR_RESOURCE_EXHAUSTED, "ARCHIVE_TOO_LARGE", "more than 7 times");
    archive.at = 0;
    assert_int_equal(read_all(UINT64_MAX, &e), 64 * ONE_MIB);
}

static void
the_first_mebibyte_is_free(void **state)
{
    struct err e;
    (void)state;
    add_zeros(ONE_MIB, 0);
    assert_int_equal(read_all(1, &e), ONE_MIB);
    archive.n = 0;
    add_zeros((size_t)2 * ONE_MIB, 0);
    assert_refused(1, ERR_RESOURCE_EXHAUSTED, "ARCHIVE_TOO_LARGE", "more than 1 times");
}

static void
a_large_window_is_refused(void **state)
{
    (void)state;
    add_zeros(ONE_MIB, 24);
    assert_refused(0, ERR_RESOURCE_EXHAUSTED, "ARCHIVE_TOO_LARGE", "window of more than 8388608");
}

static void
what_is_no_zstandard_is_refused(void **state)
{
    static const uint8_t others[][8] = {
        {0x1f, 0x8b, 8},               // gzip
        {'u', 's', 't', 'a', 'r'},     //
        {0x25, 0xb5, 0x2f, 0xfd, 1},   // version 0.5, which the library could decode
        {0x27, 0xb5, 0x2f, 0xfd, 1},   // version 0.7
        {0x37, 0xa4, 0x30, 0xec, 1},   // a dictionary
        {0x28, 0xb5, 0x2f, 0xfd, 0x08} // a header with a reserved bit
    };
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        memcpy(archive.bytes, others[i], sizeof others[i]);
        archive.n = sizeof others[i];
        assert_refused(0, ERR_INVALID_ARGUMENT, "ARCHIVE_REFUSED", "decompress an archive");
    }
    archive.n = 0;
    add_zeros(100, 0);
    memcpy(archive.bytes + archive.n, others[2], sizeof others[2]); // behind a good frame
    archive.n += sizeof others[2];
    assert_refused(0, ERR_INVALID_ARGUMENT, "ARCHIVE_REFUSED", "no Zstandard");
}

static void
one_that_ends_early_or_has_a_flipped_bit_is_refused(void **state)
{
    static const struct tar_sink sink = {.write = keep};
    static uint8_t data[100000];
    struct err e;
    (void)state;
    assert_refused(0, ERR_DATA_LOSS, "ARCHIVE_CUT", "after 0 bytes");
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 2654435761U >> 13);
    struct zst_writer *w = zst_writer_new(&sink, &e);
    assert_int_equal(zst_write(w, data, sizeof data, &e), 0);
    assert_int_equal(zst_end(w, &e), 0);
    zst_writer_free(w);
    const size_t whole = archive.n;
    for (archive.n = 1; archive.n < whole; archive.n += whole / 50)
        assert_refused(0, ERR_DATA_LOSS, "ARCHIVE_CUT", "ends early");
    archive.n = whole;
    archive.bytes[whole - 2] ^= 1; // of the checksum
    assert_refused(0, ERR_INVALID_ARGUMENT, "ARCHIVE_REFUSED", "checksum");
}

static void
what_was_written_is_read_again_in_any_pieces(void **state)
{
    static const struct tar_sink sink = {.write = keep};
    static uint8_t data[300000];
    struct err e;
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 2654435761U >> 13);
    for (int frames = 0; frames < 2; frames++) { // concatenated, as `cat a.zst b.zst`
        struct zst_writer *w = zst_writer_new(&sink, &e);
        for (size_t at = 0; at < sizeof data; at += 1000)
            assert_int_equal(zst_write(w, data + at, 1000, &e), 0);
        assert_int_equal(zst_end(w, &e), 0);
        zst_writer_free(w);
    }
    static const size_t steps[] = {1, 3, 1000, ROOM};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        archive.at = 0;
        archive.step = steps[i];
        assert_int_equal(read_all(0, &e), 2 * sizeof data);
        assert_memory_equal(got, data, sizeof data);
        assert_memory_equal(got + sizeof data, data, sizeof data);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_bomb_is_refused_with_the_ratio, setup),
        cmocka_unit_test_setup(the_first_mebibyte_is_free, setup),
        cmocka_unit_test_setup(a_large_window_is_refused, setup),
        cmocka_unit_test_setup(what_is_no_zstandard_is_refused, setup),
        cmocka_unit_test_setup(one_that_ends_early_or_has_a_flipped_bit_is_refused, setup),
        cmocka_unit_test_setup(what_was_written_is_read_again_in_any_pieces, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
