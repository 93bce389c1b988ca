// SPDX-License-Identifier: Apache-2.0
// See network.h: a policy as a line of text, for the error of a request that goes beyond it.
#include "network.h"

#include <stdarg.h>
#include <stdio.h>

#include "rule.h"

enum { SHOWN = 4 };

struct line {
    char *text;
    size_t n, used;
};

static void add(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void
add(struct line *l, const char *fmt, ...)
{
    va_list ap;
    if (l->used >= l->n)
        return;
    va_start(ap, fmt);
    const int n = vsnprintf(l->text + l->used, l->n - l->used, fmt, ap);
    va_end(ap);
    l->used += n > 0 ? (size_t)n : 0;
}

static void
add_port(struct line *l, const char *before, uint32_t first, uint32_t last)
{
    if (first == last)
        add(l, "%s%u", before, first);
    else
        add(l, "%s%u-%u", before, first, last);
}

static void
add_rule(struct line *l, const struct relay_rule *r, const char *before)
{
    char text[RELAY_NAME_MAX + 3];
    net_rule_text(r, text, sizeof text);
    add(l, "%s%s", before, text);
    for (uint32_t i = 0; i < r->ports_n; i++)
        add_port(l, i == 0 ? ":" : ",", r->ports[i].first, r->ports[i].last);
}

static void
add_more(struct line *l, uint32_t n)
{
    if (n > SHOWN)
        add(l, " and %u more", n - SHOWN);
}

void
network_text(const struct network *n, char *out, size_t size)
{
    struct line l = {.n = size};
    l.text = out;
    add(&l, "network %s", network_mode_name[n->mode]);
    for (uint32_t i = 0; i < n->rules_n && i < SHOWN; i++)
        add_rule(&l, &n->rules[i], i == 0 ? "; outbound " : ", ");
    add_more(&l, n->rules_n);
    for (uint32_t i = 0; i < n->inbound_n && i < SHOWN; i++)
        add_port(&l, i == 0 ? "; inbound ports " : ", ", n->inbound[i].first, n->inbound[i].last);
    add_more(&l, n->inbound_n);
    if (n->inbound_n == 0)
        add(&l, "; nothing inbound");
}
