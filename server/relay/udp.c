// SPDX-License-Identifier: Apache-2.0
// See udp.h.
#include "udp.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "address.h"
#include "dns.h"
#include "names.h"
#include "rate.h"
#include "report.h"
#include "resolve.h"
#include "sandbox.h"
#include "sham.h"
#include "udp_reply.h"

enum {
    BUCKETS = 16384,
    DATAGRAM_MAX = 65535,
    DATAGRAMS_PER_TURN = 16, // then other sockets get their turn
    FLOW_CHECK_MS = 1000,    // a flow number is not reused within this time (net.h)
};

// The sender, and the flow address that it sends to.
struct udp_key {
    uint32_t slot;
    uint16_t port;
    uint8_t zero[2];
    uint8_t source[16], local[16];
};

struct association {
    struct watch watch;
    struct association *next; // in its hash bucket
    struct list node;         // in the sandbox's list, or in the free list
    struct resolve_waiter waiter;
    struct sandbox *sandbox;
    struct listener *listener;
    struct sockaddr_storage job;
    struct udp_key key;
    struct net_flow flow;
    struct name *name;   // held; NULL: a literal address
    uint8_t address[16]; // the address it is connected to
    uint32_t rule;
    bool denied; // which was reported
    int error;   // errno of the connection, or of the first datagrams
    uint64_t used_ms, out_bytes, in_bytes;
    struct sham_lane sham; // of a simulated sandbox: it has no socket
    uint64_t checked_ms;   // the last check that its number still stands for its flow
};

static struct {
    struct association all[ASSOCIATIONS_MAX];
    struct association *bucket[BUCKETS];
    struct list unused;
    uint32_t n;
} t;

void
udp_init(void)
{
    list_init(&t.unused);
    for (size_t i = 0; i < ASSOCIATIONS_MAX; i++) {
        t.all[i].watch.fd = -1;
        list_append(&t.unused, &t.all[i].node);
    }
}

bool
udp_listener_prepare(int fd, bool v6)
{
    static const int yes = 1;
    if (!v6)
        return setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &yes, sizeof yes) == 0;
    return setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &yes, sizeof yes) == 0 &&
           setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &yes, sizeof yes) == 0;
}

static struct association **
bucket_of(const struct udp_key *k)
{
    const uint8_t *bytes = (const uint8_t *)k;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof *k; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return &t.bucket[(h ^ h >> 32) % BUCKETS];
}

static void
on_closed(uv_handle_t *h)
{
    struct association *a = h->data;
    list_append(&t.unused, &a->node);
}

static struct association *
find(const struct udp_key *key)
{
    struct association *a = *bucket_of(key);
    while (a != NULL && memcmp(&a->key, key, sizeof *key) != 0)
        a = a->next;
    return a;
}

// reason: why it was cut; NET_REASON_NONE: it was idle, or its flow ended.
static void
end(struct association *a, enum net_reason reason)
{
    struct sandbox *s = a->sandbox;
    struct association **at = bucket_of(&a->key);
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    list_remove(&a->waiter.node);
    list_remove(&a->node);
    t.n--;
    s->connections--;
    s->associations_n--;
    const struct report_about about = {
        .address = a->address,
        .name = a->name != NULL ? a->name->text : NULL,
        .user = &a->flow.user,
        .rule = report_rule(s, a->rule),
        .port = a->flow.port,
        .protocol = IPPROTO_UDP,
        .reason = reason,
        .error = a->in_bytes == 0 ? a->error : 0,
        .out_bytes = a->out_bytes,
        .in_bytes = a->in_bytes,
    };
    if (!a->denied && report_is_quota(reason))
        report_denied(s, reason, &about);
    if (a->sham.on)
        sham_report(s, &a->sham, &about);
    else if (!a->denied)
        report(s, RELAY_FLOW_END, &about);
    names_release(a->name);
    a->name = NULL;
    if (!watch_close(&a->watch, on_closed))
        list_append(&t.unused, &a->node);
}

// Empty datagrams use no bytes of the quota, but they are refused once it is used up.
static bool
is_over(uint64_t left, uint64_t bytes)
{
    return bytes > left || left == 0;
}

