// See resolve.h. c-ares keeps its own sockets and tells which events it wants (sock_state_cb); its time-outs are looked at
// by the tick. It reads no file once the channel is open: lookups are "b" (DNS alone, no /etc/hosts).
#include "resolve.h"

#include <ares.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "address.h"
#include "report.h"
#include "sandboxes.h"

enum {
    SOCKETS = 64,
    TIMEOUT_MS = 2000,
    TRIES = 2,
    FRESH_S_MIN = 1,
    FRESH_S_MAX = 60,
};

struct lookup {
    struct list node;        // of all that are free, or of those that run
    struct sandbox *sandbox; // NULL: it is closed
    struct list waiters;
    struct net_user user; // the first who asked
    char text[RELAY_NAME_MAX + 3];
};

static struct {
    struct relay *relay;
    ares_channel channel;
    struct watch sockets[SOCKETS];
    bool taken[SOCKETS];
    int wanted[SOCKETS];
    struct lookup lookups[RESOLVE_MAX];
    struct list unused, running;
    uint32_t running_n;
} c;

static void
on_socket(uv_poll_t *uv, int status, int events)
{
    struct watch *w = uv->data;
    bool both = status < 0 || (events & (UV_READABLE | UV_WRITABLE)) == 0;
    c.relay->now_ms = clock_ms();
    if (status < 0)
        watch_stopped(w);
    ares_process_fd(c.channel, both || (events & UV_READABLE) != 0 ? w->fd : ARES_SOCKET_BAD,
                    both || (events & UV_WRITABLE) != 0 ? w->fd : ARES_SOCKET_BAD);
    if (w->live)
        watch_want(w, c.wanted[w - c.sockets], on_socket);
}

static void
on_socket_closed(uv_handle_t *h)
{
    struct watch *w = h->data;
    c.taken[w - c.sockets] = false;
}

// c-ares closes its sockets itself, after this.
static void
on_socket_state(void *data, ares_socket_t fd, int readable, int writable)
{
    (void)data;
    int events = (readable != 0 ? UV_READABLE : 0) | (writable != 0 ? UV_WRITABLE : 0);
    size_t i = 0;
    while (i < SOCKETS && !(c.sockets[i].live && c.sockets[i].fd == fd))
        i++;
    if (i == SOCKETS && events != 0) {
        for (i = 0; i < SOCKETS && c.taken[i];)
            i++;
        if (i == SOCKETS)
            return; // its queries time out
        c.taken[i] = true;
        watch_open(c.relay, &c.sockets[i], fd, events, on_socket, &c.sockets[i]);
    }
    if (i == SOCKETS)
        return;
    c.wanted[i] = events;
    if (events != 0) {
        watch_want(&c.sockets[i], events, on_socket);
        return;
    }
    (void)uv_poll_stop(&c.sockets[i].uv);
    c.sockets[i].live = false;
    c.sockets[i].fd = -1;
    uv_close((uv_handle_t *)&c.sockets[i].uv, on_socket_closed);
}

static int
set_servers(const struct relay_order *o)
{
    struct ares_addr_port_node nodes[RELAY_SERVERS];
    memset(nodes, 0, sizeof nodes);
    for (uint32_t i = 0; i < o->servers_n; i++) {
        bool v4 = address_is_v4(o->servers[i].address);
        nodes[i].family = v4 ? AF_INET : AF_INET6;
        if (v4)
            memcpy(&nodes[i].addr.addr4, o->servers[i].address + ADDRESS_V4_AT, 4);
        else
            memcpy(&nodes[i].addr.addr6, o->servers[i].address, ADDRESS_BYTES);
        nodes[i].udp_port = nodes[i].tcp_port = o->servers[i].port;
        nodes[i].next = i + 1 < o->servers_n ? &nodes[i + 1] : NULL;
    }
    return o->servers_n == 0 ? ARES_SUCCESS : ares_set_servers_ports(c.channel, nodes);
}

bool
resolve_init(struct relay *r, const struct relay_order *configure)
{
    static char dns_alone[] = "b";
    struct ares_options options = {
        .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
        .timeout = TIMEOUT_MS,
        .tries = TRIES,
        .lookups = dns_alone,
        .sock_state_cb = on_socket_state,
    };
    c.relay = r;
    list_init(&c.unused);
    list_init(&c.running);
    for (size_t i = 0; i < RESOLVE_MAX; i++)
        list_append(&c.unused, &c.lookups[i].node);
    return ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS &&
           ares_init_options(&c.channel, &options,
                             ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
                                 ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB) == ARES_SUCCESS &&
           set_servers(configure) == ARES_SUCCESS;
}

static enum resolve_result
result_of(int status)
{
    switch (status) {
    case ARES_SUCCESS:
        return RESOLVE_OK;
    case ARES_ENOTFOUND:
    case ARES_EBADNAME:
        return RESOLVE_NO_NAME;
    case ARES_ENODATA:
        return RESOLVE_NO_DATA;
    default:
        return RESOLVE_FAILED;
    }
}

// Addresses that the sandbox may reach at some port, IPv4 and IPv6 in turn as they came; the shortest of their times.
struct found {
    uint32_t n;
    uint8_t addresses[NAME_ADDRESSES][16];
    int ttl_s;
    bool forbidden;
    uint8_t refused[16]; // the first that was
};

