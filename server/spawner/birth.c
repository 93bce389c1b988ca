// SPDX-License-Identifier: Apache-2.0
// CREATE: from a request to a guest that runs. Nothing here waits; a birth is a slot in state BORN whose channel and
// process are watched.
//
//   request -> QUEUED -> user namespace (kept), cgroups, sockets, clone3 -> BORN
//   channel: an error, or the end of the process   -> killed, removed, answered with what failed
//            the disk's descriptor                  -> what only the child needed is closed
//            end of file after that: exec was done  -> answered with the descriptors -> LIVE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../proto/auto.h"
#include "holder.h"
#include "io.h"
#include "spawner.h"

bool
netns_fill(struct spawner *s)
{
    if (s->net_n >= s->config->netns_pool || s->net_n >= NETNS_POOL_MAX)
        return false;
    struct err ignored; // tells itself when a child makes its own
    int fd = holder_network_namespace(s->net_home_fd, s->proc_fd, &ignored);
    if (fd < 0)
        return false;
    s->net_pool[s->net_n++] = io_keep_fd(fd);
    return true;
}

static int
low_copy(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, FD_CHILD_MAX);
}

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

// The namespaces that are made ahead, where the child can reach them.
static int
take_namespaces(struct spawner *s, struct slot *slot, struct err *e)
{
    if (slot->userns_fd < 0) {
        int fd = holder_user_namespace(slot->uid, s->proc_fd, e);
        if (fd < 0)
            return fd;
        slot->userns_fd = io_keep_fd(fd);
    }
    slot->userns_low_fd = low_copy(slot->userns_fd);
    if (slot->userns_low_fd < 0)
        return err_sys(e, errno, "user namespace: copy the descriptor");
    if (s->net_n > 0) {
        int fd = s->net_pool[--s->net_n];
        slot->net_fd = low_copy(fd);
        (void)close(fd);
    }
    return 0;
}

static int
clone_child(struct spawner *s, struct slot *slot, struct err *e)
{
    const struct cgroup_sandbox cgroup = slot->cgroup; // the table of slots is not the child's
    const struct child_plan plan = {
        .cgroup = &cgroup,
        .tree = s->tree,
        .sandbox = {.template = slot->template,
                    .userns_fd = slot->userns_low_fd,
                    .uid = slot->uid,
                    .disk_bytes = slot->limits.disk_bytes,
                    .inodes = slot->limits.inodes,
                    .memory_bytes = slot->limits.memory_bytes,
                    .cpu_millis = slot->limits.cpu_millis,
                    .hidden_fd = cgroup.tree_fd},
        .filter = &s->guest_filter,
        .hostname = s->config->templates[slot->template].hostname,
        .net_fd = slot->net_fd,
        .socket_fd = slot->socket_theirs_fd,
        .channel_fd = slot->channel_theirs_fd,
        .job_filter_fd = s->job_filter_fd,
        .exe_fd = s->exe_fd,
        .null_fd = s->null_fd,
        .proc_fd = s->proc_fd,
        .cores_piped = s->cores_piped,
    };
    int r = child_start(&plan, &slot->pid_fd, e);
    if (r < 0)
        return r;
    slot->pid_fd = io_keep_fd(slot->pid_fd);
    if (!event_add(s, slot->pid_fd, EVENT_PROCESS, slot->number, EPOLLIN))
        return err_sys(e, errno, "watch the first process");
    return 0;
}

// What the child shared with us; it has its own by now, or is dead.
static void
close_childs(struct slot *slot)
{
    io_close(&slot->channel_theirs_fd);
    io_close(&slot->socket_theirs_fd);
    io_close(&slot->userns_low_fd);
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
    // Not by close alone: other children on their way may hold copies.
    if (slot->channel_fd >= 0)
        (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, slot->channel_fd, NULL);
    io_close(&slot->channel_fd);
    io_close(&slot->socket_fd);
    cgroup_close_birth(&slot->cgroup);
}

// Undoes a birth; the answer tells why once nothing is left.
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
birth_start(struct spawner *s, struct slot *slot)
{
    struct err e;
    slot_move(s, slot, SLOT_BORN);
    s->births++;
    slot->deadline_ns = io_now_ns() + BIRTH_MS * UINT64_C(1000000);
    slot->poll_ns = slot->deadline_ns;
    int r = take_namespaces(s, slot, &e);
    if (r == 0)
        r = cgroup_make(&s->cgroups, slot->name, slot->uid, s->proc_fd, &slot->limits,
                        &slot->cgroup, &e);
    if (r == 0) {
        slot->cgroup.fd = io_keep_fd(slot->cgroup.fd);
        r = make_sockets(s, slot, &e);
    }
    if (r == 0)
        r = clone_child(s, slot, &e);
    if (r < 0)
        birth_failed(s, slot, &e);
}

