// SPDX-License-Identifier: Apache-2.0
// See pace.h.
#include "pace.h"

void
pace_seen(struct tenant *t, uint64_t now_ns)
{
    t->all->starting.part = 1; // any: only who is active counts here
    fair_seen(&t->all->starting, &t->starts.use, tenant_weight(t), now_ns);
}

bool
pace_end(struct pace_young *y)
{
    if (y->of == NULL)
        return false;
    list_remove(&y->node);
    y->of->young_n--;
    y->of = NULL;
    return true;
}

static struct pace_young *
eldest(struct tenant_starts *s)
{
    return list_entry(s->young.next, struct pace_young, node);
}

static uint64_t
share(const struct tenant *t, uint32_t processors)
{
    const uint64_t n = processors * (uint64_t)t->starts.use.weight / t->all->starting.weights;
    return n > 0 ? n : 1;
}

// From one beginning to the next, so that what they cost is the tenant's share of the processors.
static uint64_t
interval_ns(const struct tenant *t, uint32_t processors)
{
    const uint64_t weight = t->starts.use.weight > 0 ? t->starts.use.weight : 1;
    return PACE_COST_NS * t->all->starting.weights / (processors * weight);
}

bool
pace_may(struct tenant *t, uint32_t processors, uint64_t now_ns, uint64_t *again_ns)
{
    struct tenant_starts *s = &t->starts;
    while (s->young_n > 0 && now_ns - eldest(s)->since_ns >= PACE_YOUNG_NS)
        (void)pace_end(eldest(s));
    if (!fair_counts(&t->all->starting, now_ns))
        return true;
    if (s->young_n >= share(t, processors))
        *again_ns = eldest(s)->since_ns + PACE_YOUNG_NS;
    else if (s->due_ns > now_ns + PACE_YOUNG_NS)
        *again_ns = s->due_ns - PACE_YOUNG_NS;
    else
        return true;
    return false;
}

void
pace_begin(struct pace_young *y, struct tenant *t, uint32_t processors, uint64_t now_ns)
{
    struct tenant_starts *s = &t->starts;
    (void)pace_end(y);
    if (fair_counts(&t->all->starting, now_ns))
        s->due_ns = (s->due_ns > now_ns ? s->due_ns : now_ns) + interval_ns(t, processors);
    y->since_ns = now_ns;
    y->of = &t->starts;
    list_append(&t->starts.young, &y->node);
    t->starts.young_n++;
}
