// SPDX-License-Identifier: Apache-2.0
// See simulation.h.
#include "simulation.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/policy/network.h"

struct simulation *
simulation_new(void)
{
    struct simulation *m = calloc(1, sizeof *m);
    if (m != NULL)
        m->refs = 1;
    return m;
}

struct simulation *
simulation_ref(struct simulation *m)
{
    if (m != NULL)
        m->refs++;
    return m;
}

void
simulation_unref(struct simulation *m)
{
    if (m == NULL || --m->refs > 0)
        return;
    for (uint32_t i = 0; i < m->sent_n; i++)
        free(m->sent[i]);
    free(m->replies);
    free(m);
}

// A set would be several rules, and the whole of the Internet no destination.
static int
read_to(const char *to, const char *field, struct relay_rule *out, struct err *e)
{
    struct err why;
    if (to[0] == '@')
        return err_field(e, field, "a set is no single destination");
    struct network *n = network_new();
    if (n == NULL)
        return err_sys(e, ENOMEM, "keep the answers of a simulation");
    int r = network_add_target(n, to, &why);
    if (r < 0)
        r = err_field(e, field, "%s", why.text);
    else
        *out = n->rules[0];
    network_unref(n);
    return r;
}

static bool
is_udp(const struct relay_rule *r)
{
    return r->ports_n > 0 && r->ports[0].protocol == IPPROTO_UDP;
}

int
simulation_answer(struct simulation *m, size_t number, const char *to, const uint8_t *reply,
                  size_t n, struct err *e)
{
    char field[48];
    struct relay_rule rule = {0};
    (void)snprintf(field, sizeof field, "answers[%zu].destination", number);
    if (m->replies_n == SIMULATION_REPLIES)
        return err_field(e, "answers", "at most %d", SIMULATION_REPLIES);
    int r = read_to(to, field, &rule, e);
    if (r < 0)
        return r;
    (void)snprintf(field, sizeof field, "answers[%zu].reply", number);
    if (n > RELAY_REPLY_MAX || (is_udp(&rule) && n > SIMULATION_DATAGRAM))
        return err_field(e, field, "%zu bytes, at most %d", n,
                         is_udp(&rule) ? (int)SIMULATION_DATAGRAM : (int)RELAY_REPLY_MAX);
    struct relay_reply *more =
        realloc(m->replies, (m->replies_n + (size_t)1) * sizeof m->replies[0]);
    if (more == NULL)
        return err_sys(e, ENOMEM, "keep the answers of a simulation");
    m->replies = more;
    struct relay_reply *a = &more[m->replies_n];
    memset(a, 0, sizeof *a);
    a->to = rule;
    a->to.number = m->replies_n++;
    a->n = (uint32_t)n;
    if (n > 0)
        memcpy(a->bytes, reply, n);
    return 0;
}

void
simulation_report(struct simulation *m, const struct relay_report *r)
{
    if (r->kind == RELAY_SUMS) {
        m->sent_total = r->sent > m->sent_total ? r->sent : m->sent_total;
        return;
    }
    struct relay_sent *copy = m->sent_n < RELAY_SENT_MAX ? malloc(sizeof *copy) : NULL;
    if (copy == NULL) {
        m->lost = true;
        return;
    }
    *copy = *(const struct relay_sent *)(const void *)r;
    m->sent[m->sent_n++] = copy;
}
