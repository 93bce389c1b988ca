// SPDX-License-Identifier: Apache-2.0
// See spawn.h; spawn_process.c starts and ends the process. Pending requests are in a table of slots. The sequence
// number of a request consists of the slot's index and its number of uses, so a reply finds its request without a
// search, and an invalid reply finds none.
//
//   request -> pending slot -> sendmsg, or the backlog while the socket is full
//   poll: readable -> recvmsg (at most REPLIES_PER_TURN) -> pending slot -> callback
//         writable -> the backlog
//   end of file or an invalid reply -> every pending request gets UNAVAILABLE, then on_gone
//
// Each second a PING is sent after all earlier requests. If requests are pending and no reply has arrived for
// SILENT_TICKS seconds, the spawner hangs. If it uses a processor, or waits for one, it has BUSY_TICKS: on a host that
// is overloaded a creation may take seconds. The timer's ticks are counted, and no clock is read, so that a broker which
// was stopped itself does not take a healthy spawner for a silent one.
#include "spawn.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/fdpass.h"
#include "server/base/log.h"
#include "server/base/loop.h"
#include "server/base/metrics.h"
#include "spawn_private.h"
#include "spawn_process.h"

enum { REPLIES_PER_TURN = 64, INDEX_BITS = 14, TICK_MS = 1000, SILENT_TICKS = 3, BUSY_TICKS = 30 };
_Static_assert(SPAWN_PENDING_MAX <= 1 << INDEX_BITS, "an index fits into its part of seq");

// The timeout of each operation, and what happens after it, or when the spawner hangs. A request that is given up
// fails, and what it makes is removed when its late reply arrives. The others stay pending, because only the spawner
// knows their state.
static const struct deadline {
    uint32_t ticks;
    bool give_up;
    bool begins;      // starts something new, so it is refused while the spawner hangs
    const char *name; // of METRIC_BY_OPERATION
} deadlines[] = {
    [SPAWN_CREATE] = {60, true, true, "create"},
    [SPAWN_LIMIT] = {30, true, true, "limit"},
    [SPAWN_FREEZE] = {30, false, true, "freeze"},
    [SPAWN_KILL_JOB] = {30, false, false, "kill-job"},
    [SPAWN_DESTROY] = {60, false, false, "destroy"},
    [SPAWN_NET_OPEN] = {30, true, true, "net-open"},
    [SPAWN_NET_DIAL] = {30, true, true, "net-dial"},
    [SPAWN_WATCH] = {60, false, true, "watch"},
    [SPAWN_RELAY] = {60, false, true, "relay"},
    [SPAWN_PING] = {60, false, false, "ping"},
    [SPAWN_HOLD] = {30, false, false, "hold"},
    [SPAWN_READ] = {60, true, true, "read"},
    [SPAWN_UNROOT] = {30, false, false, "unroot"},
    [SPAWN_SEAL] = {30, false, true, "seal"},
    [SPAWN_RESTORE] = {30, false, true, "restore"},
    [SPAWN_INHERIT] = {30, false, true, "inherit"},
    [SPAWN_DROP] = {30, false, false, "drop"},
    [SPAWN_DISK_MAKE] = {150, false, true, "disk-make"},
    [SPAWN_DISK_OPEN] = {150, false, true, "disk-open"},
    [SPAWN_DISK_REMOVE] = {3600, false, false, "disk-remove"},
    [SPAWN_DISK_CLOSE] = {30, false, false, "disk-close"},
    [SPAWN_MOUNT] = {30, false, true, "mount"},
    [SPAWN_KEEP] = {30, true, true, "keep"},
    [SPAWN_KEEPER] = {30, true, true, "keeper"},
    [SPAWN_ADOPT] = {30, false, true, "adopt"},
    [SPAWN_GRAFT] = {30, false, true, "graft"},
    [SPAWN_STATES] = {30, true, true, "states"},
    [SPAWN_COPY] = {30, false, true, "copy"},
    [SPAWN_COPIED] = {30, false, false, "copied"},
    [SPAWN_UNSEAL] = {30, false, true, "unseal"},
    [SPAWN_FETCHER] = {30, true, true, "fetcher"},
    [SPAWN_RESET] = {30, false, true, "reset"},
    [SPAWN_LISTS] = {30, true, true, "lists"},
};
_Static_assert(sizeof deadlines / sizeof deadlines[0] <= METRIC_VALUES_OPERATION,
               "a value for each operation");

