// SPDX-License-Identifier: Apache-2.0
// See target.h.
#include "target.h"

#include <assert.h>
#include <string.h>

#include "proto/target.h"
#include "network.h"
#include "rule.h"

enum { NAMES_MAX = 160 };

static int
read_target(const char *text, struct relay_rule *r, struct err *e)
{
    struct target_text t;
    const char *what = "";
    int err = target_parse(text, &t, e);
    if (err < 0)
        return err;
    if (!(t.is_name ? net_rule_domain(t.host, r, &what) : net_rule_cidr(t.host, r, &what)))
        return err_set(e, ERR_INVALID_ARGUMENT, "%.200s: %s", t.host, what);
    if (t.first != 0) // cannot fail: it is the first one
        (void)net_rule_add_ports(r, t.first, t.last, t.protocol);
    else if (t.protocol != 0)
        (void)net_rule_add_ports(r, 1, UINT16_MAX, t.protocol);
    return 0;
}

static int
too_many(const char *text, struct err *e)
{
    return err_set(e, ERR_INVALID_ARGUMENT, "%.200s: more than %d rules", text, NET_RULES);
}

uint32_t
network_set_rules(const struct destination_set *s, struct relay_rule out[DESTINATIONS_MAX])
{
    struct err e;
    uint32_t n = 0;
    for (; s->to[n] != NULL; n++) {
        out[n] = (struct relay_rule){.number = n};
        int r = read_target(s->to[n], &out[n], &e);
        assert(r == 0);
    }
    return n;
}

int
network_add_set(struct network *n, const char *text, struct err *e)
{
    char names[NAMES_MAX];
    struct relay_rule rules[DESTINATIONS_MAX];
    const struct destination_set *s = destination_set_find(text + 1);
    if (s == NULL && text[strcspn(text, ":/")] != '\0')
        return err_set(e, ERR_INVALID_ARGUMENT, "%.200s: a set has its own ports and protocols",
                       text);
    if (s == NULL)
        return err_set(e, ERR_INVALID_ARGUMENT, "%.200s: there is no such set; known are %s", text,
                       destination_set_names(names, sizeof names));
    uint32_t rules_n = network_set_rules(s, rules);
    for (uint32_t i = 0; i < rules_n; i++) {
        struct relay_rule *r = network_add_rule(n);
        if (r == NULL)
            return too_many(text, e);
        rules[i].number = r->number;
        *r = rules[i];
        for (uint32_t k = 0; k < r->ports_n; k++)
            r->ports[k].rule = r->number;
    }
    return 0;
}

int
network_add_target(struct network *n, const char *text, struct err *e)
{
    if (text[0] == '@')
        return network_add_set(n, text, e);
    struct relay_rule *r = network_add_rule(n);
    return r != NULL ? read_target(text, r, e) : too_many(text, e);
}

static bool
covers(const struct relay_rule *outer, const struct relay_rule *r)
{
    const struct net_ports *o = &outer->ports[0];
    const struct net_ports *p = &r->ports[0];
    if (!net_rule_within(r, outer))
        return false;
    return r->ports_n == 0 || (o->first <= p->first && o->last >= p->last &&
                               (o->protocol == 0 || o->protocol == p->protocol));
}

const struct destination_set *
network_set_around(const struct relay_rule *rule)
{
    struct relay_rule rules[DESTINATIONS_MAX];
    for (const struct destination_set *s = destination_sets; s->name != NULL; s++) {
        uint32_t n = network_set_rules(s, rules);
        for (uint32_t i = 0; i < n; i++)
            if (covers(&rules[i], rule))
                return s;
    }
    return NULL;
}
