// SPDX-License-Identifier: Apache-2.0
// proto/quantity.c: numbers as a person types them. Reading is tested with client/cli/units.c and the configuration.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/quantity.h"

static const struct {
    const struct quantity_unit *units;
    uint64_t value;
    const char *text;
} rows[] = {
    {quantity_bytes, 0, "0"},
    {quantity_bytes, 1000, "1000"},
    {quantity_bytes, 4096, "4K"},
    {quantity_bytes, UINT64_C(256) << 20, "256M"},
    {quantity_bytes, UINT64_C(1536) << 20, "1536M"},
    {quantity_bytes, UINT64_C(4) << 30, "4G"},
    {quantity_bytes, UINT64_C(2048) << 40, "2048T"},
    {quantity_bytes, (UINT64_C(1) << 62) + 1, "4611686018427387905"},
    {quantity_time_ms, 0, "0s"},
    {quantity_time_ms, 1, "1ms"},
    {quantity_time_ms, 300, "300ms"},
    {quantity_time_ms, 1500, "1.5s"},
    {quantity_time_ms, 60001, "60.001s"},
    {quantity_time_ms, 5000, "5s"},
    {quantity_time_ms, 60000, "1m"},
    {quantity_time_ms, 90000, "90s"},
    {quantity_time_ms, 7200000, "2h"},
    {quantity_time_ms, UINT64_C(172800000), "2d"},
    {quantity_cpu_millis, 50, "0.05"},
    {quantity_cpu_millis, 1000, "1"},
    {quantity_cpu_millis, 1500, "1.5"},
    {quantity_cpu_millis, 64000, "64"},
    {quantity_count, 0, "0"},
    {quantity_count, 1024, "1024"},
    {quantity_count, INT64_MAX, "9223372036854775807"},
};

static void
what_is_written_is_short_and_reads_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[QUANTITY_TEXT];
        uint64_t back = 77;
        assert_string_equal(quantity_write(rows[i].value, rows[i].units, text), rows[i].text);
        assert_int_equal(quantity_read(text, rows[i].units, &back), 0);
        assert_int_equal(back, rows[i].value);
    }
}

static void
the_largest_number_fits(void **state)
{
    (void)state;
    const struct quantity_unit *const all[] = {quantity_bytes, quantity_time_ms,
                                               quantity_cpu_millis, quantity_count};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char text[QUANTITY_TEXT];
        uint64_t back = 0;
        (void)quantity_write(INT64_MAX, all[i], text);
        assert_int_equal(quantity_read(text, all[i], &back), 0);
        assert_int_equal(back, INT64_MAX);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_short_and_reads_back),
        cmocka_unit_test(the_largest_number_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