struct pending {
    spawn_done *done; // NULL: free
    void *cookie;
    struct spawn_request request; // kept until sent; op and seq until answered
    uint32_t uses;
    uint32_t ticks; // its age
    uint32_t next;  // in the free list or in the backlog; SPAWN_PENDING_MAX: end of the list
};

struct spawn {
    pid_t pid;
    int fd;
    bool gone;
    bool attached;
    uv_loop_t *loop;
    uv_poll_t poll;
    void (*on_gone)(void *);
    void *cookie;
    struct loop_timer *tick;
    uint32_t open;         // pending requests
    uint32_t silent_ticks; // since the last reply, or since nothing was pending
    uint64_t cpu_ticks;    // that the spawner had used at the last tick while it was silent
    uint32_t overdue;      // requests that stay pending beyond their timeout
    bool pinged;           // a PING is pending
    bool hangs;
    void (*on_silent)(void *cookie, bool hangs);
    void *silent_cookie;
    uint32_t free_head;
    uint32_t fresh; // entries from here on were never used, and take no memory
    uint32_t backlog_head;
    uint32_t backlog_tail;
    struct pending pending[SPAWN_PENDING_MAX];
};

// ---- start and end

int
spawn_start(const char *binary, const struct spawn_config *config, struct spawn_features *features,
            int bpf_fds[BPF_FDS], struct spawn **out, struct err *e)
{
    struct spawn *s = calloc(1, sizeof *s);
    if (!s)
        return err_sys(e, ENOMEM, "start the spawner");
    struct spawn_process p;
    if (spawn_process_start(binary, config, features, bpf_fds, &p, e) < 0) {
        free(s);
        return err_wrap(e, "start the spawner");
    }
    s->pid = p.pid;
    s->fd = p.fd;
    s->backlog_head = s->backlog_tail = SPAWN_PENDING_MAX;
    s->free_head = SPAWN_PENDING_MAX;
    *out = s;
    return 0;
}

pid_t
spawn_pid(const struct spawn *s)
{
    return s->pid;
}

static void
on_closed(uv_handle_t *h)
{
    struct spawn *s = h->data;
    (void)close(s->fd);
    free(s);
}

bool
spawn_close(struct spawn *s, uint32_t grace_ms)
{
    if (!s)
        return true;
    if (s->attached)
        (void)uv_poll_stop(&s->poll);
    loop_timer_stop(&s->tick);
    (void)shutdown(s->fd, SHUT_RDWR); // the spawner sees end of file
    bool clean = spawn_process_reap(s->pid, grace_ms);
    if (s->attached) {
        uv_close((uv_handle_t *)&s->poll, on_closed);
    } else {
        (void)close(s->fd);
        free(s);
    }
    return clean;
}

// ---- requests

static void watch(struct spawn *s);

static spawn_done on_late;

// Removes it from the table; the callback may make new requests.
static void
finish(struct spawn *s, uint32_t index, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct pending *p = &s->pending[index];
    spawn_done *done = p->done;
    void *cookie = p->cookie;
    s->open--;
    if (reply->ok == 0 && done != on_late) // that one was counted when it was given up
        metrics_add_by(METRIC_SPAWNER_FAILED, p->request.op, 0, 1);
    p->done = NULL;
    p->uses++;
    p->next = s->free_head;
    s->free_head = index;
    done(cookie, reply, fds);
}

