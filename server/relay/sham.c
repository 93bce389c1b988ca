// SPDX-License-Identifier: Apache-2.0
// See sham.h. All memory of a simulated sandbox is allocated with it; it ends with it.
#include "sham.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "permit.h"

struct sham_sent {
    uint32_t n;
    uint8_t first[RELAY_FIRST_MAX];
};

struct sham {
    struct permit *to; // owned: the destinations of the replies, as rules
    struct sham_sent sent[RELAY_SENT_MAX];
    uint32_t replies_n;
    struct relay_reply replies[]; // replies_n
};

static const struct relay_reply *
replies_of(const struct relay_order *o)
{
    return (const struct relay_reply *)(const void *)(o->rules + o->rules_n);
}

// Their destinations, as the policy that allows just them.
static struct permit *
permit_replies(const struct relay_order *o)
{
    struct relay_order *as = calloc(1, sizeof *as + o->replies_n * sizeof as->rules[0]);
    if (as == NULL)
        return NULL;
    as->mode = NET_ALLOWLIST;
    as->rules_n = o->replies_n;
    for (uint32_t i = 0; i < o->replies_n; i++)
        as->rules[i] = replies_of(o)[i].to;
    struct permit *p = permit_new(as);
    free(as);
    return p;
}

struct sham *
sham_new(const struct relay_order *o)
{
    struct sham *m = calloc(1, sizeof *m + o->replies_n * sizeof m->replies[0]);
    if (m == NULL)
        return NULL;
    m->to = permit_replies(o);
    m->replies_n = o->replies_n;
    if (o->replies_n > 0)
        memcpy(m->replies, replies_of(o), o->replies_n * sizeof m->replies[0]);
    if (m->to != NULL)
        return m;
    free(m);
    return NULL;
}

void
sham_free(struct sham *m)
{
    if (m != NULL)
        free(m->to);
    free(m);
}

static struct sham_sent *
take(struct sandbox *s)
{
    const uint32_t i = s->sham_n++;
    s->changed = true;
    tick_need(s->relay);
    return i < RELAY_SENT_MAX ? &s->sham->sent[i] : NULL;
}

// An address of this host, or a special one, needs an answer that names it; whose address it is does not matter here.
static uint32_t
find_reply(const struct sham *m, const char *name, const uint8_t address[16], uint16_t port,
           uint8_t protocol)
{
    if (name != NULL)
        return permit_name_port(m->to, name, port, protocol).rule;
    return permit_address(m->to, address, ADDRESS_NOT_OWN, port, protocol).rule;
}

void
sham_begin(struct sandbox *s, struct sham_lane *l, const char *name, const uint8_t address[16],
           uint16_t port, uint8_t protocol)
{
    const uint32_t i = find_reply(s->sham, name, address, port, protocol);
    *l = (struct sham_lane){
        .on = true, .sent = take(s), .reply = i < s->sham->replies_n ? &s->sham->replies[i] : NULL};
}

void
sham_keep(struct sham_lane *l, const uint8_t *bytes, size_t n)
{
    struct sham_sent *to = l->sent;
    if (to == NULL)
        return;
    const size_t room = RELAY_FIRST_MAX - to->n;
    memcpy(to->first + to->n, bytes, n < room ? n : room);
    to->n += (uint32_t)(n < room ? n : room);
}

void
sham_report(struct sandbox *s, const struct sham_lane *l, const struct report_about *about)
{
    if (l->sent != NULL)
        report_sent(s, about, l->sent->first, l->sent->n);
}

void
sham_query(struct sandbox *s, const struct report_about *name)
{
    const struct sham_lane query = {.sent = take(s)};
    struct report_about about = *name;
    about.port = NET_DNS_PORT;
    about.protocol = IPPROTO_UDP;
    sham_report(s, &query, &about);
}
