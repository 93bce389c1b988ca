// SPDX-License-Identifier: Apache-2.0
// See fetcher_process.h. A fetcher parses what strangers send, so it starts without rights: ids of its own, no capability, its
// socket and stderr. It ends with the spawner, and when it has had its time: by an alarm, and if it was taken over, or does not run, by
// the spawner.
//
//   program.h: the host's clocks and files -> descriptors -> rlimits, alarm, ids -> exec
#include "fetcher_process.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "account.h"
#include "io.h"
#include "own_process.h"
#include "proto/auto.h"
#include "proto/program.h"
#include "server/fetcher/fetch.h"

enum { FETCHER_FILES = 64, FETCHER_TASKS = 16 };

#define NS_PER_MS UINT64_C(1000000)

struct birth {
    struct spawner *s;
    uint32_t seconds;
};

static bool
go_home(void *cookie)
{
    return own_process_go_home(((const struct birth *)cookie)->s);
}

static bool
give_up_everything(void *cookie)
{
    const struct birth *b = cookie;
    const uint32_t id = b->s->config->id_base + SPAWN_FETCHER_ID;
    const struct rlimit none = {0, 0}, files = {FETCHER_FILES, FETCHER_FILES},
                        tasks = {FETCHER_TASKS, FETCHER_TASKS};
    (void)alarm(b->seconds);
    return setrlimit(RLIMIT_CORE, &none) == 0 && setrlimit(RLIMIT_NOFILE, &files) == 0 &&
           setrlimit(RLIMIT_NPROC, &tasks) == 0 && account_become(id, id);
}

static int
execute(struct spawner *s, uint32_t seconds, int socket_fd, pid_t *pid, struct err *e)
{
    struct birth birth = {s, seconds};
    const struct program_start start = {
        .path = s->config->fetcher_path,
        .name = "stockade-fetcher",
        .fds = {{s->null_fd, STDIN_FILENO},
                {s->null_fd, STDOUT_FILENO},
                {socket_fd, FETCH_BROKER_FD}},
        .fds_n = 3,
        .before = go_home,
        .last = give_up_everything,
        .cookie = &birth,
    };
    return program_start(&start, pid, e);
}

// Returns its socket for the broker, or a negative errno.
static int
start(struct spawner *s, uint32_t seconds, struct err *e)
{
    int pair[2];
    pid_t pid = -1;
    if (s->config->fetcher_path[0] == '\0')
        return err_set(e, ERR_FAILED_PRECONDITION, "this host has no program stockade-fetcher");
    if (s->fetcher_fd >= 0) {
        int full = err_set(e, ERR_RESOURCE_EXHAUSTED, "a fetcher runs already");
        err_detail(e, "FETCHERS", NULL, "try again");
        return full;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "make a socket pair");
    int auto_close ours = pair[0];
    int auto_close theirs = pair[1];
    int r = execute(s, seconds, theirs, &pid, e);
    if (r == 0)
        r = own_process_watch(s, pid, EVENT_FETCHER, "the fetcher", e);
    if (r < 0)
        return r;
    s->fetcher_fd = r;
    s->fetcher_until_ns = io_now_ns() + seconds * UINT64_C(1000) * NS_PER_MS;
    return take_fd(&ours);
}

void
fetcher_process_start(struct spawner *s, struct slot *none, const struct spawn_request *q,
                      struct answer *a)
{
    (void)none;
    struct err e;
    int fd = start(s, q->arg, &e);
    answer_fd(s, a, fd, &e);
}

int
fetcher_process_look(struct spawner *s)
{
    const uint64_t now = io_now_ns();
    if (s->fetcher_fd < 0)
        return -1;
    if (now >= s->fetcher_until_ns) {
        (void)syscall(SYS_pidfd_send_signal, s->fetcher_fd, SIGKILL, NULL, 0);
        s->fetcher_until_ns = now + 1000 * NS_PER_MS;
    }
    return (int)((s->fetcher_until_ns - now) / NS_PER_MS) + 1;
}

void
fetcher_process_ended(struct spawner *s, int pid_fd)
{
    if (own_process_ended(s, pid_fd))
        s->fetcher_fd = -1;
}
