// SPDX-License-Identifier: Apache-2.0
// See own_process.h.
#include "own_process.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io.h"
#include "proto/program.h"

bool
own_process_go_home(void *spawner)
{
    const struct spawner *s = spawner;
    return (s->time_home_fd < 0 || setns(s->time_home_fd, CLONE_NEWTIME) == 0) &&
           setns(s->mount_home_fd, CLONE_NEWNS) == 0;
}

int
own_process_watch(const struct spawner *s, pid_t pid, enum event_kind kind, const char *name,
                  struct err *e)
{
    int pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pid_fd >= 0)
        pid_fd = io_keep_fd(pid_fd);
    if (pid_fd >= 0 && event_add(s, pid_fd, kind, (uint32_t)pid_fd, EPOLLIN))
        return pid_fd;
    int r = err_sys(e, errno, "watch %s", name);
    io_close(&pid_fd);
    (void)kill(pid, SIGKILL);
    program_wait(pid);
    return r;
}

bool
own_process_ended(const struct spawner *s, int pid_fd)
{
    siginfo_t info = {.si_pid = 0};
    if (waitid(P_PIDFD, (id_t)pid_fd, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0)
        return false;
    // A child on its way to the guest may have a copy, which would keep the event alive.
    (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, pid_fd, NULL);
    (void)close(pid_fd);
    return true;
}
