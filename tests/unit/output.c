// SPDX-License-Identifier: Apache-2.0
// Output: slow readers, no reader, output beyond the limit, and the order of bytes.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "server/sandbox/output.h"

#define SECOND UINT64_C(1000000000)

static uint8_t bytes[OUTPUT_RING_MAX];

// Reads all that a reader can get now; the chunks must be contiguous. Returns the number of bytes; *gaps counts GAP
// chunks.
static uint64_t
read_all(struct output *o, struct output_reader *r, unsigned *gaps, unsigned *limits)
{
    uint64_t n = 0;
    for (;;) {
        struct output_chunk c = output_peek(o, r);
        if (c.kind == OUTPUT_NONE)
            return n;
        assert_int_equal(c.offset, r->offset);
        if (c.kind == OUTPUT_GAP)
            ++*gaps;
        else if (c.kind == OUTPUT_LIMIT)
            ++*limits;
        else
            n += c.n;
        assert_true(c.n <= OUTPUT_CHUNK_MAX);
        output_advance(o, r, &c, 0);
    }
}

static void
a_reader_that_keeps_up_makes_the_job_wait(void **state)
{
    (void)state;
    struct output *o = output_new(UINT64_MAX);
    struct output_reader r = {0};
    unsigned gaps = 0, limits = 0;
    output_join(o, &r, 0);
    assert_int_equal(output_space(o, 0), OUTPUT_RING_MAX);
    output_write(o, OUTPUT_STDOUT, bytes, OUTPUT_RING_MAX - 10, 0);
    assert_int_equal(output_space(o, 0), 10);
    output_write(o, OUTPUT_STDERR, bytes, 10, 0);
    assert_int_equal(output_space(o, 0), 0);
    assert_int_equal(read_all(o, &r, &gaps, &limits), OUTPUT_RING_MAX);
    assert_int_equal(gaps + limits, 0);
    assert_int_equal(output_space(o, 0), OUTPUT_RING_MAX);
    output_leave(&r);
    output_free(o);
}

static void
a_reader_that_stalls_is_not_waited_for_and_finds_a_gap(void **state)
{
    (void)state;
    struct output *o = output_new(UINT64_MAX);
    struct output_reader r = {0};
    unsigned gaps = 0, limits = 0;
    output_join(o, &r, 0);
    // it was idle, which is not a stall
    output_write(o, OUTPUT_STDOUT, bytes, OUTPUT_RING_MAX, 100 * SECOND);
    assert_int_equal(output_space(o, 109 * SECOND), 0);
    assert_int_equal(output_space(o, 110 * SECOND), SIZE_MAX);
    output_write(o, OUTPUT_STDOUT, bytes, 5000, 110 * SECOND);
    assert_int_equal(read_all(o, &r, &gaps, &limits), OUTPUT_RING_MAX);
    assert_int_equal(gaps, 1);
    output_leave(&r);
    output_free(o);
}

static void
a_reader_with_no_timeout_is_waited_for(void **state)
{
    (void)state;
    struct output *o = output_new(UINT64_MAX);
    struct output_reader r = {.no_timeout = true};
    output_join(o, &r, 0);
    output_write(o, OUTPUT_STDOUT, bytes, OUTPUT_RING_MAX, 0);
    assert_int_equal(output_space(o, 1000000 * SECOND), 0);
    output_leave(&r);
    output_free(o);
}

static void
without_readers_the_last_MiB_is_kept(void **state)
{
    (void)state;
    struct output *o = output_new(UINT64_MAX);
    struct output_reader r = {0};
    unsigned gaps = 0, limits = 0;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(output_space(o, 0), SIZE_MAX);
        output_write(o, OUTPUT_STDOUT, bytes, 60000, 0);
    }
    output_join(o, &r, 0);
    struct output_chunk c = output_peek(o, &r);
    assert_int_equal(c.kind, OUTPUT_GAP);
    assert_int_equal(c.missing, 6000000 - OUTPUT_RING_MAX);
    assert_int_equal(read_all(o, &r, &gaps, &limits), OUTPUT_RING_MAX);
    assert_int_equal(r.offset, 6000000);
    output_leave(&r);
    output_free(o);
}

