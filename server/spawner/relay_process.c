// SPDX-License-Identifier: Apache-2.0
// See relay_process.h. The relay parses data from strangers, so it starts without rights: an account of its own, no
// capabilities and no way to get one, three descriptors (../relay/relay.h) and stderr.
//
//   program.h: its own cgroup, whose programs limit what it can reach; the host's clocks and files (ours are those of
//   the sandboxes) -> descriptors -> rlimits, bounding set, groups, ids, no new privileges -> exec
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/program.h"
#include "server/relay/relay.h"
#include "account.h"
#include "feature.h"
#include "own_process.h"
#include "relay_process.h"

enum { RELAY_FILES = 1 << 20, RELAY_TASKS = 64 };

static bool
enter_cgroup_and_go_home(void *cookie)
{
    const struct spawner *s = cookie;
    int procs = openat(s->cgroups.relay_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (procs < 0 || write(procs, "0", 1) != 1)
        return false;
    return own_process_go_home(cookie);
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
give_up_everything(void *cookie)
{
    const struct spawner *s = cookie;
    return set_rlimits() && account_become(s->config->relay_uid, s->config->relay_gid);
}

static int
check_parts(const struct spawner *s, struct err *e)
{
    if (!s->config->relay_path[0])
        return err_set(e, ERR_FAILED_PRECONDITION, "disabled (bpf.enabled), or not installed");
    if (s->programs.map[BPF_FD_NAMES] < 0 || s->programs.flows_fd < 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "bpf-net is missing");
    if (!s->programs.guarded)
        return err_set(e, ERR_FAILED_PRECONDITION, "bpf-relay is missing");
    return 0;
}

static int
execute(struct spawner *s, int socket_fd, pid_t *pid, struct err *e)
{
    const struct program_start start = {
        .path = s->config->relay_path,
        .name = "stockade-relay",
        .fds = {{s->null_fd, STDIN_FILENO},
                {s->null_fd, STDOUT_FILENO},
                {socket_fd, RELAY_SOCKET_FD},
                {s->programs.map[BPF_FD_NAMES], RELAY_NAMES_FD},
                {s->programs.flows_fd, RELAY_FLOWS_FD}},
        .fds_n = 5,
        .before = enter_cgroup_and_go_home,
        .last = give_up_everything,
        .cookie = s,
    };
    return program_start(&start, pid, e);
}

int
relay_process_start(struct spawner *s, struct err *e)
{
    int pair[2];
    pid_t pid = -1;
    int r = check_parts(s, e);
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "make a socket pair");
    int auto_close ours = pair[0];
    int auto_close theirs = pair[1];
    r = execute(s, theirs, &pid, e);
    if (r == 0)
        r = own_process_watch(s, pid, EVENT_RELAY, "the relay", e);
    if (r < 0)
        return r;
    s->relay_fd = r;
    return take_fd(&ours);
}

void
relay_process_feature(struct spawn_features *f, bool runs, const struct err *why)
{
    feature_add(f, "relay", runs, true, "%s%s",
                runs ? "traffic that policies allow is forwarded"
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
    answer_fd(s, a, fd, &e);
}

void
relay_process_again(struct spawner *s, struct slot *none, const struct spawn_request *q,
                    struct answer *a)
{
    (void)none;
    (void)q;
    struct err e;
    if (s->relay_answer) {
        (void)err_set(&e, ERR_FAILED_PRECONDITION, "a relay is already being started");
        answer_err(s, a, &e);
    } else if (s->relay_fd >= 0) {
        s->relay_answer = a; // the reply follows when the running one has ended
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
    if (s->relay_fd < 0 || !own_process_ended(s, s->relay_fd))
        return;
    s->relay_fd = -1;
    struct answer *a = s->relay_answer;
    s->relay_answer = NULL;
    if (a)
        start_and_answer(s, a);
}
