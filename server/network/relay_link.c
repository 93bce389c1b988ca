// SPDX-License-Identifier: Apache-2.0
// See relay_link.h. The relay reads orders with priority, so the queue of packets.c is short unless the relay is
// stuck.
#include "relay_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/auto.h"
#include "server/base/loop.h"
#include "server/base/packet_link.h"
#include "server/sandbox/simulation.h"

enum {
    REPORTS_PER_TURN = 256,
    ERRNO_MAX = 4095, // the kernel's maximum
    ORDER_MAX = sizeof(struct relay_order) + NET_RULES * sizeof(struct relay_rule) +
                RELAY_REPLIES_MAX * sizeof(struct relay_reply),
};
_Static_assert((int)RELAY_FDS <= (int)PACKET_FDS, "a packet takes all listeners");
_Static_assert(sizeof(struct relay_sent) <= PACKET_LINK_IN_MAX, "a report fits");

enum sandbox_state { SANDBOX_NONE = 0, SANDBOX_OPEN, SANDBOX_CLOSING };

struct sandbox_entry {
    enum sandbox_state state;
    uint32_t generation;
    bool spent;     // a SPENT order was sent
    bool simulated; // as it was opened
    relay_done *done;
    void *cookie;
    uint32_t policies; // policies that were sent and are not in force yet
    uint32_t settle;   // number of the last SETTLE
};

struct relay_link {
    struct packet_link link; // must be first
    uv_loop_t *loop;
    const struct relay_events *events;
    void *cookie;
    bool configured, ready_reported, silence_reported;
    uint32_t pid;             // as it reports it
    struct loop_timer *pulse; // runs while a reply of the relay is needed
    uint32_t ping;            // number of the last PING
    bool waiting;             // for the PONG
    unsigned looks;           // ticks without a reply
    unsigned open_n;          // sandboxes whose state is not SANDBOX_NONE
    struct sandbox_entry sandboxes[BPF_SLOTS];
};

static struct relay_order *
order(struct packet *p)
{
    return (struct relay_order *)(void *)p->bytes;
}

static struct packet *
order_new(const struct relay_link *l, const struct relay_order *body, struct err *e)
{
    struct packet *p = packet_new(&l->link.out,
                                  sizeof *body + body->rules_n * sizeof(struct relay_rule) +
                                      body->replies_n * sizeof(struct relay_reply),
                                  e);
    if (p != NULL)
        *order(p) = *body;
    return p;
}

// Counts ticks, not time: if this process itself was stopped, it reads the replies between two ticks.
static void
on_pulse(void *cookie)
{
    struct relay_link *l = cookie;
    const unsigned most =
        (l->ready_reported ? RELAY_SILENT_MS : RELAY_START_MS) / RELAY_PULSE_MS + 1;
    struct err e;
    if (l->ready_reported && l->open_n == 0 && !l->waiting) {
        loop_timer_stop(&l->pulse);
        return;
    }
    l->looks++;
    if (l->looks == most) {
        l->silence_reported = true;
        loop_timer_stop(&l->pulse);
        if (l->events->silent != NULL)
            l->events->silent(l->cookie); // the callback may free l
        return;
    }
    const struct relay_order body = {.kind = RELAY_PING, .generation = l->ping + 1};
    struct packet *o = l->waiting ? NULL : order_new(l, &body, &e);
    if (o != NULL && packet_link_send(&l->link, o, &e) ==
                         0) { // no room: the relay does not read, which counts as no reply
        l->waiting = true;
        l->ping++;
    }
    (void)loop_timer_start(l->loop, &l->pulse, RELAY_PULSE_MS, on_pulse, l);
}

static void
pulse_need(struct relay_link *l)
{
    if (l->pulse != NULL || l->silence_reported)
        return;
    l->looks = 0;
    (void)loop_timer_start(l->loop, &l->pulse, RELAY_PULSE_MS, on_pulse, l);
}

int
relay_configure(struct relay_link *l, const struct relay_servers *servers, struct err *e)
{
    if (l->configured || servers->n > RELAY_SERVERS)
        return err_set(e, ERR_FAILED_PRECONDITION, "the relay is configured once, with %d servers",
                       RELAY_SERVERS);
    struct relay_order body = {.kind = RELAY_CONFIGURE, .servers_n = servers->n};
    for (uint32_t i = 0; i < servers->n; i++) {
        memcpy(body.servers[i].address, servers->server[i].address, 16);
        body.servers[i].port = servers->server[i].port;
    }
    struct packet *o = order_new(l, &body, e);
    if (o == NULL)
        return err_errno(e);
    l->configured = true;
    pulse_need(l);
    return packet_link_send(&l->link, o, e);
}

