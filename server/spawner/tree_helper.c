// SPDX-License-Identifier: Apache-2.0
// See tree_helper.h.
#include "tree_helper.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "clone_here.h"
#include "io.h"

struct outcome {
    int (*work)(void *cookie, struct err *e);
    void *cookie;
    struct err *e;
    int rc;
};

// Runs on the sleeping spawner's stack and memory.
static __attribute__((noinline, noreturn)) void
helper(struct outcome *o)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    o->rc = o->work(o->cookie, o->e);
    _exit(0);
}

int
tree_helper_enter(int guest_fd, struct err *e)
{
    if (setns(guest_fd, CLONE_NEWNS) == 0)
        return 0;
    if (errno == ESRCH)
        return err_set(e, ERR_ABORTED, "the first process of the sandbox has ended");
    return err_sys(e, errno, "enter the mount namespace");
}

int
tree_helper_run(int (*work)(void *cookie, struct err *e), void *cookie, int *helper_fd,
                struct err *e)
{
    static struct outcome outcome;
    static struct clone_args args;
    static int pid_fd = -1;
    (void)err_set(e, ERR_INTERNAL, "the helper ended on its way");
    outcome = (struct outcome){work, cookie, e, -ENOTRECOVERABLE};
    args = (struct clone_args){
        .flags = (uint64_t)CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)&pid_fd,
        .exit_signal = SIGCHLD,
    };
    long pid = clone_here(&args);
    if (pid == 0)
        helper(&outcome);
    if (pid < 0)
        return err_sys(e, (int)-pid, "clone the helper");
    *helper_fd = io_keep_fd(pid_fd);
    return ((volatile struct outcome *)&outcome)->rc;
}
