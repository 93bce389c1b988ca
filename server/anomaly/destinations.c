// SPDX-License-Identifier: Apache-2.0
// Connections at regular intervals, a built-in condition.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "box.h"
#include "box_private.h"
#include "bpf/net.h"
#include "server/policy/rule.h"

static uint64_t
destination_hash(const struct net_event *e)
{
    return box_hash(e->address, sizeof e->address, e->port + 1U);
}

static struct box_destination *
find_destination(struct box *b, uint64_t hash)
{
    struct box_destination *oldest = &b->destination[0];
    for (uint32_t i = 0; i < BOX_DESTINATIONS; i++) {
        if (b->destination[i].hash == hash)
            return &b->destination[i];
        if (b->destination[i].last_ns < oldest->last_ns)
            oldest = &b->destination[i];
    }
    *oldest = (struct box_destination){.hash = hash};
    return oldest;
}

// Notes a connection to a destination. Returns the regularity: 100 minus the coefficient of variation of the
// intervals in percent. 0: too few connections.
static double
regularity(const struct box *b, struct box_destination *p, uint64_t now_ns)
{
    const uint64_t *parameter = b->policy->parameter;
    const uint64_t window_ms = box_rule(b, RULE_BEACONING)->window_ms;
    uint64_t last = p->last_ns;
    p->last_ns = now_ns;
    if (last == 0 || now_ns < last || now_ns - last > window_ms * 1000000) {
        p->intervals = 0;
        p->mean = p->squares = 0;
        return 0;
    }
    float interval = (float)(now_ns - last) / 1e6F;
    p->intervals++;
    float off = interval - p->mean;
    p->mean += off / (float)p->intervals;
    p->squares += off * (interval - p->mean);
    if (p->intervals + UINT64_C(1) < parameter[PARAMETER_CONNECTIONS] ||
        (double)p->mean < (double)parameter[PARAMETER_INTERVAL_MS])
        return 0;
    return 100 - 100 * sqrt((double)p->squares / p->intervals) / (double)p->mean;
}

static void
count_regularity(struct box *b, const struct net_event *e, uint64_t now_ns)
{
    uint64_t hash = destination_hash(e);
    uint64_t of_job = hash + box_job_number(b) * 0x9e3779b97f4a7c15ULL;
    double job = b->job != NULL ? regularity(b, find_destination(b, of_job), now_ns) : 0;
    struct box_destination *p = find_destination(b, hash);
    double regular = regularity(b, p, now_ns);
    if (!box_crossed(b, RULE_BEACONING, now_ns, job, regular))
        return;
    char destination[64];
    char text[FINDING_TEXT_MAX];
    double most = job > regular ? job : regular;
    p = job > regular ? find_destination(b, of_job) : p;
    net_rule_address(e->address, e->port, destination, sizeof destination);
    (void)snprintf(text, sizeof text,
                   "%u connections to %s, one every %.1f s, %.0f percent regular", p->intervals + 1,
                   destination, (double)p->mean / 1000, most);
    box_raise(b, RULE_BEACONING, now_ns, most, text);
}

static void
count_port(struct box *b, const struct net_event *e, uint64_t now_ns)
{
    if (now_ns - b->ports_cleared_ns > 10000000000ULL) {
        memset(b->port_bits, 0, sizeof b->port_bits);
        b->ports_cleared_ns = now_ns;
    }
    uint64_t bit = destination_hash(e) % BOX_PORT_BITS;
    uint64_t mask = UINT64_C(1) << (bit % 64);
    if ((b->port_bits[bit / 64] & mask) == 0)
        b->ports++;
    b->port_bits[bit / 64] |= mask;
}

// Of a network without a way to it from outside. Who waits for a server there tries again in regular intervals.
static bool
is_internal(const struct net_event *e)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const struct {
        uint8_t first[2], mask[2];
    } v4[] = {{{10, 0}, {255, 0}},      {{127, 0}, {255, 0}},     {{172, 16}, {255, 240}},
              {{192, 168}, {255, 255}}, {{169, 254}, {255, 255}}, {{100, 64}, {255, 192}}};
    const uint8_t *a = e->address + sizeof mapped;
    if (memcmp(e->address, mapped, sizeof mapped) != 0)
        return (e->address[0] & 0xfe) == 0xfc ||
               (e->address[0] == 0xfe && (e->address[1] & 0xc0) == 0x80);
    for (size_t i = 0; i < sizeof v4 / sizeof v4[0]; i++)
        if ((a[0] & v4[i].mask[0]) == v4[i].first[0] && (a[1] & v4[i].mask[1]) == v4[i].first[1])
            return true;
    return false;
}

void
box_network(struct box *b, const struct event *head, const struct net_event *e)
{
    bool dials = e->hook == NET_HOOK_CONNECT || e->hook == NET_HOOK_SENDMSG;
    if (dials) {
        count_port(b, e, head->time_ns);
        if (!is_internal(e))
            count_regularity(b, e, head->time_ns);
    }
}
