// SPDX-License-Identifier: Apache-2.0
// client/cli/units.c: sizes and durations.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/cli/units.h"
#include "proto/quantity.h"

typedef int reader(const char *text, uint64_t *out);

static void
refuses(reader *read, const char *text, int rc)
{
    uint64_t value = 77;
    assert_int_equal(read(text, &value), rc);
    assert_int_equal(value, 77);
}

static void
reads(reader *read, const char *text, uint64_t wanted)
{
    uint64_t value = 0;
    assert_int_equal(read(text, &value), 0);
    assert_int_equal(value, wanted);
}

static void
invalid_numbers_are_refused(void **state)
{
    static const char *const wrong[] = {"",   "-1",  "+1",   " 1",    "1 ",   "K",
                                        ".5", "1.",  "1..5", "1.5.5", "0x10", "1e3",
                                        "1Q", "1kk", "NaN",  "1,5",   "1M "};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        refuses(units_bytes, wrong[i], -EINVAL);
        refuses(units_duration_ms, wrong[i], -EINVAL);
        refuses(units_count, wrong[i], -EINVAL);
        refuses(units_cpu_millis, wrong[i], -EINVAL);
    }
    refuses(units_count, "1.5", -EINVAL);
    refuses(units_count, "1K", -EINVAL);
    refuses(units_bytes, "5s", -EINVAL);
    refuses(units_duration_ms, "5G", -EINVAL);
}

static void
zero_and_what_overflows_are_out_of_range(void **state)
{
    (void)state;
    refuses(units_bytes, "0", -EINVAL);
    refuses(units_bytes, "0K", -EINVAL);
    refuses(units_bytes, "0.0000001K", -EINVAL);
    refuses(units_bytes, "99999999999999999999", -ERANGE);
    refuses(units_bytes, "9999999999T", -ERANGE);
    refuses(units_bytes, "8388608T", -ERANGE);
    refuses(units_duration_ms, "0s", -EINVAL);
    refuses(units_duration_ms, "18446744073709551615d", -ERANGE);
    refuses(units_cpu_millis, "0.0001", -EINVAL);
}

static void
sizes_are_powers_of_1024(void **state)
{
    (void)state;
    reads(units_bytes, "1", 1);
    reads(units_bytes, "512B", 512);
    reads(units_bytes, "64K", 65536);
    reads(units_bytes, "64k", 65536);
    reads(units_bytes, "64KiB", 65536);
    reads(units_bytes, "256M", 268435456);
    reads(units_bytes, "1.5G", 1610612736);
    reads(units_bytes, "0.5K", 512);
    reads(units_bytes, "1T", 1099511627776);
    reads(units_bytes, "8388607T", 9223370937343148032u);
}

static void
durations_are_milliseconds_and_a_number_alone_is_seconds(void **state)
{
    (void)state;
    reads(units_duration_ms, "500ms", 500);
    reads(units_duration_ms, "5s", 5000);
    reads(units_duration_ms, "5", 5000);
    reads(units_duration_ms, "1.5s", 1500);
    reads(units_duration_ms, "0.1", 100);
    reads(units_duration_ms, "2m", 120000);
    reads(units_duration_ms, "1h", 3600000);
    reads(units_duration_ms, "1d", 86400000);
}

static void
cpus_are_thousandths(void **state)
{
    (void)state;
    reads(units_cpu_millis, "0.5", 500);
    reads(units_cpu_millis, "2", 2000);
    reads(units_cpu_millis, "0.01", 10);
    reads(units_cpu_millis, "1.2345", 1234);
}

static void
values_are_shown_with_a_suitable_unit(void **state)
{
    char out[64];
    (void)state;
    assert_string_equal(units_show_bytes(0, out, sizeof out), "0 B");
    assert_string_equal(units_show_bytes(1023, out, sizeof out), "1023 B");
    assert_string_equal(units_show_bytes(1024, out, sizeof out), "1.0 KiB");
    assert_string_equal(units_show_bytes(268435456, out, sizeof out), "256.0 MiB");
    assert_string_equal(units_show_ns(999, out, sizeof out), "0 us");
    assert_string_equal(units_show_ns(12400000, out, sizeof out), "12.4 ms");
    assert_string_equal(units_show_ns(3210000000, out, sizeof out), "3.21 s");
    assert_string_equal(units_show_ns(65000000000, out, sizeof out), "1m 5s");
    assert_string_equal(units_show_age(-5, out, sizeof out), "0s");
    assert_string_equal(units_show_age(119000, out, sizeof out), "119s");
    assert_string_equal(units_show_age(3540000, out, sizeof out), "59m");
    assert_string_equal(units_show_age(3599900, out, sizeof out), "1h");
    assert_string_equal(units_show_age(3660000, out, sizeof out), "61m");
    assert_string_equal(units_show_age(7190000, out, sizeof out), "2h");
    assert_string_equal(units_show_age(7200000, out, sizeof out), "2h");
}

static void
what_a_message_shows_can_be_typed(void **state)
{
    char out[32];
    (void)state;
    assert_string_equal(quantity_show("ttl_ms", 5184000000, out, sizeof out), "60d");
    assert_string_equal(quantity_show("wall_ms", 90000, out, sizeof out), "90s");
    assert_string_equal(quantity_show("wall_ms", 1, out, sizeof out), "1ms");
    assert_string_equal(quantity_show("wall_ms", 0, out, sizeof out), "0s");
    assert_string_equal(quantity_show("memory_bytes", 268435456, out, sizeof out), "256M");
    assert_string_equal(quantity_show("memory_bytes", 1000, out, sizeof out), "1000");
    assert_string_equal(quantity_show("egress_rate", 1024, out, sizeof out), "1K");
    assert_string_equal(quantity_show("cpu_millis", 64000, out, sizeof out), "64");
    assert_string_equal(quantity_show("cpu_millis", 500, out, sizeof out), "0.5");
    assert_string_equal(quantity_show("cpu_millis", 10000, out, sizeof out), "10");
    assert_string_equal(quantity_show("cpu_millis", 0, out, sizeof out), "0");
    assert_string_equal(quantity_show("pids", 1024, out, sizeof out), "1024");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_numbers_are_refused),
        cmocka_unit_test(zero_and_what_overflows_are_out_of_range),
        cmocka_unit_test(sizes_are_powers_of_1024),
        cmocka_unit_test(durations_are_milliseconds_and_a_number_alone_is_seconds),
        cmocka_unit_test(cpus_are_thousandths),
        cmocka_unit_test(values_are_shown_with_a_suitable_unit),
        cmocka_unit_test(what_a_message_shows_can_be_typed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
