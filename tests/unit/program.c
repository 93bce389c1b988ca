// SPDX-License-Identifier: Apache-2.0
// A program starts with exactly the named descriptors, or the caller gets the reason of the failure.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/program.h"

enum { OUTPUT_MAX = 4096 };

static void
fails(const struct program_start *s, int sys, const char *text)
{
    struct err e = {0};
    pid_t pid = 7;
    assert_int_equal(program_start(s, &pid, &e), -sys);
    assert_int_equal(e.sys, sys);
    assert_non_null(strstr(e.text, text));
    assert_int_equal(pid, 7);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); // nothing is left
    assert_int_equal(errno, ECHILD);
}

static void
a_missing_program_is_reported(void **state)
{
    (void)state;
    const struct program_start s = {.path = "/nonexistent/program", .name = "x"};
    fails(&s, ENOENT, "start /nonexistent/program: ");
    const struct program_start no_program = {.path = "/etc/passwd", .name = "x"};
    fails(&no_program, EACCES, "start /etc/passwd: ");
}

static void
a_descriptor_that_is_not_open_is_reported(void **state)
{
    (void)state;
    const struct program_start s = {
        .path = "/bin/cat", .name = "cat", .fds = {{1, 0}, {900, 3}}, .fds_n = 2};
    fails(&s, EBADF, "start /bin/cat: ");
}

static bool
refuse(void *cookie)
{
    errno = *(int *)cookie;
    return false;
}

static void
the_error_of_a_step_in_the_child_is_reported(void **state)
{
    (void)state;
    int sys = EXDEV;
    fails(
        &(struct program_start){.path = "/bin/cat", .name = "c", .before = refuse, .cookie = &sys},
        EXDEV, "start /bin/cat");
    fails(&(struct program_start){.path = "/bin/cat", .name = "c", .last = refuse, .cookie = &sys},
          EXDEV, "start /bin/cat");
}

static void
read_all(int fd, char *out, size_t n)
{
    size_t at = 0;
    ssize_t got = 0;
    while (at + 1 < n && (got = read(fd, out + at, n - 1 - at)) > 0)
        at += (size_t)got;
    out[at] = '\0';
}

// Runs a shell with this script.
static void
run(const char *script, char *out)
{
    int in[2];
    int result[2];
    struct err e;
    pid_t pid = -1;
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(result, O_CLOEXEC), 0);
    const struct program_start s = {.path = "/bin/sh",
                                    .name = "the-name",
                                    .fds = {{in[0], 0}, {result[1], 1}, {result[1], 4}},
                                    .fds_n = 3};
    if (program_start(&s, &pid, &e) < 0)
        fail_msg("%s", e.text);
    (void)close(in[0]);
    (void)close(result[1]);
    assert_int_equal(write(in[1], script, strlen(script)), (ssize_t)strlen(script));
    (void)close(in[1]);
    read_all(result[0], out, OUTPUT_MAX);
    (void)close(result[0]);
    program_wait(pid);
}

static void
the_program_has_the_descriptors_that_are_named_and_stderr(void **state)
{
    (void)state;
    static char out[OUTPUT_MAX];
    int inherited = dup(0); // as inherited without CLOEXEC
    run("for n in 0 1 2 3 4 5 6 7 8 9 10 11; do [ -e /proc/$$/fd/$n ] && echo $n; done", out);
    (void)close(inherited);
    assert_string_equal(out, "0\n1\n2\n4\n");
}

static void
the_program_has_no_environment_and_no_blocked_signal(void **state)
{
    (void)state;
    static char out[OUTPUT_MAX];
    sigset_t all;
    sigset_t was;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &was);
    run("tr '\\0' '\\n' < /proc/$$/environ; grep SigBlk /proc/self/status; cat /proc/$$/cmdline",
        out);
    (void)sigprocmask(SIG_SETMASK, &was, NULL);
    assert_string_equal(out, "SigBlk:\t0000000000000000\nthe-name");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_program_is_reported),
        cmocka_unit_test(a_descriptor_that_is_not_open_is_reported),
        cmocka_unit_test(the_error_of_a_step_in_the_child_is_reported),
        cmocka_unit_test(the_program_has_the_descriptors_that_are_named_and_stderr),
        cmocka_unit_test(the_program_has_no_environment_and_no_blocked_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