static void
on_answer(uv_poll_t *uv, int status, int events)
{
    struct association *a = uv->data;
    struct sandbox *s = a->sandbox;
    struct relay *r = s->relay;
    (void)events;
    r->now_ms = clock_ms();
    if (status < 0)
        watch_stopped(&a->watch);
    for (int i = 0; i < DATAGRAMS_PER_TURN && a->watch.live; i++) {
        ssize_t n = recv(a->watch.fd, r->scratch, DATAGRAM_MAX, MSG_DONTWAIT);
        if (n < 0 && errno != ECONNREFUSED && errno != EHOSTUNREACH && errno != ENETUNREACH)
            break;
        if (n < 0) { // an ICMP error about an earlier datagram, which is reported once
            a->error = errno;
            if (a->in_bytes > 0)
                continue;
            end(a, NET_REASON_NONE); // nothing answers; the next datagram makes a new association
            return;
        }
        uint64_t bytes = (uint64_t)n;
        a->used_ms = r->now_ms;
        if (is_over(sandbox_left(s, false, a->rule), bytes)) {
            end(a, sandbox_quota_reason(s, false));
            return;
        }
        if (!rate_datagram(s, false, (size_t)n))
            continue;
        sandbox_count(s, false, IPPROTO_UDP, a->rule, bytes);
        a->in_bytes += bytes;
        udp_reply(a->listener, &a->job, a->key.local, r->scratch, (size_t)n);
    }
    watch_want(&a->watch, UV_READABLE, on_answer);
}

static struct permit_verdict
within_quota(const struct sandbox *s, struct permit_verdict v)
{
    if (v.reason == NET_REASON_NONE && sandbox_left(s, true, v.rule) == 0)
        v.reason = sandbox_quota_reason(s, true);
    return v;
}

// Judges the association; for a name, chooses the first permitted address.
static struct permit_verdict
judge(struct association *a)
{
    const struct sandbox *s = a->sandbox;
    uint16_t port = a->flow.port;
    if (a->name == NULL) {
        memcpy(a->address, a->flow.address, sizeof a->address);
        return within_quota(s, sandbox_judge(s, a->address, port, IPPROTO_UDP));
    }
    struct permit_verdict v = permit_name_port(s->permit, a->name->text, port, IPPROTO_UDP);
    if (s->sham != NULL) {
        memcpy(a->address, a->flow.address, sizeof a->address);
        return within_quota(s, v);
    }
    for (uint32_t i = 0; i < a->name->n && v.reason == NET_REASON_NONE; i++) {
        const uint8_t *address = a->name->addresses[i];
        memcpy(a->address, address, sizeof a->address);
        if (sandbox_may_reach(s, address, port, IPPROTO_UDP))
            return within_quota(s, v);
    }
    if (v.reason == NET_REASON_NONE)
        v.reason = NET_NAME_ADDRESS;
    return v;
}

// Connects its socket. False: the association was ended.
static bool
dial(struct association *a)
{
    struct sandbox *s = a->sandbox;
    struct permit_verdict v = judge(a);
    a->rule = v.rule;
    struct report_about about = {
        .address = a->address,
        .name = a->name != NULL ? a->name->text : NULL,
        .user = &a->flow.user,
        .rule = report_rule(s, v.rule),
        .port = a->flow.port,
        .protocol = IPPROTO_UDP,
    };
    if (v.reason != NET_REASON_NONE) {
        report_denied(s, v.reason, &about);
        a->denied = true;
        end(a, v.reason);
        return false;
    }
    if (s->sham != NULL) {
        sham_begin(s, &a->sham, about.name, a->address, a->flow.port, IPPROTO_UDP);
        return true;
    }
    struct sockaddr_storage to;
    socklen_t n = address_to_sockaddr(a->address, a->flow.port, &to);
    int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, n) < 0) {
        a->error = errno;
        if (fd >= 0)
            (void)close(fd);
        end(a, NET_REASON_NONE);
        return false;
    }
    watch_open(s->relay, &a->watch, fd, UV_READABLE, on_answer, a);
    report(s, RELAY_FLOW, &about);
    return true;
}

static void
on_resolved(struct resolve_waiter *w, enum resolve_result result, struct name *name)
{
    struct association *a = list_entry(w, struct association, waiter);
    if (result != RESOLVE_OK) {
        a->error = result == RESOLVE_FAILED ? EAGAIN : result <= RESOLVE_NO_DATA ? ENOENT : 0;
        end(a, result == RESOLVE_FORBIDDEN ? NET_NAME_ADDRESS : NET_REASON_NONE);
        return;
    }
    (void)name; // the reference that it already holds
    (void)dial(a);
}

