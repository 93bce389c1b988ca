// SPDX-License-Identifier: Apache-2.0
// See disk_process.h. At most SPAWN_DISK_RUNS_MAX run at a time, each with one socket pair:
//
//   request -> a free run -> program in the host's mounts and clocks, order -> answer, or end of file -> reply
#include "disk_process.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "io.h"
#include "own_process.h"
#include "proto/auto.h"
#include "proto/fdpass.h"
#include "proto/program.h"
#include "server/disk/order.h"

// The broker's own disks are not to wait for those of sandboxes.
enum { PROBE_SECONDS = 10, MKFS_ID = 2, SCRATCH_RUNS_MAX = SPAWN_DISK_RUNS_MAX / 2 };

// Starts the program and gives it its order. *pid: to be reaped. Returns our end of its socket, owned.
static int
start(const struct spawner *s, const struct disk_order *o, int space_fd, pid_t *pid, struct err *e)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "make a socket pair");
    int auto_close ours = pair[0];
    int auto_close theirs = pair[1];
    const struct program_start start = {
        .path = s->config->disk_path,
        .name = "stockade-disk",
        .fds = {{s->null_fd, STDIN_FILENO},
                {s->null_fd, STDOUT_FILENO},
                {theirs, DISK_SOCKET_FD},
                {space_fd, DISK_SPACE_FD}},
        .fds_n = space_fd >= 0 ? 4 : 3,
        .before = own_process_go_home,
        .cookie = (void *)(uintptr_t)s,
    };
    if (send(ours, o, sizeof *o, MSG_NOSIGNAL) != (ssize_t)sizeof *o)
        return err_sys(e, errno, "send the order");
    int r = program_start(&start, pid, e);
    return r < 0 ? r : take_fd(&ours);
}

static struct disk_order
order_of(const struct spawner *s, uint32_t op)
{
    struct disk_order o = {.op = op, .mkfs_id = s->config->id_base + MKFS_ID};
    memcpy(o.state_dir, s->config->state_dir, sizeof o.state_dir);
    return o;
}

// ---- the start

static int
probe(const struct spawner *s, struct disk_answer *a, struct err *e)
{
    const struct disk_order o = order_of(s, DISK_PROBE);
    const struct timeval timeout = {.tv_sec = PROBE_SECONDS};
    pid_t pid = -1;
    if (s->config->disk_path[0] == '\0')
        return err_set(e, ERR_FAILED_PRECONDITION, "stockade-disk is not installed");
    int auto_close fd = start(s, &o, -1, &pid, e);
    if (fd < 0)
        return fd;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    bool heard = recv(fd, a, sizeof *a, 0) == (ssize_t)sizeof *a;
    (void)kill(pid, SIGKILL);
    program_wait(pid);
    if (!heard)
        return err_set(e, ERR_INTERNAL, "stockade-disk did not answer");
    if (!a->ok)
        *e = a->err;
    return a->ok ? 0 : -ENOSYS;
}

void
disk_process_probe(struct spawner *s, struct spawn_features *f)
{
    static struct disk_answer a;
    struct err e;
    if (probe(s, &a, &e) < 0)
        feature_add(f, "disks", false, false, "volumes are refused: %.140s", e.text);
    else if (a.backend == DISK_PROJECT)
        feature_add(f, "disks", true, false, "folders with project quotas");
    else
        feature_add(f, "disks", true, false, "images on loop devices, because: %.140s", a.err.text);
    s->disks_fine = a.ok != 0;
    s->scratch_fine = a.ok != 0 && a.scratch != 0;
    if (s->scratch_fine)
        feature_add(f, "storage-on-disk", true, false, "images without a name on loop devices");
    else
        feature_add(f, "storage-on-disk", false, false,
                    "templates with storage: disk have no sandboxes: %.120s",
                    a.ok != 0 ? a.scratch_err.text : e.text);
}

// ---- runs

static int
free_run(const struct spawner *s)
{
    for (int i = 0; i < SPAWN_DISK_RUNS_MAX; i++)
        if (!s->disk_run[i].busy)
            return i;
    return -1;
}

static int
check(const struct spawner *s, const struct spawn_request *q, struct err *e)
{
    if (!s->disks_fine) {
        int r = err_set(e, ERR_FAILED_PRECONDITION, "this host has no disks with a quota");
        err_detail(e, "NO_DISKS", "disks", "stockade info says why");
        return r;
    }
    if (free_run(s) < 0) {
        int r = err_set(e, ERR_UNAVAILABLE, "%d disks are being made or removed already",
                        SPAWN_DISK_RUNS_MAX);
        err_detail(e, "DISKS_BUSY", NULL, "try again");
        return r;
    }
    if (q->op == SPAWN_DISK_REMOVE && disk_is_open(s->disks, q->arg, q->id))
        return err_set(e, ERR_FAILED_PRECONDITION, "the disk is open");
    return 0;
}

