// SPDX-License-Identifier: Apache-2.0
// A rate that changes is reported; the first work of an idle job, and noise, are not.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "server/telemetry/activity.h"
#include "server/anomaly/rates.h"

static const double threshold = 60;

static struct rates rates;
static struct activity sums;
static struct rates_shift last;
static uint64_t seed;

static int
set_up(void **state)
{
    (void)state;
    memset(&rates, 0, sizeof rates);
    memset(&sums, 0, sizeof sums);
    memset(&last, 0, sizeof last);
    seed = 1;
    return 0;
}

static uint64_t
noise(uint64_t below)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (seed >> 33) % below;
}

// n ticks in which `figure` grows by about `by`. Returns how many shifts were reported.
static unsigned
ticks(unsigned n, uint64_t *figure, uint64_t by, uint64_t noise_below)
{
    unsigned shifts = 0;
    for (unsigned i = 0; i < n; i++) {
        struct rates_shift out[RATES_N];
        if (figure != NULL)
            *figure += by + (noise_below > 0 ? noise(noise_below) : 0);
        uint32_t found = rates_tick(&rates, &sums, 0, threshold, out);
        assert_in_range(found, 0, RATES_N);
        if (found > 0)
            last = out[0];
        shifts += found;
    }
    return shifts;
}

static void
nothing_is_reported_before_the_first_ticks(void **state)
{
    (void)state;
    assert_int_equal(ticks(RATES_WARM / 2, &sums.execs, 1000000, 0), 0);
    assert_int_equal(ticks(RATES_WARM / 2, &sums.execs, 0, 0), 0);
}

static void
the_first_work_of_an_idle_job_is_not_a_shift(void **state)
{
    (void)state;
    assert_int_equal(ticks(600, NULL, 0, 0), 0);
    // A compiler starts: 20 processes, 40 files and 30,000 calls in 100 ms, for a minute.
    for (int i = 0; i < 600; i++) {
        sums.forks += 20;
        sums.execs += 20;
        sums.opens_write += 40;
        sums.unlinks += 20;
        sums.syscalls += 30000;
        sums.errors[WATCH_MISSING] += 1500;
        sums.cpu_ns += 180000000;
        assert_int_equal(ticks(1, NULL, 0, 0), 0);
    }
}

static void
noise_around_a_mean_is_not_a_shift(void **state)
{
    (void)state;
    assert_int_equal(ticks(20000, &sums.renames, 100, 400), 0);
}

static void
a_rate_that_jumps_is_reported_within_two_seconds(void **state)
{
    (void)state;
    assert_int_equal(ticks(600, &sums.renames, 5, 10), 0);
    unsigned n = 0;
    while (ticks(1, &sums.renames, 1000, 0) == 0)
        assert_in_range(++n, 1, 20);
    assert_string_equal(last.name, "renames");
    assert_int_equal(last.direction, 1);
    assert_true(last.value == 1000);
    assert_true(last.mean < 200);
}

static void
a_rate_that_stops_is_reported_as_a_fall(void **state)
{
    (void)state;
    (void)ticks(2000, &sums.in_bytes, 400000000, 0);
    unsigned n = 0;
    while (ticks(1, NULL, 0, 0) == 0)
        assert_in_range(++n, 1, 40);
    assert_string_equal(last.name, "bytes-in");
    assert_int_equal(last.direction, -1);
}

static void
a_new_level_becomes_usual(void **state)
{
    (void)state;
    (void)ticks(600, &sums.forks, 0, 0);
    assert_true(ticks(300, &sums.forks, 2000, 0) > 0);
    assert_int_equal(ticks(600, &sums.forks, 2000, 0), 0);
}

static void
counters_that_decrease_count_nothing(void **state)
{
    (void)state;
    (void)ticks(200, &sums.forks, 3, 0);
    sums.forks = 0;
    assert_int_equal(ticks(100, &sums.forks, 3, 0), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(nothing_is_reported_before_the_first_ticks, set_up),
        cmocka_unit_test_setup(the_first_work_of_an_idle_job_is_not_a_shift, set_up),
        cmocka_unit_test_setup(noise_around_a_mean_is_not_a_shift, set_up),
        cmocka_unit_test_setup(a_rate_that_jumps_is_reported_within_two_seconds, set_up),
        cmocka_unit_test_setup(a_rate_that_stops_is_reported_as_a_fall, set_up),
        cmocka_unit_test_setup(a_new_level_becomes_usual, set_up),
        cmocka_unit_test_setup(counters_that_decrease_count_nothing, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
