// SPDX-License-Identifier: Apache-2.0
// Builds with AddressSanitizer report leaks, also of a non-dumpable process; other builds report nothing.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/leak.h"

#ifdef LEAK_WITH_ASAN
enum { JUDGES = true };
#else
enum { JUDGES = false };
#endif

enum { BLOCKS = 64, BLOCK_BYTES = 48 };

static void *kept[BLOCKS];

static __attribute__((noinline)) void
allocate(void)
{
    for (int i = 0; i < BLOCKS; i++)
        kept[i] = malloc(BLOCK_BYTES);
}

// Overwrites the stack, so that pointers that allocate() left there do not count as references.
static __attribute__((noinline)) void
clear_stack(void)
{
    volatile char room[4096];
    memset((char *)(uintptr_t)room, 0, sizeof room);
}

// The exit status of a process that is checked at its end, after it has lost its blocks or not.
static int
judged(bool lost)
{
    int status = -1;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
        (void)dup2(null_fd, STDERR_FILENO);
        (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        allocate();
        if (lost)
            memset(kept, 0, sizeof kept);
        clear_stack();
        leak_judge();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void
a_leak_ends_the_process_with_another_status(void **state)
{
    (void)state;
    assert_int_equal(judged(true) != 0, JUDGES);
}

static void
memory_in_use_is_not_a_leak(void **state)
{
    (void)state;
    assert_int_equal(judged(false), 0);
}

static void
allocated_bytes_are_counted(void **state)
{
    (void)state;
    const size_t before = leak_allocated();
    allocate();
    if (JUDGES)
        assert_true(leak_allocated() - before >= BLOCKS * BLOCK_BYTES);
    for (int i = 0; i < BLOCKS; i++)
        free(kept[i]);
    assert_int_equal(leak_allocated(), before);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leak_ends_the_process_with_another_status),
        cmocka_unit_test(memory_in_use_is_not_a_leak),
        cmocka_unit_test(allocated_bytes_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
