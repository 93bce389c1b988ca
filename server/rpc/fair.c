// SPDX-License-Identifier: Apache-2.0
// See fair.h.
#include "fair.h"

#define SECOND_NS UINT64_C(1000000000)
#define LONG_NS   (10 * SECOND_NS) // after which every bucket is empty; keeps products within 64 bits

enum { PER_MILLE = 1000 };

static struct fair_use *
use_of(struct list *node)
{
    return list_entry(node, struct fair_use, node);
}

uint32_t
fair_part(uint32_t percent, long processors)
{
    const uint64_t part =
        (uint64_t)percent * PER_MILLE / 100 * (processors > 0 ? (uint64_t)processors : 1);
    return part < PER_MILLE ? (uint32_t)part : PER_MILLE;
}

void
fair_leave_turn(struct fair_use *u)
{
    if (u->turn_ns > 0)
        list_remove(&u->charged);
    u->turn_ns = 0;
}

// A tenant that is not active uses nothing.
void
fair_mark(struct fair *f, struct fair_use *u, bool busy)
{
    busy = busy && u->weight > 0;
    if (busy == u->busy)
        return;
    u->busy = busy;
    f->busy = busy ? f->busy + u->weight : f->busy - u->weight;
}

static void
fall_silent(struct fair *f, struct fair_use *u)
{
    if (u->weight == 0)
        return;
    fair_mark(f, u, false);
    list_remove(&u->node);
    f->weights -= u->weight;
    f->active_n--;
    u->weight = 0;
}

void
fair_forget(struct fair *f, struct fair_use *u)
{
    fall_silent(f, u);
    fair_leave_turn(u);
}

static void
forget_silent(struct fair *f, uint64_t now_ns)
{
    while (f->active_n > 0 && use_of(f->active.next)->seen_ns + FAIR_ACTIVE_NS < now_ns)
        fall_silent(f, use_of(f->active.next));
}

void
fair_seen(struct fair *f, struct fair_use *u, uint32_t weight, uint64_t now_ns)
{
    if (f->active.next == NULL)
        list_init(&f->active);
    const bool busy = u->busy;
    fall_silent(f, u);
    u->seen_ns = now_ns;
    u->weight = weight;
    list_append(&f->active, &u->node);
    f->weights += weight;
    f->heaviest = f->active_n > 0 && f->heaviest > weight ? f->heaviest : weight;
    f->active_n++;
    fair_mark(f, u, busy);
}

bool
fair_counts(struct fair *f, uint64_t now_ns)
{
    if (f->part == 0 || f->active_n < 2)
        return false;
    forget_silent(f, now_ns);
    return f->active_n > 1;
}

static uint64_t
weight_of(const struct fair_use *u)
{
    return u->weight > 0 ? u->weight : 1;
}

uint64_t
fair_weights(const struct fair *f, const struct fair_use *u)
{
    const uint64_t weight = weight_of(u);
    const uint64_t calm = f->weights - f->busy - (u->busy ? 0 : u->weight);
    const uint64_t one = weight > f->heaviest ? weight : f->heaviest;
    return weight + f->busy - (u->busy ? weight : 0) + (calm < one ? calm : one);
}

// Nanoseconds of CPU time for each second. One that is not active at the moment shares with those that are.
static uint64_t
share(const struct fair *f, const struct fair_use *u)
{
    const uint64_t ns = SECOND_NS * f->part / PER_MILLE * weight_of(u) / fair_weights(f, u);
    return ns > 0 ? ns : 1;
}

// At most what one second of the share brings below the brim again.
static void
settle(struct fair *f, struct fair_use *u, int64_t more_ns, uint64_t now_ns)
{
    const uint64_t rate = share(f, u);
    uint64_t ns = u->at_ns != 0 && now_ns > u->at_ns ? now_ns - u->at_ns : 0;
    ns = ns < LONG_NS ? ns : LONG_NS;
    const uint64_t drained = ns * rate / SECOND_NS;
    const int64_t most = FAIR_BRIM_NS + (int64_t)rate;
    int64_t used = (uint64_t)u->used_ns > drained ? u->used_ns - (int64_t)drained : 0;
    used += more_ns;
    u->used_ns = used < most ? used : most;
    u->at_ns = now_ns;
    fair_mark(f, u, u->used_ns > FAIR_BUSY_NS);
}

void
fair_charge(struct fair *f, struct fair_use *u, int64_t cpu_ns, uint64_t now_ns)
{
    if (fair_counts(f, now_ns) && cpu_ns > 0)
        settle(f, u, cpu_ns, now_ns);
}

uint64_t
fair_wait_ns(struct fair *f, struct fair_use *u, bool waited, uint64_t now_ns)
{
    if (u->used_ns == 0)
        return 0;
    if (!fair_counts(f, now_ns)) {
        u->used_ns = 0;
        return 0;
    }
    settle(f, u, 0, now_ns);
    if (u->used_ns <= (waited ? FAIR_BRIM_NS - FAIR_AGAIN_NS : FAIR_BRIM_NS))
        return 0;
    if (u->weight > 0)
        fair_seen(f, u, u->weight, now_ns); // one that waits is not silent
    const uint64_t above_ns = (uint64_t)(u->used_ns - FAIR_BRIM_NS + FAIR_AGAIN_NS);
    return above_ns * SECOND_NS / share(f, u) + 1;
}