static void
bytes_beyond_the_limit_are_counted_and_reported_once(void **state)
{
    (void)state;
    struct output *o = output_new(1000);
    struct output_reader r = {0};
    unsigned gaps = 0, limits = 0;
    output_join(o, &r, 0);
    output_write(o, OUTPUT_STDOUT, bytes, 900, 0);
    output_write(o, OUTPUT_STDERR, bytes, 200, 0);
    assert_int_equal(output_space(o, 0), SIZE_MAX); // the job continues
    output_write(o, OUTPUT_STDOUT, bytes, 50000, 0);
    assert_int_equal(output_total(o), 51100);
    assert_int_equal(output_cut(o), 50100);
    assert_int_equal(read_all(o, &r, &gaps, &limits), 1000);
    assert_int_equal(limits, 1);
    assert_int_equal(gaps, 0);
    output_leave(&r);
    output_free(o);
}

static void
after_the_jobs_end_the_rest_of_its_pipes_fits(void **state)
{
    (void)state;
    struct output *o = output_new(UINT64_MAX);
    struct output_reader r = {.no_timeout = true};
    unsigned gaps = 0, limits = 0;
    output_join(o, &r, 0);
    output_write(o, OUTPUT_STDOUT, bytes, OUTPUT_RING_MAX, 0);
    output_final(o);
    assert_int_equal(output_space(o, 0), OUTPUT_FINAL_MAX - OUTPUT_RING_MAX);
    output_write(o, OUTPUT_STDOUT, bytes, OUTPUT_RING_MAX, 0);
    output_write(o, OUTPUT_STDERR, bytes, OUTPUT_RING_MAX, 0);
    assert_int_equal(read_all(o, &r, &gaps, &limits), 3 * OUTPUT_RING_MAX);
    assert_int_equal(gaps, 0);
    output_leave(&r);
    output_free(o);
}

// A deterministic generator, so that each run of the test is the same.
static uint32_t
next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

// Writes pieces of random sizes and streams while three readers read random amounts, and compares each byte and its
// stream with a plain copy.
static void
every_byte_comes_out_in_order_with_its_stream(void **state)
{
    (void)state;
    enum { TOTAL = 5000000 };
    uint8_t *all = malloc(TOTAL), *stream = malloc(TOTAL);
    struct output *o = output_new(UINT64_MAX);
    struct output_reader r[3] = {{.no_timeout = true}, {.no_timeout = true}, {.no_timeout = true}};
    uint32_t seed = 7;
    uint64_t end = 0;
    for (int i = 0; i < 3; i++)
        output_join(o, &r[i], 0);
    while (end < TOTAL || r[0].offset < end || r[1].offset < end || r[2].offset < end) {
        size_t space = output_space(o, 0);
        size_t n = next_random(&seed) % (next_random(&seed) % 4 == 0 ? 70000 : 3);
        n = n > space ? space : n;
        n = n > TOTAL - end ? TOTAL - end : n;
        enum output_stream s = next_random(&seed) % 2 == 0 ? OUTPUT_STDOUT : OUTPUT_STDERR;
        for (size_t i = 0; i < n; i++) {
            all[end + i] = (uint8_t)next_random(&seed);
            stream[end + i] = (uint8_t)s;
        }
        output_write(o, s, all + end, n, 0);
        end += n;
        struct output_reader *who = &r[next_random(&seed) % 3];
        struct output_chunk c = output_peek(o, who);
        if (c.kind == OUTPUT_NONE)
            continue;
        assert_int_equal(c.kind, OUTPUT_DATA);
        assert_memory_equal(c.data, all + c.offset, c.n);
        for (size_t i = 0; i < c.n; i++)
            assert_int_equal(stream[c.offset + i], c.stream);
        output_advance(o, who, &c, 0);
    }
    for (int i = 0; i < 3; i++)
        output_leave(&r[i]);
    output_free(o);
    free(all);
    free(stream);
}

