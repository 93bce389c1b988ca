// SPDX-License-Identifier: Apache-2.0
// See spawn_process.h.
//
//   socket pair -> stockade-spawner with its end on descriptor 3 (program.h)
//   the configuration goes out, the features come back with the descriptors of maps and of the relay
#include "spawn_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/fdpass.h"
#include "proto/program.h"

static int
execute(const char *binary, struct spawn_process *out, struct err *e)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "make a socket pair");
    out->fd = pair[0];
    int auto_close theirs = pair[1];
    int auto_close null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0)
        return err_sys(e, errno, "open /dev/null");
    const struct program_start start = {
        .path = binary,
        .name = "stockade-spawner",
        .fds = {{null_fd, STDIN_FILENO}, {null_fd, STDOUT_FILENO}, {theirs, SPAWN_SOCKET_FD}},
        .fds_n = 3,
    };
    return program_start(&start, &out->pid, e);
}

// Sorts the descriptors of the first reply by its mask. False: they do not match; then all are closed.
static bool
sort_bpf_fds(const struct fdpass *m, uint32_t mask, int fds[BPF_FDS])
{
    size_t used = 0;
    if ((size_t)__builtin_popcount(mask) != m->fds_n || mask >= 1u << BPF_FDS) {
        fdpass_close(m->fds, m->fds_n);
        return false;
    }
    for (unsigned i = 0; i < BPF_FDS; i++)
        fds[i] = mask & 1u << i ? m->fds[used++] : -1;
    return true;
}

static int
wait_readable(int fd, struct err *e)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int ready = 0;
    do {
        ready = poll(&p, 1, SPAWN_START_MS);
    } while (ready < 0 && errno == EINTR);
    return ready == 0 ? err_set(e, ERR_DEADLINE_EXCEEDED, "it did not respond within %d s",
                                SPAWN_START_MS / 1000)
                      : 0;
}

// Reads the reply to the configuration, within SPAWN_START_MS. A refusal is a plain reply.
static int
read_features(int fd, struct spawn_features *features, int bpf_fds[BPF_FDS], struct err *e)
{
    struct spawn_configured answer;
    int got[BPF_FDS];
    struct fdpass m = {&answer, sizeof answer, got, BPF_FDS};
    if (wait_readable(fd, e) < 0)
        return err_errno(e);
    int r = fdpass_receive(fd, &m, MSG_DONTWAIT);
    if (r == 0 || r == -ECONNRESET)
        return err_set(e, ERR_UNAVAILABLE, "it ended during its start");
    if (r < 0 || m.n < sizeof answer.reply || answer.reply.op != SPAWN_CONFIGURE) {
        fdpass_close(got, BPF_FDS);
        return err_set(e, ERR_INTERNAL, "its first answer is malformed");
    }
    if (!answer.reply.ok) {
        fdpass_close(got, BPF_FDS);
        *e = answer.reply.err;
        err_sanitize(e);
        return err_errno(e);
    }
    bool whole = m.n == sizeof answer && answer.features.n <= SPAWN_FEATURES_MAX;
    if (!sort_bpf_fds(&m, whole ? answer.features.bpf_fds : 0, bpf_fds) || !whole)
        return err_set(e, ERR_INTERNAL, "its features are malformed");
    *features = answer.features;
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
    fdpass_close(bpf_fds, BPF_FDS);
    if (p.fd >= 0)
        (void)close(p.fd);
    if (p.pid > 0 && !spawn_process_reap(p.pid, 2000)) {
        (void)kill(p.pid, SIGKILL); // it was not reaped, so the pid is still valid
        (void)spawn_process_reap(p.pid, 2000);
    }
    return r;
}

bool
spawn_process_runs(pid_t pid, uint64_t *cpu_ticks)
{
    char path[32];
    char text[512] = "";
    char state = 0;
    unsigned long long user = 0;
    unsigned long long system = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int auto_close fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
        return false;
    const char *name_end = strrchr(text, ')'); // proc_pid_stat(5): a name may contain anything
    if (name_end == NULL ||                    // NOLINTNEXTLINE(cert-err34-c): the kernel wrote it
        sscanf(name_end + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &state, &user,
               &system) != 3)
        return false;
    uint64_t before = *cpu_ticks;
    *cpu_ticks = user + system;
    return state == 'R' || (before != 0 && *cpu_ticks != before);
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
