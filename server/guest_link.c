// SPDX-License-Identifier: Apache-2.0
// See guest_link.h.
#include "guest_link.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "../proto/arena.h"
#include "../proto/auto.h"
#include "../proto/wire.h"
#include "guest.pb-c.h"
#include "log.h"
#include "loop.h"
#include "packets.h"

enum { STDIO_N = 3, EVENT_ARENA_MAX = 64 * 1024, EVENTS_PER_TURN = 64 };

struct guest_link {
    int fd;
    struct loop_poll *poll;
    const struct guest_events *events;
    void *cookie;
    struct packets out;
    bool freed, busy; // free was asked for while an event is being told
};

static struct arena *arena; // of the event that is being told: one for all links

static void on_ready(void *cookie, int events);

struct guest_link *
guest_link_new(uv_loop_t *loop, int fd, const struct guest_events *events, void *cookie,
               struct err *e)
{
    struct guest_link *l = calloc(1, sizeof *l);
    if (l == NULL) {
        (void)close(fd);
        (void)err_sys(e, ENOMEM, "watch the guest's socket");
        return NULL;
    }
    *l = (struct guest_link){.fd = fd, .events = events, .cookie = cookie};
    l->out = (struct packets){.fd = fd,
                              .peer = "the sandbox",
                              .packet_max = GUEST_PACKET_MAX,
                              .queue_max = GUEST_QUEUE_MAX,
                              .queue_bytes_max = GUEST_QUEUE_BYTES};
    packets_init(&l->out);
    if (arena == NULL)
        arena = arena_new(EVENT_ARENA_MAX);
    int r = arena == NULL ? -ENOMEM : loop_poll_start(loop, &l->poll, fd, UV_READABLE, on_ready, l);
    if (r < 0) {
        (void)err_sys(e, r, "watch the guest's socket");
        guest_link_free(l);
        return NULL;
    }
    return l;
}

void
guest_link_free(struct guest_link *l)
{
    if (l == NULL)
        return;
    l->freed = true;
    loop_poll_stop(&l->poll);
    if (l->busy)
        return;
    packets_clear(&l->out);
    (void)close(l->fd);
    free(l);
}

// Takes the packet.
static int
submit(struct guest_link *l, struct packet *p, struct err *e)
{
    int r = packets_send(&l->out, p, e);
    if (l->poll != NULL)
        loop_poll_want(l->poll, packets_events(&l->out));
    return r;
}

static struct packet *
pack(const struct guest_link *l, const Stockade__Guest__Request *request, struct err *e)
{
    size_t n = stockade__guest__request__get_packed_size(request);
    struct packet *p = packet_new(&l->out, n, e);
    if (p != NULL)
        (void)stockade__guest__request__pack(request, p->bytes);
    return p;
}

int
guest_link_start(struct guest_link *l, const struct guest_start *s, struct err *e)
{
    Stockade__Guest__Start start = STOCKADE__GUEST__START__INIT;
    Stockade__Guest__Request request = STOCKADE__GUEST__REQUEST__INIT;
    request.request_case = STOCKADE__GUEST__REQUEST__REQUEST_START;
    request.start = &start;
    start.job = s->job;
    start.args = (const char **)(uintptr_t)s->args;
    start.n_args = s->args_n;
    start.env = (const char **)(uintptr_t)s->env;
    start.n_env = s->env_n;
    start.workdir = s->workdir;
    start.files_max = s->files_max;
    start.file_bytes_max = s->file_bytes_max;
    start.cpu_seconds_max = s->cpu_seconds_max;
    start.terminal = s->terminal;
    start.rows = s->rows;
    start.columns = s->columns;
    struct packet *p = pack(l, &request, e);
    size_t fds_n = s->terminal ? 0 : STDIO_N;
    for (size_t i = 0; i < fds_n && p == NULL; i++)
        (void)close(s->stdio[i]);
    if (p == NULL)
        return err_wrap(e, "arguments and environment");
    memcpy(p->fds, s->stdio, fds_n * sizeof p->fds[0]);
    p->fds_n = fds_n;
    return submit(l, p, e);
}

static int
submit_small(struct guest_link *l, const Stockade__Guest__Request *request, struct err *e)
{
    struct packet *p = pack(l, request, e);
    return p == NULL ? err_errno(e) : submit(l, p, e);
}

int
guest_link_signal(struct guest_link *l, uint32_t job, uint32_t signal, bool group, struct err *e)
{
    Stockade__Guest__Signal body = STOCKADE__GUEST__SIGNAL__INIT;
    Stockade__Guest__Request request = STOCKADE__GUEST__REQUEST__INIT;
    request.request_case = STOCKADE__GUEST__REQUEST__REQUEST_SIGNAL;
    request.signal = &body;
    body.job = job;
    body.signal = signal;
    body.group = group;
    return submit_small(l, &request, e);
}

