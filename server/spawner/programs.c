// SPDX-License-Identifier: Apache-2.0
// See programs.h.
//
//   start: fork, exec stockade-loader --report with descriptors--> links, maps, the syscall program; the loader has ended
//   WATCH 1: a clone that shares our descriptors attaches the tracepoint (5 to 13 ms, in which sandboxes are born) and
//            writes the link's number into a pipe; its end is an event
//   WATCH 0: the link is closed (0.2 ms)
//
// Links are kept above FD_KEEP_MIN, so no child of a birth copies them, and die with this process: no program stays
// attached.
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../proto/auto.h"
#include "../loader/load.h"
#include "feature.h"
#include "io.h"
#include "programs.h"

enum { LOADER_MS = 60 * 1000 };

// The initial cgroup namespace's inode number (PROC_CGROUP_INIT_INO in include/linux/proc_ns.h).
#define INITIAL_CGROUP_NAMESPACE "cgroup:[4026531835]"

// In the forked child: the socket and the cgroup where load.h says, nothing else but stderr, no environment.
static __attribute__((noreturn)) void
exec_loader(const char *path, int socket_fd, const struct cgroups *cg)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(socket_fd, LOAD_SOCKET_FD) >= 0 && dup2(cg->fd, LOAD_CGROUP_FD) >= 0 &&
        dup2(cg->relay_fd, LOAD_RELAY_FD) >= 0 &&
        syscall(SYS_close_range, LOAD_RELAY_FD + 1, ~0u, 0) == 0) {
        static char name[] = "stockade-loader";
        char *const argv[] = {name, NULL};
        char *const envp[] = {NULL};
        (void)execve(path, argv, envp);
    }
    _exit(70);
}

// The level of the sandboxes' cgroups in the hierarchy: below their container, whose path is known from the root on only
// outside of cgroup namespaces.
static int
sandbox_level(const char *container, uint32_t *level, struct err *e)
{
    char name[64];
    ssize_t n = readlink("/proc/self/ns/cgroup", name, sizeof name - 1);
    name[n < 0 ? 0 : n] = '\0';
    if (strcmp(name, INITIAL_CGROUP_NAMESPACE) != 0)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "the broker is in a cgroup namespace of its own (a container)");
    *level = 1;
    for (const char *p = container; *p; p++)
        *level += *p == '/';
    return 0;
}

// The report and its descriptors. Number of those, or a negative errno.
static int
read_report(int fd, struct load_report *report, int fds[LOAD_FDS_MAX], struct err *e)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * LOAD_FDS_MAX)];
    } control;
    struct iovec iov = {report, sizeof *report};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, LOADER_MS) != 1)
        return err_set(e, ERR_DEADLINE_EXCEEDED, "the loader said nothing for %d s",
                       LOADER_MS / 1000);
    ssize_t got = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got <= 0)
        return err_set(e, ERR_INTERNAL, "the loader ended without a report");
    int n = 0;
    const struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
        n = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(h), (size_t)n * sizeof(int));
    }
    unsigned told = (unsigned)__builtin_popcount(report->maps) + report->flows + report->syscalls +
                    report->links_n;
    if (got == (ssize_t)sizeof *report && !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) &&
        told == (unsigned)n && report->maps < 1u << BPF_FDS && report->flows <= 1 &&
        report->syscalls <= 1 && report->features_n <= LOAD_FEATURES_MAX)
        return n;
    for (int i = 0; i < n; i++)
        (void)close(fds[i]);
    return err_set(e, ERR_INTERNAL, "the loader's report is malformed");
}

static void
keep(struct programs *p, const struct load_report *r, const int *fds)
{
    unsigned n = 0;
    for (int i = 0; i < BPF_FDS; i++) {
        if (r->maps & 1u << i)
            p->map[i] = io_keep_fd(fds[n++]);
    }
    if (r->flows)
        p->flows_fd = io_keep_fd(fds[n++]);
    if (r->syscalls)
        p->syscalls_fd = io_keep_fd(fds[n++]);
    for (uint32_t i = 0; i < r->links_n; i++)
        (void)io_keep_fd(fds[n++]); // never closed: attached for as long as we live
}

static void
tell(struct spawn_features *f, struct load_report *r)
{
    f->bpf = r->bpf;
    r->log[sizeof r->log - 1] = '\0';
    memcpy(f->bpf_log, r->log, sizeof f->bpf_log);
    for (uint32_t i = 0; i < r->features_n && f->n < SPAWN_FEATURES_MAX; i++) {
        struct spawn_feature *to = &f->feature[f->n++];
        *to = r->feature[i];
        to->name[sizeof to->name - 1] = to->detail[sizeof to->detail - 1] = '\0';
    }
}

