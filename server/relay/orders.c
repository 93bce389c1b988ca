// SPDX-License-Identifier: Apache-2.0
// See orders.h. One table has for each kind the format of its packet and the function that carries it out.
#include "orders.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/fdpass.h"
#include "proto/zero.h"
#include "address.h"
#include "process.h"
#include "report.h"
#include "sandboxes.h"

enum { ORDERS_PER_TURN = 64 };

struct kind {
    bool (*carry_out)(struct relay *r, const struct relay_order *o, const int *fds, size_t fds_n);
    bool policy;   // has a mode and may have rules
    bool is_first; // only before the loop runs
    size_t fds_min, fds_max;
};

static bool
open_order(struct relay *r, const struct relay_order *o, const int *fds, size_t fds_n)
{
    return sandbox_open(r, o, fds, fds_n);
}

static struct sandbox *
find_open(struct relay *r, const struct relay_order *o)
{
    struct sandbox *s = &r->table[o->slot];
    return s->open && s->generation == o->generation ? s : NULL;
}

static bool
policy_order(struct relay *r, const struct relay_order *o, const int *fds, size_t fds_n)
{
    struct sandbox *s = find_open(r, o);
    (void)fds;
    (void)fds_n;
    if (s == NULL || !sandbox_policy(s, o))
        return false;
    s->in_force_due++;
    sandbox_in_force(s);
    return true;
}

static bool
close_order(struct relay *r, const struct relay_order *o, const int *fds, size_t fds_n)
{
    struct sandbox *s = find_open(r, o);
    (void)fds;
    (void)fds_n;
    if (s == NULL)
        return false;
    sandbox_close(s);
    return true;
}

static bool
spent_order(struct relay *r, const struct relay_order *o, const int *fds, size_t fds_n)
{
    struct sandbox *s = find_open(r, o);
    (void)fds;
    (void)fds_n;
    if (s != NULL)
        sandbox_spent(s);
    return s != NULL;
}

static bool
ping_order(struct relay *r, const struct relay_order *o, const int *fds, size_t fds_n)
{
    (void)fds;
    (void)fds_n;
    r->ping = o->generation;
    r->pong_due = !report_pong(r->ping);
    if (r->pong_due)
        tick_need(r);
    return true;
}

static bool
settle_order(struct relay *r, const struct relay_order *o, const int *fds, size_t fds_n)
{
    struct sandbox *s = find_open(r, o);
    (void)fds;
    (void)fds_n;
    if (s == NULL)
        return false;
    sandbox_settle(s, o->number);
    return true;
}

static const struct kind kinds[] = {
    [RELAY_CONFIGURE] = {NULL, false, true, 0, 0},
    [RELAY_OPEN] = {open_order, true, false, 1, ORDER_FDS},
    [RELAY_POLICY] = {policy_order, true, false, 0, 0},
    [RELAY_CLOSE] = {close_order, false, false, 0, 0},
    [RELAY_PING] = {ping_order, false, false, 0, 0},
    [RELAY_SPENT] = {spent_order, false, false, 0, 0},
    [RELAY_SETTLE] = {settle_order, false, false, 0, 0},
};

// Lower-case labels, separated by single dots, with a terminating NUL.
static bool
name_fits(const char *name, size_t room)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-_.";
    size_t n = strnlen(name, room);
    if (n == 0 || n > RELAY_NAME_MAX || name[strspn(name, allowed)] != '\0')
        return false;
    return name[0] != '.' && name[n - 1] != '.' && strstr(name, "..") == NULL;
}

static bool
address_fits(const struct relay_rule *r)
{
    uint8_t net[ADDRESS_BYTES] = {0};
    for (unsigned i = 0; i < r->prefix; i++)
        net[i / 8] |= (uint8_t)(r->address[i / 8] & (0x80U >> (i % 8)));
    return memcmp(net, r->address, sizeof net) == 0;
}

static bool
ports_fit(const struct relay_rule *r)
{
    if (r->ports_n > NET_PORTS)
        return false;
    for (uint32_t i = 0; i < r->ports_n; i++) {
        const struct net_ports *p = &r->ports[i];
        if (p->first > p->last ||
            (p->protocol != 0 && p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP))
            return false;
    }
    return true;
}

