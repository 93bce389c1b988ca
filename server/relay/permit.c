// SPDX-License-Identifier: Apache-2.0
// See permit.h.
#include "permit.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/net_ranges.h"

enum { MINUTE_MS = 60000, WHOLE = 8 * ADDRESS_BYTES };

struct permit *
permit_new(const struct relay_order *o)
{
    assert(o->rules_n <= NET_RULES);
    size_t rules = o->rules_n * sizeof(struct relay_rule);
    struct permit *p = calloc(1, sizeof *p + rules + o->rules_n * sizeof(struct permit_use));
    if (p == NULL)
        return NULL;
    p->mode = (enum net_mode)o->mode;
    p->out_bytes_max = o->out_bytes_max;
    p->in_bytes_max = o->in_bytes_max;
    p->out_rate = o->out_rate;
    p->in_rate = o->in_rate;
    p->queries_per_minute = o->queries_per_minute;
    p->rules_n = o->rules_n;
    p->use = (struct permit_use *)(void *)(p->rules + o->rules_n);
    memcpy(p->rules, o->rules, rules);
    for (uint32_t i = 0; i < o->rules_n; i++)
        p->use[i].bytes = o->rules[i].bytes_used;
    return p;
}

static bool
same_rule(const struct relay_rule *a, const struct relay_rule *b)
{
    return a->kind == b->kind && a->prefix == b->prefix &&
           memcmp(a->address, b->address, sizeof a->address) == 0 && strcmp(a->name, b->name) == 0;
}

void
permit_inherit(struct permit *now, const struct permit *before)
{
    for (uint32_t i = 0; i < now->rules_n; i++)
        for (uint32_t j = 0; j < before->rules_n; j++)
            if (same_rule(&now->rules[i], &before->rules[j])) {
                now->use[i] = before->use[j];
                now->use[i].reported = 0; // the rule has another number now, so report it again
                break;
            }
}

static bool
port_matches(const struct relay_rule *r, uint16_t port, uint8_t protocol)
{
    for (uint32_t i = 0; i < r->ports_n; i++) {
        const struct net_ports *p = &r->ports[i];
        if (port >= p->first && port <= p->last &&
            (p->protocol == 0 || protocol == 0 || p->protocol == protocol))
            return true;
    }
    return r->ports_n == 0;
}

// Whether the rule names the address, not only a wide range around it.
static bool
rule_names(const struct relay_rule *r, const uint8_t *address, enum address_own own)
{
    if (r->kind == RELAY_HOST)
        return own == ADDRESS_OWN_HOST;
    if (r->kind != RELAY_PREFIX || !address_within(address, r->address, r->prefix))
        return false;
    return r->prefix >= (own != ADDRESS_NOT_OWN ? (uint32_t)WHOLE : net_special_bits(address));
}

static uint32_t
find_prefix(const struct permit *p, const uint8_t *address, enum address_own own, uint16_t port,
            uint8_t protocol)
{
    for (uint32_t i = 0; i < p->rules_n; i++)
        if (rule_names(&p->rules[i], address, own) &&
            (port == 0 || port_matches(&p->rules[i], port, protocol)))
            return i;
    return PERMIT_NO_RULE;
}

static struct permit_verdict
decide(const struct permit *p, uint32_t rule, bool open)
{
    struct permit_verdict v = {NET_REASON_NONE, rule};
    if (p->mode == NET_NONE)
        return (struct permit_verdict){NET_MODE_NONE, PERMIT_NO_RULE};
    if (rule == PERMIT_NO_RULE && !(p->mode == NET_OPEN && open))
        v.reason = NET_NO_RULE;
    else if (permit_rule_left(p, rule) == 0)
        v.reason = NET_NAME_QUOTA;
    return v;
}

struct permit_verdict
permit_address(const struct permit *p, const uint8_t address[16], enum address_own own,
               uint16_t port, uint8_t protocol)
{
    uint32_t rule = find_prefix(p, address, own, port, protocol);
    return decide(p, rule, own == ADDRESS_NOT_OWN && net_special_bits(address) == 0);
}

bool
permit_target(const struct permit *p, const uint8_t address[16], enum address_own own,
              uint16_t port, uint8_t protocol)
{
    if (own == ADDRESS_NOT_OWN && net_special_bits(address) == 0)
        return true;
    return find_prefix(p, address, own, port, protocol) != PERMIT_NO_RULE;
}

static bool
name_matches(const struct relay_rule *r, const char *name)
{
    if (r->kind == RELAY_NAME)
        return strcmp(r->name, name) == 0;
    if (r->kind != RELAY_SUFFIX)
        return false;
    size_t n = strlen(name);
    size_t suffix_n = strlen(r->name);
    return n > suffix_n + 1 && name[n - suffix_n - 1] == '.' &&
           strcmp(name + n - suffix_n, r->name) == 0;
}

static uint32_t
find_name(const struct permit *p, const char *name, uint16_t port, uint8_t protocol)
{
    for (uint32_t i = 0; i < p->rules_n; i++)
        if (name_matches(&p->rules[i], name) &&
            (port == 0 || port_matches(&p->rules[i], port, protocol)))
            return i;
    return PERMIT_NO_RULE;
}

struct permit_verdict
permit_name(const struct permit *p, const char *name)
{
    struct permit_verdict v = decide(p, find_name(p, name, 0, 0), true);
    if (v.reason == NET_NO_RULE)
        v.reason = NET_NAME;
    return v;
}

struct permit_verdict
permit_name_port(const struct permit *p, const char *name, uint16_t port, uint8_t protocol)
{
    return decide(p, find_name(p, name, port, protocol), true);
}

static void
add_ports(struct net_name *out, struct net_ports ports)
{
    if (out->n < NET_PORTS)
        out->ports[out->n++] = ports;
    else
        out->ports[NET_PORTS - 1] = (struct net_ports){.last = UINT16_MAX, .rule = UINT32_MAX};
}

void
permit_ports(const struct permit *p, const char *name, struct net_name *out)
{
    out->n = 0;
    memset(out->ports, 0, sizeof out->ports);
    for (uint32_t i = 0; i < p->rules_n && p->mode != NET_NONE; i++) {
        const struct relay_rule *r = &p->rules[i];
        if (!name_matches(r, name))
            continue;
        if (r->ports_n == 0)
            add_ports(out, (struct net_ports){.last = UINT16_MAX, .rule = r->number});
        for (uint32_t k = 0; k < r->ports_n; k++) {
            struct net_ports ports = r->ports[k];
            ports.rule = r->number;
            add_ports(out, ports);
        }
    }
    if (p->mode == NET_OPEN)
        add_ports(out, (struct net_ports){.last = UINT16_MAX, .rule = UINT32_MAX});
}

bool
permit_window_take(struct permit_window *w, uint32_t most, uint64_t now_ms)
{
    if (w->n == 0 || now_ms - w->began_ms >= MINUTE_MS)
        *w = (struct permit_window){.began_ms = now_ms};
    if (w->n >= most)
        return false;
    w->n++;
    return true;
}

uint64_t
permit_rule_left(const struct permit *p, uint32_t rule)
{
    if (rule >= p->rules_n || p->rules[rule].bytes_max == 0)
        return UINT64_MAX;
    uint64_t most = p->rules[rule].bytes_max;
    return p->use[rule].bytes >= most ? 0 : most - p->use[rule].bytes;
}
