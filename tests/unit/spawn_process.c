// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "server/sandbox/spawn_process.h"
#include "tests/harness/wait.h"

static pid_t child;

// Sleeps until a SIGUSR1, then uses a processor without end.
static int
start_child(void **state)
{
    (void)state;
    sigset_t set;
    int got = 0;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    child = fork();
    if (child == 0) {
        (void)alarm(60);
        (void)sigwait(&set, &got);
        for (volatile unsigned n = 0;; n++)
            continue;
    }
    return child > 0 ? 0 : -1;
}

static int
end_child(void **state)
{
    (void)state;
    (void)kill(child, SIGKILL);
    return waitpid(child, NULL, 0) == child ? 0 : -1;
}

static void
a_process_that_sleeps_does_not_run(void **state)
{
    (void)state;
    uint64_t cpu = 0;
    wait_until("it sleeps", !spawn_process_runs(child, &cpu));
    assert_false(spawn_process_runs(child, &cpu));
}

static void
one_that_is_stopped_does_not_run_whatever_it_used_before(void **state)
{
    (void)state;
    uint64_t cpu = 0;
    (void)kill(child, SIGUSR1);
    wait_until("it has used a processor", spawn_process_runs(child, &cpu) && cpu > 0);
    (void)kill(child, SIGSTOP);
    assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
    (void)spawn_process_runs(child, &cpu); // what it used since
    assert_false(spawn_process_runs(child, &cpu));
    assert_false(spawn_process_runs(child, &cpu));
}

static void
none_does_not_run(void **state)
{
    (void)state;
    uint64_t cpu = 1;
    assert_false(spawn_process_runs(INT32_MAX, &cpu));
}

static void
what_a_stopped_one_used_between_two_looks_is_seen(void **state)
{
    (void)state;
    uint64_t before = 1; // less than it uses
    uint64_t cpu = 0;
    (void)kill(child, SIGUSR1);
    wait_until("it has used a processor", spawn_process_runs(child, &cpu) && cpu > 1);
    (void)kill(child, SIGSTOP);
    assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
    assert_true(spawn_process_runs(child, &before));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_does_not_run),
        cmocka_unit_test_setup_teardown(a_process_that_sleeps_does_not_run, start_child, end_child),
        cmocka_unit_test_setup_teardown(one_that_is_stopped_does_not_run_whatever_it_used_before,
                                        start_child, end_child),
        cmocka_unit_test_setup_teardown(what_a_stopped_one_used_between_two_looks_is_seen,
                                        start_child, end_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
