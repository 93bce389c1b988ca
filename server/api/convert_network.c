// SPDX-License-Identifier: Apache-2.0
// See convert.h: network policies.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "server/config/config.h"
#include "server/network/net.h"
#include "server/policy/rule.h"
#include "server/policy/network.h"
#include "server/base/server.h"
#include "convert.h"

int
convert_network(const struct server *s, const struct template *t,
                const Stockade__V1__NetworkPolicy *m, struct network **out, struct err *e)
{
    struct network *n = NULL;
    int r = network_read(m, t->network, t->network_max, &n, e);
    if (r == 0)
        r = net_check(s, n, e);
    if (r < 0)
        network_unref(n);
    else
        *out = n;
    return r;
}

static Stockade__V1__PortRange *
convert_range(struct arena *a, uint16_t first, uint16_t last)
{
    Stockade__V1__PortRange *m = wire_make(a, &stockade__v1__port_range__descriptor);
    if (m == NULL)
        return NULL;
    m->first = first;
    m->last = last;
    return m;
}

static bool
convert_ports(struct arena *a, const struct relay_rule *r, Stockade__V1__NetworkRule *m)
{
    m->ports = arena_alloc(a, sizeof(void *) * NET_PORTS);
    for (uint32_t i = 0; m->ports != NULL && i < r->ports_n; i++) {
        const struct net_ports *p = &r->ports[i];
        m->ports[i] = convert_range(a, p->first, p->last);
        if (m->ports[i] == NULL)
            return false;
        m->n_ports++;
        if (p->protocol != 0)
            m->protocol = p->protocol == IPPROTO_TCP
                              ? STOCKADE__V1__NETWORK_PROTOCOL__NETWORK_PROTOCOL_TCP
                              : STOCKADE__V1__NETWORK_PROTOCOL__NETWORK_PROTOCOL_UDP;
    }
    return m->ports != NULL;
}

static Stockade__V1__NetworkRule *
convert_rule(struct arena *a, const struct relay_rule *r)
{
    char text[RELAY_NAME_MAX + 3];
    Stockade__V1__NetworkRule *m = wire_make(a, &stockade__v1__network_rule__descriptor);
    if (m == NULL)
        return NULL;
    net_rule_text(r, text, sizeof text);
    char *copy = arena_copy(a, text, strlen(text));
    if (copy == NULL || !convert_ports(a, r, m))
        return NULL;
    if (r->kind == RELAY_PREFIX || r->kind == RELAY_HOST)
        m->cidr = copy;
    else
        m->domain = copy;
    m->bytes_max = r->bytes_max;
    m->queries_per_minute = r->queries_per_minute;
    return m;
}

static bool
convert_lists(struct arena *a, const struct network *n, Stockade__V1__NetworkPolicy *m)
{
    m->outbound = arena_alloc(a, sizeof(void *) * (n->rules_n + 1));
    m->inbound = arena_alloc(a, sizeof(void *) * (n->inbound_n + 1));
    if (m->outbound == NULL || m->inbound == NULL)
        return false;
    for (uint32_t i = 0; i < n->rules_n; i++) {
        m->outbound[i] = convert_rule(a, &n->rules[i]);
        if (m->outbound[i] == NULL)
            return false;
        m->n_outbound++;
    }
    for (uint32_t i = 0; i < n->inbound_n; i++) {
        m->inbound[i] = convert_range(a, n->inbound[i].first, n->inbound[i].last);
        if (m->inbound[i] == NULL)
            return false;
        m->n_inbound++;
    }
    return true;
}

Stockade__V1__NetworkPolicy *
convert_policy(struct arena *a, const struct network *n)
{
    Stockade__V1__NetworkPolicy *m = wire_make(a, &stockade__v1__network_policy__descriptor);
    if (m == NULL)
        return NULL;
    m->mode = STOCKADE__V1__NETWORK_MODE__NETWORK_MODE_NONE;
    if (n == NULL)
        return m;
    m->mode = (Stockade__V1__NetworkMode)n->mode;
    m->egress_bytes_max = n->limit[NETWORK_EGRESS_BYTES];
    m->ingress_bytes_max = n->limit[NETWORK_INGRESS_BYTES];
    m->egress_rate = n->limit[NETWORK_EGRESS_RATE];
    m->ingress_rate = n->limit[NETWORK_INGRESS_RATE];
    m->queries_per_minute = (uint32_t)n->limit[NETWORK_QUERIES];
    return convert_lists(a, n, m) ? m : NULL;
}
