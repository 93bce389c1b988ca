// See spawn.h; how the process starts and ends is in spawn_process.c. Requests without an answer sit in a table of slots;
// the sequence number on the wire is a slot's index and the number of times it was used, so an answer finds its request
// without a search and a stray one finds none.
//
//   request -> pending slot -> sendmsg, or the backlog while the socket is full
//   poll: readable -> recvmsg (at most REPLIES_PER_TURN) -> pending slot -> callback
//         writable -> the backlog
//   end of file or anything odd -> every pending request is answered with UNAVAILABLE, then on_gone
#include "spawn.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spawn_process.h"

enum { REPLIES_PER_TURN = 64, INDEX_BITS = 14 };
_Static_assert(SPAWN_PENDING_MAX <= 1 << INDEX_BITS, "an index fits into its part of seq");

struct pending {
    spawn_done *done; // NULL: free
    void *cookie;
    struct spawn_request request; // kept until sent; op and seq until answered
    uint32_t uses;
    uint32_t next; // in the free list or in the backlog; SPAWN_PENDING_MAX ends it
};

struct spawn {
    pid_t pid;
    int fd;
    bool gone;
    bool attached;
    uv_poll_t poll;
    void (*on_gone)(void *);
    void *cookie;
    uint32_t free_head;
    uint32_t backlog_head;
    uint32_t backlog_tail;
    struct pending pending[SPAWN_PENDING_MAX];
};

// --- start and end ---

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
    for (uint32_t i = 0; i < SPAWN_PENDING_MAX; i++)
        s->pending[i].next = i + 1;
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
    (void)shutdown(s->fd, SHUT_RDWR); // to the spawner: end of file
    bool clean = spawn_process_reap(s->pid, grace_ms);
    if (s->attached) {
        uv_close((uv_handle_t *)&s->poll, on_closed);
    } else {
        (void)close(s->fd);
        free(s);
    }
    return clean;
}

// --- requests ---

static void watch(struct spawn *s);

// Takes it out of the table; the callback may make new requests.
static void
finish(struct spawn *s, uint32_t index, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct pending *p = &s->pending[index];
    spawn_done *done = p->done;
    void *cookie = p->cookie;
    p->done = NULL;
    p->uses++;
    p->next = s->free_head;
    s->free_head = index;
    done(cookie, reply, fds);
}

// The spawner has ended, or talks nonsense: nothing it says is believed any more.
static void
gone(struct spawn *s)
{
    if (s->gone)
        return;
    s->gone = true;
    (void)uv_poll_stop(&s->poll);
    (void)shutdown(s->fd, SHUT_RDWR);
    s->backlog_head = s->backlog_tail = SPAWN_PENDING_MAX;
    for (uint32_t i = 0; i < SPAWN_PENDING_MAX; i++) {
        const struct pending *p = &s->pending[i];
        if (!p->done)
            continue;
        struct spawn_reply r = {
            .op = p->request.op, .slot = p->request.slot, .generation = p->request.generation};
        int fds[SPAWN_FDS_MAX] = {-1, -1, -1, -1, -1, -1, -1, -1};
        (void)err_set(&r.err, ERR_UNAVAILABLE, "the spawner is gone");
        err_detail(&r.err, "SPAWNER_GONE", NULL, "the broker has to be started again");
        finish(s, i, &r, fds);
    }
    s->on_gone(s->cookie);
}

// False while the socket is full. A socket that is broken takes everything: the poll tells.
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

static int
request(struct spawn *s, const struct spawn_request *q, spawn_done *done, void *cookie,
        struct err *e)
{
    assert(s->attached && done);
    if (s->gone)
        return err_set(e, ERR_UNAVAILABLE, "the spawner is gone");
    uint32_t index = s->free_head;
    if (index == SPAWN_PENDING_MAX) {
        (void)err_set(e, ERR_RESOURCE_EXHAUSTED, "%d requests wait for the spawner",
                      SPAWN_PENDING_MAX);
        err_detail(e, "SPAWNER_BUSY", NULL, "try again");
        return err_errno(e);
    }
    struct pending *p = &s->pending[index];
    s->free_head = p->next;
    p->done = done;
    p->cookie = cookie;
    p->request = *q;
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

int
spawn_create(struct spawn *s, const uint8_t id[16], uint32_t template,
             const struct spawn_limits *limits, spawn_done *done, void *cookie, struct err *e)
{
    struct spawn_request q = {.op = SPAWN_CREATE, .arg = template, .limits = *limits};
    memcpy(q.id, id, sizeof q.id);
    return request(s, &q, done, cookie, e);
}

int
spawn_limit(struct spawn *s, uint32_t slot, uint32_t generation, const struct spawn_limits *limits,
            spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_LIMIT, .slot = slot, .generation = generation, .limits = *limits};
    return request(s, &q, done, cookie, e);
}

