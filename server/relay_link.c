// See relay_link.h. An order that the socket does not take waits in a queue with its descriptors; the relay reads orders
// before anything else, so the queue is short unless it is stuck.
#include "relay_link.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "../proto/auto.h"
#include "list.h"
#include "loop.h"

enum { REPORTS_PER_TURN = 256 };

struct order {
    struct list node;
    int fds[RELAY_FDS];
    size_t fds_n;
    size_t n;
    struct relay_order body; // with its rules
};

enum sandbox_state { SANDBOX_NONE = 0, SANDBOX_OPEN, SANDBOX_CLOSING };

struct sandbox_entry {
    enum sandbox_state state;
    uint32_t generation;
    relay_done *done;
    void *cookie;
};

struct relay_link {
    int fd;
    struct loop_poll *poll;
    const struct relay_events *events;
    void *cookie;
    struct list queue;
    size_t queued, queued_bytes;
    bool configured, told_ready;
    bool freed, busy; // free was asked for while an event is being told
    struct sandbox_entry sandboxes[BPF_SLOTS];
};

static void on_ready(void *cookie, int events);

struct relay_link *
relay_link_new(uv_loop_t *loop, int fd, const struct relay_events *events, void *cookie,
               struct err *e)
{
    struct relay_link *l = calloc(1, sizeof *l);
    if (l == NULL) {
        (void)close(fd);
        (void)err_sys(e, ENOMEM, "watch the relay's socket");
        return NULL;
    }
    l->fd = fd;
    l->events = events;
    l->cookie = cookie;
    list_init(&l->queue);
    int r = loop_poll_start(loop, &l->poll, fd, UV_READABLE, on_ready, l);
    if (r < 0) {
        (void)err_sys(e, r, "watch the relay's socket");
        relay_link_free(l);
        return NULL;
    }
    return l;
}

static void
order_free(struct order *o)
{
    for (size_t i = 0; i < o->fds_n; i++)
        (void)close(o->fds[i]);
    list_remove(&o->node);
    free(o);
}

void
relay_link_free(struct relay_link *l)
{
    if (l == NULL)
        return;
    l->freed = true;
    loop_poll_stop(&l->poll);
    if (l->busy)
        return;
    list_each(it, &l->queue) order_free(list_entry(it, struct order, node));
    (void)close(l->fd);
    free(l);
}

// 0, -EAGAIN, or another errno.
static int
send_order(const struct relay_link *l, struct order *o)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * RELAY_FDS)];
    } control = {0};
    struct iovec iov = {.iov_base = &o->body, .iov_len = o->n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (o->fds_n > 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * o->fds_n);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * o->fds_n);
        memcpy(CMSG_DATA(c), o->fds, sizeof(int) * o->fds_n);
    }
    ssize_t r = sendmsg(l->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (r >= 0)
        return 0;
    return errno == EWOULDBLOCK || errno == ENOBUFS ? -EAGAIN : -errno;
}

// Sends or queues. Takes the order. A broken socket is told by its own event, so it is no failure here.
static int
submit(struct relay_link *l, struct order *o, struct err *e)
{
    if (list_empty(&l->queue) && send_order(l, o) != -EAGAIN) {
        order_free(o);
        return 0;
    }
    if (l->queued >= RELAY_QUEUE_MAX || l->queued_bytes + o->n > RELAY_QUEUE_BYTES) {
        order_free(o);
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "the relay does not take orders");
    }
    list_append(&l->queue, &o->node);
    l->queued++;
    l->queued_bytes += o->n;
    if (l->poll != NULL)
        loop_poll_want(l->poll, UV_READABLE | UV_WRITABLE);
    return 0;
}

static void
flush(struct relay_link *l)
{
    list_each(it, &l->queue)
    {
        struct order *o = list_entry(it, struct order, node);
        if (send_order(l, o) == -EAGAIN)
            return;
        l->queued--;
        l->queued_bytes -= o->n;
        order_free(o);
    }
    loop_poll_want(l->poll, UV_READABLE);
}

static struct order *
order_new(enum relay_order_kind kind, uint32_t slot, uint32_t generation, uint32_t rules_n,
          struct err *e)
{
    size_t n = sizeof(struct relay_order) + rules_n * sizeof(struct relay_rule);
    struct order *o = calloc(1, offsetof(struct order, body) + n);
    if (o == NULL) {
        (void)err_sys(e, ENOMEM, "make an order for the relay");
        return NULL;
    }
    list_init(&o->node);
    o->n = n;
    o->body.kind = kind;
    o->body.slot = slot;
    o->body.generation = generation;
    o->body.rules_n = rules_n;
    return o;
}

