// See spawn.h. Requests without an answer sit in a table of slots; the sequence number on the wire is a slot's index
// and the number of times it was used, so an answer finds its request without a search and a stray one finds none.
//
//   request -> pending slot -> sendmsg, or the backlog while the socket is full
//   poll: readable -> recvmsg (at most REPLIES_PER_TURN) -> pending slot -> callback
//         writable -> the backlog
//   end of file or anything odd -> every pending request is answered with UNAVAILABLE, then on_gone
#include "spawn.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../proto/auto.h"

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

// In the forked child: its end on descriptor 3, nothing else but stderr, no environment.
static __attribute__((noreturn)) void
exec_spawner(const char *binary, int fd, int failed_fd)
{
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    // Above what they are moved to, so that no move closes another one.
    int socket_high = fcntl(fd, F_DUPFD_CLOEXEC, 16);
    int failed_high = fcntl(failed_fd, F_DUPFD_CLOEXEC, 16);
    if (null_fd >= 0 && socket_high >= 0 && failed_high >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 &&
        dup2(null_fd, STDOUT_FILENO) >= 0 && dup2(socket_high, SPAWN_SOCKET_FD) >= 0 &&
        dup3(failed_high, SPAWN_SOCKET_FD + 1, O_CLOEXEC) >= 0 &&
        syscall(SYS_close_range, SPAWN_SOCKET_FD + 2, ~0u, 0) == 0) {
        static char name[] = "stockade-spawner";
        char *const argv[] = {name, NULL};
        char *const envp[] = {NULL};
        (void)execve(binary, argv, envp);
        failed_high = SPAWN_SOCKET_FD + 1;
    }
    int sys = errno;
    (void)!write(failed_high, &sys, sizeof sys);
    _exit(70);
}

// Forks and executes; returns when that went well or did not.
static int
start_process(const char *binary, struct spawn *s, struct err *e)
{
    int pair[2];
    int failed[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(e, errno, "make a socket pair");
    s->fd = pair[0];
    int auto_close theirs = pair[1];
    if (pipe2(failed, O_CLOEXEC) < 0)
        return err_sys(e, errno, "make a pipe");
    int auto_close failed_read = failed[0];
    int auto_close failed_write = failed[1];
    s->pid = fork();
    if (s->pid == 0)
        exec_spawner(binary, theirs, failed_write);
    if (s->pid < 0)
        return err_sys(e, errno, "fork");
    (void)close(take_fd(&failed_write));
    int sys = 0;
    ssize_t n = 0;
    do {
        n = read(failed_read, &sys, sizeof sys);
    } while (n < 0 && errno == EINTR);
    return n == 0 ? 0 : err_sys(e, sys ? sys : EIO, "execute %s", binary);
}

// Sorts the descriptors of the first answer by its mask. False when they do not match; all are closed then.
static bool
take_bpf_fds(struct msghdr *m, uint32_t mask, int fds[BPF_FDS])
{
    int got[BPF_FDS + 1] = {0}; // the control buffer is padded: room for one more than there may be
    unsigned n = 0;
    const struct cmsghdr *h = CMSG_FIRSTHDR(m);
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
        n = (unsigned)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(got, CMSG_DATA(h), n * sizeof(int));
    }
    bool match = (unsigned)__builtin_popcount(mask) == n && mask < 1u << BPF_FDS &&
                 !(m->msg_flags & MSG_CTRUNC);
    for (unsigned i = 0, used = 0; i < BPF_FDS; i++)
        fds[i] = match && mask & 1u << i ? got[used++] : -1;
    for (unsigned i = 0; i < n && !match; i++)
        (void)close(got[i]);
    return match;
}

// The answer to the configuration, within SPAWN_START_MS.
static int
read_features(struct spawn *s, struct spawn_features *features, int bpf_fds[BPF_FDS], struct err *e)
{
    struct spawn_reply reply;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * BPF_FDS)];
    } control;
    struct iovec iov[2] = {{&reply, sizeof reply}, {features, sizeof *features}};
    struct msghdr m = {.msg_iov = iov,
                       .msg_iovlen = 2,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    int ready = 0;
    do {
        ready = poll(&p, 1, SPAWN_START_MS);
    } while (ready < 0 && errno == EINTR);
    if (ready == 0)
        return err_set(e, ERR_DEADLINE_EXCEEDED, "no answer within %d s", SPAWN_START_MS / 1000);
    ssize_t n = recvmsg(s->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n == 0 || (n < 0 && errno == ECONNRESET))
        return err_set(e, ERR_UNAVAILABLE, "it ended while it started");
    if (n < (ssize_t)sizeof reply || reply.op != SPAWN_CONFIGURE)
        return err_set(e, ERR_INTERNAL, "its first answer is malformed");
    if (!reply.ok) {
        *e = reply.err;
        err_sanitize(e);
        return err_errno(e);
    }
    bool whole = n == (ssize_t)(sizeof reply + sizeof *features);
    if (!take_bpf_fds(&m, whole ? features->bpf_fds : 0, bpf_fds) || !whole ||
        features->n > SPAWN_FEATURES_MAX)
        return err_set(e, ERR_INTERNAL, "its features are malformed");
    return 0;
}

// Waits for its end without SIGCHLD; kills what does not come to one when it may. True: it ended with status 0.
static bool
reap(pid_t pid, uint32_t grace_ms)
{
    for (uint32_t waited = 0;; waited++) {
        int status = 0;
        pid_t r = waitpid(pid, &status, WNOHANG);
        if (r == pid)
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (r < 0 && errno != EINTR)
            return false;
        if (waited >= grace_ms)
            return false;
        (void)poll(NULL, 0, 1);
    }
}

int
spawn_start(const char *binary, const struct spawn_config *config, struct spawn_features *features,
            int bpf_fds[BPF_FDS], struct spawn **out, struct err *e)
{
    for (int i = 0; i < BPF_FDS; i++)
        bpf_fds[i] = -1;
    struct spawn *s = calloc(1, sizeof *s);
    if (!s)
        return err_sys(e, ENOMEM, "start the spawner");
    s->fd = -1;
    s->backlog_head = s->backlog_tail = SPAWN_PENDING_MAX;
    for (uint32_t i = 0; i < SPAWN_PENDING_MAX; i++)
        s->pending[i].next = i + 1;
    int r = start_process(binary, s, e);
    if (r == 0 && send(s->fd, config, sizeof *config, MSG_NOSIGNAL) != (ssize_t)sizeof *config)
        r = err_sys(e, errno, "send the configuration");
    if (r == 0)
        r = read_features(s, features, bpf_fds, e);
    if (r == 0) {
        *out = s;
        return 0;
    }
    for (int i = 0; i < BPF_FDS; i++) {
        if (bpf_fds[i] >= 0)
            (void)close(bpf_fds[i]);
        bpf_fds[i] = -1;
    }
    if (s->fd >= 0)
        (void)close(s->fd);
    if (s->pid > 0 && !reap(s->pid, 2000)) {
        (void)kill(s->pid, SIGKILL); // an ended one has been reaped, or is ours still
        (void)reap(s->pid, 2000);
    }
    free(s);
    return err_wrap(e, "start the spawner");
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
    bool clean = reap(s->pid, grace_ms);
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

static void
close_all(int fds[SPAWN_FDS_MAX])
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
        close_all(fds);
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
        close_all(fds);
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