int
guest_link_remove(struct guest_link *l, uint32_t job, struct err *e)
{
    Stockade__Guest__Remove body = STOCKADE__GUEST__REMOVE__INIT;
    Stockade__Guest__Request request = STOCKADE__GUEST__REQUEST__INIT;
    request.request_case = STOCKADE__GUEST__REQUEST__REQUEST_REMOVE;
    request.remove = &body;
    body.job = job;
    return submit_small(l, &request, e);
}

// One packet and the first descriptor that came with it; others are closed. 0 at the end of the stream.
static ssize_t
receive(const struct guest_link *l, void *bytes, size_t bytes_n, int *fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 16)];
    } control;
    struct iovec iov = {.iov_base = bytes, .iov_len = bytes_n};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof control.bytes};
    ssize_t n = recvmsg(l->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return -errno;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c != NULL; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t fds_n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < fds_n; i++) {
            int got = -1;
            memcpy(&got, CMSG_DATA(c) + i * sizeof(int), sizeof got);
            if (*fd < 0)
                *fd = got;
            else
                (void)close(got);
        }
    }
    if ((msg.msg_flags & MSG_CTRUNC) != 0 && *fd < 0)
        return -EMFILE; // the kernel drops what the table of descriptors has no room for
    return (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ? -EMSGSIZE : n;
}

static void
tell_exited(struct guest_link *l, const Stockade__Guest__Exited *x)
{
    struct bill_rusage usage = {
        .known = true,
        .user_us = x->user_us,
        .system_us = x->system_us,
        .faults_minor = x->faults_minor,
        .faults_major = x->faults_major,
        .in_blocks = x->in_blocks,
        .out_blocks = x->out_blocks,
        .switches_voluntary = x->switches_voluntary,
        .switches_involuntary = x->switches_involuntary,
        .maxrss_bytes = x->maxrss_bytes,
    };
    l->events->exited(l->cookie, x->job, x->status, &usage);
}

static int
tell(struct guest_link *l, const Stockade__Guest__Event *ev, int *fd, struct err *e)
{
    switch (ev->event_case) {
    case STOCKADE__GUEST__EVENT__EVENT_READY:
        if (ev->ready->version != 1)
            return err_set(e, ERR_INTERNAL, "guest of version %u, not 1", ev->ready->version);
        l->events->ready(l->cookie);
        return 0;
    case STOCKADE__GUEST__EVENT__EVENT_STARTED:
        l->events->started(l->cookie, ev->started->job, ev->started->pid, take_fd(fd));
        return 0;
    case STOCKADE__GUEST__EVENT__EVENT_FAILED: {
        char text[LOG_VALUE_MAX];
        (void)log_escape(ev->failed->text, text, sizeof text);
        l->events->failed(l->cookie, ev->failed->job, ev->failed->exit_code, ev->failed->sys, text);
        return 0;
    }
    case STOCKADE__GUEST__EVENT__EVENT_EXITED:
        tell_exited(l, ev->exited);
        return 0;
    case STOCKADE__GUEST__EVENT__EVENT__NOT_SET:
    case _STOCKADE__GUEST__EVENT__EVENT__CASE_IS_INT_SIZE:
        break;
    }
    return err_set(e, ERR_INTERNAL, "an event of no kind");
}

// One event. 0: told; 1: none there; negative: the guest is gone, *e says why.
static int
turn(struct guest_link *l, struct err *e)
{
    static uint8_t bytes[GUEST_EVENT_MAX];
    int auto_close fd = -1;
    ssize_t n = receive(l, bytes, sizeof bytes, &fd);
    if (n == -EAGAIN || n == -EINTR)
        return 1;
    if (n == 0 || n == -ECONNRESET)
        return err_set(e, ERR_INTERNAL, "the guest has ended");
    if (n < 0)
        return err_sys(e, (int)n, "read from the guest");
    arena_reset(arena);
    ProtobufCMessage *m = NULL;
    int r = wire_unpack(&stockade__guest__event__descriptor, bytes, (size_t)n, arena, &m, e);
    if (r == 0)
        r = tell(l, (const Stockade__Guest__Event *)m, &fd, e);
    return r < 0 ? err_wrap(e, "the guest broke the protocol") : 0;
}

static void
on_ready(void *cookie, int events)
{
    struct guest_link *l = cookie;
    struct err e;
    l->busy = true;
    int r = (events & UV_WRITABLE) != 0 ? packets_flush(&l->out, &e) : 0;
    loop_poll_want(l->poll, packets_events(&l->out));
    for (int i = 0; i < EVENTS_PER_TURN && r == 0 && !l->freed; i++)
        r = turn(l, &e);
    if (r < 0 && !l->freed) {
        loop_poll_stop(&l->poll);
        l->events->gone(l->cookie, &e);
    }
    l->busy = false;
    if (l->freed)
        guest_link_free(l);
}
