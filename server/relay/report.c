// SPDX-License-Identifier: Apache-2.0
// See report.h.
#include "report.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static bool
send_report(const struct relay_report *r)
{
    return send(RELAY_SOCKET_FD, r, sizeof *r, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof *r;
}

static struct relay_report
about_sandbox(const struct sandbox *s, enum relay_report_kind kind)
{
    return (struct relay_report){
        .kind = kind,
        .slot = s->slot,
        .generation = s->generation,
        .rule = UINT32_MAX,
        .time_ns = clock_ns(),
    };
}

void
report_ready(void)
{
    const struct relay_report r = {
        .kind = RELAY_READY, .rule = UINT32_MAX, .time_ns = clock_ns(), .pid = (uint32_t)getpid()};
    (void)send_report(&r); // the first report always fits, unless the broker has gone
}

bool
report_pong(uint32_t number)
{
    const struct relay_report r = {
        .kind = RELAY_PONG, .generation = number, .rule = UINT32_MAX, .time_ns = clock_ns()};
    return send_report(&r);
}

bool
report_in_force(const struct sandbox *s)
{
    struct relay_report r = about_sandbox(s, RELAY_IN_FORCE);
    return send_report(&r);
}

bool
report_closed(const struct sandbox *s)
{
    struct relay_report r = about_sandbox(s, RELAY_CLOSED);
    return send_report(&r);
}

void
report_settled(const struct sandbox *s, const struct relay_settled *now, uint32_t number)
{
    struct relay_report r = about_sandbox(s, RELAY_SETTLED);
    r.settled = *now;
    r.number = number;
    r.lost = s->lost;
    (void)send_report(&r);
}

static bool
report_rule_sums(const struct sandbox *s)
{
    for (uint32_t i = 0; i < s->permit->rules_n; i++) {
        struct permit_use *u = &s->permit->use[i];
        struct relay_report r = about_sandbox(s, RELAY_RULE_SUM);
        r.rule = report_rule(s, i);
        r.out_bytes = u->bytes;
        if (s->permit->rules[i].bytes_max == 0 || u->reported == u->bytes)
            continue;
        if (!send_report(&r))
            return false;
        u->reported = u->bytes;
    }
    return true;
}

bool
report_sums(struct sandbox *s)
{
    struct relay_report r = about_sandbox(s, RELAY_SUMS);
    r.out_bytes = s->out_bytes;
    r.in_bytes = s->in_bytes;
    r.connections = s->connections;
    r.queries = s->queries_n;
    r.lost = s->lost;
    r.names = s->names_last;
    r.sent = s->sham_n;
    memcpy(r.answers, s->answers, sizeof r.answers);
    s->changed = !report_rule_sums(s) || !send_report(&r);
    return !s->changed;
}

static struct relay_report
report_of(const struct sandbox *s, enum relay_report_kind kind, const struct report_about *about)
{
    struct relay_report r = about_sandbox(s, kind);
    r.rule = about->rule;
    r.port = about->port;
    r.protocol = about->protocol;
    r.reason = (uint8_t)about->reason;
    r.error = (uint32_t)about->error;
    r.names = about->index;
    r.out_bytes = about->out_bytes;
    r.in_bytes = about->in_bytes;
    r.first = about->first;
    if (about->user != NULL)
        r.user = *about->user;
    if (about->address != NULL)
        memcpy(r.address, about->address, sizeof r.address);
    if (about->name != NULL)
        (void)snprintf(r.name, sizeof r.name, "%s", about->name);
    return r;
}

void
report_sent(struct sandbox *s, const struct report_about *about, const uint8_t *bytes, uint32_t n)
{
    struct relay_sent r = {.report = report_of(s, RELAY_SENT, about), .n = n};
    if (n > 0)
        memcpy(r.first, bytes, n);
    if (send(RELAY_SOCKET_FD, &r, sizeof r, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof r)
        s->lost++;
    s->changed = true;
    tick_need(s->relay);
}

void
report(struct sandbox *s, enum relay_report_kind kind, const struct report_about *about)
{
    const struct relay_report r = report_of(s, kind, about);
    // Refusals have a separate budget, so a job that opens many flows cannot hide its refusals.
    struct bucket *budget = kind == RELAY_DENIED ? &s->denials : &s->reports;
    if (!bucket_take(budget, 1, s->relay->now_ms) || !send_report(&r))
        s->lost++;
    s->changed = true;
    tick_need(s->relay);
}

void
report_denied(struct sandbox *s, enum net_reason reason, const struct report_about *about)
{
    struct report_about a = *about;
    a.reason = reason;
    report(s, RELAY_DENIED, &a);
}

bool
report_is_quota(enum net_reason reason)
{
    return reason == NET_QUOTA || reason == NET_IN_QUOTA || reason == NET_NAME_QUOTA;
}

uint32_t
report_rule(const struct sandbox *s, uint32_t index)
{
    return index < s->permit->rules_n ? s->permit->rules[index].number : UINT32_MAX;
}
