// SPDX-License-Identifier: Apache-2.0
// RESET: a sandbox that has run a job is made ready for the next one of the same caller, which finds nothing of it.
//
//   all processes but the guest are gone, and all sockets  ->  objects of IPC removed  ->  upper layer untouched? else a fresh one
//   ->  peaks of v1 controllers start again
//
// The namespaces stay. Before the first job it takes once what the resets need: an upper layer of its own, the folder of the
// message queues, and a network namespace that keeps no ended connections. Nothing is removed file by file. SECURITY.md lists
// what stays.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/auto.h"
#include "cgroup_leaf.h"
#include "io.h"
#include "ipc.h"
#include "netns.h"
#include "spawner.h"
#include "tier.h"
#include "tree_fresh.h"

// A connection in TIME_WAIT would keep its port from the next job for a minute. Returns what shows the number of sockets.
static int
open_sockets_here(const struct spawner *s, struct err *e)
{
    int r = io_write_at(s->proc_fd, "sys/net/ipv4/tcp_max_tw_buckets", "0", e);
    int fd = r < 0 ? r : openat(s->proc_fd, "thread-self/net/sockstat", O_RDONLY | O_CLOEXEC);
    return r < 0 || fd >= 0 ? fd : err_sys(e, errno, "open the number of sockets");
}

static int
open_sockets(const struct spawner *s, const struct slot *slot, struct err *e)
{
    if (setns(slot->pid_fd, CLONE_NEWNET) < 0)
        return err_sys(e, errno, "enter the network namespace");
    int auto_close fd = open_sockets_here(s, e);
    if (setns(s->net_home_fd, CLONE_NEWNET) < 0)
        return err_sys(e, errno, "leave the network namespace");
    return fd < 0 ? fd : take_fd(&fd);
}

static int
prepare(const struct spawner *s, struct slot *slot, struct err *e)
{
    io_close(&slot->net_again_fd);
    int fd = open_sockets(s, slot, e);
    if (fd < 0)
        return fd;
    io_close(&slot->sockets_fd);
    slot->sockets_fd = io_keep_fd(fd);
    fd = ipc_open(slot->pid_fd, s->ipc_home_fd, e);
    if (fd < 0)
        return fd;
    slot->queues_fd = io_keep_fd(fd);
    return 0;
}

// Sockets that only messages to each other hold live, with their names, until the kernel collects them: it begins to when a
// unix socket is closed.
static void
collect_sockets(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    (void)close(pair[0]);
    (void)close(pair[1]);
}

static int
check_sockets(const struct slot *slot, struct err *e)
{
    if (netns_has_no_sockets(slot->sockets_fd))
        return 0;
    collect_sockets();
    (void)err_set(e, ERR_FAILED_PRECONDITION, "a socket of an earlier job is left");
    err_detail(e, "JOBS_RUN", slot->name, "try again");
    return -EBUSY;
}

// The maximum so far. v2 has the peaks of each job in its own cgroup.
static int
start_peaks(const struct slot *slot, struct err *e)
{
    const struct cgroup_leaf *l = slot->cgroup.leaf;
    return l == NULL || l->fd[CG_MEMORY] < 0
               ? 0
               : io_write_at(l->fd[CG_MEMORY], "memory.max_usage_in_bytes", "0", e);
}

static bool
is_untouched(const struct slot *slot)
{
    const struct tree_of p = tree_of(slot);
    return p.layers != NULL && tree_fresh_is_untouched(&p);
}

static int
remember(const struct slot *slot, struct err *e)
{
    const struct tree_of p = tree_of(slot);
    return tree_fresh_remember(&p, e);
}

// 1: it needs a scratch disk first (storage: disk).
static int
reset(struct spawner *s, struct slot *slot, const struct spawn_request *q, int *disk_fd,
      struct scratch_size *needs, struct err *e)
{
    uint32_t layer = 0;
    int r = slot_check_idle(slot, q->arg, e);
    if (r == 0 && slot->queues_fd < 0)
        r = prepare(s, slot, e);
    if (r == 0)
        r = check_sockets(slot, e);
    if (r == 0)
        r = ipc_clear(slot->pid_fd, s->ipc_home_fd, slot->queues_fd, e);
    if (r == 0 && !is_untouched(slot)) {
        r = tier_of(s, slot)->swap(s, slot, q, &layer, disk_fd, needs, e);
        if (r == 0)
            r = remember(slot, e);
    }
    return r == 0 ? start_peaks(slot, e) : r;
}

void
reset_handle(struct spawner *s, struct slot *slot, const struct spawn_request *q, struct answer *a)
{
    struct err e;
    struct scratch_size needs;
    int disk_fd = -1;
    int r = reset(s, slot, q, &disk_fd, &needs, &e);
    if (r > 0 && (r = scratch_wish(s, slot, &needs, q, a, &e)) == 0)
        return; // swap_with_disk() begins again
    if (r == 0) {
        answer_reply(a)->ok = 1;
        answer_reply(a)->fds = disk_fd >= 0;
        answer_send(s, a, &disk_fd, disk_fd >= 0);
        return;
    }
    io_close(&disk_fd);
    if (r == -ENOTRECOVERABLE)
        tier_of(s, slot)->kill(slot);
    (void)err_wrap(&e, "reset sandbox %s", slot->name);
    answer_err(s, a, &e);
}
