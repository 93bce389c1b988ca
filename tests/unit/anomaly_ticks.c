// SPDX-License-Identifier: Apache-2.0
// Tripwires on counters, every 100 ms: mass changes, storms, mining, lists of names, and events that were lost.
#include "tests/harness/anomaly_box.h"

#include <stdlib.h>
#include <sys/syscall.h>

#include "server/sandbox/observers.h"

static struct activity sums;

static void
tick(void)
{
    now_ns += 100 * MS;
    box_tick(&box, &sums, now_ns);
}

static int
set_up_figures(void **state)
{
    memset(&sums, 0, sizeof sums);
    int r = set_up(state);
    tick();
    return r;
}

static void
begin_with_window(void **state, enum anomaly_rule rule, uint64_t window_ms)
{
    memset(&sums, 0, sizeof sums);
    set_up(state);
    policy.rule[rule].window_ms = window_ms;
    tick();
}

// Adds n in ten ticks. Returns how often the rule was raised.
static unsigned
grows(uint64_t *figure, uint64_t n, enum anomaly_rule rule)
{
    unsigned before = raised[rule];
    for (uint64_t i = 0; i < 10; i++) {
        *figure += n / 10 + (i < n % 10 ? 1 : 0);
        tick();
    }
    return raised[rule] - before;
}

static void
masses_are_raised_at_their_threshold_and_not_below(void **state)
{
    (void)state;
    const struct {
        enum anomaly_rule rule;
        uint64_t *figure;
        uint64_t unit;
    } rows[] = {
        {RULE_FORK_STORM, &sums.forks, 1},          {RULE_MASS_RENAME, &sums.renames, 1},
        {RULE_MASS_UNLINK, &sums.unlinks, 1},       {RULE_SIGNAL_STORM, &sums.signals, 1},
        {RULE_LARGE_UPLOAD, &sums.out_bytes, 1024}, {RULE_FORK_RATE, &sums.forks, 1},
        {RULE_MASS_REWRITE, &sums.rewrites, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin_with_window(state, rows[i].rule, 10000);
        uint64_t at = policy.rule[rows[i].rule].threshold * rows[i].unit;
        assert_int_equal(grows(rows[i].figure, at - 1, rows[i].rule), 0);
        begin_with_window(state, rows[i].rule, 10000);
        assert_int_equal(grows(rows[i].figure, at, rows[i].rule), 1);
        assert_int_equal(grows(rows[i].figure, at, rows[i].rule), 0); // idle for a window
        now_ns += 11 * S;
        tick();
        assert_int_equal(grows(rows[i].figure, at, rows[i].rule), 1);
    }
}

static void
lists_of_names_are_raised_from_half_the_limit_and_their_end_always(void **state)
{
    (void)state;
    struct sandbox_lists near = {.bytes = 63, .bytes_max = 128, .folders = 40};
    struct sandbox_lists end = {.bytes = 130, .bytes_max = 128, .folders = 70, .ends = true};
    box_lists(&box, now_ns, &near, 1);
    assert_int_equal(raised[RULE_KERNEL_MEMORY], 0);
    near.bytes = 64;
    box_lists(&box, now_ns, &near, 1);
    box_lists(&box, now_ns, &near, 1);
    assert_int_equal(raised[RULE_KERNEL_MEMORY], 1); // once in its window
    assert_non_null(strstr(said, "nothing was done"));
    box_lists(&box, now_ns, &end, 2);
    assert_int_equal(raised[RULE_KERNEL_MEMORY], 2); // not withheld
    assert_non_null(strstr(said, "(2) have the most folders open, 70: it was destroyed"));
    policy.rule[RULE_KERNEL_MEMORY].enabled = 2;
    box_lists(&box, now_ns, &end, 1);
    assert_int_equal(raised[RULE_KERNEL_MEMORY], 2);
}

static void
activity_before_the_first_tick_counts(void **state)
{
    (void)state;
    set_up(state);
    memset(&sums, 0, sizeof sums);
    sums.renames = policy.rule[RULE_MASS_RENAME].threshold;
    tick();
    assert_int_equal(raised[RULE_MASS_RENAME], 1);
}

static void
slow_changes_are_not_a_mass(void **state)
{
    (void)state;
    for (int i = 0; i < 600; i++) { // 400 in 10 s
        sums.renames += 4;
        tick();
    }
    assert_int_equal(raised[RULE_MASS_RENAME], 0);
}

static void
counters_that_decrease_are_not_a_mass(void **state)
{
    (void)state;
    uint64_t *const figures[] = {&sums.renames, &sums.unlinks, &sums.signals, &sums.out_bytes};
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        *figures[i] = figures[i] == &sums.out_bytes ? 4096 : 10;
        tick();
        *figures[i] = 0;
        tick();
    }
    assert_int_equal(raised[RULE_MASS_RENAME], 0);
    assert_int_equal(raised[RULE_MASS_UNLINK], 0);
    assert_int_equal(raised[RULE_SIGNAL_STORM], 0);
    assert_int_equal(raised[RULE_LARGE_UPLOAD], 0);
}

static void
processes_that_end_are_not_a_storm(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        sums.forks += 90;
        sums.exits += i > 0 ? 90 : 0;
        tick();
    }
    assert_int_equal(raised[RULE_FORK_STORM], 0);
    sums.forks += 60; // 90 and 60 more than before
    tick();
    assert_int_equal(raised[RULE_FORK_STORM], 0);
    sums.forks += 60;
    tick();
    assert_int_equal(raised[RULE_FORK_STORM], 1);
}

