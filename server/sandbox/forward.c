// SPDX-License-Identifier: Apache-2.0
// See forward.h.
#include "forward.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/auto.h"
#include "proto/plural.h"
#include "server/base/idtable.h"
#include "server/base/list.h"
#include "server/base/loop.h"
#include "server/policy/network.h"
#include "sandbox.h"
#include "server/base/server.h"
#include "spawn.h"

struct forward {
    struct idnode id; // must be first
    struct list node;
    struct forwards *all;
    uint8_t id_bytes[ID_BYTES];
    char tenant[32];
    uint8_t sandbox[ID_BYTES];
    uint16_t port;
    int fd; // -1: the spawner is still making it
    struct loop_poll *poll;
    const struct forward_events *events; // NULL: the caller has disconnected
    void *cookie;
    bool blocked; // the caller accepts no more for now
    bool closing; // the caller has closed its side
    bool shut;    // and the socket was shut down
    size_t queued;
    uint8_t *queue; // owned, FORWARD_QUEUE_MAX
};

struct forwards {
    struct server *srv;
    struct list list;
    struct idtable table;
};

struct forwards *
forwards_new(struct server *srv)
{
    struct forwards *all = calloc(1, sizeof *all);
    if (all == NULL)
        return NULL;
    all->srv = srv;
    list_init(&all->list);
    return all;
}

static void
forward_free(struct forward *f)
{
    loop_poll_stop(&f->poll);
    if (f->fd >= 0)
        (void)close(f->fd);
    list_remove(&f->node);
    idtable_remove(&f->all->table, &f->id);
    free(f->queue);
    free(f);
}

void
forwards_free(struct forwards *all)
{
    if (all == NULL)
        return;
    list_each(it, &all->list) forward_free(list_entry(it, struct forward, node));
    free(all);
}

static void
finish(struct forward *f, const struct err *why)
{
    const struct forward_events *events = f->events;
    void *cookie = f->cookie;
    f->events = NULL;
    if (f->fd >= 0)
        forward_free(f); // otherwise it is freed when the spawner has replied
    if (events != NULL)
        events->ended(cookie, why);
}

void
forward_drop(struct forward *f)
{
    f->events = NULL;
    if (f->fd >= 0)
        forward_free(f);
}

static void
watch(struct forward *f)
{
    int events = f->blocked ? 0 : UV_READABLE;
    if (f->queued > 0)
        events |= UV_WRITABLE;
    loop_poll_want(f->poll, events);
}

// False: the connection has ended.
static bool
read_some(struct forward *f)
{
    uint8_t bytes[FORWARD_READ_MAX];
    struct err e;
    // Peeks at the data, and removes it when the caller has accepted it.
    ssize_t n = recv(f->fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0) {
        if (n < 0)
            (void)err_set(&e, ERR_UNAVAILABLE, "port %u: %s", f->port, strerror(errno));
        finish(f, n < 0 ? &e : NULL);
        return false;
    }
    int r = f->events->data(f->cookie, bytes, (size_t)n);
    if (r == -EAGAIN) {
        f->blocked = true;
        return true;
    }
    if (r < 0) {
        (void)err_sys(&e, r, "send data from port %u", f->port);
        finish(f, &e);
        return false;
    }
    (void)recv(f->fd, bytes, (size_t)n, MSG_DONTWAIT);
    return true;
}

