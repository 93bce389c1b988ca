// SPDX-License-Identifier: Apache-2.0
// See network.h: a policy as a line of text, for the error of a request that goes beyond it.
#include "network.h"

#include "proto/phrase.h"
#include "rule.h"

enum { SHOWN = 4 };

static void
add_port(struct phrase *l, const char *before, uint32_t first, uint32_t last)
{
    if (first == last)
        phrase_add(l, "%s%u", before, first);
    else
        phrase_add(l, "%s%u-%u", before, first, last);
}

static void
add_rule(struct phrase *l, const struct relay_rule *r, const char *before)
{
    char text[RELAY_NAME_MAX + 3];
    net_rule_text(r, text, sizeof text);
    phrase_add(l, "%s%s", before, text);
    for (uint32_t i = 0; i < r->ports_n; i++)
        add_port(l, i == 0 ? ":" : ",", r->ports[i].first, r->ports[i].last);
}

static void
add_more(struct phrase *l, uint32_t n)
{
    if (n > SHOWN)
        phrase_add(l, " and %u more", n - SHOWN);
}

void
network_text(const struct network *n, char *out, size_t size)
{
    struct phrase l = {.n = size};
    l.bytes = out;
    phrase_add(&l, "network %s", network_mode_name[n->mode]);
    for (uint32_t i = 0; i < n->rules_n && i < SHOWN; i++)
        add_rule(&l, &n->rules[i], i == 0 ? "; outbound " : ", ");
    add_more(&l, n->rules_n);
    for (uint32_t i = 0; i < n->inbound_n && i < SHOWN; i++)
        add_port(&l, i == 0 ? "; inbound ports " : ", ", n->inbound[i].first, n->inbound[i].last);
    add_more(&l, n->inbound_n);
    if (n->inbound_n == 0)
        phrase_add(&l, "; nothing inbound");
}
