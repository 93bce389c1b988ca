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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/fdpass.h"
#include "server/keeper/keep.h"
#include "io.h"
#include "own_process.h"
#include "tier.h"
#include "tree_copy.h"

_Static_assert((int)KEEP_SOURCE_FD + 1 < (int)FD_CHILD_MAX, "places are kept free");

struct start {
    const char *folder; // the first argument
    int source_fd;      // -1: none
    uint32_t uid;
    const struct cgroup_copier *copier; // NULL: it is not in the cgroup of a sandbox
};

// The first one that the kernel kills when the sandbox has no memory left, instead of a job.
static int
enter_cgroups(const struct spawner *s, const struct cgroup_copier *c)
{
    struct err ignored;
    for (int i = 0; i < CG_N; i++)
        if (c->tasks_fd[i] >= 0 && write(c->tasks_fd[i], "0", 1) != 1)
            return -errno;
    return io_write_at(s->proc_fd, "self/oom_score_adj", "1000", &ignored);
}

static __attribute__((noreturn)) void
exec_keeper(const struct spawner *s, const struct start *b, int broker_fd)
{
    static char name[] = "stockade-keeper";
    static char ids[16];
    const int source_fd = b->source_fd;
    char *const argv[] = {name, (char *)(uintptr_t)b->folder, ids, NULL};
    char *const envp[] = {NULL};
    static struct keep_answer failed;
    sigset_t none;
    (void)sigemptyset(&none);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)snprintf(ids, sizeof ids, "%u", b->uid);
    // The socket first, because later failures are reported through it.
    if (dup2(broker_fd, KEEP_BROKER_FD) < 0)
        _exit(70);
    if ((b->copier == NULL || enter_cgroups(s, b->copier) == 0) &&
        dup2(source_fd >= 0 ? source_fd : s->null_fd, KEEP_SOURCE_FD) >= 0 &&
        dup2(s->null_fd, STDIN_FILENO) >= 0 && dup2(s->null_fd, STDOUT_FILENO) >= 0 &&
        setns(s->mount_home_fd, CLONE_NEWNS) == 0 &&
        syscall(SYS_close_range, KEEP_SOURCE_FD + 1, ~0u, 0) == 0)
        (void)execve(s->config->keeper_path, argv, envp);
    (void)err_sys(&failed.err, errno, "start %s", s->config->keeper_path);
    (void)send(KEEP_BROKER_FD, &failed, sizeof failed, MSG_NOSIGNAL);
    _exit(70);
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

static int
start_process(struct spawner *s, const struct start *b, int theirs, struct err *e)
{
    struct clone_args args = {.exit_signal = SIGCHLD};
    if (b->copier != NULL && b->copier->fd >= 0) {
        args.flags = CLONE_INTO_CGROUP;
        args.cgroup = (unsigned)b->copier->fd;
    }
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        exec_keeper(s, b, theirs);
    if (pid < 0)
        return err_sys(e, errno, "clone3");
    int pid_fd = own_process_watch(s, pid, EVENT_KEEPER, "the keeper", e);
    s->keepers += pid_fd >= 0;
    return pid_fd < 0 ? pid_fd : 0;
}

// Returns its socket for the broker, or a negative errno.
static int
start(struct spawner *s, int source_fd, uint32_t uid, struct err *e)
{
    int pair[2];
    const struct start b = {s->config->state_dir, source_fd, uid, NULL};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "make a socket pair");
    int auto_close ours = pair[0];
    int auto_close theirs = pair[1];
    int r = start_process(s, &b, theirs, e);
    return r < 0 ? r : take_fd(&ours);
}

// As if from the broker, whose order comes after them.
static int
give_sources(int broker_fd, const struct tree_copying *c, struct err *e)
{
    int r = 0;
    for (uint32_t i = 0; i < c->n && r == 0; i++) {
        const struct tree_copy_source *from = &c->source[i];
        struct keep_source packet = {.kind = from->kind, .left = c->n - 1 - i, .uid = c->uid};
        int fds[2] = {from->fd, from->dev_fd};
        const struct fdpass m = {&packet, sizeof packet, fds, from->dev_fd >= 0 ? 2 : 1};
        r = fdpass_send(broker_fd, &m, MSG_DONTWAIT);
    }
    return r < 0 ? err_sys(e, -r, "give the keeper what it copies") : 0;
}

int
keeper_process_copy(struct spawner *s, const struct slot *slot, const struct tree_copying *c,
                    struct err *e)
{
    int pair[2];
    struct cgroup_copier copier;
    const struct start b = {KEEP_FOR_COPY, c->target_fd, slot->uid, &copier};
    int r = check(s, e);
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "make a socket pair");
    int auto_close ours = pair[0];
    int auto_close theirs = pair[1];
    r = give_sources(ours, c, e);
    if (r == 0)
        r = cgroup_copier_open(&s->cgroups, &slot->cgroup, &copier, e);
    else
        return r;
    if (r == 0)
        r = start_process(s, &b, theirs, e);
    cgroup_copier_close(&copier);
    return r < 0 ? r : take_fd(&ours);
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
    if (own_process_ended(s, pid_fd))
        s->keepers--;
}