// Fails all open requests. None of the spawner's messages is read any more.
static void
give_up_all(struct spawn *s, const struct err *why)
{
    s->gone = true;
    (void)uv_poll_stop(&s->poll);
    loop_timer_stop(&s->tick);
    (void)shutdown(s->fd, SHUT_RDWR);
    s->backlog_head = s->backlog_tail = SPAWN_PENDING_MAX;
    for (uint32_t i = 0; i < s->fresh; i++) {
        const struct pending *p = &s->pending[i];
        if (!p->done)
            continue;
        const struct spawn_reply r = {.op = p->request.op,
                                      .slot = p->request.slot,
                                      .generation = p->request.generation,
                                      .err = *why};
        int fds[SPAWN_FDS_MAX] = {-1, -1, -1, -1, -1, -1, -1, -1};
        finish(s, i, &r, fds);
    }
}

// The spawner has ended, or broke the protocol.
static void
gone(struct spawn *s)
{
    struct err e;
    if (s->gone)
        return;
    (void)err_set(&e, ERR_UNAVAILABLE, "the spawner has ended");
    err_detail(&e, "SPAWNER_GONE", NULL, "restart the broker");
    give_up_all(s, &e);
    s->on_gone(s->cookie);
}

void
spawn_abandon(struct spawn *s)
{
    struct err e;
    if (s->gone)
        return;
    (void)err_set(&e, ERR_UNAVAILABLE, "the broker stops without the spawner's reply");
    give_up_all(s, &e);
}

// False while the socket is full. A broken socket discards everything: the poll reports it.
static bool
send_request(const struct spawn *s, const struct spawn_request *q)
{
    return send(s->fd, q, sizeof *q, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ||
           (errno != EAGAIN && errno != ENOBUFS);
}

static void
send_backlog(struct spawn *s)
{
    while (s->backlog_head != SPAWN_PENDING_MAX) {
        struct pending *p = &s->pending[s->backlog_head];
        if (!send_request(s, &p->request))
            return;
        s->backlog_head = p->next;
    }
    s->backlog_tail = SPAWN_PENDING_MAX;
    watch(s);
}

int
spawn_ask(struct spawn *s, const struct spawn_request *q, spawn_done *done, void *cookie,
          struct err *e)
{
    assert(s->attached && done);
    if (s->gone)
        return err_set(e, ERR_UNAVAILABLE, "the spawner has ended");
    if (s->hangs && deadlines[q->op].begins)
        return spawn_say_hangs(e);
    uint32_t index = s->free_head != SPAWN_PENDING_MAX ? s->free_head : s->fresh;
    if (index == SPAWN_PENDING_MAX) {
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "%d requests already wait for the spawner",
                      SPAWN_PENDING_MAX);
        err_detail(e, "SPAWNER_BUSY", NULL, "try again");
        return err_errno(e);
    }
    struct pending *p = &s->pending[index];
    if (index == s->fresh)
        s->fresh++;
    else
        s->free_head = p->next;
    p->done = done;
    p->cookie = cookie;
    p->ticks = 0;
    p->request = *q;
    s->open++;
    metrics_add_by(METRIC_SPAWNER_REQUESTS, q->op, 0, 1);
    p->request.seq = p->uses << INDEX_BITS | index;
    if (s->backlog_head == SPAWN_PENDING_MAX && send_request(s, &p->request))
        return 0;
    p->next = SPAWN_PENDING_MAX;
    if (s->backlog_head == SPAWN_PENDING_MAX)
        s->backlog_head = index;
    else
        s->pending[s->backlog_tail].next = index;
    s->backlog_tail = index;
    watch(s);
    return 0;
}

// ---- timeouts

int
spawn_say_hangs(struct err *e)
{
    int r = err_set(e, ERR_UNAVAILABLE,
                    "the spawner, which creates and changes sandboxes, does not respond");
    err_detail(e, "SPAWNER_SILENT", NULL,
               "try again later; the broker's log and its health report when it responds again");
    return r;
}

bool
spawn_answers(const struct spawn *s)
{
    return s == NULL || (!s->gone && !s->hangs);
}

