// SPDX-License-Identifier: Apache-2.0
// See detect.h: what rules of the host ask of the kernel's tables. Destinations are prefixes with ranges of ports, of which the kernel
// takes the longest prefix that contains an address: so each has the ranges of all prefixes around it, too. A rule for which one of the
// tables has no room is left out as a whole, and the earlier rules stay.
#include <stdio.h>
#include <string.h>

#include "arena.h"
#include "detect_private.h"
#include "prefix.h"

#define KIND(kind) (UINT64_C(1) << STOCKADE__V1__EVENT_KIND__EVENT_KIND_##kind % 64)
static const uint64_t of_destinations = KIND(CONNECT) | KIND(DENIED);
static const uint64_t of_calls = KIND(DANGEROUS_CALL);
enum { TCP = 6, UDP = 17, PORTS = 65535 };

// What a match asks for. plain: nothing else.
struct asked {
    const struct detect_part *address, *port, *protocol, *call;
    bool plain;
};

static void
take(const struct detect_part **to, const struct detect_part *p, struct asked *a)
{
    if (*to == NULL)
        *to = p;
    else
        a->plain = false;
}

// "tcp" and "udp", and nothing else.
static bool
is_protocol(const struct detect_part *p)
{
    bool fine = p->field == DETECT_PROTOCOL && p->prefix_n + p->suffix_n + p->glob_n == 0;
    for (size_t i = 0; fine && i < p->exact.n; i++)
        fine = strcmp(p->exact.word[i], "tcp") == 0 || strcmp(p->exact.word[i], "udp") == 0;
    return fine;
}

static struct asked
asked_of(const struct detect_match *m)
{
    struct asked a = {.plain = m->any_n + m->not_n == 0};
    for (uint32_t i = 0; i < m->all_n; i++)
        for (uint32_t k = 0; k < m->all[i].n; k++) {
            const struct detect_part *p = &m->all[i].part[k];
            if (p->field == DETECT_ADDRESS)
                take(&a.address, p, &a);
            else if (p->field == DETECT_PORT)
                take(&a.port, p, &a);
            else if (p->field == DETECT_CALL && p->prefix_n + p->suffix_n + p->glob_n == 0)
                take(&a.call, p, &a);
            else if (is_protocol(p))
                take(&a.protocol, p, &a);
            else
                a.plain = false;
        }
    return a;
}

// Only events of some kinds, and each counts as one for its job, sandbox or tenant: a counter can stand for events.
static bool
is_countable(const struct detect_rule *r, uint64_t kinds)
{
    const struct detect_match *m = &r->match[0];
    return r->matches_n == 1 && r->exceptions_n == 0 && r->by < 0 && r->counts &&
           (m->kinds[0] & ~kinds) == 0 && m->kinds[1] == 0;
}

// ---- destinations

static bool
same_range(const struct detect_mark_range *a, const struct detect_mark_range *b)
{
    return a->first == b->first && a->last == b->last && a->protocol == b->protocol &&
           a->connect == b->connect && a->denied == b->denied && a->any == b->any &&
           a->mark == b->mark;
}

static bool
contains(const struct detect_mark_prefix *outer, const struct detect_mark_prefix *inner)
{
    return outer->bits <= inner->bits && prefix_equal(outer->address, inner->address, outer->bits);
}

static bool
add_range(struct detect_mark_prefix *p, const struct detect_mark_range *range)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (same_range(&p->range[i], range))
            return true;
    if (p->n == DETECT_MARK_RANGES)
        return false;
    p->range[p->n++] = *range;
    return true;
}

// A prefix, with the ranges of those around it. False: no room.
static bool
add_prefix(struct detect_kernel *k, const struct detect_mark_prefix *one)
{
    const struct detect_mark_prefix *around = NULL;
    for (uint32_t i = 0; i < k->prefixes_n; i++) {
        const struct detect_mark_prefix *p = &k->prefix[i];
        if (!contains(p, one))
            continue;
        if (p->bits == one->bits)
            return true;
        around = around == NULL || p->bits > around->bits ? p : around;
    }
    if (k->prefixes_n == DETECT_MARK_PREFIXES)
        return false;
    struct detect_mark_prefix *to = &k->prefix[k->prefixes_n++];
    *to = around != NULL ? *around : (struct detect_mark_prefix){.n = 0};
    memcpy(to->address, one->address, sizeof to->address);
    to->bits = one->bits;
    return true;
}