static void
collect(const struct sandbox *s, const struct ares_addrinfo *info, struct found *f)
{
    *f = (struct found){.ttl_s = FRESH_S_MAX};
    for (const struct ares_addrinfo_node *it = info->nodes; it != NULL; it = it->ai_next) {
        struct sockaddr_storage sa;
        uint8_t a[16];
        uint16_t port = 0;
        if (it->ai_addrlen > sizeof sa || f->n == NAME_ADDRESSES)
            continue;
        memset(&sa, 0, sizeof sa);
        memcpy(&sa, it->ai_addr, it->ai_addrlen);
        address_from_sockaddr(&sa, a, &port);
        if (!sandbox_may_reach(s, a, 0, 0)) {
            if (!f->forbidden)
                memcpy(f->refused, a, sizeof a);
            f->forbidden = true;
            continue;
        }
        memcpy(f->addresses[f->n++], a, sizeof a);
        if (it->ai_ttl < f->ttl_s)
            f->ttl_s = it->ai_ttl;
    }
    if (f->ttl_s < FRESH_S_MIN)
        f->ttl_s = FRESH_S_MIN;
}

// Makes the name of what was found, or says why not.
static enum resolve_result
keep(struct lookup *l, const struct ares_addrinfo *info, struct name **out)
{
    struct sandbox *s = l->sandbox;
    const char *text = l->text;
    struct found f;
    collect(s, info, &f);
    struct report_about about = {.name = text, .user = &l->user, .rule = UINT32_MAX};
    if (f.n == 0) {
        about.address = f.refused;
        if (f.forbidden)
            report_denied(s, NET_NAME_ADDRESS, &about);
        return f.forbidden ? RESOLVE_FORBIDDEN : RESOLVE_NO_DATA;
    }
    struct name *name = names_make(s, text);
    if (name == NULL) {
        report_denied(s, NET_FULL, &about);
        return RESOLVE_FULL;
    }
    name->n = f.n;
    memcpy(name->addresses, f.addresses, sizeof name->addresses);
    name->fresh_until_ms = s->relay->now_ms + (uint64_t)f.ttl_s * 1000;
    about.address = name->addresses[0];
    about.index = name->index;
    about.rule = report_rule(s, permit_name(s->permit, text).rule);
    report(s, RELAY_LOOKUP, &about);
    *out = name;
    return RESOLVE_OK;
}

static void
on_answer(void *cookie, int status, int timeouts, struct ares_addrinfo *info)
{
    struct lookup *l = cookie;
    (void)timeouts;
    enum resolve_result result = result_of(status);
    struct name *name = NULL;
    if (l->sandbox != NULL && result == RESOLVE_OK)
        result = info == NULL ? RESOLVE_FAILED : keep(l, info, &name);
    ares_freeaddrinfo(info);
    if (l->sandbox != NULL)
        l->sandbox->lookups_n--;
    list_remove(&l->node); // nobody joins it any more
    c.running_n--;
    while (!list_empty(&l->waiters)) { // one that is told may take others out of the list
        struct resolve_waiter *w = list_entry(l->waiters.next, struct resolve_waiter, node);
        list_remove(&w->node);
        w->done(w, result, name);
    }
    list_append(&c.unused, &l->node);
}

static struct lookup *
find_running(const struct sandbox *s, const char *text)
{
    list_each(it, &c.running)
    {
        struct lookup *l = list_entry(it, struct lookup, node);
        if (l->sandbox == s && strcmp(l->text, text) == 0)
            return l;
    }
    return NULL;
}

void
resolve_name(struct sandbox *s, const char *text, struct resolve_waiter *w)
{
    static const struct ares_addrinfo_hints hints = {.ai_family = AF_UNSPEC,
                                                     .ai_flags = ARES_AI_NOSORT};
    list_init(&w->node);
    struct name *name = names_find(s, text);
    if (name != NULL && name->n > 0 && s->relay->now_ms < name->fresh_until_ms) {
        names_touch(s, name);
        w->done(w, RESOLVE_OK, name);
        return;
    }
    struct lookup *l = find_running(s, text);
    if (l != NULL) {
        list_append(&l->waiters, &w->node);
        return;
    }
    if (list_empty(&c.unused) || s->lookups_n >= RESOLVE_PER_SANDBOX ||
        !share_left(s->lookups_n, c.running_n, RESOLVE_MAX)) {
        const struct report_about about = {.name = text, .user = w->user, .rule = UINT32_MAX};
        report_denied(s, NET_FULL, &about);
        w->done(w, RESOLVE_FULL, NULL);
        return;
    }
    l = list_entry(c.unused.next, struct lookup, node);
    list_remove(&l->node);
    list_append(&c.running, &l->node);
    c.running_n++;
    l->sandbox = s;
    l->user = *w->user;
    s->lookups_n++;
    (void)snprintf(l->text, sizeof l->text, "%s", text);
    list_init(&l->waiters);
    list_append(&l->waiters, &w->node);
    tick_need(s->relay);
    ares_getaddrinfo(c.channel, l->text, NULL, &hints, on_answer, l);
}

void
resolve_drop(struct sandbox *s)
{
    list_each(it, &c.running)
    {
        struct lookup *l = list_entry(it, struct lookup, node);
        if (l->sandbox == s)
            l->sandbox = NULL;
    }
    s->lookups_n = 0;
}

bool
resolve_tick(struct relay *r)
{
    (void)r;
    if (c.running_n > 0)
        ares_process_fd(c.channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    return c.running_n > 0;
}
