// SPDX-License-Identifier: Apache-2.0
// How the file of a job's command is found.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/guest/path.h"

static char folder[64];

// Executes in a child. Returns the result of guest_path_exec, or 1000 + the exit code of the program.
static int
try_exec(const char *name, const char *path)
{
    char env_path[256];
    (void)snprintf(env_path, sizeof env_path, "PATH=%s", path);
    char *env[] = {env_path, NULL};
    char command[128];
    (void)snprintf(command, sizeof command, "%s", name);
    char *args[] = {NULL, command, (char[]){"7"}, NULL};
    int report[2];
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int rc = guest_path_exec(args + 1, env);
        (void)!write(report[1], &rc, sizeof rc);
        _exit(0);
    }
    (void)close(report[1]);
    int rc = 0;
    ssize_t n = read(report[0], &rc, sizeof rc);
    (void)close(report[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return n == (ssize_t)sizeof rc ? rc : 1000 + WEXITSTATUS(status);
}

static void
put(const char *name, const char *text, mode_t mode)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void
a_missing_file_is_not_found(void **state)
{
    (void)state;
    assert_int_equal(try_exec("no-such-program", "/usr/bin:/bin"), -ENOENT);
    assert_int_equal(try_exec("", "/usr/bin:/bin"), -ENOENT);
    assert_int_equal(try_exec("/no/such/program", "/usr/bin"), -ENOENT);
    assert_int_equal(try_exec("true", "/etc/passwd:/nowhere"), -ENOENT);
}

static void
a_file_without_permission_is_reported_if_no_other_is_found(void **state)
{
    (void)state;
    put("plain", "exit 0\n", 0644);
    char path[128];
    (void)snprintf(path, sizeof path, "%s:/nowhere", folder);
    assert_int_equal(try_exec("plain", path), -EACCES);
    put("true", "exit 9\n", 0644);
    (void)snprintf(path, sizeof path, "%s:/usr/bin:/bin", folder);
    assert_int_equal(try_exec("true", path), 1000);
}

static void
the_exit_code_says_whether_it_was_found(void **state)
{
    (void)state;
    assert_int_equal(guest_path_exit_code(-ENOENT), 127);
    assert_int_equal(guest_path_exit_code(-ENOTDIR), 127);
    assert_int_equal(guest_path_exit_code(-EACCES), 126);
    assert_int_equal(guest_path_exit_code(-E2BIG), 126);
}

static void
a_candidate_that_is_too_long_is_skipped(void **state)
{
    (void)state;
    const char *rest = "/aaaaaaaaaaaaaaaaaaaaaaaaaaaa:/b";
    char out[8];
    assert_int_equal(guest_path_next("x", &rest, out, sizeof out), 1);
    assert_string_equal(out, "/b/x");
    assert_int_equal(guest_path_next("x", &rest, out, sizeof out), 0);
}

static void
candidates_come_in_the_order_of_path(void **state)
{
    (void)state;
    static const char *const wanted[] = {"/a/x", "x", "/b/x", "x"};
    const char *rest = "/a::/b:";
    char out[64];
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(guest_path_next("x", &rest, out, sizeof out), 1);
        assert_string_equal(out, wanted[i]);
    }
    assert_int_equal(guest_path_next("x", &rest, out, sizeof out), 0);
}

static void
a_name_with_a_slash_is_not_searched(void **state)
{
    (void)state;
    const char *rest = "/a:/b";
    char out[64];
    assert_int_equal(guest_path_next("./x", &rest, out, sizeof out), 1);
    assert_string_equal(out, "./x");
    assert_int_equal(guest_path_next("./x", &rest, out, sizeof out), 0);
}

static void
the_path_is_the_jobs_or_the_default(void **state)
{
    (void)state;
    char *with[] = {(char[]){"A=1"}, (char[]){"PATH=/x"}, NULL};
    char *without[] = {(char[]){"A=1"}, (char[]){"PATHS=/x"}, NULL};
    assert_string_equal(guest_path_of(with), "/x");
    assert_non_null(strstr(guest_path_of(without), "/usr/bin"));
}

static void
a_script_without_a_first_line_goes_to_sh(void **state)
{
    (void)state;
    put("script", "exit $1\n", 0755);
    assert_int_equal(try_exec("script", folder), 1007);
}

static int
setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/stockade-path-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int
teardown(void **state)
{
    (void)state;
    static const char *const names[] = {"plain", "true", "script"};
    char path[128];
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    return rmdir(folder);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_file_is_not_found),
        cmocka_unit_test(a_file_without_permission_is_reported_if_no_other_is_found),
        cmocka_unit_test(the_exit_code_says_whether_it_was_found),
        cmocka_unit_test(a_candidate_that_is_too_long_is_skipped),
        cmocka_unit_test(candidates_come_in_the_order_of_path),
        cmocka_unit_test(a_name_with_a_slash_is_not_searched),
        cmocka_unit_test(the_path_is_the_jobs_or_the_default),
        cmocka_unit_test(a_script_without_a_first_line_goes_to_sh),
    };
    return cmocka_run_group_tests_name("guest_path", tests, setup, teardown);
}