static bool
add_destination(struct detect_kernel *k, const struct detect_network *network,
                const struct detect_mark_range *range)
{
    struct detect_mark_prefix one = {.bits = network->bits};
    memcpy(one.address, network->address, sizeof one.address);
    bool fine = add_prefix(k, &one);
    for (uint32_t i = 0; i < k->prefixes_n && fine; i++)
        if (contains(&one, &k->prefix[i]))
            fine = add_range(&k->prefix[i], range);
    return fine;
}

static bool
add_port(struct detect_kernel *k, const struct asked *a, struct detect_mark_range range,
         uint64_t first, uint64_t last)
{
    static const struct detect_network everywhere;
    const size_t n = a->address != NULL ? a->address->networks_n : 1;
    bool fine = true;
    if (first > PORTS)
        return true; // no event has it
    range.first = (uint16_t)first;
    range.last = (uint16_t)(last < PORTS ? last : PORTS);
    for (size_t i = 0; i < n && fine; i++)
        fine =
            add_destination(k, a->address != NULL ? &a->address->network[i] : &everywhere, &range);
    return fine;
}

static uint8_t
protocol_of(const struct detect_part *p)
{
    bool tcp = p == NULL, udp = p == NULL;
    for (size_t i = 0; p != NULL && i < p->exact.n; i++) {
        tcp = tcp || strcmp(p->exact.word[i], "tcp") == 0;
        udp = udp || strcmp(p->exact.word[i], "udp") == 0;
    }
    return tcp && udp ? 0 : tcp ? TCP : UDP;
}

// A match that names addresses or ports of connections, or of refused ones. False: no room.
static bool
add_mark(struct detect_kernel *k, struct detect_rule *r, const struct detect_match *m,
         const struct asked *a)
{
    if (k->marks_n == DETECT_MARKS)
        return false;
    struct detect_mark_range range = {.protocol = protocol_of(a->protocol),
                                      .connect = (m->kinds[0] & KIND(CONNECT)) != 0,
                                      .denied = (m->kinds[0] & KIND(DENIED)) != 0,
                                      .any = a->address == NULL,
                                      .mark = (uint8_t)k->marks_n};
    const struct detect_part *p = a->port;
    bool fine = true;
    k->mark_rule[k->marks_n++] = r->index;
    if (p == NULL)
        fine = add_port(k, a, range, 0, PORTS);
    for (size_t i = 0; p != NULL && i < p->numbers_n && fine; i++)
        fine = add_port(k, a, range, p->number[i], p->number[i]);
    if (p != NULL && p->has_range && fine)
        fine = add_port(k, a, range, p->min, p->max != 0 ? p->max : PORTS);
    r->destinations += a->address != NULL ? (uint32_t)a->address->networks_n : 1;
    return fine;
}

// ---- system calls

static bool
add_calls(struct detect_kernel *k, struct detect_rule *r, const struct detect_part *call)
{
    for (size_t i = 0; i < call->exact.n; i++) {
        const char *name = call->exact.word[i];
        bool known = detect_reports_call(name);
        r->calls += !known;
        for (uint32_t c = 0; c < k->calls_n && !known; c++)
            known = strcmp(k->call[c], name) == 0;
        if (known)
            continue;
        if (k->calls_n == DETECT_CALLS)
            return false;
        k->call[k->calls_n++] = name;
    }
    return true;
}

// ---- rules

// False: no room.
static bool
add_rule(struct detect_kernel *k, struct detect_rule *r)
{
    bool plain = true, fine = true;
    for (uint32_t i = 0; i < r->matches_n && fine; i++) {
        struct detect_match *m = &r->match[i];
        const struct asked a = asked_of(m);
        plain = plain && a.plain;
        if ((m->kinds[0] & of_destinations) != 0 && (a.address != NULL || a.port != NULL))
            fine = add_mark(k, r, m, &a);
        if ((m->kinds[0] & of_calls) != 0 && a.call != NULL && fine) {
            const uint32_t before = r->calls;
            fine = add_calls(k, r, a.call);
            m->calls = r->calls > before;
        }
    }
    r->counted = fine && plain &&
                 ((r->destinations > 0 && is_countable(r, of_destinations)) ||
                  (r->calls > 0 && is_countable(r, of_calls)));
    return fine;
}

