// SPDX-License-Identifier: Apache-2.0
// Findings are per job and expire with their window, and a response is repeated even if the finding is not reported
// again.
#include "tests/harness/anomaly_box.h"

#include <sys/syscall.h>

static struct activity sums;
static struct box_job jobs[3];

static int
set_up_jobs(void **state)
{
    memset(&sums, 0, sizeof sums);
    memset(jobs, 0, sizeof jobs);
    int r = set_up(state);
    for (uint32_t i = 0; i < 3; i++) {
        jobs[i].number = i + 1;
        box_job_begin(&box, &jobs[i]);
    }
    return r;
}

static void
tick(void)
{
    now_ns += 100 * MS;
    box_tick(&box, &sums, now_ns);
}

static void
call_ptrace(struct box_job *j)
{
    const struct watch_syscall call = {.number = SYS_ptrace};
    enter(j);
    event(EVENT_DANGEROUS, &call, sizeof call);
}

static void
rename_files(struct box_job *j, uint64_t n)
{
    j->now.renames += n;
    sums.renames += n;
    tick();
}

static void
the_same_thing_is_found_again_after_the_window(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        call_ptrace(NULL);
    assert_int_equal(raised[RULE_DANGEROUS_SYSCALL], 1);
    now_ns += 59 * S;
    call_ptrace(NULL);
    assert_int_equal(raised[RULE_DANGEROUS_SYSCALL], 1);
    now_ns += 75 * S;
    call_ptrace(NULL);
    call_ptrace(NULL);
    assert_int_equal(raised[RULE_DANGEROUS_SYSCALL], 2);
}

static void
the_same_thing_is_found_in_each_job(void **state)
{
    (void)state;
    for (uint32_t again = 0; again < 3; again++)
        for (uint32_t i = 0; i < 3; i++) {
            call_ptrace(&jobs[i]);
            assert_int_equal(raised[RULE_DANGEROUS_SYSCALL], again == 0 ? i + 1 : 3);
            assert_int_equal(about, again == 0 ? i + 1 : 3);
        }
    for (uint8_t host = 0; host < 8; host++)
        for (size_t i = 0; i < 2; i++) {
            enter(&jobs[i]);
            dial(EVENT_DENIED, (uint8_t)(100 * i + host), 22);
        }
    assert_int_equal(raised[RULE_DENIED_FAN_OUT],
                     2); // one for each job, and the sandbox's with the first
}

static void
a_mass_belongs_to_the_job_that_made_it(void **state)
{
    (void)state;
    rename_files(&jobs[1], policy.rule[RULE_MASS_RENAME].threshold);
    assert_int_equal(raised[RULE_MASS_RENAME], 1);
    assert_int_equal(about, 2);
    rename_files(&jobs[0], policy.rule[RULE_MASS_RENAME].threshold - 1);
    assert_int_equal(raised[RULE_MASS_RENAME], 1);
    rename_files(&jobs[0], 1);
    assert_int_equal(raised[RULE_MASS_RENAME], 2);
    assert_int_equal(about, 1);
}

static void
a_mass_that_is_spread_over_jobs_is_one_of_the_sandbox(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++)
        rename_files(&jobs[i], policy.rule[RULE_MASS_RENAME].threshold / 3 + 1);
    assert_int_equal(raised[RULE_MASS_RENAME], 1);
    assert_int_equal(about, 0);
}

static void
an_upload_is_found_in_a_job_that_begins_within_the_window(void **state)
{
    (void)state;
    uint64_t at = policy.rule[RULE_LARGE_UPLOAD].threshold << 10;
    box_job_end(&jobs[1]);
    box_job_end(&jobs[2]);
    for (unsigned i = 1; i <= 3; i++) {
        sums.out_bytes += at - 1024;
        tick();
        assert_int_equal(raised[RULE_LARGE_UPLOAD], i - 1);
        sums.out_bytes += 1024;
        tick();
        assert_int_equal(raised[RULE_LARGE_UPLOAD], i);
        box_job_end(&jobs[0]); // the next one
        jobs[0] = (struct box_job){.number = 10 + i};
        box_job_begin(&box, &jobs[0]);
        tick();
        assert_int_equal(raised[RULE_LARGE_UPLOAD], i);
    }
}

static void
regular_connections_are_found_in_each_job(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        now_ns += 10 * S;
        enter(&jobs[0]);
        dial(EVENT_DENIED, 3, 443);
    }
    assert_int_equal(raised[RULE_BEACONING], 1);
    for (int i = 0; i < 7; i++) {
        now_ns += 10 * S;
        enter(&jobs[1]);
        dial(EVENT_DENIED, 3, 443);
    }
    assert_int_equal(raised[RULE_BEACONING], 1);
    now_ns += 10 * S;
    dial(EVENT_DENIED, 3, 443);
    assert_int_equal(raised[RULE_BEACONING], 2);
    assert_int_equal(about, 2);
}