static unsigned
burns(unsigned ticks, uint64_t output, uint64_t sent)
{
    for (unsigned i = 0; i < ticks; i++) {
        sums.cpu_ns += 98 * MS;
        sums.output_bytes += output;
        sums.out_bytes += sent;
        tick();
    }
    return raised[RULE_MINING];
}

static void
only_cpu_use_without_other_activity_is_mining(void **state)
{
    (void)state;
    policy.rule[RULE_MINING].window_ms = 5000;
    assert_int_equal(burns(200, 1, 0), 0);
    assert_int_equal(burns(200, 0, 4096), 0);
    for (int i = 0; i < 200; i++) { // busy half of the time
        sums.cpu_ns += 50 * MS;
        tick();
    }
    assert_int_equal(burns(49, 0, 0), 0);
    assert_int_equal(burns(5, 0, 0), 1);
    assert_true(score >= 90);
}

static void
occasional_output_does_not_hide_mining(void **state)
{
    (void)state;
    policy.rule[RULE_MINING].window_ms = 5000;
    for (int i = 0; i < 8; i++) {
        (void)burns(1, 1, 0);
        (void)burns(20, 0, 0);
    }
    assert_in_range(raised[RULE_MINING], 1, 3);
}

static void
a_sandbox_with_a_tenth_of_a_cpu_can_mine_too(void **state)
{
    (void)state;
    policy.rule[RULE_MINING].window_ms = 5000;
    box.cpu_millis = 100;
    for (int i = 0; i < 60; i++) {
        sums.cpu_ns += 10 * MS;
        tick();
    }
    assert_int_equal(raised[RULE_MINING], 1);
}

static void
counted_events_that_did_not_arrive_are_reported_as_lost(void **state)
{
    const struct {
        enum anomaly_rule rule;
        uint64_t *figure;
    } rows[] = {
        {RULE_UNNAMED_EXEC, &sums.memfd_execs},    {RULE_SENSITIVE_PATH, &sums.opens_sensitive},
        {RULE_IO_URING, &sums.io_urings},          {RULE_OOM, &sums.ooms},
        {RULE_DANGEROUS_SYSCALL, &sums.dangerous}, {RULE_NEW_EXECUTABLE, &sums.new_execs},
        {RULE_REMOTE_SHELL, &sums.socket_execs},   {RULE_PRELOADED_LIBRARY, &sums.preloads},
        {RULE_OPEN_LISTENER, &sums.listens},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        set_up_figures(state);
        *rows[i].figure = 3;
        tick(); // its events may arrive in the next 10 ms
        assert_int_equal(raised[rows[i].rule], 0);
        tick();
        assert_int_equal(raised[rows[i].rule], 1);
        assert_non_null(strstr(said, "3 "));
        assert_non_null(strstr(said, "whose events were lost"));
        *rows[i].figure += 100;
        tick();
        tick();
        assert_int_equal(raised[rows[i].rule], 1); // once
        set_up_figures(state);
        *rows[i].figure = 1;
        tick();
        box_settled(&box, now_ns, true); // no more events will come
        assert_int_equal(raised[rows[i].rule], 1);
    }
}

static void
reported_events_are_not_counted_as_lost(void **state)
{
    (void)state;
    struct watch_syscall call = {.number = SYS_io_uring_setup, .result = -1};
    struct watch_open o = {.path_n = 11, .path = "/etc/shadow"};
    exec_path("/proc/self/fd/3", true, BOX_EXE_KNOWN, 1);
    event(EVENT_OOM, NULL, 0);
    event(EVENT_URING, &call, sizeof call);
    event(EVENT_OPEN, &o, sizeof o);
    memset(raised, 0, sizeof raised);
    sums.memfd_execs = sums.ooms = sums.io_urings = sums.opens_sensitive = 1;
    for (int i = 0; i < 5; i++)
        tick();
    box_settled(&box, now_ns, true);
    for (int i = 0; i < ANOMALY_RULES; i++)
        assert_int_equal(raised[i], 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(masses_are_raised_at_their_threshold_and_not_below, set_up_figures),
        cmocka_unit_test_setup(lists_of_names_are_raised_from_half_the_limit_and_their_end_always,
                               set_up_figures),
        cmocka_unit_test_setup(activity_before_the_first_tick_counts, set_up_figures),
        cmocka_unit_test_setup(slow_changes_are_not_a_mass, set_up_figures),
        cmocka_unit_test_setup(counters_that_decrease_are_not_a_mass, set_up_figures),
        cmocka_unit_test_setup(processes_that_end_are_not_a_storm, set_up_figures),
        cmocka_unit_test_setup(only_cpu_use_without_other_activity_is_mining, set_up_figures),
        cmocka_unit_test_setup(occasional_output_does_not_hide_mining, set_up_figures),
        cmocka_unit_test_setup(a_sandbox_with_a_tenth_of_a_cpu_can_mine_too, set_up_figures),
        cmocka_unit_test(counted_events_that_did_not_arrive_are_reported_as_lost),
        cmocka_unit_test_setup(reported_events_are_not_counted_as_lost, set_up_figures),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