static struct packet *
policy_order(const struct relay_link *l, enum relay_order_kind kind, uint32_t slot,
             uint32_t generation, const struct relay_policy *p, struct err *e)
{
    static const struct relay_counted nothing;
    const struct simulation *m = kind == RELAY_OPEN ? p->simulation : NULL;
    const struct relay_order body = {.kind = kind,
                                     .slot = slot,
                                     .generation = generation,
                                     .simulated = m != NULL,
                                     .replies_n = m != NULL ? m->replies_n : 0,
                                     .mode = (uint32_t)p->mode,
                                     .counted = p->counted != NULL ? *p->counted : nothing,
                                     .out_bytes_max = p->out_bytes_max,
                                     .in_bytes_max = p->in_bytes_max,
                                     .out_rate = p->out_rate,
                                     .in_rate = p->in_rate,
                                     .queries_per_minute = p->queries_per_minute,
                                     .rules_n = p->rules_n};
    struct packet *o = order_new(l, &body, e);
    if (o != NULL && p->rules_n > 0)
        memcpy(order(o)->rules, p->rules, p->rules_n * sizeof p->rules[0]);
    for (uint32_t i = 0; o != NULL && p->rule_bytes != NULL && i < p->rules_n; i++)
        order(o)->rules[i].bytes_used = p->rule_bytes[p->rules[i].number];
    if (o != NULL && body.replies_n > 0)
        memcpy(order(o)->rules + body.rules_n, m->replies, body.replies_n * sizeof m->replies[0]);
    return o;
}

static int
check_policy(const struct relay_link *l, const struct relay_policy *p, struct err *e)
{
    if (p->rules_n > NET_RULES)
        return err_set(e, ERR_INVALID_ARGUMENT, "%u rules; the relay takes %d", p->rules_n,
                       NET_RULES);
    if (l->link.poll == NULL)
        return err_set(e, ERR_UNAVAILABLE, "the relay has ended");
    return 0;
}

int
relay_open(struct relay_link *l, uint32_t slot, uint32_t generation, int fds[RELAY_FDS],
           const struct relay_policy *policy, struct err *e)
{
    int r = check_policy(l, policy, e);
    if (r == 0 && (slot >= BPF_SLOTS || l->sandboxes[slot].state != SANDBOX_NONE))
        r = err_set(e, ERR_FAILED_PRECONDITION, "slot %u is open in the relay", slot);
    struct packet *o = r < 0 ? NULL : policy_order(l, RELAY_OPEN, slot, generation, policy, e);
    for (size_t i = 0; i < RELAY_FDS; i++) {
        int fd = take_fd(&fds[i]);
        if (fd >= 0 && o != NULL)
            o->fds[o->fds_n++] = fd;
        else if (fd >= 0)
            (void)close(fd);
    }
    if (o == NULL)
        return err_errno(e);
    if (o->fds_n == 0) {
        packet_free(o);
        return err_set(e, ERR_INVALID_ARGUMENT, "slot %u has no listener", slot);
    }
    r = packet_link_send(&l->link, o, e);
    if (r < 0)
        return r;
    l->sandboxes[slot] = (struct sandbox_entry){
        .state = SANDBOX_OPEN, .generation = generation, .simulated = policy->simulation != NULL};
    l->open_n++;
    pulse_need(l);
    return 0;
}

bool
relay_is_open(const struct relay_link *l, uint32_t slot, uint32_t generation)
{
    return slot < BPF_SLOTS && l->sandboxes[slot].state == SANDBOX_OPEN &&
           l->sandboxes[slot].generation == generation;
}

static int
must_be_open(const struct relay_link *l, uint32_t slot, uint32_t generation, struct err *e)
{
    if (relay_is_open(l, slot, generation))
        return 0;
    return err_set(e, ERR_FAILED_PRECONDITION, "slot %u is not open in the relay", slot);
}

struct packet *
relay_policy(const struct relay_link *l, uint32_t slot, uint32_t generation,
             const struct relay_policy *policy, struct err *e)
{
    if (check_policy(l, policy, e) < 0 || must_be_open(l, slot, generation, e) < 0)
        return NULL;
    struct packet *o = policy_order(l, RELAY_POLICY, slot, generation, policy, e);
    if (o == NULL || packets_room(&l->link.out, o, e) == 0)
        return o;
    packet_free(o);
    return NULL;
}

