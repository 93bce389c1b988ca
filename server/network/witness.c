// SPDX-License-Identifier: Apache-2.0
// See witness.h.
#include "witness.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdlib.h>

#include "server/base/list.h"
#include "server/sandbox/sandbox.h"
#include "relay_link.h"

struct entry {
    uint32_t generation;
    uint32_t number; // of the last SETTLE
    uint32_t rounds; // since the last question
    struct witness w;
    struct list waiters; // struct sandbox_settler
};

struct witnesses {
    const struct net_counters *kernel; // borrowed
    struct entry *slot[BPF_SLOTS];     // owned; NULL: no listeners
};

struct witnesses *
witnesses_new(const struct net_counters *kernel)
{
    struct witnesses *all = calloc(1, sizeof *all);
    if (all != NULL)
        all->kernel = kernel;
    return all;
}

static void
call_waiters(struct entry *e)
{
    while (!list_empty(&e->waiters)) {
        struct sandbox_settler *w = list_entry(e->waiters.next, struct sandbox_settler, node);
        list_remove(&w->node);
        w->done(w);
    }
}

void
witnesses_forget(struct witnesses *all, uint32_t slot)
{
    assert(slot < BPF_SLOTS);
    struct entry *e = all->slot[slot];
    all->slot[slot] = NULL;
    if (e == NULL)
        return;
    assert(list_empty(&e->waiters)); // its jobs have ended before
    free(e);
}

void
witnesses_free(struct witnesses *all)
{
    if (all == NULL)
        return;
    for (uint32_t slot = 0; slot < BPF_SLOTS; slot++)
        free(all->slot[slot]);
    free(all);
}

static struct entry *
entry_of(const struct witnesses *all, uint32_t slot, uint32_t generation)
{
    struct entry *e = slot < BPF_SLOTS ? all->slot[slot] : NULL;
    return e != NULL && e->generation == generation ? e : NULL;
}

void
witnesses_open(struct witnesses *all, uint32_t slot, uint32_t generation)
{
    if (all->kernel == NULL || slot >= BPF_SLOTS || entry_of(all, slot, generation) != NULL)
        return;
    witnesses_forget(all, slot);
    struct entry *e = calloc(1, sizeof *e);
    if (e == NULL)
        return;
    e->generation = generation;
    list_init(&e->waiters);
    all->slot[slot] = e;
}

void
witnesses_relay_gone(struct witnesses *all)
{
    for (uint32_t slot = 0; slot < BPF_SLOTS; slot++)
        if (all->slot[slot] != NULL)
            all->slot[slot]->w.restarted = true;
}

// Sends SETTLE. False: the relay cannot be asked.
static bool
send_settle(const struct witnesses *all, struct relay_link *link, uint32_t slot, struct entry *e)
{
    e->w.before = all->kernel[slot];
    e->w.answered = false;
    return relay_settle(link, slot, e->generation, ++e->number);
}

static void
answered(struct witnesses *all, struct relay_link *link, struct entry *e,
         const struct relay_report *r)
{
    if (r->number != e->number)
        return; // a later question is under way
    if (r->settled.waiting != 0 && ++e->rounds < WITNESS_ROUNDS &&
        send_settle(all, link, r->slot, e))
        return;
    e->w.after = all->kernel[r->slot];
    e->w.relay = r->settled;
    e->w.overrun = e->w.overrun || r->settled.waiting != 0;
    e->w.answered = true;
    call_waiters(e);
}

void
witnesses_report(struct witnesses *all, struct relay_link *link, const struct relay_report *r)
{
    struct entry *e = entry_of(all, r->slot, r->generation);
    if (e == NULL)
        return;
    e->w.lost = r->lost > e->w.lost ? r->lost : e->w.lost;
    if (r->kind == RELAY_SETTLED)
        answered(all, link, e, r);
    else if (r->kind >= RELAY_DENIED && r->kind <= RELAY_FLOW_END && r->protocol == IPPROTO_TCP)
        e->w.reported += r->first != 0;
}

static bool
same_traffic(const struct net_counters *a, const struct net_counters *b)
{
    return a->out_packets == b->out_packets && a->in_packets == b->in_packets;
}

