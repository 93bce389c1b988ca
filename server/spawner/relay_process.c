// SPDX-License-Identifier: Apache-2.0
// See relay_process.h. The relay parses what strangers send, so it starts with nothing: an account of its own, no
// capability, no way to get one, three descriptors (../relay/relay.h) and stderr.
//
//   fork -> its own cgroup, whose programs say what it may reach -> the host's clocks and files (ours are those of the sandboxes' builder) -> descriptors -> rlimits
//        -> bounding set, groups, ids -> no new privileges -> exec; a failure is one errno in a pipe that exec closes
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../proto/auto.h"
#include "../relay/relay.h"
#include "feature.h"
#include "io.h"
#include "relay_process.h"

_Static_assert((int)RELAY_FLOWS_FD + 1 < (int)FD_CHILD_MAX,
               "places are below what is moved to them");
enum { FAILED_FD = RELAY_FLOWS_FD + 1, RELAY_FILES = 1 << 20, RELAY_TASKS = 64 };

struct relay_start {
    const struct spawner *s;
    int socket_fd;
    int failed_fd;
};

// Into its own cgroup. Our mount namespace has a tiny root without programs, our clocks are those of the sandboxes.
static bool
go_home(const struct relay_start *r)
{
    const struct spawner *s = r->s;
    int procs = openat(s->cgroups.relay_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (procs < 0 || write(procs, "0", 1) != 1)
        return false;
    return (s->time_home_fd < 0 || setns(s->time_home_fd, CLONE_NEWTIME) == 0) &&
           setns(s->mount_home_fd, CLONE_NEWNS) == 0;
}

// Numbers from FD_CHILD_MAX on first, so that no move closes another one.
static bool
place_descriptors(const struct relay_start *r)
{
    const int from[] = {
        r->s->null_fd,           r->s->null_fd, r->socket_fd, r->s->programs.map[BPF_FD_NAMES],
        r->s->programs.flows_fd, r->failed_fd};
    static const int to[] = {STDIN_FILENO,   STDOUT_FILENO,  RELAY_SOCKET_FD,
                             RELAY_NAMES_FD, RELAY_FLOWS_FD, FAILED_FD};
    enum { N = sizeof from / sizeof from[0] };
    int high[N];
    for (int i = 0; i < N; i++) {
        high[i] = fcntl(from[i], F_DUPFD_CLOEXEC, FD_CHILD_MAX);
        if (high[i] < 0)
            return false;
    }
    for (int i = 0; i < N; i++) {
        if (dup3(high[i], to[i], to[i] == FAILED_FD ? O_CLOEXEC : 0) < 0)
            return false;
    }
    return syscall(SYS_close_range, FAILED_FD + 1, ~0u, 0) == 0;
}

static bool
set_rlimits(void)
{
    const struct rlimit none = {0, 0};
    const struct rlimit tasks = {RELAY_TASKS, RELAY_TASKS};
    struct rlimit files = {RELAY_FILES, RELAY_FILES};
    if (setrlimit(RLIMIT_NOFILE, &files) < 0) { // above the host's fs.nr_open
        if (getrlimit(RLIMIT_NOFILE, &files) < 0)
            return false;
        files.rlim_cur = files.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &files) < 0)
            return false;
    }
    return setrlimit(RLIMIT_CORE, &none) == 0 && setrlimit(RLIMIT_MEMLOCK, &none) == 0 &&
           setrlimit(RLIMIT_NPROC, &tasks) == 0;
}

static bool
drop_privileges(const struct spawn_config *c)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return false;
    for (unsigned long cap = 0; cap < 64; cap++) {
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL)
            return false;
    }
    return setgroups(0, NULL) == 0 && setresgid(c->relay_gid, c->relay_gid, c->relay_gid) == 0 &&
           setresuid(c->relay_uid, c->relay_uid, c->relay_uid) == 0 &&
           syscall(SYS_capset, &header, none) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0; // falls with the uid, so it is last
}