static size_t left;

static bool
take(void *cookie, size_t n)
{
    (void)cookie;
    if (n > left)
        return false;
    left -= n;
    return true;
}

static void
give(void *cookie, size_t n)
{
    (void)cookie;
    left += n;
}

static void
with_a_used_up_share_a_job_has_the_smallest_room(void **state)
{
    (void)state;
    static const struct output_share share = {take, give, NULL};
    struct output *o = output_new(UINT64_MAX);
    struct output_reader r = {.no_timeout = true};
    unsigned gaps = 0, limits = 0;
    output_charge(o, &share);
    output_join(o, &r, 0);
    left = 0;
    assert_int_equal(output_make_room(o, 5000, 0), 4096);
    left = 10000;
    assert_int_equal(output_make_room(o, 4000, 0), 4000);
    output_write(o, OUTPUT_STDOUT, bytes, 4000, 0);
    assert_int_equal(output_make_room(o, 5000, 0),
                     96); // 4096, and it cannot hold both buffers while it grows
    assert_int_equal(read_all(o, &r, &gaps, &limits), 4000);
    assert_int_equal(output_make_room(o, 5000, 0), 4096);
    left = 20000;
    assert_int_equal(output_make_room(o, 5000, 0), 5000);
    output_leave(&r);
    output_free(o);
    assert_int_equal(gaps + limits, 0);
    assert_int_equal(left, 20000); // everything was given back
}

// As a job writes: it makes room for a whole read each time.
static void
write_as_a_job(struct output *o, size_t n)
{
    enum { READ_MAX = 64 * 1024 };
    uint32_t seed = 3;
    for (size_t at = 0; at < n;) {
        const size_t part = 1 + next_random(&seed) % 5000, some = n - at < part ? n - at : part;
        const size_t room = output_make_room(o, READ_MAX, 0);
        assert_true(room >= some);
        output_write(o, at % 2 == 0 ? OUTPUT_STDOUT : OUTPUT_STDERR, bytes + at, some, 0);
        at += some;
    }
}

static void
of_what_has_ended_little_more_is_counted_than_its_bytes(void **state)
{
    static const struct output_share share = {take, give, NULL};
    static const size_t sizes[] = {0, 1, 5000, 65536, 65537, 200000, 1000000};
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i ^ i >> 8);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const size_t n = sizes[i], most = n > 4096 ? n + n / 5 : 4096 + 4096 / 8;
        struct output *o = output_new(UINT64_MAX);
        struct output_reader early = {.no_timeout = true}, late = {.no_timeout = true};
        left = 10 << 20;
        output_charge(o, &share);
        output_join(o, &early, 0);
        (void)output_make_room(o, 1, 0);
        write_as_a_job(o, n);
        output_trim(o);
        assert_true((10 << 20) - left <= most);
        output_join(o, &late, 0);
        for (struct output_chunk c; (c = output_peek(o, &late)).kind != OUTPUT_NONE;) {
            assert_int_equal(c.kind, OUTPUT_DATA);
            assert_memory_equal(c.data, bytes + c.offset, c.n);
            output_advance(o, &late, &c, 0);
        }
        assert_int_equal(late.offset, n);
        output_leave(&late);
        output_leave(&early);
        output_free(o);
        assert_int_equal(left, 10 << 20); // everything was given back
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_that_keeps_up_makes_the_job_wait),
        cmocka_unit_test(with_a_used_up_share_a_job_has_the_smallest_room),
        cmocka_unit_test(a_reader_that_stalls_is_not_waited_for_and_finds_a_gap),
        cmocka_unit_test(a_reader_with_no_timeout_is_waited_for),
        cmocka_unit_test(without_readers_the_last_MiB_is_kept),
        cmocka_unit_test(bytes_beyond_the_limit_are_counted_and_reported_once),
        cmocka_unit_test(after_the_jobs_end_the_rest_of_its_pipes_fits),
        cmocka_unit_test(every_byte_comes_out_in_order_with_its_stream),
        cmocka_unit_test(of_what_has_ended_little_more_is_counted_than_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
