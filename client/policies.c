// SPDX-License-Identifier: Apache-2.0
// Network policies: conversion from stockade.h to messages (requests.h) and back (results.h).
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "proto/quantity.h"
#include "proto/target.h"
#include "proto/wire.h"
#include "requests.h"
#include "results.h"
#include "stockade/v1/sandbox_service.pb-c.h"

enum { PORTS_MAX = 12 }; // "65535-65535"

static int
too_large(struct err *e)
{
    return err_set(e, ERR_INVALID_ARGUMENT, "the request is larger than %d bytes",
                   REQUEST_ARENA_BYTES);
}

static Stockade__V1__PortRange *
make_range(struct arena *a, uint16_t first, uint16_t last)
{
    Stockade__V1__PortRange *m = wire_make(a, &stockade__v1__port_range__descriptor);
    if (m == NULL)
        return NULL;
    m->first = first;
    m->last = last;
    return m;
}

static int
make_rule(struct arena *a, const char *text, Stockade__V1__NetworkRule **out, struct err *e)
{
    struct target_text t;
    int rc = target_parse(text, &t, e);
    if (rc < 0)
        return rc;
    Stockade__V1__NetworkRule *m = wire_make(a, &stockade__v1__network_rule__descriptor);
    char *host = arena_copy(a, t.host, strlen(t.host));
    if (m == NULL || host == NULL)
        return too_large(e);
    if (t.is_name)
        m->domain = host;
    else
        m->cidr = host;
    if (t.protocol != 0)
        m->protocol = t.protocol == IPPROTO_TCP
                          ? STOCKADE__V1__NETWORK_PROTOCOL__NETWORK_PROTOCOL_TCP
                          : STOCKADE__V1__NETWORK_PROTOCOL__NETWORK_PROTOCOL_UDP;
    *out = m;
    if (t.first == 0)
        return 0;
    m->ports = arena_alloc(a, sizeof(void *));
    if (m->ports == NULL || (m->ports[0] = make_range(a, t.first, t.last)) == NULL)
        return too_large(e);
    m->n_ports = 1;
    return 0;
}

static int
make_lists(Stockade__V1__NetworkPolicy *m, struct arena *a, const struct stockade_policy *from,
           struct err *e)
{
    if (request_list(from->allow, from->allow_n, "network.outbound", e) < 0 ||
        request_list(from->inbound, from->inbound_n, "network.inbound", e) < 0)
        return err_errno(e);
    m->outbound = arena_alloc(a, (from->allow_n + 1) * sizeof(void *));
    m->inbound = arena_alloc(a, (from->inbound_n + 1) * sizeof(void *));
    if (m->outbound == NULL || m->inbound == NULL)
        return too_large(e);
    for (size_t i = 0; i < from->allow_n; i++) {
        Stockade__V1__NetworkRule *rule = NULL;
        int rc = request_list(from->allow[i], 1, "network.outbound", e);
        if (rc == 0)
            rc = make_rule(a, from->allow[i], &rule, e);
        if (rc < 0)
            return rc;
        m->outbound[m->n_outbound++] = rule;
    }
    for (size_t i = 0; i < from->inbound_n; i++) {
        uint16_t first = 0;
        uint16_t last = 0;
        const char *text = from->inbound[i] != NULL ? from->inbound[i] : "";
        if (!target_ports(text, &first, &last))
            return err_field(e, "network.inbound", "\"%.40s\" is not a port", text);
        Stockade__V1__PortRange *range = make_range(a, first, last);
        if (range == NULL)
            return too_large(e);
        m->inbound[m->n_inbound++] = range;
    }
    return 0;
}

