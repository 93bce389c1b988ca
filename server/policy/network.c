// SPDX-License-Identifier: Apache-2.0
// See network.h.
#include "network.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/quantity.h"
#include "rule.h"
#include "stockade/v1/sandbox_service.pb-c.h"

enum { FIELD_MAX = 80 };

const char *const network_limit_name[NETWORK_LIMITS] = {
    [NETWORK_EGRESS_BYTES] = "egress_bytes_max", [NETWORK_INGRESS_BYTES] = "ingress_bytes_max",
    [NETWORK_EGRESS_RATE] = "egress_rate",       [NETWORK_INGRESS_RATE] = "ingress_rate",
    [NETWORK_QUERIES] = "queries_per_minute",
};

const char *const network_mode_name[] = {
    [NET_NONE] = "none", [NET_ALLOWLIST] = "allowlist", [NET_OPEN] = "open", [NET_OFF] = "off"};

// The modes from the narrowest on.
static const unsigned width[] = {
    [NET_OFF] = 0, [NET_NONE] = 1, [NET_ALLOWLIST] = 2, [NET_OPEN] = 3};

struct network *
network_new(void)
{
    struct network *n = calloc(1, sizeof *n);
    if (n == NULL)
        return NULL;
    n->refs = 1;
    n->mode = NET_NONE;
    return n;
}

struct network *
network_ref(const struct network *n)
{
    struct network *same = (struct network *)(uintptr_t)n; // only the count is not const
    same->refs++;
    return same;
}

void
network_unref(struct network *n)
{
    if (n == NULL)
        return;
    assert(n->refs > 0);
    if (--n->refs > 0)
        return;
    if (n->set != NULL)
        n->set_release(n->set);
    free(n->keys);
    free(n->values);
    free(n->rules);
    free(n);
}

struct relay_rule *
network_add_rule(struct network *n)
{
    if (n->rules_n == NET_RULES)
        return NULL;
    // Space grows by powers of two.
    if ((n->rules_n & (n->rules_n - 1)) == 0) {
        size_t room = n->rules_n == 0 ? 1 : (size_t)n->rules_n * 2;
        struct relay_rule *more = realloc(n->rules, room * sizeof *more);
        if (more == NULL)
            return NULL;
        n->rules = more;
    }
    struct relay_rule *r = &n->rules[n->rules_n];
    *r = (struct relay_rule){.number = n->rules_n};
    n->rules_n++;
    return r;
}

struct network *
network_everything(void)
{
    struct network *n = network_new();
    if (n == NULL)
        return NULL;
    n->mode = NET_OPEN;
    n->inbound_n = 1;
    n->inbound[0] = (struct network_range){1, UINT16_MAX};
    return n;
}

int
network_compile(struct network *n, struct err *e)
{
    struct net_rule_key *keys = calloc(n->rules_n + 1, sizeof *keys);
    struct net_rule *values = calloc(n->rules_n + 1, sizeof *values);
    int r = keys != NULL && values != NULL
                ? net_rule_compile(n->rules, n->rules_n, keys, values, &n->entries_n, e)
                : err_sys(e, ENOMEM, "keep a network policy");
    if (r < 0) {
        free(keys);
        free(values);
        return r;
    }
    n->keys = keys;
    n->values = values;
    return 0;
}

bool
network_leads_out(const struct network *n)
{
    return width[n->mode] > width[NET_NONE];
}

bool
network_lets_in(const struct network *n, uint16_t port)
{
    for (uint32_t i = 0; i < n->inbound_n; i++)
        if (port >= n->inbound[i].first && port <= n->inbound[i].last)
            return true;
    return false;
}

// ---- from the message

// Field names are built only for errors, because policies are read while a request waits.
static void
name_field(char out[FIELD_MAX], const char *list, size_t i, const char *more)
{
    (void)snprintf(out, FIELD_MAX, "network.%s[%zu]%s", list, i, more);
}

static int
refuse_range(const Stockade__V1__PortRange *m, const char *field, struct err *e)
{
    char last[FIELD_MAX + 8];
    (void)snprintf(last, sizeof last, "%s.last", field);
    if (m->first == 0 || m->first > UINT16_MAX)
        return err_field(e, field, "%u is not a port", m->first);
    if (m->last > UINT16_MAX)
        return err_field(e, last, "%u is not a port", m->last);
    return err_field(e, last, "%u is less than the first port, %u", m->last, m->first);
}

// False: refuse_range() says why.
static bool
read_range(const Stockade__V1__PortRange *m, struct network_range *out)
{
    uint32_t last = m->last != 0 ? m->last : m->first;
    if (m->first == 0 || last > UINT16_MAX || last < m->first)
        return false;
    *out = (struct network_range){(uint16_t)m->first, (uint16_t)last};
    return true;
}

