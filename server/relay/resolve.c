// SPDX-License-Identifier: Apache-2.0
// See resolve.h. c-ares has its own sockets and says which events it needs (sock_state_cb); the tick handles its
// timeouts. It reads no file after the channel is open: lookups are "b" (DNS only, no /etc/hosts).
//
// A channel sends all of its pending queries from one port, and closes the socket when none is pending. So there are
// many channels, and each query uses an idle one if possible: to forge an answer, an attacker has to guess the port
// and the id of each query.
#include "resolve.h"

#include <ares.h>
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "address.h"
#include "report.h"
#include "sandbox.h"
#include "sham.h"

enum {
    CHANNELS = 64,
    SOCKETS = 256,
    TIMEOUT_MS = 2000,
    TRIES = 2,
    FRESH_S_MIN = 1,
    FRESH_S_MAX = 60,
};

struct channel {
    ares_channel ares;
    uint32_t running;
};

// Addresses that the sandbox may reach at some port, in the order of the answer, and their shortest TTL.
struct found {
    uint32_t n;
    uint8_t addresses[NAME_ADDRESSES][16];
    int ttl_s;
    bool forbidden;
    uint8_t refused[16]; // the first refused one
};

// One of the two queries of a lookup: A, AAAA.
struct part {
    struct lookup *lookup;
    struct channel *channel;
    enum resolve_result result;
    struct found found;
};

struct lookup {
    struct list node;        // in the free list, or in the list of running lookups
    struct sandbox *sandbox; // NULL: it was closed
    struct list waiters;
    struct net_user user; // the first requester
    char text[RELAY_NAME_MAX + 3];
    unsigned pending;
    struct part parts[2];
};

