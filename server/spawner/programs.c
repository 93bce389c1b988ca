// SPDX-License-Identifier: Apache-2.0
// See programs.h.
//
//   start: fork, exec stockade-loader --report with descriptors--> links, maps, the syscall program; the loader has ended
//   WATCH 1: a clone that shares our descriptors attaches the tracepoint (5 to 13 ms, while sandboxes are made) and
//            writes the link's number into a pipe; its end is an event
//   WATCH 0: the link is closed (0.2 ms)
//
// Links are kept above FD_KEEP_MIN, so children do not copy them. They are closed when this process ends, so no
// program stays attached.
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

#include "proto/auto.h"
#include "proto/fdpass.h"
#include "proto/program.h"
#include "server/loader/load.h"
#include "feature.h"
#include "io.h"
#include "programs.h"

enum { LOADER_MS = 60 * 1000 };

// The initial cgroup namespace's inode number (PROC_CGROUP_INIT_INO in include/linux/proc_ns.h).
#define INITIAL_CGROUP_NAMESPACE "cgroup:[4026531835]"

static bool
die_with_us(void *cookie)
{
    (void)cookie;
    return prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0;
}

static int
start_loader(const struct spawner *s, int socket_fd, pid_t *pid, struct err *e)
{
    const struct program_start start = {
        .path = s->config->loader_path,
        .name = "stockade-loader",
        .fds = {{s->null_fd, STDIN_FILENO},
                {s->null_fd, STDOUT_FILENO},
                {socket_fd, LOAD_SOCKET_FD},
                {s->cgroups.fd, LOAD_CGROUP_FD},
                {s->cgroups.relay_fd, LOAD_RELAY_FD}},
        .fds_n = 5,
        .last = die_with_us,
    };
    return program_start(&start, pid, e);
}

// The level of the sandboxes' cgroups in the hierarchy, one below their container. The container's full path is known
// only outside of cgroup namespaces.
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

// Reads the report and its descriptors. Returns their number, or a negative errno.
static int
read_report(int fd, struct load_report *report, int fds[LOAD_FDS_MAX], struct err *e)
{
    struct fdpass m = {.bytes = report, .n = sizeof *report, .fds = fds, .fds_n = LOAD_FDS_MAX};
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, LOADER_MS) != 1)
        return err_set(e, ERR_DEADLINE_EXCEEDED, "the loader did not respond for %d s",
                       LOADER_MS / 1000);
    int r = fdpass_receive(fd, &m, MSG_DONTWAIT);
    if (r == 0 || (r < 0 && m.n == 0))
        return err_set(e, ERR_INTERNAL, "the loader ended without a report");
    unsigned expected = (unsigned)__builtin_popcount(report->maps) + report->flows +
                        report->syscalls + report->links_n;
    if (r > 0 && m.n == sizeof *report && expected == m.fds_n && report->maps < 1u << BPF_FDS &&
        report->flows <= 1 && report->syscalls <= 1 && report->features_n <= LOAD_FEATURES_MAX)
        return (int)m.fds_n;
    fdpass_close(fds, LOAD_FDS_MAX);
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
        (void)io_keep_fd(fds[n++]); // never closed: attached as long as this process runs
}

static void
add_features(struct spawn_features *f, struct load_report *r)
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
    // Sent before the loader exists, so that read_report reports every failure of the socket.
    if (send(ours, &order, sizeof order, MSG_NOSIGNAL) != (ssize_t)sizeof order)
        return err_sys(e, errno, "order the loader");
    pid_t pid = -1;
    r = start_loader(s, theirs, &pid, e);
    if (r < 0)
        return r;
    (void)close(take_fd(&theirs));
    int n = read_report(ours, &report, fds, e);
    (void)kill(pid, SIGKILL); // the loader has reported everything
    program_wait(pid);
    if (n < 0)
        return n;
    keep(&s->programs, &report, fds);
    s->programs.guarded = (report.bpf & BPF_HAS_GUARD) != 0;
    add_features(f, &report);
    return 0;
}

void
programs_load(struct spawner *s, struct spawn_features *f)
{
    struct err e;
    if (!s->config->loader_path[0])
        (void)err_set(&e, ERR_FAILED_PRECONDITION, "disabled (bpf.enabled), or not installed");
    else if (run_loader(s, f, &e) == 0)
        return;
    static const char *const names[] = {"bpf-net", "bpf-relay", "bpf-unix", "bpf-watch",
                                        "bpf-syscalls"};
    static const char *const absent[] = {
        "sandboxes have no network: \"allowlist\" and \"open\" are refused",
        "the relay is not available", "only namespaces isolate unix sockets",
        "telemetry has only the counters of cgroups", "system calls are not counted"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        feature_add(f, names[i], false, true, "%s: %s", absent[i], e.text);
}

// ---- WATCH

// bpf(2): a program that knows its tracepoint needs no target. Returns the link, or a negative errno.
static int
attach(int program_fd)
{
    union bpf_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.raw_tracepoint.prog_fd = (uint32_t)program_fd;
    long fd = syscall(SYS_bpf, BPF_RAW_TRACEPOINT_OPEN, &attr, sizeof attr);
    return fd < 0 ? -errno : (int)fd;
}

// Starts the clone. It shares our descriptors.
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
    if (pid >= 0) { // otherwise its end would not be noticed
        sys = errno;
        program_wait((pid_t)pid);
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
        r = err_set(&e, ERR_FAILED_PRECONDITION,
                    "the program for the syscall tracepoint is missing");
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