bool
witnesses_ask(struct witnesses *all, struct relay_link *link, uint32_t slot, uint32_t generation,
              struct sandbox_settler *w)
{
    struct entry *e = entry_of(all, slot, generation);
    if (e == NULL || link == NULL || !relay_is_open(link, slot, generation) ||
        same_traffic(&all->kernel[slot], &e->w.after))
        return false;
    e->rounds = 0;
    e->w.asked = true;
    if (!send_settle(all, link, slot, e))
        return false;
    list_append(&e->waiters, &w->node);
    return true;
}

const struct witness *
witnesses_of(const struct witnesses *all, uint32_t slot, uint32_t generation, struct witness *out)
{
    const struct entry *e = entry_of(all, slot, generation);
    if (e == NULL)
        return NULL;
    *out = e->w;
    if (!same_traffic(&all->kernel[slot], &out->after)) {
        out->answered = false;
        out->after = all->kernel[slot];
    }
    return out;
}

// ---- the verdict

// What contradicts the relay, whatever was lost. NULL: nothing does.
static const char *
too_much(const struct witness *w)
{
    const struct relay_settled *r = &w->relay;
    const struct net_counters *k = &w->after;
    if (r->connections > k->connections)
        return "the relay reports connections that the job did not make";
    if (r->tcp_out > k->tcp_sent || r->udp_out > k->udp_sent)
        return "the relay reports more bytes than the job sent";
    if (r->tcp_in > k->tcp_received + r->tcp_unsent)
        return "the relay reports more bytes than the job received";
    return NULL;
}

static const char *
too_little(const struct witness *w)
{
    const struct relay_settled *r = &w->relay;
    const struct net_counters *k = &w->before;
    const uint64_t way = (uint64_t)w->after.resets * WITNESS_WAY_BYTES;
    if (r->tcp_in < k->tcp_received || r->udp_in < k->udp_received)
        return "the relay reports fewer bytes than the job received";
    // what a full queue dropped, and what waits there, the relay does not know of
    const bool took_all = !w->overrun && r->tcp_lost == 0;
    if (took_all && r->connections < k->connections)
        return "the relay reports fewer connections than the job made";
    if (took_all && r->tcp_out + r->tcp_left + way < k->tcp_acknowledged)
        return "the relay reports fewer bytes than the job sent";
    if (!w->overrun && r->udp_lost == 0 && r->udp_out + r->udp_dropped < k->udp_sent)
        return "the relay reports fewer bytes than the job sent";
    if (w->lost == 0 && w->reported + r->undecided < r->connections)
        return "the relay did not report every connection";
    return NULL;
}

// Why a difference may be there that no figure shows. NULL: none may.
static const char *
doubt(const struct witness *w)
{
    const struct relay_settled *r = &w->relay;
    if (w->lost > 0)
        return "reports of the relay were lost";
    if (w->after.failures > 0)
        return "the kernel could not count everything";
    if (w->overrun)
        return "more waited at the relay than it takes at a time";
    if (w->reported < r->connections)
        return "connections were still being made, so the relay has not reported where they lead";
    if (r->tcp_lost > 0 && r->connections < w->before.connections)
        return "connections were lost before the relay could take them";
    if (r->tcp_out + r->tcp_left < w->before.tcp_acknowledged)
        return "bytes were on their way when a connection was reset";
    if (r->udp_lost > 0 && r->udp_out + r->udp_dropped < w->before.udp_sent)
        return "datagrams were lost before the relay could read them";
    return NULL;
}

enum witness_says
witness_judge(const struct witness *w, const char **why)
{
    *why = NULL;
    if (!w->answered && w->after.out_packets == 0 && w->after.in_packets == 0)
        *why = w->reported > 0 ? "the relay reports connections that the job did not make" : NULL;
    else if (w->restarted || !w->answered) {
        *why = w->restarted ? "the relay was started again, and its counters with it"
                            : "the relay did not report its counters at the end of the job";
        return WITNESS_UNKNOWN;
    } else {
        *why = too_much(w);
        if (*why == NULL)
            *why = too_little(w);
    }
    if (*why != NULL)
        return WITNESS_DISAGREE;
    *why = w->answered ? doubt(w) : NULL;
    if (*why != NULL)
        return WITNESS_UNKNOWN;
    *why = "";
    return WITNESS_AGREE;
}