void
relay_give(struct relay_link *l, struct packet *o)
{
    struct err e;
    struct sandbox_entry *sandbox = &l->sandboxes[order(o)->slot];
    sandbox->spent = false;
    sandbox->policies += order(o)->kind == RELAY_POLICY;
    if (packet_link_send(&l->link, o, &e) < 0)
        packet_link_cut(&l->link);
}

void
relay_spent(struct relay_link *l, uint32_t slot, uint32_t generation)
{
    const struct relay_order body = {.kind = RELAY_SPENT, .slot = slot, .generation = generation};
    struct err e;
    if (!relay_is_open(l, slot, generation) || l->sandboxes[slot].spent)
        return;
    struct packet *o = order_new(l, &body, &e);
    if (o == NULL)
        return; // the next dropped packet requests it again
    relay_give(l, o);
    l->sandboxes[slot].spent = true;
}

bool
relay_settle(struct relay_link *l, uint32_t slot, uint32_t generation, uint32_t number)
{
    const struct relay_order body = {
        .kind = RELAY_SETTLE, .slot = slot, .generation = generation, .number = number};
    struct err e;
    struct packet *o = relay_is_open(l, slot, generation) ? order_new(l, &body, &e) : NULL;
    if (o == NULL || packet_link_send(&l->link, o, &e) < 0)
        return false;
    l->sandboxes[slot].settle = number;
    return true;
}

int
relay_close(struct relay_link *l, uint32_t slot, uint32_t generation, relay_done *done,
            void *cookie, struct err *e)
{
    int r = must_be_open(l, slot, generation, e);
    const struct relay_order body = {.kind = RELAY_CLOSE, .slot = slot, .generation = generation};
    struct packet *o = r < 0 ? NULL : order_new(l, &body, e);
    if (o == NULL)
        return err_errno(e);
    l->sandboxes[slot] = (struct sandbox_entry){.state = SANDBOX_CLOSING,
                                                .generation = generation,
                                                .done = done,
                                                .cookie = cookie,
                                                .simulated = l->sandboxes[slot].simulated,
                                                .policies = l->sandboxes[slot].policies,
                                                .settle = l->sandboxes[slot].settle};
    relay_give(l, o);
    return 0;
}

static void
notify_in_force(const struct relay_link *l, uint32_t slot)
{
    if (l->events->in_force != NULL)
        l->events->in_force(l->cookie, slot, l->sandboxes[slot].generation);
}

static void
notify_closed(struct relay_link *l, uint32_t slot)
{
    struct sandbox_entry was = l->sandboxes[slot];
    l->sandboxes[slot] = (struct sandbox_entry){.state = SANDBOX_NONE};
    l->open_n--;
    if (was.done != NULL)
        was.done(was.cookie);
}

static bool
is_name(const char *name, size_t n)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-_.";
    size_t len = strnlen(name, n);
    return len <= RELAY_NAME_MAX && name[strspn(name, allowed)] == '\0';
}

// The first bytes of a connection of a simulated sandbox.
static int
check_sent(const struct relay_sent *r, size_t n, struct err *e)
{
    if (n == sizeof *r && r->n <= RELAY_FIRST_MAX)
        return 0;
    return err_set(e, ERR_INTERNAL, "a report of %zu bytes about what was sent", n);
}