int
request_network(Stockade__V1__NetworkPolicy **out, struct arena *a, enum stockade_network mode,
                const struct stockade_policy *policy, struct err *e)
{
    *out = NULL;
    if (mode == STOCKADE_NETWORK_TEMPLATE && policy == NULL)
        return 0;
    Stockade__V1__NetworkPolicy *m = wire_make(a, &stockade__v1__network_policy__descriptor);
    if (m == NULL)
        return too_large(e);
    m->mode = (Stockade__V1__NetworkMode)(policy != NULL ? policy->mode : mode);
    *out = m;
    if (policy == NULL)
        return 0;
    m->egress_bytes_max = policy->egress_bytes_max;
    m->ingress_bytes_max = policy->ingress_bytes_max;
    m->egress_rate = policy->egress_rate;
    m->ingress_rate = policy->ingress_rate;
    int rc = request_u32(&m->queries_per_minute, policy->queries_per_minute, quantity_count,
                         "network.queries_per_minute", e);
    return rc < 0 ? rc : make_lists(m, a, policy, e);
}

static void
show_ports(const Stockade__V1__PortRange *r, char out[PORTS_MAX])
{
    if (r->last == 0 || r->last == r->first)
        (void)snprintf(out, PORTS_MAX, "%u", r->first & UINT16_MAX);
    else
        (void)snprintf(out, PORTS_MAX, "%u-%u", r->first & UINT16_MAX, r->last & UINT16_MAX);
}

// One destination per range of ports, as in the text form.
static const char *
show_rule(struct arena *a, const Stockade__V1__NetworkRule *r, const Stockade__V1__PortRange *range)
{
    static const char *const protocols[] = {"", "/tcp", "/udp"};
    char text[300];
    char ports[PORTS_MAX] = "";
    const char *host = r->domain[0] != '\0' ? r->domain : r->cidr;
    bool every = range == NULL || (range->first == 1 && range->last == UINT16_MAX);
    bool bracket = !every && strchr(host, ':') != NULL;
    if (!every)
        show_ports(range, ports);
    unsigned protocol = (unsigned)r->protocol < 3 ? (unsigned)r->protocol : 0;
    int n = snprintf(text, sizeof text, "%s%.253s%s%s%s%s", bracket ? "[" : "", host,
                     bracket ? "]" : "", every ? "" : ":", ports, protocols[protocol]);
    return arena_copy(a, text, (size_t)n);
}

static bool
show_outbound(struct stockade_policy *to, struct arena *a, const Stockade__V1__NetworkPolicy *from)
{
    size_t n = 0;
    for (size_t i = 0; i < from->n_outbound; i++)
        n += from->outbound[i]->n_ports + 1;
    const char **all = arena_alloc(a, (n + 1) * sizeof *all);
    if (all == NULL)
        return false;
    for (size_t i = 0; i < from->n_outbound; i++) {
        const Stockade__V1__NetworkRule *r = from->outbound[i];
        size_t ports = r->n_ports > 0 ? r->n_ports : 1;
        for (size_t k = 0; k < ports; k++) {
            const char *one = show_rule(a, r, r->n_ports > 0 ? r->ports[k] : NULL);
            if (one == NULL)
                return false;
            all[to->allow_n++] = one;
        }
    }
    to->allow = all;
    return true;
}

bool
policy_from(struct stockade_policy *to, struct arena *a, const Stockade__V1__NetworkPolicy *from)
{
    static const Stockade__V1__NetworkPolicy none = STOCKADE__V1__NETWORK_POLICY__INIT;
    if (from == NULL)
        from = &none;
    *to = (struct stockade_policy){
        .mode = (enum stockade_network)from->mode,
        .egress_bytes_max = from->egress_bytes_max,
        .ingress_bytes_max = from->ingress_bytes_max,
        .egress_rate = from->egress_rate,
        .ingress_rate = from->ingress_rate,
        .queries_per_minute = from->queries_per_minute,
    };
    const char **inbound = arena_alloc(a, (from->n_inbound + 1) * sizeof *inbound);
    if (inbound == NULL || !show_outbound(to, a, from))
        return false;
    to->inbound = inbound;
    for (size_t i = 0; i < from->n_inbound; i++) {
        char text[PORTS_MAX];
        show_ports(from->inbound[i], text);
        inbound[i] = arena_copy(a, text, strlen(text));
        if (inbound[i] == NULL)
            return false;
        to->inbound_n++;
    }
    return true;
}