static void
lost_events_belong_to_the_job_with_the_counter(void **state)
{
    (void)state;
    enter(&jobs[0]);
    exec_path("/proc/self/fd/3", true, BOX_EXE_KNOWN, 1);
    memset(raised, 0, sizeof raised);
    jobs[0].now.memfd_execs = 1; // this one was reported
    jobs[2].now.memfd_execs = 4; // this one was not
    sums.memfd_execs = 5;
    tick();
    tick();
    assert_int_equal(raised[RULE_UNNAMED_EXEC], 1);
    assert_int_equal(about, 3);
    assert_non_null(strstr(said, "4 files"));
}

static void
a_response_is_repeated_without_another_report(void **state)
{
    (void)state;
    policy.rule[RULE_DANGEROUS_SYSCALL].response = RESPONSE_PAUSE;
    policy.rule[RULE_MASS_RENAME].response = RESPONSE_PAUSE;
    policy.rule[RULE_DENIED_FAN_OUT].response = RESPONSE_PAUSE;
    policy.rule[RULE_LARGE_UPLOAD].response = RESPONSE_PAUSE;
    for (unsigned i = 1; i <= 100; i++) {
        call_ptrace(&jobs[0]);
        assert_int_equal(answered[RULE_DANGEROUS_SYSCALL], i);
    }
    assert_int_equal(raised[RULE_DANGEROUS_SYSCALL], 1);
    rename_files(&jobs[0], policy.rule[RULE_MASS_RENAME].threshold);
    unsigned so_far = answered[RULE_MASS_RENAME];
    tick(); // nothing new
    assert_int_equal(answered[RULE_MASS_RENAME], so_far);
    rename_files(&jobs[0], 1);
    assert_in_range(answered[RULE_MASS_RENAME], so_far + 1, so_far + 2);
    assert_int_equal(raised[RULE_MASS_RENAME], 1);
    for (uint8_t host = 0; host < 20; host++) {
        enter(&jobs[1]);
        dial(EVENT_DENIED, host, 22);
    }
    assert_int_equal(answered[RULE_DENIED_FAN_OUT], 13);
    assert_int_equal(raised[RULE_DENIED_FAN_OUT], 1);
    sums.out_bytes += policy.rule[RULE_LARGE_UPLOAD].threshold << 10;
    tick();
    sums.out_bytes += 1024;
    tick();
    tick();
    assert_int_equal(answered[RULE_LARGE_UPLOAD], 2);
    assert_int_equal(raised[RULE_LARGE_UPLOAD], 1);
}

static void
findings_beyond_the_burst_are_counted_and_their_response_is_carried_out(void **state)
{
    (void)state;
    policy.rule[RULE_NEW_EXECUTABLE].response = RESPONSE_KILL;
    enter(&jobs[0]);
    for (uint64_t i = 0; i < 100; i++)
        exec_path("/tmp/x", false, BOX_EXE_NEW, i + 1);
    assert_int_equal(raised[RULE_NEW_EXECUTABLE], BOX_FINDINGS_BURST);
    assert_int_equal(counted[RULE_NEW_EXECUTABLE], 100 - BOX_FINDINGS_BURST);
    assert_int_equal(answered[RULE_NEW_EXECUTABLE], 100);
    enter(&jobs[1]); // findings of one job do not suppress those of another
    exec_path("/tmp/y", false, BOX_EXE_NEW, 1000);
    exec_path("/tmp/y", false, BOX_EXE_NEW, 1001);
    assert_int_equal(raised[RULE_NEW_EXECUTABLE], BOX_FINDINGS_BURST + 2);
}

static void
an_alert_is_not_repeated(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++)
        call_ptrace(&jobs[0]);
    assert_int_equal(answered[RULE_DANGEROUS_SYSCALL], 1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_same_thing_is_found_again_after_the_window, set_up_jobs),
        cmocka_unit_test_setup(the_same_thing_is_found_in_each_job, set_up_jobs),
        cmocka_unit_test_setup(a_mass_belongs_to_the_job_that_made_it, set_up_jobs),
        cmocka_unit_test_setup(a_mass_that_is_spread_over_jobs_is_one_of_the_sandbox, set_up_jobs),
        cmocka_unit_test_setup(an_upload_is_found_in_a_job_that_begins_within_the_window,
                               set_up_jobs),
        cmocka_unit_test_setup(regular_connections_are_found_in_each_job, set_up_jobs),
        cmocka_unit_test_setup(lost_events_belong_to_the_job_with_the_counter, set_up_jobs),
        cmocka_unit_test_setup(a_response_is_repeated_without_another_report, set_up_jobs),
        cmocka_unit_test_setup(
            findings_beyond_the_burst_are_counted_and_their_response_is_carried_out, set_up_jobs),
        cmocka_unit_test_setup(an_alert_is_not_repeated, set_up_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