static struct {
    struct relay *relay;
    struct channel channels[CHANNELS];
    struct channel *owner[SOCKETS];
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
    ares_process_fd(c.owner[w - c.sockets]->ares,
                    both || (events & UV_READABLE) != 0 ? w->fd : ARES_SOCKET_BAD,
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
    int events = (readable != 0 ? UV_READABLE : 0) | (writable != 0 ? UV_WRITABLE : 0);
    size_t i = 0;
    while (i < SOCKETS && !(c.sockets[i].live && c.sockets[i].fd == fd))
        i++;
    if (i == SOCKETS && events != 0) {
        for (i = 0; i < SOCKETS && c.taken[i];)
            i++;
        if (i == SOCKETS)
            return; // its queries will time out
        c.taken[i] = true;
        c.owner[i] = data;
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
set_servers(ares_channel channel, const struct relay_order *o)
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
    return o->servers_n == 0 ? ARES_SUCCESS : ares_set_servers_ports(channel, nodes);
}

static bool
open_channel(struct channel *ch, const struct relay_order *configure)
{
    static char dns_alone[] = "b";
    struct ares_options options = {
        .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
        .timeout = TIMEOUT_MS,
        .tries = TRIES,
        .lookups = dns_alone,
        .sock_state_cb = on_socket_state,
        .sock_state_cb_data = ch,
    };
    return ares_init_options(&ch->ares, &options,
                             ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
                                 ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB) == ARES_SUCCESS &&
           set_servers(ch->ares, configure) == ARES_SUCCESS;
}

bool
resolve_init(struct relay *r, const struct relay_order *configure)
{
    c.relay = r;
    list_init(&c.unused);
    list_init(&c.running);
    for (size_t i = 0; i < RESOLVE_MAX; i++)
        list_append(&c.unused, &c.lookups[i].node);
    bool fine = ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS;
    for (size_t i = 0; i < CHANNELS && fine; i++)
        fine = open_channel(&c.channels[i], configure);
    return fine;
}

void
resolve_end(void)
{
    for (size_t i = 0; i < CHANNELS; i++)
        ares_destroy(c.channels[i].ares); // notifies the running lookups, and closes their sockets
    ares_library_cleanup();
}

// An idle channel, or else any; the search starts at an unpredictable index.
static struct channel *
channel_for_query(void)
{
    uint32_t from = 0;
    if (getrandom(&from, sizeof from, 0) != (ssize_t)sizeof from)
        from = c.channels[0].running; // never fails for so few bytes
    for (uint32_t i = 0; i < CHANNELS; i++) {
        struct channel *ch = &c.channels[(from + i) % CHANNELS];
        if (ch->running == 0)
            return ch;
    }
    return &c.channels[from % CHANNELS];
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

// Alternates the families, so that neither takes all the room.
static void
merge(const struct found *a, const struct found *b, struct found *out)
{
    const struct found *from[] = {a, b};
    *out = (struct found){.ttl_s = a->ttl_s < b->ttl_s ? a->ttl_s : b->ttl_s};
    for (uint32_t i = 0; i < NAME_ADDRESSES; i++)
        for (size_t k = 0; k < 2; k++)
            if (i < from[k]->n && out->n < NAME_ADDRESSES)
                memcpy(out->addresses[out->n++], from[k]->addresses[i], 16);
    const struct found *refused = a->forbidden ? a : b;
    out->forbidden = refused->forbidden;
    memcpy(out->refused, refused->refused, sizeof out->refused);
}

// Stores the name with its addresses, or returns the reason why not.
static enum resolve_result
keep(struct lookup *l, struct name **out)
{
    struct sandbox *s = l->sandbox;
    const char *text = l->text;
    struct found f;
    merge(&l->parts[0].found, &l->parts[1].found, &f);
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

// Combines two answers: addresses first, then "no such name", then "no server responded".
static enum resolve_result
worth(enum resolve_result a, enum resolve_result b)
{
    static const enum resolve_result order[] = {RESOLVE_OK, RESOLVE_NO_NAME, RESOLVE_FAILED};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (a == order[i] || b == order[i])
            return order[i];
    return a;
}

static void
finish(struct lookup *l)
{
    enum resolve_result result = worth(l->parts[0].result, l->parts[1].result);
    struct name *name = NULL;
    if (l->sandbox != NULL && result == RESOLVE_OK)
        result = keep(l, &name);
    if (l->sandbox != NULL)
        l->sandbox->lookups_n--;
    list_remove(&l->node); // no waiter can join it any more
    c.running_n--;
    while (!list_empty(&l->waiters)) { // a callback may remove other waiters from the list
        struct resolve_waiter *w = list_entry(l->waiters.next, struct resolve_waiter, node);
        list_remove(&w->node);
        w->done(w, result, name);
    }
    list_append(&c.unused, &l->node);
}

static void
on_answer(void *cookie, int status, int timeouts, struct ares_addrinfo *info)
{
    struct part *p = cookie;
    struct lookup *l = p->lookup;
    (void)timeouts;
    p->channel->running--;
    p->result = result_of(status);
    p->found = (struct found){.ttl_s = FRESH_S_MAX};
    if (l->sandbox != NULL && p->result == RESOLVE_OK && info != NULL)
        collect(l->sandbox, info, &p->found);
    else if (p->result == RESOLVE_OK)
        p->result = RESOLVE_FAILED;
    ares_freeaddrinfo(info);
    if (--l->pending == 0)
        finish(l);
}

// Sends the two queries, each from its own port.
static void
ask_servers(struct lookup *l)
{
    static const int families[] = {AF_INET, AF_INET6};
    l->pending = 2;
    for (size_t i = 0; i < 2; i++) { // the second call may end the lookup
        struct ares_addrinfo_hints hints = {.ai_family = families[i], .ai_flags = ARES_AI_NOSORT};
        struct part *p = &l->parts[i];
        *p = (struct part){.lookup = l, .channel = channel_for_query()};
        p->channel->running++;
        ares_getaddrinfo(p->channel->ares, l->text, NULL, &hints, on_answer, p);
    }
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

// In a simulated sandbox a name gets its synthetic address at once, and no query leaves.
static void
answer_alone(struct sandbox *s, const char *text, struct resolve_waiter *w)
{
    static const uint8_t mapped[ADDRESS_V4_AT] = {[10] = 0xff, [11] = 0xff};
    uint8_t address[16];
    struct report_about about = {.name = text, .user = w->user, .rule = UINT32_MAX};
    struct name *known = names_find(s, text);
    struct name *name = known != NULL ? known : names_make(s, text);
    if (name == NULL) {
        report_denied(s, NET_FULL, &about);
    } else if (known != NULL) {
        names_touch(s, name);
    } else {
        memcpy(address, mapped, sizeof mapped);
        names_v4(name->index, address + sizeof mapped);
        about.address = address;
        about.index = name->index;
        about.rule = report_rule(s, permit_name(s->permit, text).rule);
        report(s, RELAY_LOOKUP, &about);
        sham_query(s, &about);
    }
    w->done(w, name != NULL ? RESOLVE_OK : RESOLVE_FULL, name);
}

void
resolve_name(struct sandbox *s, const char *text, struct resolve_waiter *w)
{
    list_init(&w->node);
    if (s->sham != NULL) {
        answer_alone(s, text, w);
        return;
    }
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
    ask_servers(l);
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
    for (size_t i = 0; i < CHANNELS; i++)
        if (c.channels[i].running > 0)
            ares_process_fd(c.channels[i].ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    return c.running_n > 0;
}
