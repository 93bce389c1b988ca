// SPDX-License-Identifier: Apache-2.0
// A static program with the guest's sanitizer: undefined behaviour ends it with SIGILL. The guest itself has none that a
// test could cause.
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

// Returns the wait status of a child that shifts a number of 32 bits by this many.
static int
status_of_shift(int bits)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        volatile int n = bits;
        n = 1 << n; // NOLINT: undefined on purpose
        _exit(n != 1 << 3);
    }
    return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

int
main(void)
{
    int defined = status_of_shift(3);
    int undefined = status_of_shift(40);
    (void)printf("wait status: %#x, of undefined behaviour %#x\n", (unsigned)defined,
                 (unsigned)undefined);
    return defined == 0 && WIFSIGNALED(undefined) && WTERMSIG(undefined) == SIGILL ? 0 : 1;
}