static bool
rule_fits(const struct relay_rule *r)
{
    if (!is_all_zero(r->zero, sizeof r->zero) || r->number >= NET_RULES || !ports_fit(r))
        return false;
    if (r->kind == RELAY_PREFIX)
        return r->prefix <= 8 * ADDRESS_BYTES && address_fits(r) && r->name[0] == '\0';
    if (r->kind == RELAY_HOST)
        return r->prefix == 8 * ADDRESS_BYTES && is_all_zero(r->address, sizeof r->address) &&
               r->name[0] == '\0';
    return (r->kind == RELAY_NAME || r->kind == RELAY_SUFFIX) && r->prefix == 0 &&
           is_all_zero(r->address, sizeof r->address) && name_fits(r->name, sizeof r->name);
}

// Only OPEN contains earlier counters.
static bool
counted_fits(const struct relay_order *o)
{
    bool used = false;
    for (uint32_t i = 0; i < o->rules_n; i++)
        used = used || o->rules[i].bytes_used != 0;
    if (o->kind == RELAY_OPEN)
        return o->counted.names <= NET_SYNTHETIC_V4_MASK && o->counted.zero == 0;
    return !used && is_all_zero((const uint8_t *)&o->counted, sizeof o->counted);
}

static bool
servers_fit(const struct relay_order *o)
{
    for (uint32_t i = 0; i < o->servers_n; i++)
        if (o->servers[i].port == 0)
            return false;
    return true;
}

// Behind the rules of an OPEN that is simulated.
static bool
replies_fit(const struct relay_order *o)
{
    const struct relay_reply *all =
        (const struct relay_reply *)(const void *)(o->rules + o->rules_n);
    for (uint32_t i = 0; i < o->replies_n; i++)
        if (!rule_fits(&all[i].to) || all[i].n > RELAY_REPLY_MAX || all[i].zero != 0)
            return false;
    return true;
}

static bool
simulation_fits(const struct relay_order *o)
{
    if (o->kind != RELAY_OPEN)
        return o->simulated == 0 && o->replies_n == 0;
    return o->simulated <= 1 && o->replies_n <= o->simulated * (uint32_t)RELAY_REPLIES_MAX;
}

static size_t
order_bytes(const struct relay_order *o)
{
    return sizeof *o + o->rules_n * sizeof o->rules[0] + o->replies_n * sizeof(struct relay_reply);
}

bool
orders_check(const void *bytes, size_t n, size_t fds_n)
{
    const struct relay_order *o = bytes;
    if (n < sizeof *o || o->kind < RELAY_CONFIGURE || o->kind > RELAY_SETTLE)
        return false;
    const struct kind *k = &kinds[o->kind];
    if (o->rules_n > (k->policy ? (uint32_t)NET_RULES : 0) || fds_n < k->fds_min ||
        fds_n > k->fds_max || !simulation_fits(o) || n != order_bytes(o))
        return false;
    if (o->slot >= BPF_SLOTS || o->servers_n > (k->is_first ? (uint32_t)RELAY_SERVERS : 0) ||
        !servers_fit(o))
        return false;
    if (k->policy && (o->mode < NET_NONE || o->mode > NET_OPEN))
        return false;
    for (uint32_t i = 0; i < o->rules_n; i++)
        if (!rule_fits(&o->rules[i]))
            return false;
    return replies_fit(o) && counted_fits(o);
}

bool
orders_first(int fd, struct relay_order *out)
{
    ssize_t n = recv(fd, out, sizeof *out, MSG_TRUNC);
    return n == (ssize_t)sizeof *out && orders_check(out, sizeof *out, 0) &&
           out->kind == RELAY_CONFIGURE;
}

// Handles one order. 1: none is available; 0: done; -1: the relay must end.
static int
turn(struct relay *r)
{
    static _Alignas(struct relay_order) uint8_t bytes[ORDER_BYTES_MAX];
    int fds[ORDER_FDS];
    struct fdpass m = {bytes, sizeof bytes, fds, ORDER_FDS};
    int got = fdpass_receive(r->orders.fd, &m, MSG_DONTWAIT);
    if (got == -EAGAIN)
        return 1;
    const struct relay_order *o = (const void *)bytes;
    if (got <= 0 || !orders_check(bytes, m.n, m.fds_n) || kinds[o->kind].is_first)
        return -1; // its descriptors are closed by the end of the process
    return kinds[o->kind].carry_out(r, o, fds, m.fds_n) ? 0 : -1;
}

bool
orders_read(struct relay *r)
{
    int rc = 0;
    for (int i = 0; i < ORDERS_PER_TURN && rc == 0; i++)
        rc = turn(r);
    return rc >= 0;
}
