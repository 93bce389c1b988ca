// SPDX-License-Identifier: Apache-2.0
// See reader_process.h. One reader at a time. It reads the file that the configuration at start named, so a
// compromised broker can have that file read again, and no other. Roots come from the reader and not from the broker,
// so the broker cannot choose a folder either. The reader's requests are checked like others, but an invalid one is
// only refused.
//
//   READ -> socket pairs, clone3 -> the host's mounts and clocks -> descriptors, alarm -> exec; failures are reported
//   ROOT -> tree_root.c -> the number, or the error
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/fdpass.h"
#include "server/reader/read.h"
#include "disk_host.h"
#include "io.h"
#include "own_process.h"
#include "reader_process.h"

_Static_assert((int)READ_SPAWNER_FD + 1 < (int)FD_CHILD_MAX, "places are kept free");

static __attribute__((noreturn)) void
exec_reader(const struct spawner *s, int broker_fd, int spawner_fd)
{
    static char name[] = "stockade-reader";
    char *const argv[] = {name, (char *)(uintptr_t)s->config->config_file,
                          (char *)(uintptr_t)s->config->state_dir, NULL};
    char *const envp[] = {NULL};
    static struct read_report failed;
    sigset_t none;
    (void)sigemptyset(&none);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)alarm(READ_SECONDS);
    // The sockets first, because later failures are reported through one of them.
    if (dup2(broker_fd, READ_BROKER_FD) < 0)
        _exit(70);
    if (dup2(spawner_fd, READ_SPAWNER_FD) >= 0 && dup2(s->null_fd, STDIN_FILENO) >= 0 &&
        dup2(s->null_fd, STDOUT_FILENO) >= 0 && own_process_go_home((void *)(uintptr_t)s) &&
        syscall(SYS_close_range, READ_SPAWNER_FD + 1, ~0u, 0) == 0)
        (void)execve(s->config->reader_path, argv, envp);
    (void)err_sys(&failed.err, errno, "start %s", s->config->reader_path);
    (void)send(READ_BROKER_FD, &failed, sizeof failed, MSG_NOSIGNAL);
    _exit(70);
}

// Watches the process and its socket, which is consumed, or kills it.
static int
watch(struct spawner *s, pid_t pid, int asks_fd, struct err *e)
{
    int auto_close asks = io_keep_fd(asks_fd);
    int r = own_process_watch(s, pid, EVENT_READER, "the reader", e);
    if (r < 0)
        return r;
    s->reader_fd = r;
    if (!event_add(s, asks, EVENT_READER_ASKS, 0, EPOLLIN)) {
        r = err_sys(e, errno, "watch the reader's socket");
        (void)kill(pid, SIGKILL); // reader_process_ended() follows
        return r;
    }
    s->reader_asks_fd = take_fd(&asks);
    return 0;
}

// Returns its socket for the broker, or a negative errno.
static int
start(struct spawner *s, struct err *e)
{
    int broker[2];
    int spawner[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, broker) < 0)
        return err_sys(e, errno, "make a socket pair");
    int auto_close ours = broker[0];
    int auto_close theirs = broker[1];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, spawner) < 0)
        return err_sys(e, errno, "make a socket pair");
    int auto_close asks = spawner[0];
    int auto_close asker = spawner[1];
    // Not fork(3), after which ThreadSanitizer starts a thread: only a process with one thread can enter a time
    // namespace (time_namespaces(7)).
    const struct clone_args args = {.exit_signal = SIGCHLD};
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        exec_reader(s, theirs, asker);
    if (pid < 0)
        return err_sys(e, errno, "clone3");
    int r = watch(s, pid, take_fd(&asks), e);
    return r < 0 ? r : take_fd(&ours);
}

static void
start_and_answer(struct spawner *s, struct answer *a)
{
    struct err e;
    int fd = start(s, &e);
    if (fd < 0)
        (void)err_wrap(&e, "read the configuration");
    answer_fd(s, a, fd, &e);
}

void
reader_process_start(struct spawner *s, struct slot *none, const struct spawn_request *q,
                     struct answer *a)
{
    (void)none;
    (void)q;
    struct err e;
    if (s->reader_answer) {
        (void)err_set(&e, ERR_FAILED_PRECONDITION, "the configuration is being read already");
        answer_err(s, a, &e);
    } else if (s->reader_fd >= 0) {
        s->reader_answer = a; // the reply follows when the running one has ended
    } else {
        start_and_answer(s, a);
    }
}

static void
close_asks(struct spawner *s)
{
    if (s->reader_asks_fd >= 0)
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, s->reader_asks_fd, NULL);
    io_close(&s->reader_asks_fd);
}

void
reader_process_asks(struct spawner *s)
{
    struct spawn_root r;
    struct spawn_reply reply = {.op = SPAWN_ROOT};
    int fds[SPAWN_ROOT_FDS_MAX];
    struct fdpass m = {&r, sizeof r, fds, SPAWN_ROOT_FDS_MAX};
    struct err why;
    if (s->reader_asks_fd < 0)
        return;
    uint64_t began_ns = io_now_ns();
    int got = fdpass_receive(s->reader_asks_fd, &m, MSG_DONTWAIT);
    if (got == -EAGAIN || got == -EINTR)
        return;
    if (got <= 0 || m.n != sizeof r) { // end of file, or an invalid packet
        if (got > 0)
            fdpass_close(fds, m.fds_n);
        close_asks(s);
        return;
    }
    reply.ok =
        tree_root_add(s->tree, &r, fds, (unsigned)m.fds_n, &reply.slot, &reply.err, &why) == 0;
    if (reply.ok && r.hosts_n > 0) {
        int *hosts = fds + r.layers_n + 1;
        if (disk_hosts_add(s, reply.slot, &r, hosts, &why) < 0) {
            struct err ignored; // it exists
            (void)tree_root_give_up(s->tree, reply.slot, &ignored);
            reply.ok = 0;
        }
        fdpass_close(hosts, r.hosts_n);
    }
    if (!reply.ok)
        reply.err = why;
    reply.duration_ns = io_now_ns() - began_ns;
    (void)send(s->reader_asks_fd, &reply, sizeof reply, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void
reader_process_ended(struct spawner *s)
{
    if (s->reader_fd < 0 || !own_process_ended(s, s->reader_fd))
        return;
    s->reader_fd = -1;
    close_asks(s);
    struct answer *a = s->reader_answer;
    s->reader_answer = NULL;
    if (a)
        start_and_answer(s, a);
}