int
spawn_freeze(struct spawn *s, uint32_t slot, uint32_t generation, bool frozen, spawn_done *done,
             void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_FREEZE, .slot = slot, .generation = generation, .arg = frozen};
    return request(s, &q, done, cookie, e);
}

int
spawn_kill_job(struct spawn *s, uint32_t slot, uint32_t generation, uint32_t job, spawn_done *done,
               void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_KILL_JOB, .slot = slot, .generation = generation, .arg = job};
    return request(s, &q, done, cookie, e);
}

int
spawn_destroy(struct spawn *s, uint32_t slot, uint32_t generation, spawn_done *done, void *cookie,
              struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_DESTROY, .slot = slot, .generation = generation};
    return request(s, &q, done, cookie, e);
}

int
spawn_net_open(struct spawn *s, uint32_t slot, uint32_t generation, spawn_done *done, void *cookie,
               struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_NET_OPEN, .slot = slot, .generation = generation};
    return request(s, &q, done, cookie, e);
}

int
spawn_net_dial(struct spawn *s, uint32_t slot, uint32_t generation, uint16_t port, spawn_done *done,
               void *cookie, struct err *e)
{
    const struct spawn_request q = {
        .op = SPAWN_NET_DIAL, .slot = slot, .generation = generation, .arg = port};
    return request(s, &q, done, cookie, e);
}

int
spawn_watch(struct spawn *s, bool attached, spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_WATCH, .arg = attached};
    return request(s, &q, done, cookie, e);
}

int
spawn_relay(struct spawn *s, spawn_done *done, void *cookie, struct err *e)
{
    const struct spawn_request q = {.op = SPAWN_RELAY};
    return request(s, &q, done, cookie, e);
}

// --- replies ---

void
spawn_close_fds(int fds[SPAWN_FDS_MAX])
{
    for (unsigned i = 0; i < SPAWN_FDS_MAX; i++) {
        if (fds[i] >= 0)
            (void)close(fds[i]);
        fds[i] = -1;
    }
}

// Sorts the descriptors of a message by the bits of the reply. False when they do not match; all are closed then. What
// our own table had no room for is dropped by the kernel: then there is none at all.
static bool
take_fds(struct msghdr *m, const struct spawn_reply *r, int fds[SPAWN_FDS_MAX])
{
    int got[SPAWN_FDS_MAX];
    unsigned n = 0;
    const struct cmsghdr *h = CMSG_FIRSTHDR(m);
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
        n = (unsigned)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(got, CMSG_DATA(h), n * sizeof(int));
    }
    unsigned used = 0;
    for (unsigned i = 0; i < SPAWN_FDS_MAX; i++) {
        fds[i] = -1;
        if (r->fds & 1u << i && used < n)
            fds[i] = got[used++];
    }
    bool short_of = (m->msg_flags & MSG_CTRUNC) != 0 && n < (unsigned)__builtin_popcount(r->fds);
    if (short_of)
        spawn_close_fds(fds);
    if (short_of || (used == n && (unsigned)__builtin_popcount(r->fds) == n))
        return true;
    for (unsigned i = 0; i < n; i++)
        (void)close(got[i]);
    return false;
}

// One reply. 1: handled; 0: none there; -1: the end.
static int
read_reply(struct spawn *s)
{
    struct spawn_reply r;
    int fds[SPAWN_FDS_MAX];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof fds)];
    } control;
    struct iovec iov = {&r, sizeof r};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    ssize_t n = recvmsg(s->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return -1;
    if (n != (ssize_t)sizeof r || m.msg_flags & MSG_TRUNC) {
        r.fds = 0;
        (void)take_fds(&m, &r, fds);
        return -1;
    }
    if (!take_fds(&m, &r, fds))
        return -1;
    uint32_t index = r.seq & ((1u << INDEX_BITS) - 1);
    const struct pending *p = index < SPAWN_PENDING_MAX ? &s->pending[index] : NULL;
    if (!p || !p->done || p->request.seq != r.seq || p->request.op != r.op) {
        spawn_close_fds(fds);
        return -1;
    }
    err_sanitize(&r.err);
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
        // A callback may have closed us.
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
    s->on_gone = on_gone;
    s->cookie = cookie;
    s->attached = true;
    watch(s);
    return 0;
}