void
spawn_on_silent(struct spawn *s, void (*on_silent)(void *cookie, bool hangs), void *cookie)
{
    s->on_silent = on_silent;
    s->silent_cookie = cookie;
}

// The late reply to a request that was given up: removes what it has made.
static void
on_late(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct spawn *s = cookie;
    struct err e;
    spawn_close_fds(fds);
    if (s->gone || reply->op != SPAWN_CREATE || reply->ok == 0)
        return;
    if (spawn_destroy(s, reply->slot, reply->generation, false, on_late, s, &e) < 0) {
        metrics_add(METRIC_SANDBOXES_LEFT, 1);
        log_err(LOG_ERROR, "late-sandbox", &e); // it stays until the broker ends
    }
}

// Fails the request; its slot stays in use until the spawner has replied.
static void
give_up(struct spawn *s, struct pending *p)
{
    struct spawn_reply r = {
        .op = p->request.op, .slot = p->request.slot, .generation = p->request.generation};
    int fds[SPAWN_FDS_MAX] = {-1, -1, -1, -1, -1, -1, -1, -1};
    spawn_done *done = p->done;
    void *cookie = p->cookie;
    p->done = on_late;
    p->cookie = s;
    metrics_add_by(METRIC_SPAWNER_FAILED, p->request.op, 0, 1);
    (void)spawn_say_hangs(&r.err);
    if (!s->hangs)
        (void)err_set(&r.err, ERR_DEADLINE_EXCEEDED, "the spawner did not respond within %u s",
                      p->ticks);
    done(cookie, &r, fds);
}

static void
say(struct spawn *s, bool hangs)
{
    if (s->hangs == hangs)
        return;
    s->hangs = hangs;
    if (hangs)
        metrics_add(METRIC_SPAWNER_HANGS, 1);
    if (s->on_silent != NULL)
        s->on_silent(s->silent_cookie, hangs);
}

// A reply has arrived; p will be finished next.
static void
heard(struct spawn *s, const struct pending *p)
{
    const struct deadline *d = &deadlines[p->request.op];
    s->overdue -= !d->give_up && p->ticks >= d->ticks;
    s->silent_ticks = 0;
    if (s->overdue == 0)
        say(s, false);
}