static void
write_some(struct forward *f)
{
    ssize_t n = f->queued > 0 ? send(f->fd, f->queue, f->queued, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        f->queued = 0; // the next read returns the error
    if (n > 0) {
        f->queued -= (size_t)n;
        memmove(f->queue, f->queue + n, f->queued);
    }
    if (f->queued == 0 && f->closing && !f->shut) {
        (void)shutdown(f->fd, SHUT_WR);
        f->shut = true;
    }
}

static void
on_ready(void *cookie, int events)
{
    struct forward *f = cookie;
    if ((events & UV_WRITABLE) != 0)
        write_some(f);
    if ((events & UV_READABLE) != 0 && !f->blocked && !read_some(f))
        return;
    watch(f);
}

void
forward_go_on(struct forward *f)
{
    f->blocked = false;
    if (f->poll != NULL)
        watch(f);
}

static void
// NOLINTNEXTLINE(readability-non-const-parameter): the type of spawn_done
on_dialled(void *cookie, const struct spawn_reply *reply, int fds[SPAWN_FDS_MAX])
{
    struct forward *f = cookie;
    struct err e = reply->err;
    int r = 0;
    f->fd = reply->ok != 0 ? fds[0] : -1;
    if (reply->ok == 0)
        r = err_errno(&e);
    else if (f->fd < 0)
        r = err_sys(&e, EMFILE, "connect to port %u", f->port);
    if (r == 0 && f->events != NULL)
        r = loop_poll_start(f->all->srv->loop, &f->poll, f->fd, UV_READABLE, on_ready, f) < 0
                ? err_sys(&e, ENOMEM, "watch a connection")
                : 0;
    if (r == 0 && f->events != NULL) {
        f->events->opened(f->cookie, f->id.id);
        return;
    }
    const struct forward_events *events = f->events;
    void *to = f->cookie;
    forward_free(f);
    if (events != NULL)
        events->ended(to, &e);
}

static int
check_port(const struct sandbox *s, uint16_t port, struct err *e)
{
    if (s->net.in_force != NULL && network_lets_in(s->net.in_force, port))
        return 0;
    int r = err_set(e, ERR_PERMISSION_DENIED,
                    "the network policy of sandbox %s does not allow connections to port %u",
                    s->id.id, port);
    char allowed[sizeof e->allowed] = "no port: the sandbox has no network";
    if (s->net.in_force != NULL)
        network_text(s->net.in_force, allowed, sizeof allowed);
    err_detail(e, "PORT_NOT_ALLOWED", "network.inbound", "add the port to network.inbound");
    err_rule(e, "network.inbound", allowed);
    return r;
}

uint32_t
forwards_of(const struct forwards *all, const struct sandbox *s)
{
    uint32_t n = 0;
    for (struct list *it = all->list.next; it != &all->list; it = it->next)
        n += memcmp(list_entry(it, struct forward, node)->sandbox, s->id_bytes, ID_BYTES) == 0;
    return n;
}

static int
check_room(const struct forwards *all, const struct sandbox *s, struct err *e)
{
    const uint32_t of_sandbox = forwards_of(all, s);
    if (all->table.n < FORWARDS_MAX && of_sandbox < FORWARDS_OF_SANDBOX)
        return 0;
    int r =
        err_set(e, ERR_RESOURCE_EXHAUSTED, "%zu %s open, %u of them to this one", all->table.n,
                plural(all->table.n, "connection to a sandbox is", "connections to sandboxes are"),
                of_sandbox);
    err_detail(e, "FORWARDS_FULL", "forwards", "close some, or try again later");
    return r;
}

int
forward_open(struct forwards *all, struct sandbox *s, uint16_t port,
             const struct forward_events *events, void *cookie, struct forward **out, struct err *e)
{
    int r = sandbox_check_running(s, e);
    if (r == 0)
        r = check_port(s, port, e);
    if (r == 0)
        r = check_room(all, s, e);
    if (r < 0)
        return r;
    struct forward *f = calloc(1, sizeof *f);
    if (f == NULL)
        return err_sys(e, ENOMEM, "connect to port %u", port);
    *f = (struct forward){.all = all, .port = port, .fd = -1, .events = events, .cookie = cookie};
    memcpy(f->tenant, s->tenant->name, sizeof f->tenant);
    memcpy(f->sandbox, s->id_bytes, sizeof f->sandbox);
    id_make(sandboxes_settings(s->all)->node, f->id_bytes, f->id.id);
    r = spawn_net_dial(all->srv->spawn, s->slot, s->generation, port, on_dialled, f, e);
    if (r < 0) {
        free(f);
        return err_wrap(e, "connect to port %u", port);
    }
    list_append(&all->list, &f->node);
    idtable_add(&all->table, &f->id);
    *out = f;
    return 0;
}

struct forward *
forward_find(struct forwards *all, const char *tenant, const char *id, struct err *e)
{
    struct forward *f = (struct forward *)(void *)idtable_find(&all->table, id);
    if (f != NULL && f->fd >= 0 && f->events != NULL && strcmp(f->tenant, tenant) == 0)
        return f;
    (void)id_not_found("connection", sandboxes_settings(all->srv->sandboxes)->node, id, e);
    if (e->reason[0] == '\0')
        err_detail(e, "CONNECTION_UNKNOWN", "connection_id", "it was closed, or never existed");
    return NULL;
}

int
forward_write(struct forward *f, const void *bytes, size_t n, struct err *e)
{
    if (f->closing)
        return err_set(e, ERR_FAILED_PRECONDITION, "connection %s was closed for writing",
                       f->id.id);
    if (f->queue == NULL && (f->queue = malloc(FORWARD_QUEUE_MAX)) == NULL)
        return err_sys(e, ENOMEM, "write to a connection");
    if (n > FORWARD_QUEUE_MAX - f->queued) {
        int r = err_set(e, ERR_RESOURCE_EXHAUSTED, "%zu bytes are already queued", f->queued);
        err_detail(e, "QUEUE_FULL", "forward", "try again later");
        return r;
    }
    if (n > 0)
        memcpy(f->queue + f->queued, bytes, n);
    f->queued += n;
    write_some(f);
    watch(f);
    return 0;
}

void
forward_close(struct forward *f)
{
    f->closing = true;
    write_some(f);
}

void
forwards_check(struct forwards *all, const struct sandbox *s)
{
    struct err e;
    if (all == NULL)
        return;
    list_each(it, &all->list)
    {
        struct forward *f = list_entry(it, struct forward, node);
        if (memcmp(f->sandbox, s->id_bytes, ID_BYTES) == 0 && check_port(s, f->port, &e) < 0)
            finish(f, &e);
    }
}
