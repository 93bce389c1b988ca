// SPDX-License-Identifier: Apache-2.0
// See program.h.
#include "program.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "auto.h"

// FAILED_FD: the pipe during exec. COPIES_FD: descriptors are first copied to numbers from here on, so that no move
// closes another one.
enum { FAILED_FD = PROGRAM_FDS_MAX, COPIES_FD = 16 };

static bool
move(int copy, int to, int flags)
{
    return copy >= 0 && dup3(copy, to, flags) >= 0;
}

// A failed copy is detected after all were tried: the copies are above all final numbers.
static bool
set_descriptors(const struct program_start *s, int failed_fd)
{
    int copies[PROGRAM_FDS_MAX];
    const int failed = fcntl(failed_fd, F_DUPFD_CLOEXEC, COPIES_FD);
    for (size_t i = 0; i < s->fds_n; i++)
        copies[i] = fcntl(s->fds[i].from, F_DUPFD_CLOEXEC, COPIES_FD);
    if (!move(failed, FAILED_FD, O_CLOEXEC))
        return false;
    for (size_t i = 0; i < s->fds_n; i++) {
        if (!move(copies[i], s->fds[i].to, 0))
            return false;
    }
    return true;
}

// Closes all descriptors that are not passed on, except stderr.
static bool
close_others(const struct program_start *s)
{
    for (int fd = 0; fd < PROGRAM_FDS_MAX; fd++) {
        bool has_stderr = fd == STDERR_FILENO;
        for (size_t i = 0; i < s->fds_n; i++)
            has_stderr = has_stderr || s->fds[i].to == fd;
        if (!has_stderr)
            (void)close(fd);
    }
    return syscall(SYS_close_range, FAILED_FD + 1, ~0U, 0) == 0;
}

static __attribute__((noreturn)) void
child_main(const struct program_start *s, int failed_fd)
{
    char *const argv[] = {(char *)(uintptr_t)s->name, NULL};
    char *const envp[] = {NULL};
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if ((s->before == NULL || s->before(s->cookie)) && set_descriptors(s, failed_fd)) {
        failed_fd = FAILED_FD;
        // The program is opened before `last`, which may change to a user who cannot reach its path.
        const int program = close_others(s) ? open(s->path, O_PATH | O_CLOEXEC) : -1;
        if (program >= 0 && (s->last == NULL || s->last(s->cookie)))
            (void)syscall(SYS_execveat, program, "", argv, envp, AT_EMPTY_PATH);
    }
    const int sys = errno;
    (void)!write(failed_fd, &sys, sizeof sys);
    _exit(70);
}

void
program_wait(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

// 0: exec succeeded; otherwise the child's errno.
static int
read_failure(int fd)
{
    int sys = 0;
    ssize_t n = 0;
    do
        n = read(fd, &sys, sizeof sys);
    while (n < 0 && errno == EINTR);
    return n == 0 ? 0 : n == (ssize_t)sizeof sys && sys > 0 ? sys : EIO;
}

int
program_start(const struct program_start *s, pid_t *pid, struct err *e)
{
    int failed[2];
    assert(s->fds_n <= PROGRAM_FDS_MAX);
    if (pipe2(failed, O_CLOEXEC) < 0)
        return err_sys(e, errno, "start %s: make a pipe", s->path);
    int auto_close failed_read = failed[0];
    int auto_close failed_write = failed[1];
    pid_t child = fork();
    if (child == 0)
        child_main(s, failed_write);
    if (child < 0)
        return err_sys(e, errno, "start %s: fork", s->path);
    (void)close(take_fd(&failed_write));
    const int sys = read_failure(failed_read);
    if (sys != 0) {
        program_wait(child);
        return err_sys(e, sys, "start %s", s->path);
    }
    *pid = child;
    return 0;
}
