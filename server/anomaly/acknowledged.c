// SPDX-License-Identifier: Apache-2.0
// See silences.h: acknowledged findings, by time and by number.
#include <stdlib.h>
#include <string.h>

#include "server/base/metrics.h"
#include "silences_private.h"

void
acknowledged_free(struct acknowledged *a)
{
    if (a != NULL)
        free(a->finding);
    free(a);
}

static struct acknowledged **
bucket_of(const struct silences *all, uint64_t sequence)
{
    return (struct acknowledged **)(uintptr_t)&all->bucket[sequence % ACKNOWLEDGED_BUCKETS];
}

void
acknowledged_add(struct silences *all, struct acknowledged *a)
{
    struct acknowledged **at = bucket_of(all, a->sequence);
    a->order = ++all->order;
    a->next = *at;
    *at = a;
    list_append(&all->acknowledged, &a->node);
    metrics_set(METRIC_ACKNOWLEDGED, 0, ++all->acknowledged_n);
}

void
acknowledged_remove(struct silences *all, struct acknowledged *a)
{
    struct acknowledged **at = bucket_of(all, a->sequence);
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    list_remove(&a->node);
    metrics_set(METRIC_ACKNOWLEDGED, 0, --all->acknowledged_n);
    acknowledged_free(a);
}

const struct acknowledged *
acknowledged_next(const struct silences *all, const struct acknowledged *after)
{
    struct list *next = after != NULL ? after->node.next : all->acknowledged.next;
    return next != &all->acknowledged ? list_entry(next, struct acknowledged, node) : NULL;
}

const struct acknowledged *
acknowledged_find(const struct silences *all, const char *instance, uint64_t sequence, bool by_host)
{
    const struct acknowledged *a = *bucket_of(all, sequence);
    while (a != NULL &&
           (a->sequence != sequence || a->by_host != by_host || strcmp(a->instance, instance) != 0))
        a = a->next;
    return a;
}

struct acknowledged *
acknowledged_oldest(const struct silences *all, const char *tenant, bool by_host, uint32_t *n)
{
    struct acknowledged *oldest = NULL;
    *n = 0;
    for (struct list *it = all->acknowledged.next; it != &all->acknowledged; it = it->next) {
        struct acknowledged *a = list_entry(it, struct acknowledged, node);
        if (a->by_host != by_host || strcmp(a->tenant, tenant) != 0)
            continue;
        oldest = oldest != NULL ? oldest : a;
        (*n)++;
    }
    return oldest;
}