static int
read_ports(const Stockade__V1__NetworkRule *m, size_t at, struct relay_rule *r, struct err *e)
{
    static const uint8_t protocols[] = {0, IPPROTO_TCP, IPPROTO_UDP};
    char field[FIELD_MAX];
    if ((unsigned)m->protocol >= sizeof protocols) {
        name_field(field, "outbound", at, ".protocol");
        return err_field(e, field, "%d is not a protocol", (int)m->protocol);
    }
    uint8_t protocol = protocols[m->protocol];
    for (size_t i = 0; i < m->n_ports; i++) {
        struct network_range range;
        bool fine = read_range(m->ports[i], &range);
        if (fine && net_rule_add_ports(r, range.first, range.last, protocol))
            continue;
        char more[FIELD_MAX / 2];
        (void)snprintf(more, sizeof more, ".ports[%zu]", i);
        name_field(field, "outbound", at, more);
        return fine ? err_field(e, field, "more than %d ranges", NET_PORTS)
                    : refuse_range(m->ports[i], field, e);
    }
    if (m->n_ports == 0 && protocol != 0)
        (void)net_rule_add_ports(r, 1, UINT16_MAX, protocol);
    return 0;
}

static int
read_rule(const Stockade__V1__NetworkRule *m, size_t at, struct relay_rule *r, struct err *e)
{
    char field[FIELD_MAX];
    const char *what = "";
    bool by_name = m->domain[0] != '\0';
    if (by_name == (m->cidr[0] != '\0')) {
        name_field(field, "outbound", at, "");
        return err_field(e, field, "must have exactly one of cidr and domain");
    }
    if (!(by_name ? net_rule_domain(m->domain, r, &what) : net_rule_cidr(m->cidr, r, &what))) {
        name_field(field, "outbound", at, by_name ? ".domain" : ".cidr");
        return err_field(e, field, "%s: %s", by_name ? m->domain : m->cidr, what);
    }
    r->bytes_max = m->bytes_max;
    r->queries_per_minute = m->queries_per_minute;
    return read_ports(m, at, r, e);
}

// A limit of a set holds for each of its rules.
static int
read_set(const Stockade__V1__NetworkRule *m, size_t i, struct network *n, struct err *e)
{
    char field[FIELD_MAX];
    struct err why;
    uint32_t from = n->rules_n;
    if (m->cidr[0] != '\0' || m->n_ports > 0 || m->protocol != 0) {
        name_field(field, "outbound", i, "");
        return err_field(e, field,
                         "a set has its own ports and protocols: no cidr, ports or protocol");
    }
    if (network_add_set(n, m->domain, &why) < 0) {
        name_field(field, "outbound", i, ".domain");
        return err_field(e, field, "%s", why.text);
    }
    for (uint32_t k = from; k < n->rules_n; k++) {
        n->rules[k].bytes_max = m->bytes_max;
        n->rules[k].queries_per_minute = m->queries_per_minute;
    }
    return 0;
}

static int
add_rule(const Stockade__V1__NetworkRule *m, size_t i, struct network *n, struct err *e)
{
    if (n->rules_n == NET_RULES)
        return err_field(e, "network.outbound", "more than %d rules, with those of the sets",
                         NET_RULES);
    struct relay_rule *r = network_add_rule(n);
    return r != NULL ? read_rule(m, i, r, e) : err_sys(e, ENOMEM, "keep a network policy");
}

static int
read_outbound(const Stockade__V1__NetworkPolicy *m, struct network *n, struct err *e)
{
    if (m->n_outbound > NET_RULES)
        return err_field(e, "network.outbound", "%zu rules, at most %d", m->n_outbound, NET_RULES);
    for (size_t i = 0; i < m->n_outbound; i++) {
        int err = m->outbound[i]->domain[0] == '@' ? read_set(m->outbound[i], i, n, e)
                                                   : add_rule(m->outbound[i], i, n, e);
        if (err < 0)
            return err;
    }
    return 0;
}

static int
read_inbound(const Stockade__V1__NetworkPolicy *m, struct network *n, struct err *e)
{
    if (m->n_inbound > NETWORK_INBOUND)
        return err_field(e, "network.inbound", "%zu ranges, at most %d", m->n_inbound,
                         NETWORK_INBOUND);
    for (size_t i = 0; i < m->n_inbound; i++) {
        char field[FIELD_MAX];
        if (read_range(m->inbound[i], &n->inbound[n->inbound_n++]))
            continue;
        name_field(field, "inbound", i, "");
        return refuse_range(m->inbound[i], field, e);
    }
    return 0;
}

