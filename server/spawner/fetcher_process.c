// SPDX-License-Identifier: Apache-2.0
// See fetcher_process.h. A fetcher parses what strangers send, so it starts without rights: ids of its own, no capability, its
// socket and stderr. It ends with the spawner, and after FETCH_SECONDS.
//
//   program.h: the host's clocks and files -> descriptors -> rlimits, alarm, ids -> exec
#include "fetcher_process.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "account.h"
#include "own_process.h"
#include "proto/auto.h"
#include "proto/program.h"
#include "server/fetcher/fetch.h"

enum { FETCHER_FILES = 64, FETCHER_TASKS = 16 };

static bool
give_up_everything(void *cookie)
{
    const struct spawner *s = cookie;
    const uint32_t id = s->config->id_base + SPAWN_FETCHER_ID;
    const struct rlimit none = {0, 0}, files = {FETCHER_FILES, FETCHER_FILES},
                        tasks = {FETCHER_TASKS, FETCHER_TASKS};
    (void)alarm(FETCH_SECONDS);
    return setrlimit(RLIMIT_CORE, &none) == 0 && setrlimit(RLIMIT_NOFILE, &files) == 0 &&
           setrlimit(RLIMIT_NPROC, &tasks) == 0 && account_become(id, id);
}

static int
execute(struct spawner *s, int socket_fd, pid_t *pid, struct err *e)
{
    const struct program_start start = {
        .path = s->config->fetcher_path,
        .name = "stockade-fetcher",
        .fds = {{s->null_fd, STDIN_FILENO},
                {s->null_fd, STDOUT_FILENO},
                {socket_fd, FETCH_BROKER_FD}},
        .fds_n = 3,
        .before = own_process_go_home,
        .last = give_up_everything,
        .cookie = s,
    };
    return program_start(&start, pid, e);
}

// Returns its socket for the broker, or a negative errno.
static int
start(struct spawner *s, struct err *e)
{
    int pair[2];
    pid_t pid = -1;
    if (s->config->fetcher_path[0] == '\0')
        return err_set(e, ERR_FAILED_PRECONDITION, "this host has no program stockade-fetcher");
    if (s->fetchers >= SPAWN_FETCHERS_MAX) {
        int full =
            err_set(e, ERR_RESOURCE_EXHAUSTED, "%d fetchers run already", SPAWN_FETCHERS_MAX);
        err_detail(e, "FETCHERS", NULL, "try again");
        return full;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "make a socket pair");
    int auto_close ours = pair[0];
    int auto_close theirs = pair[1];
    int r = execute(s, theirs, &pid, e);
    if (r == 0)
        r = own_process_watch(s, pid, EVENT_FETCHER, "the fetcher", e);
    if (r < 0)
        return r;
    s->fetchers++;
    return take_fd(&ours);
}

void
fetcher_process_start(struct spawner *s, struct slot *none, const struct spawn_request *q,
                      struct answer *a)
{
    (void)none;
    (void)q;
    struct err e;
    int fd = start(s, &e);
    answer_fd(s, a, fd, &e);
}

void
fetcher_process_ended(struct spawner *s, int pid_fd)
{
    if (own_process_ended(s, pid_fd))
        s->fetchers--;
}