int
detect_compile(struct detect *d)
{
    struct detect_kernel *k = arena_alloc(d->arena, sizeof *k);
    struct detect_kernel *saved = arena_alloc(d->arena, sizeof *saved);
    if (k == NULL || saved == NULL)
        return -1;
    for (uint32_t i = 0; i < d->rules_n; i++) {
        struct detect_rule *r = &d->rule[i];
        r->compiled = true;
        if (!r->enabled || r->m->tripwire)
            continue;
        *saved = *k;
        if (add_rule(k, r))
            continue;
        *k = *saved;
        r->no_room = true;
        r->destinations = r->calls = 0;
        for (uint32_t m = 0; m < r->matches_n; m++)
            r->match[m].calls = false;
    }
    d->kernel = k;
    return 0;
}

const struct detect_kernel *
detect_kernel(const struct detect *d)
{
    return d != NULL ? d->kernel : NULL;
}

uint32_t
detect_rule_calls(const struct detect *d, uint32_t i, detect_call_fn *each, void *cookie)
{
    const struct detect_rule *r = &d->rule[i];
    for (uint32_t m = 0; m < r->matches_n; m++) {
        const struct detect_part *call = r->match[m].calls ? asked_of(&r->match[m]).call : NULL;
        for (size_t n = 0; call != NULL && n < call->exact.n; n++)
            each(cookie, call->exact.word[n]);
    }
    return r->calls;
}

void
detect_counted(struct detect *d, int rule, const struct detect_event *ev, detect_found_fn *found,
               void *cookie)
{
    detect_begin(d);
    for (uint32_t i = 0; i < detect_count(d); i++) {
        struct detect_rule *r = &d->rule[i];
        if ((rule >= 0 && (uint32_t)rule != i) || !r->counted || !r->enabled)
            continue;
        if (detect_matches(&r->match[0], ev, NULL)) {
            r->matched += ev->times;
            detect_table_count(d, r, 0, ev, found, cookie);
        }
    }
}

// The first destination of a mark, in the rule's words: "192.0.2.4/30:4444".
bool
detect_mark_destination(const struct detect *d, uint32_t mark, struct detect_event *ev, char *out,
                        size_t n)
{
    const struct detect_rule *r = &d->rule[d->kernel->mark_rule[mark]];
    const struct asked a = asked_of(&r->match[0]);
    const struct detect_part *p = a.port;
    if (!r->counted)
        return false;
    if (a.address != NULL) {
        memcpy(ev->address, a.address->network->address, sizeof ev->address);
        ev->has |= UINT64_C(1) << DETECT_ADDRESS;
    }
    if (p != NULL)
        detect_set_number(ev, DETECT_PORT, p->numbers_n > 0 ? p->number[0] : p->min);
    if (a.protocol != NULL)
        detect_set_text(ev, DETECT_PROTOCOL, a.protocol->exact.word[0]);
    const bool denied = (r->match[0].kinds[0] & KIND(CONNECT)) == 0;
    ev->kind = denied ? STOCKADE__V1__EVENT_KIND__EVENT_KIND_DENIED
                      : STOCKADE__V1__EVENT_KIND__EVENT_KIND_CONNECT;
    char ports[24] = "";
    if (p != NULL && p->numbers_n > 0)
        (void)snprintf(ports, sizeof ports, "%u%s", (unsigned)p->number[0] & PORTS,
                       p->numbers_n > 1 || p->has_range ? ",..." : "");
    else if (p != NULL)
        (void)snprintf(ports, sizeof ports, "%u-%u", (unsigned)p->min & PORTS,
                       p->max != 0 ? (unsigned)p->max & PORTS : PORTS);
    if (a.address != NULL)
        detect_write_network(a.address->network, ports, out, n);
    else
        (void)snprintf(out, n, "port %s", ports);
    detect_set_text(ev, DETECT_DESTINATION, out);
    return true;
}