// Settings that the request omits come from the template; its rules only if they were written for the same mode.
static int
take_rules(struct network *n, const struct network *usual, const struct network *most,
           struct err *e)
{
    const struct network *from = usual->mode == n->mode ? usual : most;
    if (n->rules_n > 0 || !network_leads_out(n) || from->mode != n->mode)
        return 0;
    for (uint32_t i = 0; i < from->rules_n; i++) {
        struct relay_rule *r = network_add_rule(n);
        if (r == NULL)
            return err_sys(e, ENOMEM, "keep a network policy");
        *r = from->rules[i];
    }
    return 0;
}

static int
refuse_rules_without_network(const struct network *n, struct err *e)
{
    (void)err_set(e, ERR_INVALID_ARGUMENT,
                  "network.outbound: destinations are given, but the mode of the network is %s",
                  network_mode_name[n->mode]);
    err_detail(e, "FIELD_INVALID", "network.outbound",
               "use the mode allowlist to reach only these destinations, or omit them");
    return -EINVAL;
}

static int
fill(const Stockade__V1__NetworkPolicy *m, const struct network *usual, const struct network *most,
     struct network *n, struct err *e)
{
    if (m->mode < 0 || m->mode > STOCKADE__V1__NETWORK_MODE__NETWORK_MODE_OFF)
        return err_field(e, "network.mode", "%d is not a mode", (int)m->mode);
    n->mode = m->mode != 0 ? (enum net_mode)m->mode : usual->mode;
    const uint64_t limits[NETWORK_LIMITS] = {m->egress_bytes_max, m->ingress_bytes_max,
                                             m->egress_rate, m->ingress_rate,
                                             m->queries_per_minute};
    for (int i = 0; i < NETWORK_LIMITS; i++)
        n->limit[i] = limits[i] != 0 ? limits[i] : usual->limit[i];
    int r = read_outbound(m, n, e);
    if (r == 0)
        r = read_inbound(m, n, e);
    if (r == 0 && !network_leads_out(n) && n->rules_n > 0)
        r = refuse_rules_without_network(n, e);
    if (r == 0 && n->mode == NET_OFF && n->inbound_n > 0)
        r = err_field(e, "network.inbound", "ports are given, but the mode of the network is off");
    if (r == 0)
        r = take_rules(n, usual, most, e);
    if (r == 0 && n->inbound_n == 0 && n->mode != NET_OFF) {
        n->inbound_n = usual->inbound_n;
        memcpy(n->inbound, usual->inbound, sizeof n->inbound);
    }
    return r == 0 ? network_narrow(n, most, "network", e) : r;
}

int
network_read(const struct Stockade__V1__NetworkPolicy *m, const struct network *usual,
             const struct network *most, struct network **out, struct err *e)
{
    if (m == NULL) {
        *out = network_ref(usual);
        return 0;
    }
    struct network *n = network_new();
    if (n == NULL)
        return err_sys(e, ENOMEM, "keep a network policy");
    int r = fill(m, usual, most, n, e);
    if (r == 0)
        r = network_compile(n, e);
    if (r < 0)
        network_unref(n);
    else
        *out = n;
    return r;
}

// ---- not wider than the template