static __attribute__((noreturn)) void
exec_relay(const struct relay_start *r)
{
    const struct spawn_config *c = r->s->config;
    int failed = r->failed_fd;
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (go_home(r) && place_descriptors(r)) {
        failed = FAILED_FD;
        // By descriptor: its account need not be able to walk to the program (a tree below /root).
        int exe = open(c->relay_path, O_PATH | O_CLOEXEC);
        if (exe >= 0 && set_rlimits() && drop_privileges(c)) {
            static char name[] = "stockade-relay";
            char *const argv[] = {name, NULL};
            char *const envp[] = {NULL};
            (void)syscall(SYS_execveat, exe, "", argv, envp, AT_EMPTY_PATH);
        }
    }
    int sys = errno;
    (void)!write(failed, &sys, sizeof sys);
    _exit(70);
}

int
relay_process_start(struct spawner *s, struct err *e)
{
    int pair[2];
    int failed[2];
    if (!s->config->relay_path[0])
        return err_set(e, ERR_FAILED_PRECONDITION, "turned off (bpf.enabled), or not installed");
    if (s->programs.map[BPF_FD_NAMES] < 0 || s->programs.flows_fd < 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "bpf-net is not there");
    if (!s->programs.guarded)
        return err_set(e, ERR_FAILED_PRECONDITION, "bpf-relay is not there");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "make a socket pair");
    int auto_close ours = pair[0];
    int auto_close theirs = pair[1];
    if (pipe2(failed, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    int auto_close failed_read = failed[0];
    int auto_close failed_write = failed[1];
    const struct relay_start start = {s, theirs, failed_write};
    pid_t pid = fork();
    if (pid == 0)
        exec_relay(&start);
    if (pid < 0)
        return err_sys(e, errno, "fork");
    (void)close(take_fd(&failed_write));
    int sys = 0;
    ssize_t n = 0;
    do {
        n = read(failed_read, &sys, sizeof sys);
    } while (n < 0 && errno == EINTR);
    int pid_fd = n == 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (n == 0 && pid_fd >= 0) {
        s->relay_fd = io_keep_fd(pid_fd);
        if (event_add(s, s->relay_fd, EVENT_RELAY, 0, EPOLLIN))
            return take_fd(&ours);
    }
    sys = n == 0 ? errno : sys;
    io_close(&s->relay_fd);
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return err_sys(e, sys ? sys : EIO, "start %s", s->config->relay_path);
}

void
relay_process_tell(struct spawn_features *f, bool runs, const struct err *why)
{
    feature_add(f, "relay", runs, true, "%s%s",
                runs ? "what policies allow of a sandbox's traffic is carried out"
                     : "\"allowlist\" and \"open\" are refused: ",
                runs ? "" : why->text);
    if (runs)
        f->bpf |= BPF_HAS_RELAY;
}

static void
start_and_answer(struct spawner *s, struct answer *a)
{
    struct err e;
    int fd = relay_process_start(s, &e);
    if (fd < 0) {
        answer_err(s, a, &e);
        return;
    }
    answer_reply(a)->ok = 1;
    answer_reply(a)->fds = 1;
    answer_send(s, a, &fd, 1);
}

void
relay_process_again(struct spawner *s, struct slot *none, const struct spawn_request *q,
                    struct answer *a)
{
    (void)none;
    (void)q;
    struct err e;
    if (s->relay_answer) {
        (void)err_set(&e, ERR_FAILED_PRECONDITION, "a relay is being started");
        answer_err(s, a, &e);
    } else if (s->relay_fd >= 0) {
        s->relay_answer = a; // answered when the one that runs has ended
        (void)syscall(SYS_pidfd_send_signal, s->relay_fd, SIGKILL, NULL, 0);
    } else {
        start_and_answer(s, a);
    }
}

void
relay_process_stop(struct spawner *s)
{
    if (s->relay_fd >= 0)
        (void)syscall(SYS_pidfd_send_signal, s->relay_fd, SIGKILL, NULL, 0);
}

void
relay_process_ended(struct spawner *s)
{
    siginfo_t info = {.si_pid = 0};
    if (s->relay_fd < 0 || waitid(P_PIDFD, (id_t)s->relay_fd, &info, WEXITED | WNOHANG) < 0 ||
        info.si_pid == 0)
        return;
    io_close(&s->relay_fd);
    struct answer *a = s->relay_answer;
    s->relay_answer = NULL;
    if (a)
        start_and_answer(s, a);
}
