// SPDX-License-Identifier: Apache-2.0
// See keeper_process.h. A keeper ends with the spawner. It gets its socket, and for KEEP a detached mount of the layer, so it
// needs no process of the sandbox, and goes on if that is deleted.
//
//   KEEP, KEEPER -> socket pair, clone3 -> the host's mounts -> descriptors -> exec; failures are reported through the socket
#include "keeper_process.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/auto.h"
#include "server/keeper/keep.h"
#include "io.h"
#include "tier.h"

_Static_assert((int)KEEP_SOURCE_FD + 1 < (int)FD_CHILD_MAX, "places are kept free");

static __attribute__((noreturn)) void
exec_keeper(const struct spawner *s, int broker_fd, int source_fd, uint32_t uid)
{
    static char name[] = "stockade-keeper";
    static char ids[16];
    char *const argv[] = {name, (char *)(uintptr_t)s->config->state_dir, ids, NULL};
    char *const envp[] = {NULL};
    static struct keep_answer failed;
    sigset_t none;
    (void)sigemptyset(&none);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)snprintf(ids, sizeof ids, "%u", uid);
    // The socket first, because later failures are reported through it.
    if (dup2(broker_fd, KEEP_BROKER_FD) < 0)
        _exit(70);
    if (dup2(source_fd >= 0 ? source_fd : s->null_fd, KEEP_SOURCE_FD) >= 0 &&
        dup2(s->null_fd, STDIN_FILENO) >= 0 && dup2(s->null_fd, STDOUT_FILENO) >= 0 &&
        setns(s->mount_home_fd, CLONE_NEWNS) == 0 &&
        syscall(SYS_close_range, KEEP_SOURCE_FD + 1, ~0u, 0) == 0)
        (void)execve(s->config->keeper_path, argv, envp);
    (void)err_sys(&failed.err, errno, "start %s", s->config->keeper_path);
    (void)send(KEEP_BROKER_FD, &failed, sizeof failed, MSG_NOSIGNAL);
    _exit(70);
}

static int
watch(struct spawner *s, pid_t pid, struct err *e)
{
    int pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pid_fd >= 0)
        pid_fd = io_keep_fd(pid_fd);
    if (pid_fd >= 0 && event_add(s, pid_fd, EVENT_KEEPER, (uint32_t)pid_fd, EPOLLIN))
        return 0;
    int r = err_sys(e, errno, "watch the keeper");
    io_close(&pid_fd);
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return r;
}

// Returns its socket for the broker, or a negative errno.
static int
start(struct spawner *s, int source_fd, uint32_t uid, struct err *e)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "make a socket pair");
    int auto_close ours = pair[0];
    int auto_close theirs = pair[1];
    const struct clone_args args = {.exit_signal = SIGCHLD};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        exec_keeper(s, theirs, source_fd, uid);
    if (pid < 0)
        return err_sys(e, errno, "clone3");
    int r = watch(s, pid, e);
    if (r < 0)
        return r;
    s->keepers++;
    return take_fd(&ours);
}

static int
check(const struct spawner *s, struct err *e)
{
    if (s->config->keeper_path[0] == '\0')
        return err_set(e, ERR_FAILED_PRECONDITION, "this host has no program stockade-keeper");
    if (s->keepers < SPAWN_KEEPERS_MAX)
        return 0;
    int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%d layers are being written or read already",
                    SPAWN_KEEPERS_MAX);
    err_detail(e, "KEEPERS", NULL, "try again");
    return r;
}

static void
answer_fd(struct spawner *s, struct answer *a, int fd, const struct err *e)
{
    if (fd < 0) {
        answer_err(s, a, e);
        return;
    }
    answer_reply(a)->ok = 1;
    answer_reply(a)->fds = 1;
    answer_send(s, a, &fd, 1);
}

void
keeper_process_keep(struct spawner *s, struct slot *slot, const struct spawn_request *q,
                    struct answer *a)
{
    struct err e;
    int auto_close source = -1;
    int fd = check(s, &e);
    uint32_t uid = 0;
    if (fd == 0)
        fd = source = tier_of(s, slot)->open_layer(s, slot, q->arg, &uid, &e);
    if (fd >= 0)
        fd = start(s, source, uid, &e);
    if (fd < 0)
        (void)err_wrap(&e, "keep layer %u of sandbox %s", q->arg, slot->name);
    answer_fd(s, a, fd, &e);
}

void
keeper_process_start(struct spawner *s, struct slot *none, const struct spawn_request *q,
                     struct answer *a)
{
    (void)none;
    (void)q;
    struct err e;
    int fd = check(s, &e);
    answer_fd(s, a, fd < 0 ? fd : start(s, -1, 0, &e), &e);
}

void
keeper_process_ended(struct spawner *s, int pid_fd)
{
    siginfo_t info = {.si_pid = 0};
    if (waitid(P_PIDFD, (id_t)pid_fd, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0)
        return;
    (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, pid_fd, NULL);
    (void)close(pid_fd);
    s->keepers--;
}
