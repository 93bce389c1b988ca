// SPDX-License-Identifier: Apache-2.0
// See counted.h.
#include "counted.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>

#include "server/base/metrics.h"

struct counted {
    uint32_t generation;
    uint32_t orphans; // names of earlier relays
    struct relay_counted sums;
    uint32_t answers[RELAY_ANSWERS]; // of the current relay
    uint64_t *rule_bytes;            // owned, NET_RULES; NULL: none
};

struct net_counted {
    int names_fd;
    struct counted *slot[BPF_SLOTS]; // owned; NULL: no counters
};

struct net_counted *
net_counted_new(int names_fd)
{
    struct net_counted *all = calloc(1, sizeof *all);
    if (all != NULL)
        all->names_fd = names_fd;
    return all;
}

void
net_counted_forget(struct net_counted *all, uint32_t slot)
{
    assert(slot < BPF_SLOTS);
    struct counted *c = all->slot[slot];
    if (c == NULL)
        return;
    for (uint32_t i = 1; i <= c->orphans && all->names_fd >= 0; i++) {
        const struct net_name_key key = {.slot = slot, .index = i};
        (void)bpf_map_delete_elem(all->names_fd, &key);
    }
    free(c->rule_bytes);
    free(c);
    all->slot[slot] = NULL;
}

void
net_counted_free(struct net_counted *all)
{
    if (all == NULL)
        return;
    for (uint32_t slot = 0; slot < BPF_SLOTS; slot++)
        net_counted_forget(all, slot);
    free(all);
}

// NULL: out of memory.
static struct counted *
counted_of(struct net_counted *all, uint32_t slot, uint32_t generation)
{
    if (all->slot[slot] != NULL && all->slot[slot]->generation != generation)
        net_counted_forget(all, slot);
    struct counted *c = all->slot[slot];
    if (c == NULL && (c = calloc(1, sizeof *c)) != NULL) {
        c->generation = generation;
        all->slot[slot] = c;
    }
    return c;
}

// The payload since the last report.
static void
count_bytes(enum metric_direction direction, uint64_t before, uint64_t now)
{
    if (now > before)
        metrics_add_by(METRIC_RELAYED_BYTES, direction, 0, now - before);
}

static void
rise32(uint32_t *to, uint32_t value)
{
    *to = value > *to ? value : *to;
}

static void
count_answers(struct counted *c, const struct relay_report *r)
{
    for (uint32_t i = 0; i < RELAY_ANSWERS; i++) {
        if (r->answers[i] > c->answers[i])
            metrics_add_by(METRIC_DNS_ANSWERS, i, 0, r->answers[i] - c->answers[i]);
        rise32(&c->answers[i], r->answers[i]);
    }
}

static void
rise64(uint64_t *to, uint64_t value)
{
    *to = value > *to ? value : *to;
}

void
net_counted_report(struct net_counted *all, const struct relay_report *r)
{
    if ((r->kind != RELAY_SUMS && r->kind != RELAY_RULE_SUM) || r->slot >= BPF_SLOTS)
        return;
    struct counted *c = counted_of(all, r->slot, r->generation);
    if (c == NULL)
        return; // the next report repeats it
    if (r->kind == RELAY_SUMS) {
        count_answers(c, r);
        count_bytes(DIRECTION_OUT, c->sums.out_bytes, r->out_bytes);
        count_bytes(DIRECTION_IN, c->sums.in_bytes, r->in_bytes);
        rise64(&c->sums.out_bytes, r->out_bytes);
        rise64(&c->sums.in_bytes, r->in_bytes);
        rise32(&c->sums.queries, r->queries);
        rise32(&c->sums.lost, r->lost);
        rise32(&c->sums.names, r->names < NET_SYNTHETIC_V4_MASK ? r->names : NET_SYNTHETIC_V4_MASK);
        return;
    }
    if (c->rule_bytes == NULL)
        c->rule_bytes = calloc(NET_RULES, sizeof *c->rule_bytes);
    if (c->rule_bytes != NULL && r->rule < NET_RULES)
        rise64(&c->rule_bytes[r->rule], r->out_bytes);
}

void
net_counted_relay_gone(struct net_counted *all)
{
    for (uint32_t slot = 0; slot < BPF_SLOTS; slot++)
        if (all->slot[slot] != NULL) {
            all->slot[slot]->orphans = all->slot[slot]->sums.names;
            memset(all->slot[slot]->answers, 0, sizeof all->slot[slot]->answers);
        }
}

const struct relay_counted *
net_counted_of(const struct net_counted *all, uint32_t slot, uint32_t generation,
               const uint64_t **rule_bytes)
{
    assert(slot < BPF_SLOTS);
    const struct counted *c = all->slot[slot];
    bool same = c != NULL && c->generation == generation;
    *rule_bytes = same ? c->rule_bytes : NULL;
    return same ? &c->sums : NULL;
}

void
net_counted_policy(struct net_counted *all, uint32_t slot)
{
    assert(slot < BPF_SLOTS);
    struct counted *c = all->slot[slot];
    if (c == NULL)
        return;
    free(c->rule_bytes);
    c->rule_bytes = NULL;
}