// A report that no correct relay sends. A closed sandbox whose reports are still in transit cannot cause one: it is
// CLOSING until RELAY_CLOSED, its last report.
static int
check(const struct relay_link *l, const struct relay_report *r, size_t n, struct err *e)
{
    if (n < sizeof *r || (n != sizeof *r && r->kind != RELAY_SENT))
        return err_set(e, ERR_INTERNAL, "a report of %zu bytes", n);
    if (r->kind < RELAY_READY || r->kind > RELAY_SETTLED)
        return err_set(e, ERR_INTERNAL, "a report of kind %u", r->kind);
    if (r->kind == RELAY_SENT && check_sent((const void *)r, n, e) < 0)
        return err_errno(e);
    if (r->reason >= NET_REASONS || (r->rule >= NET_RULES && r->rule != ~0U))
        return err_set(e, ERR_INTERNAL, "a report with reason %u and rule %u", r->reason, r->rule);
    if (r->error > ERRNO_MAX || (r->error != 0 && r->kind != RELAY_FLOW_END))
        return err_set(e, ERR_INTERNAL, "a report with error %u", r->error);
    if (!is_name(r->name, sizeof r->name))
        return err_set(e, ERR_INTERNAL, "a report with an invalid name");
    if (r->kind == RELAY_READY)
        return l->configured && !l->ready_reported
                   ? 0
                   : err_set(e, ERR_INTERNAL, "an unexpected READY");
    if (r->kind == RELAY_PONG)
        return l->waiting && r->generation == l->ping
                   ? 0
                   : err_set(e, ERR_INTERNAL, "an unexpected PONG");
    if (r->slot >= BPF_SLOTS || l->sandboxes[r->slot].state == SANDBOX_NONE ||
        l->sandboxes[r->slot].generation != r->generation)
        return err_set(e, ERR_INTERNAL, "a report about slot %u, which is not open", r->slot);
    if (r->kind == RELAY_SENT && !l->sandboxes[r->slot].simulated)
        return err_set(e, ERR_INTERNAL, "slot %u is not simulated", r->slot);
    if (r->kind == RELAY_IN_FORCE && l->sandboxes[r->slot].policies == 0)
        return err_set(e, ERR_INTERNAL, "slot %u reports a policy that was not sent", r->slot);
    if (r->kind == RELAY_SETTLED && (r->number == 0 || r->number > l->sandboxes[r->slot].settle))
        return err_set(e, ERR_INTERNAL, "slot %u reports counters that were not requested",
                       r->slot);
    if (r->kind == RELAY_CLOSED && l->sandboxes[r->slot].state != SANDBOX_CLOSING)
        return err_set(e, ERR_INTERNAL, "slot %u closed without an order", r->slot);
    return 0;
}

static void
handle(struct relay_link *l, const struct relay_report *r)
{
    if (r->kind == RELAY_READY) {
        l->ready_reported = true;
        l->pid = r->pid;
        if (l->events->ready != NULL)
            l->events->ready(l->cookie);
    } else if (r->kind == RELAY_PONG) {
        l->waiting = false;
        l->looks = 0;
    } else if (r->kind == RELAY_IN_FORCE) {
        if (--l->sandboxes[r->slot].policies == 0)
            notify_in_force(l, r->slot);
    } else if (r->kind == RELAY_CLOSED) {
        notify_closed(l, r->slot);
    } else if (l->events->report != NULL) {
        l->events->report(l->cookie, r);
    }
}

static int
// NOLINTNEXTLINE(readability-non-const-parameter): the type of packet_link's callback
on_packet(void *cookie, const void *bytes, size_t n, int *fd, struct err *e)
{
    (void)fd;
    if (check(cookie, bytes, n, e) < 0)
        return err_errno(e);
    handle(cookie, bytes);
    return 0;
}

static void
on_gone(void *cookie, const struct err *why)
{
    struct relay_link *l = cookie;
    loop_timer_stop(&l->pulse);
    for (uint32_t slot = 0; slot < BPF_SLOTS && !l->link.freed; slot++) {
        if (l->sandboxes[slot].policies > 0)
            notify_in_force(l, slot);
        if (!l->link.freed && l->sandboxes[slot].state != SANDBOX_NONE)
            notify_closed(l, slot);
    }
    if (!l->link.freed && l->events->gone != NULL)
        l->events->gone(l->cookie, why);
}

static const struct packet_link_kind kind = {.process = "the relay",
                                             .peer = "the relay",
                                             .ended = ERR_UNAVAILABLE,
                                             .packet_max = ORDER_MAX,
                                             .queue_max = RELAY_QUEUE_MAX,
                                             .queue_bytes_max = RELAY_QUEUE_BYTES,
                                             .in_max = sizeof(struct relay_sent),
                                             .packets_per_turn = REPORTS_PER_TURN,
                                             .packet = on_packet,
                                             .gone = on_gone};

struct relay_link *
relay_link_new(uv_loop_t *loop, int fd, const struct relay_events *events, void *cookie,
               struct err *e)
{
    struct relay_link *l = packet_link_new(sizeof *l, loop, fd, &kind, e);
    if (l != NULL) {
        l->loop = loop;
        l->events = events;
        l->cookie = cookie;
    }
    return l;
}

void
relay_link_free(struct relay_link *l)
{
    if (l == NULL)
        return;
    loop_timer_stop(&l->pulse);
    packet_link_free(&l->link);
}

void
relay_link_end(struct relay_link *l, const struct err *why)
{
    packet_link_end(&l->link, why);
}

uint32_t
relay_pid(const struct relay_link *l)
{
    return l->pid;
}
