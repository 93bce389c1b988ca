// SPDX-License-Identifier: Apache-2.0
// client/cli/interrupt.c: the signals of a command that has something to remove.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/cli/interrupt.h"

enum { NOBODY = 65534, NOT_REFUSED = 3, NOT_ENDED = 4 };

// No threads for this process: root is exempt from the limit.
static void
interrupt_without_threads(void)
{
    pthread_t thread;
    const struct rlimit none = {0, 0};
    (void)signal(SIGINT, SIG_DFL);
    if (setrlimit(RLIMIT_NPROC, &none) < 0 || (geteuid() == 0 && setuid(NOBODY) < 0) ||
        interrupt_watch(NULL, &thread))
        _exit(NOT_REFUSED);
    (void)raise(SIGINT);
    _exit(NOT_ENDED);
}

static void
without_its_thread_a_signal_ends_the_command(void **state)
{
    (void)state;
    int status = 0;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        interrupt_without_threads();
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGINT);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_its_thread_a_signal_ends_the_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