static bool
has_room(const struct sandbox *s)
{
    return !list_empty(&t.unused) && s->connections < RELAY_CONNECTIONS &&
           share_left(s->associations_n, t.n, s->relay->associations_max);
}

// Adds an unused association to the table.
static struct association *
association_new(struct listener *l, const struct udp_key *key, const struct sockaddr_storage *job,
                const struct net_flow *flow, struct name *name)
{
    struct sandbox *s = l->sandbox;
    struct association *a = list_entry(t.unused.next, struct association, node);
    list_remove(&a->node);
    *a = (struct association){.sandbox = s,
                              .listener = l,
                              .job = *job,
                              .key = *key,
                              .flow = *flow,
                              .name = name,
                              .rule = PERMIT_NO_RULE,
                              .used_ms = s->relay->now_ms,
                              .checked_ms = s->relay->now_ms};
    a->watch.fd = -1;
    a->waiter.done = on_resolved;
    a->waiter.user = &a->flow.user;
    list_init(&a->waiter.node);
    list_init(&a->node);
    struct association **bucket = bucket_of(key);
    a->next = *bucket;
    *bucket = a;
    list_append(&s->associations, &a->node);
    s->connections++;
    s->associations_n++;
    names_hold(s, name);
    t.n++;
    tick_need(s->relay);
    return a;
}

// Handles the first datagram of a job's socket to a flow. NULL: refused, or the name is being resolved and the
// datagram is lost.
static struct association *
begin(struct listener *l, const struct udp_key *key, const struct sockaddr_storage *job,
      const struct net_flow *flow)
{
    struct sandbox *s = l->sandbox;
    const struct report_about about = {.address = flow->address,
                                       .user = &flow->user,
                                       .rule = UINT32_MAX,
                                       .port = flow->port,
                                       .protocol = IPPROTO_UDP};
    const uint32_t index = names_index(flow->address);
    struct name *name = index != 0 ? names_at(s, index) : NULL;
    if (index != 0 && name == NULL) {
        report_denied(s, NET_NO_RULE, &about);
        return NULL;
    }
    if (!has_room(s)) {
        report_denied(s, NET_FULL, &about);
        return NULL;
    }
    struct association *a = association_new(l, key, job, flow, name);
    if (name == NULL)
        return dial(a) ? a : NULL;
    // the callback may run immediately and end the association
    resolve_name(s, name->text, &a->waiter);
    a = find(key);
    return a != NULL && (a->watch.live || a->sham.on) ? a : NULL;
}

static void
pretend(struct association *a, const uint8_t *bytes, size_t n)
{
    struct sandbox *s = a->sandbox;
    const struct relay_reply *reply = a->sham.reply;
    sandbox_count(s, true, IPPROTO_UDP, a->rule, n);
    a->out_bytes += n;
    sham_keep(&a->sham, bytes, n);
    if (reply == NULL || is_over(sandbox_left(s, false, a->rule), reply->n))
        return;
    sandbox_count(s, false, IPPROTO_UDP, a->rule, reply->n);
    a->in_bytes += reply->n;
    udp_reply(a->listener, &a->job, a->key.local, reply->bytes, reply->n);
}