int
relay_configure(struct relay_link *l, const struct relay_servers *servers, struct err *e)
{
    if (l->configured || servers->n > RELAY_SERVERS)
        return err_set(e, ERR_FAILED_PRECONDITION, "the relay is configured once, with %d servers",
                       RELAY_SERVERS);
    struct order *o = order_new(RELAY_CONFIGURE, 0, 0, 0, e);
    if (o == NULL)
        return err_errno(e);
    o->body.servers_n = servers->n;
    for (uint32_t i = 0; i < servers->n; i++) {
        memcpy(o->body.servers[i].address, servers->server[i].address, 16);
        o->body.servers[i].port = servers->server[i].port;
    }
    l->configured = true;
    return submit(l, o, e);
}

static int
submit_policy(struct relay_link *l, struct order *o, const struct relay_policy *p, struct err *e)
{
    o->body.mode = (uint32_t)p->mode;
    o->body.out_bytes_max = p->out_bytes_max;
    o->body.in_bytes_max = p->in_bytes_max;
    o->body.out_rate = p->out_rate;
    o->body.in_rate = p->in_rate;
    o->body.queries_per_minute = p->queries_per_minute;
    if (p->rules_n > 0)
        memcpy(o->body.rules, p->rules, p->rules_n * sizeof p->rules[0]);
    return submit(l, o, e);
}

static int
check_policy(const struct relay_link *l, const struct relay_policy *p, struct err *e)
{
    if (p->rules_n > NET_RULES)
        return err_set(e, ERR_INVALID_ARGUMENT, "%u rules; the relay takes %d", p->rules_n,
                       NET_RULES);
    if (l->poll == NULL)
        return err_set(e, ERR_UNAVAILABLE, "the relay has ended");
    return 0;
}

int
relay_open(struct relay_link *l, uint32_t slot, uint32_t generation, int fds[RELAY_FDS],
           const struct relay_policy *policy, struct err *e)
{
    int r = check_policy(l, policy, e);
    if (r == 0 && (slot >= BPF_SLOTS || l->sandboxes[slot].state != SANDBOX_NONE))
        r = err_set(e, ERR_FAILED_PRECONDITION, "slot %u is open in the relay", slot);
    struct order *o = r < 0 ? NULL : order_new(RELAY_OPEN, slot, generation, policy->rules_n, e);
    for (size_t i = 0; i < RELAY_FDS; i++) {
        int fd = take_fd(&fds[i]);
        if (fd >= 0 && o != NULL)
            o->fds[o->fds_n++] = fd;
        else if (fd >= 0)
            (void)close(fd);
    }
    if (o == NULL)
        return err_errno(e);
    if (o->fds_n == 0) {
        order_free(o);
        return err_set(e, ERR_INVALID_ARGUMENT, "no listener came for slot %u", slot);
    }
    r = submit_policy(l, o, policy, e);
    if (r == 0)
        l->sandboxes[slot] =
            (struct sandbox_entry){.state = SANDBOX_OPEN, .generation = generation};
    return r;
}

bool
relay_is_open(const struct relay_link *l, uint32_t slot, uint32_t generation)
{
    return slot < BPF_SLOTS && l->sandboxes[slot].state == SANDBOX_OPEN &&
           l->sandboxes[slot].generation == generation;
}

static int
must_be_open(const struct relay_link *l, uint32_t slot, uint32_t generation, struct err *e)
{
    if (relay_is_open(l, slot, generation))
        return 0;
    return err_set(e, ERR_FAILED_PRECONDITION, "slot %u is not open in the relay", slot);
}

int
relay_policy(struct relay_link *l, uint32_t slot, uint32_t generation,
             const struct relay_policy *policy, struct err *e)
{
    int r = check_policy(l, policy, e);
    if (r == 0)
        r = must_be_open(l, slot, generation, e);
    if (r < 0)
        return r;
    struct order *o = order_new(RELAY_POLICY, slot, generation, policy->rules_n, e);
    return o == NULL ? err_errno(e) : submit_policy(l, o, policy, e);
}