void
births_start(struct spawner *s)
{
    while (s->queued.head && s->births < BIRTHS_MAX)
        birth_start(s, s->queued.head);
}

// Hands the sandbox out.
static void
birth_done(struct spawner *s, struct slot *slot)
{
    int fds[SPAWN_FDS_MAX];
    unsigned n = 0;
    static const enum spawn_fd v1[CG_N] = {
        [CG_MEMORY] = SPAWN_FD_MEMORY,
        [CG_CPU] = SPAWN_FD_CPU,
        [CG_PIDS] = SPAWN_FD_PIDS,
        [CG_IO] = SPAWN_FD_BLKIO,
    };
    struct answer *a = slot->answer;
    struct spawn_reply *r = answer_reply(a);
    int auto_close cgroup_fd = low_copy(slot->cgroup.fd);
    int auto_close disk_fd = low_copy(slot->disk_fd);
    if (cgroup_fd < 0 || disk_fd < 0) {
        struct err e;
        (void)err_sys(&e, errno, "copy the cgroup's and the disk's descriptor");
        birth_failed(s, slot, &e);
        return;
    }
    fds[n++] = take_fd(&slot->socket_fd);
    fds[n++] = take_fd(&cgroup_fd);
    r->fds = 1u << SPAWN_FD_GUEST | 1u << SPAWN_FD_CGROUP | 1u << SPAWN_FD_DISK;
    for (int c = 0; c < CG_N; c++) {
        if (slot->cgroup.v1_fd[c] < 0)
            continue;
        fds[n++] = take_fd(&slot->cgroup.v1_fd[c]);
        r->fds |= 1u << v1[c];
    }
    fds[n++] = take_fd(&disk_fd);
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

// One packet of the channel: its length, 0 at the end, a negative errno. *fd: a descriptor that came with it, or -1.
static ssize_t
channel_read(int channel_fd, struct err *said, int *fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {said, sizeof *said};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    *fd = -1;
    ssize_t n = recvmsg(channel_fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return -errno;
    const struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS &&
        h->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(fd, CMSG_DATA(h), sizeof(int));
    return n;
}

// Whether the child is over, and how; it is not reaped.
static bool
is_over(const struct slot *slot, siginfo_t *how)
{
    *how = (siginfo_t){.si_pid = 0};
    return slot->pid_fd >= 0 &&
           waitid(P_PIDFD, (id_t)slot->pid_fd, how, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           how->si_pid != 0;
}

// What is known of a child that said nothing; its status is there only when the kernel is done with it.
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

void
birth_heard(struct spawner *s, struct slot *slot)
{
    if (slot->state != SLOT_BORN)
        return;
    struct err said;
    int fd = -1;
    ssize_t n = channel_read(slot->channel_fd, &said, &fd);
    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n == (ssize_t)sizeof said && said.code == ERR_OK && fd >= 0 && slot->disk_fd < 0) {
        slot->disk_fd = io_keep_fd(fd);
        close_childs(slot);
        n = channel_read(slot->channel_fd, &said, &fd);
        if (n == -EAGAIN)
            return;
    }
    if (fd >= 0)
        (void)close(fd);
    if (n == 0 && slot->disk_fd >= 0) {
        birth_done(s, slot);
        return;
    }
    if (n == (ssize_t)sizeof said)
        err_sanitize(&said);
    else
        ended_silently(slot, &said);
    birth_failed(s, slot, &said);
}

void
birth_ended(struct spawner *s, struct slot *slot)
{
    siginfo_t how;
    // An event about the process that the slot had before is about nobody: closing the ends of a child that still shares
    // our descriptors would end it.
    if (!is_over(slot, &how))
        return;
    // Its last words may still be on the channel; the end of file is, once our copy of its end is closed.
    close_childs(slot);
    birth_heard(s, slot);
}

void
birth_late(struct spawner *s, struct slot *slot)
{
    struct err e;
    birth_heard(s, slot); // it may have been us who were late, and its last word is there
    if (slot->state != SLOT_BORN)
        return;
    (void)err_set(&e, ERR_DEADLINE_EXCEEDED, "the first process was not ready after %d s",
                  BIRTH_MS / 1000);
    birth_failed(s, slot, &e);
}
