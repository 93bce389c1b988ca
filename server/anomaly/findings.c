// SPDX-License-Identifier: Apache-2.0
// See findings.h.
#include "findings.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool
is_of(const struct finding *f, const char *tenant)
{
    return tenant == NULL || strcmp(f->tenant, tenant) == 0;
}

// The index of the oldest finding of the tenant with the most findings. Looks at all of them, but only when a finding
// arrives while there is no room, which is rare.
static uint32_t
who_gives_way(const struct findings *all)
{
    uint32_t most = 0;
    uint32_t position = 0;
    for (uint32_t i = 0; i + most < all->n; i++) {
        uint32_t n = 0;
        bool is_first = true;
        for (uint32_t k = 0; k < i && is_first; k++)
            is_first = !is_of(all->kept[k], all->kept[i]->tenant);
        for (uint32_t k = i; k < all->n && is_first; k++)
            n += is_of(all->kept[k], all->kept[i]->tenant);
        if (n > most) {
            most = n;
            position = i;
        }
    }
    return position;
}

static void
forget(struct findings *all, uint32_t position)
{
    struct finding *f = all->kept[position];
    all->gone++;
    if (f->sequence > all->gone_last)
        all->gone_last = f->sequence;
    memmove(all->kept + position, all->kept + position + 1,
            (all->n - position - 1) * sizeof(void *));
    all->n--;
    free(f);
}

// The number of the tenant's findings so far.
static uint64_t
count_before(const struct findings *all, const char *tenant)
{
    for (uint32_t i = all->n; i > 0; i--)
        if (is_of(all->kept[i - 1], tenant))
            return all->kept[i - 1]->of_tenant;
    return 0;
}

void
findings_add(struct findings *all, struct finding *f)
{
    f->sequence = ++all->last;
    f->of_tenant = count_before(all, f->tenant) + 1;
    if (all->n == ANOMALY_FINDINGS)
        forget(all, who_gives_way(all));
    struct finding *copy = malloc(sizeof *copy);
    if (copy == NULL) {
        all->gone++;
        all->gone_last = f->sequence;
        return;
    }
    *copy = *f;
    all->kept[all->n++] = copy;
}

void
findings_clear(struct findings *all)
{
    while (all->n > 0)
        free(all->kept[--all->n]);
}

static uint32_t
position_after(const struct findings *all, uint64_t after)
{
    uint32_t low = 0;
    uint32_t high = all->n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (all->kept[middle]->sequence <= after)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct finding *
findings_next(const struct findings *all, uint64_t after)
{
    uint32_t position = position_after(all, after);
    return position < all->n ? all->kept[position] : NULL;
}

uint64_t
findings_forgotten(const struct findings *all, const char *tenant, uint64_t after)
{
    if (after >= all->gone_last)
        return 0;
    uint64_t span = all->gone_last - after;
    if (tenant == NULL)
        return all->gone < span ? all->gone : span;
    for (uint32_t i = 0; i < all->n; i++) {
        const struct finding *f = all->kept[i];
        if (!is_of(f, tenant))
            continue;
        // A tenant loses its oldest findings first: all findings after a kept one are kept.
        uint64_t gone = f->sequence <= after ? 0 : f->of_tenant - 1;
        return gone < span ? gone : span;
    }
    return 0;
}
