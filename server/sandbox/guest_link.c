// SPDX-License-Identifier: Apache-2.0
// See guest_link.h.
#include "guest_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/arena.h"
#include "proto/auto.h"
#include "proto/wire.h"
#include "guest.pb-c.h"
#include "server/base/log.h"
#include "server/base/packet_link.h"

enum { STDIO_N = 3, EVENT_ARENA_MAX = 64 * 1024, EVENTS_PER_TURN = 64 };
_Static_assert((int)GUEST_EVENT_MAX <= (int)PACKET_LINK_IN_MAX, "an event fits");

struct guest_link {
    struct packet_link link; // must be first
    const struct guest_events *events;
    void *cookie;
};

static struct arena *arena; // of the event that is being handled: one for all links

static struct packet *
pack(const struct guest_link *l, const Stockade__Guest__Request *request, struct err *e)
{
    size_t n = stockade__guest__request__get_packed_size(request);
    struct packet *p = packet_new(&l->link.out, n, e);
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
    start.tasks_max = s->tasks_max;
    start.network_off = s->network_off;
    start.cpu_seconds_max = s->cpu_seconds_max;
    start.terminal = s->terminal;
    start.rows = s->rows;
    start.columns = s->columns;
    start.agent = s->agent;
    start.program = s->agent && s->stdio[1] >= 0;
    start.script = s->agent && s->stdio[2] >= 0;
    start.link = s->has_link;
    struct packet *p = pack(l, &request, e);
    for (size_t i = 0; i < STDIO_N && !s->terminal; i++) {
        if (p != NULL && s->stdio[i] >= 0)
            p->fds[p->fds_n++] = s->stdio[i];
        else if (s->stdio[i] >= 0)
            (void)close(s->stdio[i]);
    }
    if (p != NULL && s->has_link)
        p->fds[p->fds_n++] = s->link;
    else if (s->has_link)
        (void)close(s->link);
    if (p == NULL)
        return err_wrap(e, "arguments and environment");
    return packet_link_send(&l->link, p, e);
}

static int
submit_small(struct guest_link *l, const Stockade__Guest__Request *request, struct err *e)
{
    struct packet *p = pack(l, request, e);
    return p == NULL ? err_errno(e) : packet_link_send(&l->link, p, e);
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
guest_link_adopt(struct guest_link *l, uint32_t job, uint32_t pid, struct err *e)
{
    Stockade__Guest__Adopt body = STOCKADE__GUEST__ADOPT__INIT;
    Stockade__Guest__Request request = STOCKADE__GUEST__REQUEST__INIT;
    request.request_case = STOCKADE__GUEST__REQUEST__REQUEST_ADOPT;
    request.adopt = &body;
    body.job = job;
    body.pid = pid;
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

static void
report_exited(struct guest_link *l, const Stockade__Guest__Exited *x)
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
report(struct guest_link *l, const Stockade__Guest__Event *ev, int *fd, struct err *e)
{
    switch (ev->event_case) {
    case STOCKADE__GUEST__EVENT__EVENT_READY:
        if (ev->ready->version != 1)
            return err_set(e, ERR_INTERNAL, "the guest has version %u instead of 1",
                           ev->ready->version);
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
        report_exited(l, ev->exited);
        return 0;
    case STOCKADE__GUEST__EVENT__EVENT__NOT_SET:
    case _STOCKADE__GUEST__EVENT__EVENT__CASE_IS_INT_SIZE:
        break;
    }
    return err_set(e, ERR_INTERNAL, "an event without a kind");
}

static int
on_packet(void *cookie, const void *bytes, size_t n, int *fd, struct err *e)
{
    ProtobufCMessage *event = NULL;
    arena_reset(arena);
    int r = wire_unpack(&stockade__guest__event__descriptor, bytes, n, arena, &event, e);
    return r < 0 ? r : report(cookie, (const Stockade__Guest__Event *)event, fd, e);
}

static void
on_gone(void *cookie, const struct err *why)
{
    const struct guest_link *l = cookie;
    l->events->gone(l->cookie, why);
}

static const struct packet_link_kind kind = {.process = "the guest",
                                             .peer = "the sandbox",
                                             .ended = ERR_INTERNAL,
                                             .packet_max = GUEST_PACKET_MAX,
                                             .queue_max = GUEST_QUEUE_MAX,
                                             .queue_bytes_max = GUEST_QUEUE_BYTES,
                                             .in_max = GUEST_EVENT_MAX,
                                             .packets_per_turn = EVENTS_PER_TURN,
                                             .takes_fd = true,
                                             .packet = on_packet,
                                             .gone = on_gone};

struct guest_link *
guest_link_new(uv_loop_t *loop, int fd, const struct guest_events *events, void *cookie,
               struct err *e)
{
    if (arena == NULL)
        arena = arena_new(EVENT_ARENA_MAX);
    if (arena == NULL) {
        (void)close(fd);
        (void)err_sys(e, ENOMEM, "watch the socket of the guest");
        return NULL;
    }
    struct guest_link *l = packet_link_new(sizeof *l, loop, fd, &kind, e);
    if (l != NULL) {
        l->events = events;
        l->cookie = cookie;
    }
    return l;
}

void
guest_link_free(struct guest_link *l)
{
    if (l != NULL)
        packet_link_free(&l->link);
}
