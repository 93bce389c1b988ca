// SPDX-License-Identifier: Apache-2.0
// Replies to the broker. A reply is sent immediately. While the socket is full, replies are queued and no request is
// read (main.c), so a broker that does not read its replies cannot cause more of them.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/fdpass.h"
#include "io.h"
#include "spawner.h"

struct answer {
    struct spawn_reply reply;
    uint64_t started_ns;
    struct answer *next;
    unsigned fds_n;
    int fds[SPAWN_FDS_MAX];
};

struct answer *
answer_new(const struct spawn_request *q)
{
    struct answer *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->started_ns = io_now_ns();
    a->reply.op = q->op;
    a->reply.seq = q->seq;
    a->reply.slot = q->slot;
    a->reply.generation = q->generation;
    return a;
}

void
answer_drop(struct answer *a)
{
    if (!a)
        return;
    for (unsigned i = 0; i < a->fds_n; i++)
        io_close(&a->fds[i]);
    free(a);
}

struct spawn_reply *
answer_reply(struct answer *a)
{
    return &a->reply;
}

// 1: sent, or lost because the broker has ended; 0: the socket is full.
static int
send_one(const struct answer *a)
{
    const struct fdpass m = {.bytes = (void *)(uintptr_t)&a->reply,
                             .n = sizeof a->reply,
                             .fds = (int *)(uintptr_t)a->fds,
                             .fds_n = a->fds_n};
    int r = fdpass_send(SPAWN_SOCKET_FD, &m, MSG_DONTWAIT);
    // ETOOMANYREFS: the broker has too many descriptors in transit and must read first.
    return r != -EAGAIN && r != -ETOOMANYREFS && r != -ENOBUFS;
}

static void
watch_broker(struct spawner *s, bool reading)
{
    if (s->reading == reading)
        return;
    s->reading = reading;
    struct epoll_event ev = {.events = reading ? EPOLLIN : EPOLLOUT, .data.u64 = EVENT_BROKER};
    (void)epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, SPAWN_SOCKET_FD, &ev);
}

void
answer_send(struct spawner *s, struct answer *a, const int *fds, unsigned n)
{
    a->reply.duration_ns = io_now_ns() - a->started_ns;
    a->fds_n = n;
    if (n > 0)
        memcpy(a->fds, fds, n * sizeof *fds);
    if (!s->answers_head && send_one(a)) {
        answer_drop(a);
        return;
    }
    a->next = NULL;
    if (s->answers_tail)
        s->answers_tail->next = a;
    else
        s->answers_head = a;
    s->answers_tail = a;
    watch_broker(s, false);
}

void
answer_ok(struct spawner *s, struct answer *a)
{
    a->reply.ok = 1;
    answer_send(s, a, NULL, 0);
}

void
answer_err(struct spawner *s, struct answer *a, const struct err *e)
{
    a->reply.ok = 0;
    a->reply.err = *e;
    answer_send(s, a, NULL, 0);
}

void
answer_fd(struct spawner *s, struct answer *a, int fd, const struct err *e)
{
    if (fd < 0) {
        answer_err(s, a, e);
        return;
    }
    a->reply.ok = 1;
    a->reply.fds = 1;
    answer_send(s, a, &fd, 1);
}

void
answers_flush(struct spawner *s)
{
    while (s->answers_head && send_one(s->answers_head)) {
        struct answer *sent = s->answers_head;
        s->answers_head = sent->next;
        if (!s->answers_head)
            s->answers_tail = NULL;
        answer_drop(sent);
    }
    if (!s->answers_head)
        watch_broker(s, true);
}

void
answers_drop(struct spawner *s)
{
    while (s->answers_head) {
        struct answer *a = s->answers_head;
        s->answers_head = a->next;
        answer_drop(a);
    }
    s->answers_tail = NULL;
    answer_drop(s->relay_answer);
    answer_drop(s->reader_answer);
    answer_drop(s->programs.watch_answer);
    s->relay_answer = s->reader_answer = s->programs.watch_answer = NULL;
}
