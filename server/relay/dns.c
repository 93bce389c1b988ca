// SPDX-License-Identifier: Apache-2.0
// See dns.h.
#include "dns.h"

#include <netinet/in.h>
#include <string.h>

#include "dns_message.h"
#include "names.h"
#include "report.h"
#include "resolve.h"
#include "udp_reply.h"

struct query {
    struct list node; // in the sandbox's list, or in the free list
    struct resolve_waiter waiter;
    struct sandbox *sandbox;
    struct dns_route route;
    struct dns_query q;
};

static struct {
    struct query all[DNS_QUERIES_MAX];
    struct list unused;
    uint32_t open;
} t;

void
dns_init(void)
{
    list_init(&t.unused);
    for (size_t i = 0; i < DNS_QUERIES_MAX; i++)
        list_append(&t.unused, &t.all[i].node);
}

static void
count(struct sandbox *s, enum relay_answer how)
{
    s->answers[how]++;
    s->changed = true;
    tick_need(s->relay);
}

static void
send_answer(const struct dns_route *route, const struct dns_query *q, enum dns_rcode rcode,
            const uint8_t *address)
{
    uint8_t bytes[DNS_ANSWER_MAX];
    size_t n = dns_answer(q, rcode, address, bytes);
    if (route->stream != NULL)
        dns_stream_answer(route->stream, bytes, n);
    else
        udp_reply(route->listener, &route->to, route->local, bytes, n);
}

static void
release(struct query *q)
{
    list_remove(&q->waiter.node);
    list_remove(&q->node);
    q->sandbox->queries_open--;
    t.open--;
    list_append(&t.unused, &q->node);
}

static void
on_resolved(struct resolve_waiter *w, enum resolve_result result, struct name *name)
{
    static const enum dns_rcode rcodes[] = {
        [RESOLVE_OK] = DNS_NOERROR,      [RESOLVE_NO_NAME] = DNS_NXDOMAIN,
        [RESOLVE_NO_DATA] = DNS_NOERROR, [RESOLVE_FORBIDDEN] = DNS_NXDOMAIN,
        [RESOLVE_FAILED] = DNS_SERVFAIL, [RESOLVE_FULL] = DNS_SERVFAIL,
    };
    static const enum relay_answer answers[] = {
        [RESOLVE_OK] = RELAY_ANSWER_FOUND,      [RESOLVE_NO_NAME] = RELAY_ANSWER_NONE,
        [RESOLVE_NO_DATA] = RELAY_ANSWER_NONE,  [RESOLVE_FORBIDDEN] = RELAY_ANSWER_REFUSED,
        [RESOLVE_FAILED] = RELAY_ANSWER_FAILED, [RESOLVE_FULL] = RELAY_ANSWER_FAILED,
    };
    struct query *q = list_entry(w, struct query, waiter);
    uint8_t address[16];
    count(q->sandbox, answers[result]);
    if (name != NULL && q->q.type == DNS_AAAA)
        names_v6(name->index, address);
    else if (name != NULL)
        names_v4(name->index, address);
    struct dns_route route = q->route;
    struct dns_query asked = q->q;
    release(q);
    send_answer(&route, &asked, rcodes[result], name != NULL ? address : NULL);
}

// The last label of an Internet name has a letter, so 10.0.0.1 is not a name.
static bool
is_number(const char *name)
{
    const char *dot = strrchr(name, '.');
    const char *last = dot != NULL ? dot + 1 : name;
    return last[strspn(last, "0123456789")] == '\0';
}

// The policy's verdict on a query. DNS_NOERROR: allowed.
static enum dns_rcode
judge(struct sandbox *s, const struct dns_query *q, const struct net_user *user)
{
    uint32_t most = s->permit->queries_per_minute != 0 ? s->permit->queries_per_minute
                                                       : (uint32_t)DNS_PER_MINUTE;
    uint64_t now_ms = s->relay->now_ms;
    struct report_about about = {
        .name = q->name, .user = user, .rule = UINT32_MAX, .port = NET_DNS_PORT};
    s->queries_n++;
    s->changed = true;
    tick_need(s->relay);
    if (!permit_window_take(&s->queries_window, most, now_ms)) {
        report_denied(s, NET_NAME_RATE, &about);
        return DNS_REFUSED;
    }
    struct permit_verdict v = permit_name(s->permit, q->name);
    if (v.reason == NET_REASON_NONE && is_number(q->name))
        v.reason = NET_NAME;
    about.rule = report_rule(s, v.rule);
    if (v.reason != NET_REASON_NONE) {
        report_denied(s, v.reason, &about);
        return v.reason == NET_NAME_QUOTA ? DNS_REFUSED : DNS_NXDOMAIN;
    }
    most = v.rule == PERMIT_NO_RULE ? 0 : s->permit->rules[v.rule].queries_per_minute;
    if (most > 0 && !permit_window_take(&s->permit->use[v.rule].queries, most, now_ms)) {
        report_denied(s, NET_NAME_RATE, &about);
        return DNS_REFUSED;
    }
    return DNS_NOERROR;
}

bool
dns_ask(struct sandbox *s, const struct dns_route *route, const uint8_t *bytes, size_t n)
{
    struct dns_query q;
    int rcode = dns_decode(bytes, n, &q);
    if (rcode < 0)
        return false;
    enum relay_answer how = RELAY_ANSWER_FAILED; // it cannot be decoded
    if (rcode == DNS_NOERROR) {
        rcode = (int)judge(s, &q, &route->user);
        how = rcode == DNS_NOERROR ? RELAY_ANSWER_NONE : RELAY_ANSWER_REFUSED;
    }
    bool v6 = s->listeners[LISTENER_TCP6].sandbox != NULL;
    if (rcode != DNS_NOERROR || !(q.type == DNS_A || (q.type == DNS_AAAA && v6))) {
        count(s, how);
        send_answer(route, &q, (enum dns_rcode)rcode, NULL);
        return true;
    }
    if (s->queries_open >= DNS_QUERIES_PER_SANDBOX ||
        !share_left(s->queries_open, t.open, DNS_QUERIES_MAX)) {
        const struct report_about about = {
            .name = q.name, .user = &route->user, .rule = UINT32_MAX};
        report_denied(s, NET_FULL, &about);
        count(s, RELAY_ANSWER_FAILED);
        send_answer(route, &q, DNS_SERVFAIL, NULL);
        return true;
    }
    struct query *one = list_entry(t.unused.next, struct query, node);
    list_remove(&one->node);
    list_append(&s->queries, &one->node);
    s->queries_open++;
    t.open++;
    one->sandbox = s;
    one->route = *route;
    one->q = q;
    one->waiter.done = on_resolved;
    one->waiter.user = &one->route.user;
    resolve_name(s, q.name, &one->waiter);
    return true;
}

void
dns_forget(struct sandbox *s, const struct dns_stream *stream)
{
    list_each(it, &s->queries)
    {
        struct query *q = list_entry(it, struct query, node);
        if (q->route.stream == stream)
            release(q);
    }
}

void
dns_drop(struct sandbox *s)
{
    list_each(it, &s->queries) release(list_entry(it, struct query, node));
}
