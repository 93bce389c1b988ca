// SPDX-License-Identifier: Apache-2.0
// CREATE: from a request to a running guest. Nothing here waits; a birth is a slot in state BORN whose channel and
// process are watched.
//
//   request -> QUEUED -> a scratch disk, if its root says so (scratch.c) -> sockets; its tier makes namespaces, cgroups, the process (tier_process.c) -> BORN
//   channel: an error, or the end of the process   -> killed, removed; the reply is the failure
//            the disk's descriptor                  -> the child's own descriptors are closed
//            end of file after that: exec was done  -> the reply has the descriptors -> LIVE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/fdpass.h"
#include "io.h"
#include "spawner.h"
#include "tier.h"

static int
make_sockets(struct spawner *s, struct slot *slot, struct err *e)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "make the guest's socket");
    slot->socket_fd = pair[0];
    slot->socket_theirs_fd = pair[1];
    int flags = fcntl(slot->socket_fd, F_GETFL);
    if (flags < 0 || fcntl(slot->socket_fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return err_sys(e, errno, "make the guest's socket non-blocking");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "make the child's channel");
    slot->channel_fd = pair[0];
    slot->channel_theirs_fd = pair[1];
    if (!event_add(s, slot->channel_fd, EVENT_CHANNEL, slot->number, EPOLLIN))
        return err_sys(e, errno, "watch the child's channel");
    return 0;
}

// Closes the descriptors that the child shared with us: it has copies by now, or has ended.
static void
close_childs(struct slot *slot)
{
    io_close(&slot->channel_theirs_fd);
    io_close(&slot->socket_theirs_fd);
    io_close(&slot->userns_low_fd);
    io_close(&slot->scratch_fd);
    io_close(&slot->net_fd);
    io_close(&slot->cgroup.guest_fd);
    io_close(&slot->cgroup.tree_fd);
    io_close(&slot->cgroup.ns_fd);
    for (int c = 0; c < CG_N; c++)
        io_close(&slot->cgroup.tasks_fd[c]);
}

static void
close_birth(const struct spawner *s, struct slot *slot)
{
    close_childs(slot);
    // Closing alone is not enough, because other children that are starting may have copies.
    if (slot->channel_fd >= 0)
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, slot->channel_fd, NULL);
    io_close(&slot->channel_fd);
    io_close(&slot->socket_fd);
    cgroup_close_birth(&slot->cgroup);
}

// Undoes a birth; the reply contains the reason and is sent when nothing is left.
static void
birth_failed(struct spawner *s, struct slot *slot, const struct err *e)
{
    assert(slot->state == SLOT_BORN && s->births > 0);
    s->births--;
    close_birth(s, slot);
    if (slot->answer) {
        answer_reply(slot->answer)->err = *e;
        (void)err_wrap(&answer_reply(slot->answer)->err, "start sandbox %s", slot->name);
    }
    removal_start(s, slot);
}

static void
set_deadline(struct slot *slot)
{
    slot->deadline_ns = io_now_ns() + BIRTH_MS * UINT64_C(1000000);
    slot->poll_ns = slot->deadline_ns;
}

static void
make(struct spawner *s, struct slot *slot)
{
    struct err e;
    s->births++;
    set_deadline(slot);
    int r = make_sockets(s, slot, &e);
    if (r == 0)
        r = tier_of(s, slot)->make(s, slot, &e);
    if (r == 0 && !event_add(s, slot->pid_fd, EVENT_PROCESS, slot->number, EPOLLIN))
        r = err_sys(&e, errno, "watch the first process");
    if (r < 0)
        birth_failed(s, slot, &e);
}

// The disk comes first. Until it is there, the birth takes nobody's turn.
static void
birth_start(struct spawner *s, struct slot *slot)
{
    struct err e;
    slot_move(s, slot, SLOT_BORN);
    if (!tree_root_is_on_disk(s->tree, slot->root)) {
        make(s, slot);
        return;
    }
    const struct scratch_size size = {tree_scratch_bytes(s->tree, slot->limits.disk_bytes),
                                      tree_scratch_inodes(slot->limits.inodes)};
    set_deadline(slot);
    if (scratch_wish(s, slot, &size, NULL, NULL, &e) < 0)
        birth_with_disk(s, slot, &e);
}

void
birth_with_disk(struct spawner *s, struct slot *slot, const struct err *why)
{
    if (slot->scratch_fd >= 0) {
        make(s, slot);
    } else {
        s->births++;
        birth_failed(s, slot, why);
    }
}

void
births_start(struct spawner *s)
{
    while (s->queued.head && s->births < BIRTHS_MAX)
        birth_start(s, s->queued.head);
}