static int too_wide(struct err *e, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int
too_wide(struct err *e, const char *field, const char *fmt, ...)
{
    char what[300];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    int r = err_set(e, ERR_FAILED_PRECONDITION, "%s: %s", field, what);
    err_detail(e, "NETWORK_POLICY_TOO_WIDE", field,
               "request less, or widen the network_max of the template");
    return r;
}

static bool
ports_within(const struct net_ports *p, const struct relay_rule *outer)
{
    if (outer->ports_n == 0)
        return true;
    for (uint32_t i = 0; i < outer->ports_n; i++) {
        const struct net_ports *o = &outer->ports[i];
        if (o->first <= p->first && o->last >= p->last &&
            (o->protocol == 0 || o->protocol == p->protocol))
            return true;
    }
    return false;
}

static bool
allows(const struct relay_rule *outer, const struct relay_rule *r, const struct net_ports *p)
{
    return net_rule_within(r, outer) && ports_within(p, outer);
}

// The rule of `most` that covers `r` with these ports: the one with the same number if possible, because requests
// repeat the template's rules; otherwise the first. NULL: none.
static const struct relay_rule *
rule_around(const struct relay_rule *r, const struct net_ports *p, const struct network *most)
{
    if (r->number < most->rules_n && allows(&most->rules[r->number], r, p))
        return &most->rules[r->number];
    for (uint32_t i = 0; i < most->rules_n; i++)
        if (allows(&most->rules[i], r, p))
            return &most->rules[i];
    return NULL;
}

// `name` and the index `i` are for the field in errors; i below 0: the policy itself.
static int
narrow_limit(uint64_t *asked, uint64_t most, const char *name, int i, const char *limit,
             struct err *e)
{
    if (*asked == 0)
        *asked = most;
    if (most == 0 || *asked <= most)
        return 0;
    char rule[FIELD_MAX] = "";
    char field[2 * FIELD_MAX];
    if (i >= 0)
        (void)snprintf(rule, sizeof rule, ".outbound[%d]", i);
    (void)snprintf(field, sizeof field, "%s%s.%s", name, rule, limit);
    char value[32], bound[32];
    return too_wide(e, field, "%s requested, at most %s allowed",
                    quantity_show(limit, *asked, value, sizeof value),
                    quantity_show(limit, most, bound, sizeof bound));
}

static const char *
show_ports(uint32_t first, uint32_t last, char *out, size_t n)
{
    if (first == last)
        (void)snprintf(out, n, "port %u", first);
    else
        (void)snprintf(out, n, "ports %u to %u", first, last);
    return out;
}

static int
refuse_rule(const struct relay_rule *r, const struct net_ports *p, const char *name, struct err *e)
{
    char field[FIELD_MAX];
    char text[RELAY_NAME_MAX + 3];
    (void)snprintf(field, sizeof field, "%s.outbound[%u]", name, r->number);
    net_rule_text(r, text, sizeof text);
    char ports[32];
    return too_wide(e, field, "no rule of the template allows %s at %s", text,
                    show_ports(p->first, p->last, ports, sizeof ports));
}

// An open template allows all public addresses without a rule.
static int
narrow_rule(struct relay_rule *r, const struct network *most, const char *name, struct err *e)
{
    const struct net_ports every = {.first = 1, .last = UINT16_MAX};
    uint32_t n = r->ports_n != 0 ? r->ports_n : 1;
    int number = (int)r->number;
    for (uint32_t i = 0; i < n; i++) {
        const struct net_ports *p = r->ports_n != 0 ? &r->ports[i] : &every;
        const struct relay_rule *outer = rule_around(r, p, most);
        if (outer == NULL && most->mode == NET_OPEN && !net_rule_is_special(r))
            continue;
        if (outer == NULL)
            return refuse_rule(r, p, name, e);
        uint64_t queries = r->queries_per_minute;
        int err = narrow_limit(&r->bytes_max, outer->bytes_max, name, number, "bytes_max", e);
        if (err == 0)
            err = narrow_limit(&queries, outer->queries_per_minute, name, number,
                               "queries_per_minute", e);
        if (err < 0)
            return err;
        r->queries_per_minute = (uint32_t)queries;
    }
    return 0;
}

static int
narrow_inbound(const struct network *asked, const struct network *most, const char *name,
               struct err *e)
{
    for (uint32_t i = 0; i < asked->inbound_n; i++) {
        const struct network_range *a = &asked->inbound[i];
        bool found = false;
        for (uint32_t k = 0; k < most->inbound_n && !found; k++)
            found = most->inbound[k].first <= a->first && most->inbound[k].last >= a->last;
        if (found)
            continue;
        char field[FIELD_MAX];
        (void)snprintf(field, sizeof field, "%s.inbound[%u]", name, i);
        char ports[32];
        return too_wide(e, field, "the template does not allow inbound %s",
                        show_ports(a->first, a->last, ports, sizeof ports));
    }
    return 0;
}

bool
network_is_within(const struct network *asked, const struct network *most)
{
    struct err none;
    bool within = width[asked->mode] <= width[most->mode];
    for (uint32_t i = 0; i < asked->rules_n && within; i++) {
        struct relay_rule rule = asked->rules[i];
        within = narrow_rule(&rule, most, "network", &none) == 0;
    }
    return within;
}

static int
narrow_mode(const struct network *asked, const struct network *most, const char *name,
            struct err *e)
{
    char field[FIELD_MAX];
    if (width[asked->mode] <= width[most->mode])
        return 0;
    (void)snprintf(field, sizeof field, "%s.mode", name);
    return too_wide(e, field, "%s requested, at most %s allowed", network_mode_name[asked->mode],
                    network_mode_name[most->mode]);
}

int
network_narrow(struct network *asked, const struct network *most, const char *name, struct err *e)
{
    char allowed[sizeof e->allowed];
    int r = narrow_mode(asked, most, name, e);
    for (uint32_t i = 0; i < asked->rules_n && r == 0; i++)
        r = narrow_rule(&asked->rules[i], most, name, e);
    if (r == 0)
        r = narrow_inbound(asked, most, name, e);
    for (int i = 0; i < NETWORK_LIMITS && r == 0; i++)
        r = narrow_limit(&asked->limit[i], most->limit[i], name, -1, network_limit_name[i], e);
    if (r < 0) {
        network_text(most, allowed, sizeof allowed);
        err_rule(e, "network_max", allowed);
    }
    return r;
}