// Increases the age of all pending requests by a second. Those at their timeout are given up, or counted as overdue.
static void
grow_older(struct spawn *s)
{
    for (uint32_t i = 0, left = s->open; i < s->fresh && left > 0; i++) {
        struct pending *p = &s->pending[i];
        const struct deadline *d = &deadlines[p->request.op];
        if (!p->done)
            continue;
        left--;
        p->ticks++;
        if (!d->give_up)
            s->overdue += p->ticks == d->ticks;
        else if (p->done != on_late && (p->ticks >= d->ticks || s->hangs))
            give_up(s, p);
    }
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_pong(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct spawn *s = cookie;
    (void)reply;
    (void)fds;
    s->pinged = false;
}

// Looks at the process one tick before the first verdict, so that each compares two looks.
static bool
is_silent(struct spawn *s)
{
    if (s->silent_ticks + 1 < SILENT_TICKS)
        return false;
    bool runs = spawn_process_runs(s->pid, &s->cpu_ticks);
    return s->silent_ticks >= (runs ? (uint32_t)BUSY_TICKS : (uint32_t)SILENT_TICKS);
}

static void
on_tick(void *cookie)
{
    static const struct spawn_request ping = {.op = SPAWN_PING};
    struct spawn *s = cookie;
    struct err e; // ignored: if the table is full, requests are pending anyway
    s->silent_ticks = s->open > 0 ? s->silent_ticks + 1 : 0;
    if (is_silent(s) || s->overdue > 0)
        say(s, true);
    grow_older(s);
    if (!s->pinged)
        s->pinged = spawn_ask(s, &ping, on_pong, s, &e) == 0;
    (void)loop_timer_start(s->loop, &s->tick, TICK_MS, on_tick, s);
}

// ---- replies

void
spawn_close_fds(int fds[SPAWN_FDS_MAX])
{
    fdpass_close(fds, SPAWN_FDS_MAX);
}

// Sorts the descriptors of a message by the bits of the reply. False: they do not match; then all are closed.
static bool
sort_fds(const struct fdpass *m, const struct spawn_reply *r, int fds[SPAWN_FDS_MAX])
{
    size_t used = 0;
    if ((size_t)__builtin_popcount(r->fds) != m->fds_n || r->fds >= 1u << SPAWN_FDS_MAX) {
        fdpass_close(m->fds, m->fds_n);
        return false;
    }
    for (unsigned i = 0; i < SPAWN_FDS_MAX; i++)
        fds[i] = r->fds & 1u << i ? m->fds[used++] : -1;
    return true;
}

// Reads one reply. 1: handled; 0: none is available; -1: the end.
static int
read_reply(struct spawn *s)
{
    struct spawn_reply r;
    int got[SPAWN_FDS_MAX];
    int fds[SPAWN_FDS_MAX];
    struct fdpass m = {&r, sizeof r, got, SPAWN_FDS_MAX};
    int rc = fdpass_receive(s->fd, &m, MSG_DONTWAIT);
    if (rc == -EAGAIN)
        return 0;
    // This process has no free descriptors: the reply comes without any, which the requester will notice.
    bool none = rc == -EMFILE;
    for (unsigned i = 0; i < SPAWN_FDS_MAX; i++)
        fds[i] = -1;
    if (m.n != sizeof r || (rc <= 0 && !none)) {
        fdpass_close(got, SPAWN_FDS_MAX);
        return -1;
    }
    if (!none && !sort_fds(&m, &r, fds))
        return -1;
    uint32_t index = r.seq & ((1u << INDEX_BITS) - 1);
    const struct pending *p = index < SPAWN_PENDING_MAX ? &s->pending[index] : NULL;
    if (!p || !p->done || p->request.seq != r.seq || p->request.op != r.op) {
        spawn_close_fds(fds);
        return -1;
    }
    err_sanitize(&r.err);
    heard(s, p);
    finish(s, index, &r, fds);
    return 1;
}

static void
on_poll(uv_poll_t *h, int status, int events)
{
    struct spawn *s = h->data;
    if (status < 0) {
        gone(s);
        return;
    }
    if (events & UV_WRITABLE)
        send_backlog(s);
    if (!(events & (UV_READABLE | UV_DISCONNECT)))
        return;
    for (int i = 0; i < REPLIES_PER_TURN; i++) {
        // A callback may have closed the spawner.
        if (uv_is_closing((const uv_handle_t *)h))
            return;
        int r = read_reply(s);
        if (r < 0)
            gone(s);
        if (r <= 0)
            return;
    }
}

static void
watch(struct spawn *s)
{
    int events = UV_READABLE | (s->backlog_head != SPAWN_PENDING_MAX ? UV_WRITABLE : 0);
    (void)uv_poll_start(&s->poll, events, on_poll);
}

int
spawn_attach(struct spawn *s, uv_loop_t *loop, void (*on_gone)(void *cookie), void *cookie,
             struct err *e)
{
    int r = uv_poll_init(loop, &s->poll, s->fd);
    if (r < 0)
        return err_sys(e, -r, "watch the spawner's socket");
    s->poll.data = s;
    s->loop = loop;
    s->on_gone = on_gone;
    s->cookie = cookie;
    s->attached = true;
    for (uint32_t i = 0; i < sizeof deadlines / sizeof deadlines[0]; i++)
        metrics_name_value(METRIC_BY_OPERATION, i, deadlines[i].name);
    watch(s);
    if (loop_timer_start(loop, &s->tick, TICK_MS, on_tick, s) < 0)
        return err_sys(e, ENOMEM, "watch the spawner");
    return 0;
}