// Gives it its order, and waits for its answer.
static int
run_order(struct spawner *s, const struct disk_order *o, int space_fd, struct disk_run *run,
          struct err *e)
{
    struct err ignored;
    pid_t pid = -1;
    int fd = start(s, o, space_fd, &pid, e);
    if (fd < 0)
        return fd;
    run->socket_fd = io_keep_fd(fd);
    (void)own_process_watch(s, pid, EVENT_HELPER, "stockade-disk",
                            &ignored); // else its socket ends
    if (!event_add(s, run->socket_fd, EVENT_DISK, (uint32_t)(run - s->disk_run), EPOLLIN)) {
        int r = err_sys(e, errno, "watch stockade-disk");
        io_close(&run->socket_fd);
        return r;
    }
    run->busy = true;
    return 0;
}

static int
begin(struct spawner *s, const struct spawn_request *q, struct disk_run *run, struct err *e)
{
    struct disk_order o = order_of(s, q->op == SPAWN_DISK_MAKE   ? DISK_MAKE
                                      : q->op == SPAWN_DISK_OPEN ? DISK_OPEN
                                                                 : DISK_REMOVE);
    int space_fd = -1;
    o.kind = q->arg;
    o.bytes = q->limits.disk_bytes;
    o.inodes = q->limits.inodes;
    o.mount_point = run->number;
    memcpy(o.id, q->id, sizeof o.id);
    if (q->op == SPAWN_DISK_OPEN && (space_fd = disks_space(s->disks, s->proc_fd, e)) < 0)
        return space_fd;
    return run_order(s, &o, space_fd, run, e);
}

static unsigned
scratch_runs(const struct spawner *s)
{
    unsigned n = 0;
    for (int i = 0; i < SPAWN_DISK_RUNS_MAX; i++)
        n += s->disk_run[i].busy && s->disk_run[i].answer == NULL;
    return n;
}

int
disk_process_scratch(struct spawner *s, const struct slot *slot, uint32_t wish,
                     const struct scratch_size *size, int trim_fd, struct err *e)
{
    struct disk_order o = order_of(s, DISK_SCRATCH);
    if (!s->scratch_fine) {
        int r =
            err_set(e, ERR_FAILED_PRECONDITION, "this host has no disks for files of sandboxes");
        err_detail(e, "NO_DISKS", "storage-on-disk", "stockade info says why");
        return r;
    }
    const int i = free_run(s);
    if (i < 0 || scratch_runs(s) >= SCRATCH_RUNS_MAX)
        return 1;
    struct disk_run *run = &s->disk_run[i];
    o.kind = SPAWN_DISK_LAYER;
    o.trim = trim_fd >= 0;
    o.bytes = size->bytes;
    o.inodes = size->inodes;
    run->answer = NULL;
    run->opens = false;
    run->scratch = (struct scratch_run){slot->number, wish};
    return run_order(s, &o, trim_fd, run, e);
}

void
disk_process_handle(struct spawner *s, struct slot *none, const struct spawn_request *q,
                    struct answer *a)
{
    (void)none;
    struct err e;
    int r = check(s, q, &e);
    if (r < 0) {
        answer_err(s, a, &e);
        return;
    }
    struct disk_run *run = &s->disk_run[free_run(s)];
    if (q->op == SPAWN_DISK_OPEN && disk_take(s->disks, q->arg, q->id, &run->number, &e) < 0) {
        answer_err(s, a, &e);
        return;
    }
    run->opens = q->op == SPAWN_DISK_OPEN;
    r = begin(s, q, run, &e);
    if (r == 0) {
        run->answer = a;
        return;
    }
    if (run->opens)
        disk_taken(s->disks, run->number, false);
    answer_err(s, a, &e);
}

void
disk_process_heard(struct spawner *s, uint32_t number)
{
    static struct disk_answer got;
    struct disk_run *run = &s->disk_run[number];
    if (!run->busy)
        return;
    const bool scratch = run->answer == NULL;
    int auto_close mounted = -1;
    struct fdpass m = {&got, sizeof got, &mounted, 1};
    int r = fdpass_receive(run->socket_fd, &m, MSG_DONTWAIT);
    if (r == -EAGAIN || r == -EINTR)
        return;
    if (r <= 0 || m.n != sizeof got || ((run->opens || scratch) && got.ok && mounted < 0)) {
        got.ok = 0;
        (void)err_set(&got.err, ERR_INTERNAL, "stockade-disk ended without an answer");
    }
    (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, run->socket_fd, NULL);
    io_close(&run->socket_fd);
    if (run->opens)
        disk_taken(s->disks, run->number, got.ok != 0);
    struct answer *a = run->answer;
    run->answer = NULL;
    run->busy = false;
    err_sanitize(&got.err);
    if (scratch) {
        scratch_made(s, &run->scratch, got.ok ? take_fd(&mounted) : -1, &got.err);
        scratch_next(s);
        return;
    }
    answer_reply(a)->layer = run->number;
    if (got.ok && run->opens) {
        answer_reply(a)->ok = 1;
        answer_reply(a)->fds = 1u << SPAWN_FD_DISK;
        int fd = take_fd(&mounted);
        answer_send(s, a, &fd, 1);
    } else if (got.ok) {
        answer_ok(s, a);
    } else {
        answer_err(s, a, &got.err);
    }
    scratch_next(s);
}

void
disk_process_stop(struct spawner *s)
{
    for (int i = 0; i < SPAWN_DISK_RUNS_MAX; i++) {
        answer_drop(s->disk_run[i].answer);
        s->disk_run[i].answer = NULL;
        io_close(&s->disk_run[i].socket_fd); // they die with this process
    }
}
