// SPDX-License-Identifier: Apache-2.0
// See spawn_process.h.
//
//   socket pair, fork -> the child executes stockade-spawner with its end on descriptor 3, or says through a pipe why not
//   the configuration goes out, the features come back with the descriptors of maps and of the relay
#include "spawn_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../proto/auto.h"
#include "spawn.h"

// In the forked child: its end on descriptor 3, nothing else but stderr, no environment.
static __attribute__((noreturn)) void
exec_spawner(const char *binary, int fd, int failed_fd)
{
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    // Above what they are moved to, so that no move closes another one.
    int socket_high = fcntl(fd, F_DUPFD_CLOEXEC, 16);
    int failed_high = fcntl(failed_fd, F_DUPFD_CLOEXEC, 16);
    if (null_fd >= 0 && socket_high >= 0 && failed_high >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 &&
        dup2(null_fd, STDOUT_FILENO) >= 0 && dup2(socket_high, SPAWN_SOCKET_FD) >= 0 &&
        dup3(failed_high, SPAWN_SOCKET_FD + 1, O_CLOEXEC) >= 0 &&
        syscall(SYS_close_range, SPAWN_SOCKET_FD + 2, ~0u, 0) == 0) {
        static char name[] = "stockade-spawner";
        char *const argv[] = {name, NULL};
        char *const envp[] = {NULL};
        (void)execve(binary, argv, envp);
        failed_high = SPAWN_SOCKET_FD + 1;
    }
    int sys = errno;
    (void)!write(failed_high, &sys, sizeof sys);
    _exit(70);
}

// Forks and executes; returns when that went well or did not.
static int
execute(const char *binary, struct spawn_process *out, struct err *e)
{
    int pair[2];
    int failed[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "make a socket pair");
    out->fd = pair[0];
    int auto_close theirs = pair[1];
    if (pipe2(failed, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    int auto_close failed_read = failed[0];
    int auto_close failed_write = failed[1];
    out->pid = fork();
    if (out->pid == 0)
        exec_spawner(binary, theirs, failed_write);
    if (out->pid < 0)
        return err_sys(e, errno, "fork");
    (void)close(take_fd(&failed_write));
    int sys = 0;
    ssize_t n = 0;
    do {
        n = read(failed_read, &sys, sizeof sys);
    } while (n < 0 && errno == EINTR);
    return n == 0 ? 0 : err_sys(e, sys ? sys : EIO, "execute %s", binary);
}

// Sorts the descriptors of the first answer by its mask. False when they do not match; all are closed then.
static bool
take_bpf_fds(struct msghdr *m, uint32_t mask, int fds[BPF_FDS])
{
    int got[BPF_FDS + 1] = {0}; // the control buffer is padded: room for one more than there may be
    unsigned n = 0;
    const struct cmsghdr *h = CMSG_FIRSTHDR(m);
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
        n = (unsigned)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(got, CMSG_DATA(h), n * sizeof(int));
    }
    bool match = (unsigned)__builtin_popcount(mask) == n && mask < 1u << BPF_FDS &&
                 !(m->msg_flags & MSG_CTRUNC);
    for (unsigned i = 0, used = 0; i < BPF_FDS; i++)
        fds[i] = match && mask & 1u << i ? got[used++] : -1;
    for (unsigned i = 0; i < n && !match; i++)
        (void)close(got[i]);
    return match;
}

// The answer to the configuration, within SPAWN_START_MS.
static int
read_features(int fd, struct spawn_features *features, int bpf_fds[BPF_FDS], struct err *e)
{
    struct spawn_reply reply;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * BPF_FDS)];
    } control;
    struct iovec iov[2] = {{&reply, sizeof reply}, {features, sizeof *features}};
    struct msghdr m = {.msg_iov = iov,
                       .msg_iovlen = 2,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int ready = 0;
    do {
        ready = poll(&p, 1, SPAWN_START_MS);
    } while (ready < 0 && errno == EINTR);
    if (ready == 0)
        return err_set(e, ERR_DEADLINE_EXCEEDED, "no answer within %d s", SPAWN_START_MS / 1000);
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n == 0 || (n < 0 && errno == ECONNRESET))
        return err_set(e, ERR_UNAVAILABLE, "it ended while it started");
    if (n < (ssize_t)sizeof reply || reply.op != SPAWN_CONFIGURE)
        return err_set(e, ERR_INTERNAL, "its first answer is malformed");
    if (!reply.ok) {
        *e = reply.err;
        err_sanitize(e);
        return err_errno(e);
    }
    bool whole = n == (ssize_t)(sizeof reply + sizeof *features);
    if (!take_bpf_fds(&m, whole ? features->bpf_fds : 0, bpf_fds) || !whole ||
        features->n > SPAWN_FEATURES_MAX)
        return err_set(e, ERR_INTERNAL, "its features are malformed");
    return 0;
}

int
spawn_process_start(const char *binary, const struct spawn_config *config,
                    struct spawn_features *features, int bpf_fds[BPF_FDS],
                    struct spawn_process *out, struct err *e)
{
    struct spawn_process p = {.pid = -1, .fd = -1};
    for (int i = 0; i < BPF_FDS; i++)
        bpf_fds[i] = -1;
    int r = execute(binary, &p, e);
    if (r == 0 && send(p.fd, config, sizeof *config, MSG_NOSIGNAL) != (ssize_t)sizeof *config)
        r = err_sys(e, errno, "send the configuration");
    if (r == 0)
        r = read_features(p.fd, features, bpf_fds, e);
    if (r == 0) {
        *out = p;
        return 0;
    }
    for (int i = 0; i < BPF_FDS; i++) {
        if (bpf_fds[i] >= 0)
            (void)close(bpf_fds[i]);
        bpf_fds[i] = -1;
    }
    if (p.fd >= 0)
        (void)close(p.fd);
    if (p.pid > 0 && !spawn_process_reap(p.pid, 2000)) {
        (void)kill(p.pid, SIGKILL); // an ended one has been reaped, or is ours still
        (void)spawn_process_reap(p.pid, 2000);
    }
    return r;
}

bool
spawn_process_reap(pid_t pid, uint32_t grace_ms)
{
    for (uint32_t waited = 0;; waited++) {
        int status = 0;
        pid_t r = waitpid(pid, &status, WNOHANG);
        if (r == pid)
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (r < 0 && errno != EINTR)
            return false;
        if (waited >= grace_ms)
            return false;
        (void)poll(NULL, 0, 1);
    }
}