static int
run_loader(struct spawner *s, struct spawn_features *f, struct err *e)
{
    static struct load_report report;
    struct load_order order = {0};
    int fds[LOAD_FDS_MAX] = {0};
    int pair[2];
    int r = sandbox_level(s->cgroups.path, &order.sandbox_level, e);
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "make a socket pair");
    int auto_close ours = pair[0];
    int auto_close theirs = pair[1];
    // Before there is a loader, so that what it does with the socket is told by read_report.
    if (send(ours, &order, sizeof order, MSG_NOSIGNAL) != (ssize_t)sizeof order)
        return err_sys(e, errno, "order the loader");
    pid_t pid = fork();
    if (pid == 0)
        exec_loader(s->config->loader_path, theirs, &s->cgroups);
    if (pid < 0)
        return err_sys(e, errno, "fork");
    (void)close(take_fd(&theirs));
    int n = read_report(ours, &report, fds, e);
    (void)kill(pid, SIGKILL); // it has said what there is to say
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (n < 0)
        return n;
    keep(&s->programs, &report, fds);
    s->programs.guarded = (report.bpf & BPF_HAS_GUARD) != 0;
    tell(f, &report);
    return 0;
}

void
programs_load(struct spawner *s, struct spawn_features *f)
{
    struct err e;
    if (!s->config->loader_path[0])
        (void)err_set(&e, ERR_FAILED_PRECONDITION, "turned off (bpf.enabled), or not installed");
    else if (run_loader(s, f, &e) == 0)
        return;
    static const char *const names[] = {"bpf-net", "bpf-relay", "bpf-unix", "bpf-watch",
                                        "bpf-syscalls"};
    static const char *const absent[] = {
        "sandboxes have no network: \"allowlist\" and \"open\" are refused", "there is no relay",
        "unix sockets are held back by namespaces alone", "no telemetry but what cgroups count",
        "system calls are not counted"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        feature_add(f, names[i], false, true, "%s: %s", absent[i], e.text);
}

// --- WATCH ---

// bpf(2): a program that knows its tracepoint is attached by itself. Returns the link, or a negative errno.
static int
attach(int program_fd)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.raw_tracepoint.prog_fd = (uint32_t)program_fd;
    long fd = syscall(SYS_bpf, BPF_RAW_TRACEPOINT_OPEN, &attr, sizeof attr);
    return fd < 0 ? -errno : (int)fd;
}

// Starts the clone. What it opens is ours as well.
static int
attach_start(struct spawner *s, struct err *e)
{
    struct programs *p = &s->programs;
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_sys(e, errno, "attach the syscall tracepoint: make a pipe");
    int pid_fd = -1;
    struct clone_args args = {
        .flags = (uint64_t)CLONE_FILES | CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)&pid_fd,
        .exit_signal = SIGCHLD,
    };
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0) {
        int link = attach(p->syscalls_fd);
        _exit(write(pipe_fds[1], &link, sizeof link) == (ssize_t)sizeof link ? 0 : 70);
    }
    int sys = errno;
    p->said_fd = pipe_fds[0];
    p->say_fd = pipe_fds[1];
    p->attacher_fd = pid < 0 ? -1 : pid_fd;
    if (pid >= 0 && event_add(s, pid_fd, EVENT_ATTACHER, 0, EPOLLIN))
        return 0;
    if (pid >= 0) { // nobody would tell of its end
        sys = errno;
        while (waitpid((pid_t)pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    io_close(&p->said_fd);
    io_close(&p->say_fd);
    io_close(&p->attacher_fd);
    return err_sys(e, sys, "attach the syscall tracepoint");
}

void
programs_attached(struct spawner *s)
{
    struct programs *p = &s->programs;
    siginfo_t info = {.si_pid = 0};
    struct answer *a = p->watch_answer;
    struct err e;
    int link = -EIO;
    if (p->attacher_fd < 0 || waitid(P_PIDFD, (id_t)p->attacher_fd, &info, WEXITED | WNOHANG) < 0 ||
        info.si_pid == 0)
        return;
    (void)!read(p->said_fd, &link, sizeof link);
    io_close(&p->said_fd);
    io_close(&p->say_fd);
    io_close(&p->attacher_fd);
    p->watch_answer = NULL;
    if (link >= 0) {
        p->syscalls_link_fd = io_keep_fd(link);
        answer_ok(s, a);
        return;
    }
    (void)err_sys(&e, -link, "attach the syscall tracepoint");
    answer_err(s, a, &e);
}

void
programs_watch(struct spawner *s, struct slot *none, const struct spawn_request *q,
               struct answer *a)
{
    (void)none;
    struct programs *p = &s->programs;
    struct err e;
    int r = 0;
    if (p->syscalls_fd < 0)
        r = err_set(&e, ERR_FAILED_PRECONDITION, "there is no program for the syscall tracepoint");
    else if (p->attacher_fd >= 0)
        r = err_set(&e, ERR_UNAVAILABLE, "the syscall tracepoint is being attached");
    else if (q->arg == 1 && p->syscalls_link_fd < 0)
        r = attach_start(s, &e);
    if (r < 0) {
        answer_err(s, a, &e);
        return;
    }
    if (p->attacher_fd >= 0) {
        p->watch_answer = a;
        return;
    }
    if (q->arg == 0)
        io_close(&p->syscalls_link_fd);
    answer_ok(s, a);
}
