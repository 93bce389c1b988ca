// SPDX-License-Identifier: Apache-2.0
// The token bucket of forks.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "server/sandbox/fork_rate.h"

enum { RATE = 1000, LOOK_MS = 10 };
static const uint64_t MS = 1000000;

static void
a_burst_of_two_seconds_is_free(void **state)
{
    (void)state;
    struct fork_rate f = {.looked_ns = 0};
    assert_false(fork_rate_add(&f, RATE, 2000, 1));
    assert_true(fork_rate_add(&f, RATE, 1, 1));
}

static void
a_sandbox_within_the_rate_is_never_stopped(void **state)
{
    (void)state;
    struct fork_rate f = {.looked_ns = 0};
    for (uint64_t i = 1; i < 100000; i++)
        assert_false(fork_rate_add(&f, RATE, RATE * LOOK_MS / 1000, i * LOOK_MS * MS));
}

// While stopped, no task starts; otherwise ten times the rate.
static void
a_storm_is_cut_to_the_rate(void **state)
{
    (void)state;
    struct fork_rate f = {.looked_ns = 0};
    uint64_t began = 0;
    uint64_t longest = 0;
    uint64_t held = 0;
    enum { LOOKS = 6000 };
    for (uint64_t i = 1; i <= LOOKS; i++) {
        uint64_t n = f.held ? 0 : 10 * RATE * LOOK_MS / 1000;
        began += n;
        f.held = fork_rate_add(&f, RATE, n, i * LOOK_MS * MS);
        held = f.held ? held + LOOK_MS : 0;
        longest = held > longest ? held : longest;
    }
    uint64_t seconds = LOOKS * LOOK_MS / 1000;
    assert_in_range(began, RATE * seconds, RATE * (seconds + 3));
    assert_true(longest <= 200); // milliseconds
}

static void
no_sandbox_is_stopped_for_long(void **state)
{
    (void)state;
    struct fork_rate f = {.looked_ns = 0, .held = true};
    assert_true(fork_rate_add(&f, RATE, UINT64_MAX / 2, 1));
    assert_false(fork_rate_add(&f, RATE, 0, 1100 * MS));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_of_two_seconds_is_free),
        cmocka_unit_test(a_sandbox_within_the_rate_is_never_stopped),
        cmocka_unit_test(a_storm_is_cut_to_the_rate),
        cmocka_unit_test(no_sandbox_is_stopped_for_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
