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
    list_remove(&y->among);
    y->of->young_n--;
    y->all->young_n--;
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
    const uint64_t all = fair_weights(&t->all->starting, &t->starts.use);
    const uint64_t n = processors * (uint64_t)t->starts.use.weight / all;
    return n > 0 ? n : 1;
}

// From one beginning to the next, so that what they cost is the tenant's share of the processors.
static uint64_t
interval_ns(const struct tenant *t, uint32_t processors)
{
    const uint64_t weight = t->starts.use.weight > 0 ? t->starts.use.weight : 1;
    return PACE_COST_NS * fair_weights(&t->all->starting, &t->starts.use) / (processors * weight);
}

static void
forget_old(struct tenants *all, uint64_t now_ns)
{
    while (all->young_n > 0) {
        struct pace_young *y = list_entry(all->young.next, struct pace_young, among);
        if (now_ns - y->since_ns < PACE_YOUNG_NS)
            return;
        (void)pace_end(y);
    }
}

// Whether no processor is left for a tenant that uses less than its share.
static bool
is_crowded(const struct tenants *all, uint32_t processors)
{
    return all->young_n >= (processors > 2 ? processors - 1 : 1);
}

bool
pace_may(struct tenant *t, uint32_t processors, uint64_t now_ns, uint64_t *again_ns)
{
    struct tenant_starts *s = &t->starts;
    forget_old(t->all, now_ns);
    if (!fair_counts(&t->all->starting, now_ns))
        return true;
    if (s->young_n >= share(t, processors))
        *again_ns = eldest(s)->since_ns + PACE_YOUNG_NS;
    else if (s->due_ns > now_ns + PACE_YOUNG_NS)
        *again_ns = s->due_ns - PACE_YOUNG_NS;
    else if (now_ns < s->due_ns && is_crowded(t->all, processors))
        *again_ns = s->due_ns;
    else
        return true;
    return false;
}

void
pace_begin(struct pace_young *y, struct tenant *t, uint32_t processors, uint64_t now_ns)
{
    struct tenant_starts *s = &t->starts;
    struct tenants *all = t->all;
    if (all->young.next == NULL)
        list_init(&all->young);
    (void)pace_end(y);
    if (fair_counts(&all->starting, now_ns)) {
        fair_mark(&all->starting, &s->use, s->due_ns > now_ns);
        s->due_ns = (s->due_ns > now_ns ? s->due_ns : now_ns) + interval_ns(t, processors);
    }
    y->since_ns = now_ns;
    y->of = s;
    y->all = all;
    list_append(&s->young, &y->node);
    s->young_n++;
    list_append(&all->young, &y->among);
    all->young_n++;
}