// Replies with the sandbox's descriptors.
static void
birth_done(struct spawner *s, struct slot *slot)
{
    int fds[SPAWN_FDS_MAX];
    unsigned n = 1;
    struct answer *a = slot->answer;
    struct spawn_reply *r = answer_reply(a);
    struct err e;
    r->fds = 1u << SPAWN_FD_GUEST;
    if (tier_of(s, slot)->figures(slot, fds, &n, &r->fds, &e) < 0) {
        r->fds = 0;
        birth_failed(s, slot, &e);
        return;
    }
    netns_remember(s, slot);
    fds[0] = take_fd(&slot->socket_fd);
    r->ok = 1;
    r->slot = slot->number;
    r->generation = slot->generation;
    r->uid = slot->uid;
    slot->answer = NULL;
    s->births--;
    close_birth(s, slot);
    slot_move(s, slot, SLOT_LIVE);
    answer_send(s, a, fds, n);
}

// Reads one packet of the channel. 1: *said is filled, and *fd if a descriptor came; 0: the end; otherwise a negative
// errno.
static int
// NOLINTNEXTLINE(readability-non-const-parameter): fdpass_receive() writes it
channel_read(int channel_fd, struct err *said, int *fd)
{
    struct fdpass m = {said, sizeof *said, fd, 1};
    int r = fdpass_receive(channel_fd, &m, MSG_DONTWAIT);
    return r > 0 && m.n != sizeof *said ? -EPROTO : r;
}

// Whether the child has ended, and how; it is not reaped.
static bool
is_over(const struct slot *slot, siginfo_t *how)
{
    *how = (siginfo_t){.si_pid = 0};
    return slot->pid_fd >= 0 &&
           waitid(P_PIDFD, (id_t)slot->pid_fd, how, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           how->si_pid != 0;
}

// Describes the end of a child that reported nothing. Its status exists only after the kernel has finished its exit.
static void
ended_silently(const struct slot *slot, struct err *e)
{
    siginfo_t how;
    bool known = is_over(slot, &how);
    (void)err_set(e, ERR_INTERNAL, "the first process ended before the guest ran (%s %d)",
                  !known                      ? "status unknown:"
                  : how.si_code == CLD_EXITED ? "exit"
                                              : "signal",
                  known ? how.si_status : 0);
}

// The child has done everything except exec, and this is the disk's descriptor.
static void
take_disk(struct slot *slot, int fd)
{
    slot->disk_fd = io_keep_fd(fd);
    close_childs(slot);
}

// The reason of the failure, from the last result of reading the channel: a packet, its end, or an error of our own.
static void
explain(const struct slot *slot, int r, struct err *said)
{
    if (r > 0)
        err_sanitize(said);
    else if (r == 0)
        ended_silently(slot, said);
    else
        (void)err_sys(said, r, "listen to the first process");
}

void
birth_heard(struct spawner *s, struct slot *slot)
{
    if (slot->state != SLOT_BORN)
        return;
    struct err said;
    int r = 0;
    for (;;) {
        int auto_close fd = -1;
        r = channel_read(slot->channel_fd, &said, &fd);
        if (r <= 0 || said.code != ERR_OK || fd < 0 || slot->disk_fd >= 0)
            break;
        take_disk(slot, take_fd(&fd));
    }
    if (r == -EAGAIN)
        return;
    if (r == 0 && slot->disk_fd >= 0) {
        birth_done(s, slot);
        return;
    }
    explain(slot, r, &said);
    birth_failed(s, slot, &said);
}

void
birth_ended(struct spawner *s, struct slot *slot)
{
    siginfo_t how;
    // The event may be about an earlier process of the slot. Then the current child may still share our descriptors,
    // and closing its ends would end it.
    if (!is_over(slot, &how))
        return;
    // The child's last report may still be in the channel; the end of file follows when our copy of its end is
    // closed.
    close_childs(slot);
    birth_heard(s, slot);
}

void
birth_late(struct spawner *s, struct slot *slot)
{
    struct err e;
    if (slot->wish != NULL) {
        (void)err_set(&e, ERR_DEADLINE_EXCEEDED, "its disk was not ready after %d s",
                      BIRTH_MS / 1000);
        scratch_forget(s, slot);
        birth_with_disk(s, slot, &e);
        return;
    }
    // the spawner itself may be late, and the child's last report may be waiting
    birth_heard(s, slot);
    if (slot->state != SLOT_BORN)
        return;
    (void)err_set(&e, ERR_DEADLINE_EXCEEDED, "the first process was not ready after %d s",
                  BIRTH_MS / 1000);
    birth_failed(s, slot, &e);
}