// False: the datagram is dropped.
static bool
forward(struct association *a, const uint8_t *bytes, size_t n)
{
    struct sandbox *s = a->sandbox;
    a->used_ms = s->relay->now_ms;
    if (!a->watch.live && !a->sham.on)
        return false; // the name is being resolved
    if (is_over(sandbox_left(s, true, a->rule), n)) {
        enum net_reason reason = sandbox_quota_reason(s, true);
        end(a, reason);
        return false;
    }
    if (a->sham.on) {
        pretend(a, bytes, n);
        return true;
    }
    if (!rate_datagram(s, true, n))
        return false;
    sandbox_count(s, true, IPPROTO_UDP, a->rule, n);
    a->out_bytes += n;
    (void)send(a->watch.fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    return true;
}

// Whether the flow address still stands for the association's destination. The peer can keep an association alive for
// any time.
static bool
still_leads(struct association *a)
{
    struct net_flow now;
    uint64_t now_ms = a->sandbox->relay->now_ms;
    if (now_ms - a->checked_ms < FLOW_CHECK_MS)
        return true;
    a->checked_ms = now_ms;
    return sandbox_flow(a->sandbox, a->key.local, IPPROTO_UDP, &now) && now.port == a->flow.port &&
           memcmp(now.address, a->flow.address, sizeof now.address) == 0;
}

// False: the datagram is dropped. Queries are never.
static bool
on_datagram(struct listener *l, const struct sockaddr_storage *from, const uint8_t local[16],
            size_t n)
{
    struct sandbox *s = l->sandbox;
    struct udp_key key = {.slot = s->slot};
    memcpy(key.local, local, sizeof key.local);
    address_from_sockaddr(from, key.source, &key.port);
    struct association *a = find(&key);
    if (a != NULL && still_leads(a))
        return forward(a, s->relay->scratch, n);
    if (a != NULL)
        end(a, NET_REASON_NONE);
    struct net_flow flow;
    if (!sandbox_flow(s, local, IPPROTO_UDP, &flow))
        return false; // not a flow: the job sent to the listener directly
    if (flow.port == NET_DNS_PORT) {
        struct dns_route route = {.listener = l, .to = *from, .user = flow.user};
        memcpy(route.local, local, sizeof route.local);
        (void)dns_ask(s, &route, s->relay->scratch, n);
        return true;
    }
    a = begin(l, &key, from, &flow);
    return a != NULL && forward(a, s->relay->scratch, n);
}

// The destination address of a received datagram.
static bool
local_of(struct msghdr *m, uint8_t local[16])
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof info);
            memset(local, 0, ADDRESS_V4_AT);
            local[10] = local[11] = 0xff;
            memcpy(local + ADDRESS_V4_AT, &info.ipi_addr, sizeof info.ipi_addr);
            return true;
        }
        if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo info;
            memcpy(&info, CMSG_DATA(c), sizeof info);
            memcpy(local, &info.ipi6_addr, ADDRESS_BYTES);
            return true;
        }
    }
    return false;
}

void
udp_on_listener(uv_poll_t *uv, int status, int events)
{
    struct listener *l = uv->data;
    struct relay *r = l->sandbox->relay;
    (void)events;
    r->now_ms = clock_ms();
    if (status < 0)
        watch_stopped(&l->watch);
    for (int i = 0; i < DATAGRAMS_PER_TURN && l->watch.live; i++) {
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo)) + 64];
        } control;
        struct sockaddr_storage from;
        uint8_t local[16];
        struct iovec iov = {.iov_base = r->scratch, .iov_len = DATAGRAM_MAX};
        struct msghdr m = {.msg_name = &from,
                           .msg_namelen = sizeof from,
                           .msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
        ssize_t n = recvmsg(l->watch.fd, &m, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n >= 0 && ((m.msg_flags & MSG_TRUNC) != 0 || !local_of(&m, local) ||
                       !on_datagram(l, &from, local, (size_t)n)))
            l->sandbox->carried.udp_dropped += (uint64_t)n;
    }
    watch_want(&l->watch, UV_READABLE, udp_on_listener);
}

void
udp_recheck(struct sandbox *s)
{
    list_each(it, &s->associations)
    {
        struct association *a = list_entry(it, struct association, node);
        if (!a->watch.live)
            continue; // judged when it connects
        uint8_t connected[16];
        memcpy(connected, a->address, sizeof connected);
        struct permit_verdict v = judge(a);
        a->rule = v.rule;
        if (v.reason == NET_REASON_NONE && memcmp(connected, a->address, sizeof connected) != 0 &&
            !sandbox_may_reach(s, connected, a->flow.port, IPPROTO_UDP))
            v.reason = NET_NAME_ADDRESS;
        memcpy(a->address, connected, sizeof connected);
        if (v.reason != NET_REASON_NONE)
            end(a, v.reason);
    }
}

void
udp_drop(struct sandbox *s)
{
    list_each(it, &s->associations) end(list_entry(it, struct association, node), NET_REASON_NONE);
}

bool
udp_tick(struct relay *r)
{
    list_each(it, &r->sandboxes)
    {
        struct sandbox *s = list_entry(it, struct sandbox, node);
        list_each(at, &s->associations)
        {
            struct association *a = list_entry(at, struct association, node);
            if (r->now_ms - a->used_ms >= RELAY_UDP_IDLE_MS)
                end(a, NET_REASON_NONE);
        }
    }
    return t.n > 0;
}