int
relay_close(struct relay_link *l, uint32_t slot, uint32_t generation, relay_done *done,
            void *cookie, struct err *e)
{
    int r = must_be_open(l, slot, generation, e);
    struct order *o = r < 0 ? NULL : order_new(RELAY_CLOSE, slot, generation, 0, e);
    if (o == NULL)
        return err_errno(e);
    r = submit(l, o, e);
    if (r == 0)
        l->sandboxes[slot] = (struct sandbox_entry){SANDBOX_CLOSING, generation, done, cookie};
    return r;
}

static void
tell_closed(struct relay_link *l, uint32_t slot)
{
    struct sandbox_entry was = l->sandboxes[slot];
    l->sandboxes[slot] = (struct sandbox_entry){.state = SANDBOX_NONE};
    if (was.done != NULL)
        was.done(was.cookie);
}

static bool
is_name(const char *name, size_t n)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-_.";
    size_t len = strnlen(name, n);
    return len <= RELAY_NAME_MAX && name[strspn(name, allowed)] == '\0';
}

// One that no honest relay sends. A sandbox that was closed with the relay's report still under way cannot be: it is
// CLOSING until RELAY_CLOSED, which is the last of it.
static int
check(const struct relay_link *l, const struct relay_report *r, size_t n, struct err *e)
{
    if (n != sizeof *r)
        return err_set(e, ERR_INTERNAL, "a report of %zu bytes", n);
    if (r->kind < RELAY_READY || r->kind > RELAY_SUMS)
        return err_set(e, ERR_INTERNAL, "a report of kind %u", r->kind);
    if (r->reason >= NET_REASONS || (r->rule >= NET_RULES && r->rule != ~0U))
        return err_set(e, ERR_INTERNAL, "a report with reason %u and rule %u", r->reason, r->rule);
    if (!is_name(r->name, sizeof r->name))
        return err_set(e, ERR_INTERNAL, "a report with a name that is none");
    if (r->kind == RELAY_READY)
        return l->configured && !l->told_ready ? 0 : err_set(e, ERR_INTERNAL, "READY out of place");
    if (r->slot >= BPF_SLOTS || l->sandboxes[r->slot].state == SANDBOX_NONE ||
        l->sandboxes[r->slot].generation != r->generation)
        return err_set(e, ERR_INTERNAL, "a report about slot %u, which is not open", r->slot);
    if (r->kind == RELAY_CLOSED && l->sandboxes[r->slot].state != SANDBOX_CLOSING)
        return err_set(e, ERR_INTERNAL, "slot %u closed without an order", r->slot);
    return 0;
}

static void
tell(struct relay_link *l, const struct relay_report *r)
{
    if (r->kind == RELAY_READY) {
        l->told_ready = true;
        if (l->events->ready != NULL)
            l->events->ready(l->cookie);
    } else if (r->kind == RELAY_CLOSED) {
        tell_closed(l, r->slot);
    } else if (l->events->report != NULL) {
        l->events->report(l->cookie, r);
    }
}

// One report. 0: told; 1: none there; negative: the relay is gone, *e says why.
static int
turn(struct relay_link *l, struct err *e)
{
    struct relay_report r;
    ssize_t n = recv(l->fd, &r, sizeof r, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 1;
    if (n == 0 || (n < 0 && errno == ECONNRESET))
        return err_set(e, ERR_UNAVAILABLE, "the relay has ended");
    if (n < 0)
        return err_sys(e, errno, "read from the relay");
    if (check(l, &r, (size_t)n, e) < 0)
        return err_wrap(e, "the relay broke the protocol");
    tell(l, &r);
    return 0;
}

static void
tell_gone(struct relay_link *l, const struct err *why)
{
    loop_poll_stop(&l->poll);
    for (uint32_t slot = 0; slot < BPF_SLOTS && !l->freed; slot++)
        if (l->sandboxes[slot].state != SANDBOX_NONE)
            tell_closed(l, slot);
    if (!l->freed && l->events->gone != NULL)
        l->events->gone(l->cookie, why);
}

static void
on_ready(void *cookie, int events)
{
    struct relay_link *l = cookie;
    struct err e;
    int r = 0;
    l->busy = true;
    if ((events & UV_WRITABLE) != 0)
        flush(l);
    for (int i = 0; i < REPORTS_PER_TURN && r == 0 && !l->freed; i++)
        r = turn(l, &e);
    if (r < 0 && !l->freed)
        tell_gone(l, &e);
    l->busy = false;
    if (l->freed)
        relay_link_free(l);
}
