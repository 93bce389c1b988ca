// SPDX-License-Identifier: Apache-2.0
// See events_kept.h.
#include "events_kept.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "event_packed.h"

enum { FIRST_SIZE = 64 };

struct tenant_events { // of one tenant
    struct list node;
    char tenant[32];
    // owned, with its references; sorted by number, without empty entries
    struct event_packed **ring;
    uint32_t size, first, n;
    size_t bytes;
    uint64_t forgotten;
};

void
event_drop(struct event_packed *e)
{
    if (e != NULL && --e->refs == 0)
        free(e);
}

void
events_kept_init(struct events_kept *k)
{
    *k = (struct events_kept){0};
    list_init(&k->tenants);
}

static struct event_packed *
at(const struct tenant_events *s, uint32_t i)
{
    assert(s->size > 0);
    return s->ring[(s->first + i) % s->size];
}

static void
forget_oldest(struct events_kept *k, struct tenant_events *s)
{
    struct event_packed *e = at(s, 0);
    s->forgotten = e->sequence;
    s->bytes -= e->n;
    k->bytes -= e->n;
    s->first = (s->first + 1) % s->size;
    s->n--;
    event_drop(e);
}

static void
discard(struct events_kept *k, struct tenant_events *s)
{
    while (s->n > 0)
        forget_oldest(k, s);
    if (s->forgotten > k->forgotten)
        k->forgotten = s->forgotten;
    list_remove(&s->node);
    k->tenants_n--;
    free(s->ring);
    free(s);
}

void
events_kept_clear(struct events_kept *k)
{
    list_each(it, &k->tenants) discard(k, list_entry(it, struct tenant_events, node));
}

static struct tenant_events *
find(const struct events_kept *k, const char *tenant)
{
    for (struct list *it = k->tenants.next; it != &k->tenants; it = it->next)
        if (strcmp(list_entry(it, struct tenant_events, node)->tenant, tenant) == 0)
            return list_entry(it, struct tenant_events, node);
    return NULL;
}

// Rings are sorted by their last event, the longest inactive tenant first.
static struct tenant_events *
ring_of(struct events_kept *k, const char *tenant)
{
    struct tenant_events *s = find(k, tenant);
    if (s != NULL) {
        list_remove(&s->node);
        list_append(&k->tenants, &s->node);
        return s;
    }
    if (k->tenants_n == EVENTS_TENANTS)
        discard(k, list_entry(k->tenants.next, struct tenant_events, node));
    s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    (void)snprintf(s->tenant, sizeof s->tenant, "%s", tenant);
    s->forgotten = k->forgotten; // the displaced event may have been the tenant's own
    list_append(&k->tenants, &s->node);
    k->tenants_n++;
    return s;
}

// Makes room for one more reference; without memory, drops the oldest one.
static bool
grow(struct events_kept *k, struct tenant_events *s)
{
    if (s->n < s->size)
        return true;
    uint32_t size = s->size > 0 ? 2 * s->size : FIRST_SIZE;
    struct event_packed **ring =
        s->size < EVENTS_KEPT ? malloc(size * sizeof(struct event_packed *)) : NULL;
    if (ring == NULL) {
        if (s->n > 0)
            forget_oldest(k, s);
        return s->n < s->size;
    }
    for (uint32_t i = 0; i < s->n; i++)
        ring[i] = at(s, i);
    free(s->ring);
    s->ring = ring;
    s->size = size;
    s->first = 0;
    return true;
}

static struct tenant_events *
largest(const struct events_kept *k)
{
    struct tenant_events *most = NULL;
    for (struct list *it = k->tenants.next; it != &k->tenants; it = it->next) {
        struct tenant_events *s = list_entry(it, struct tenant_events, node);
        if (most == NULL || s->bytes > most->bytes)
            most = s;
    }
    return most;
}

void
events_kept_add(struct events_kept *k, struct event_packed *e)
{
    struct tenant_events *s = ring_of(k, e->tenant);
    if (s == NULL) {
        k->forgotten = e->sequence;
        return;
    }
    while (s->n > 0 && (s->n >= EVENTS_KEPT || s->bytes + e->n > EVENTS_KEPT_BYTES))
        forget_oldest(k, s);
    while (k->bytes + e->n > EVENTS_KEPT_BYTES_ALL)
        forget_oldest(k, largest(k));
    if (!grow(k, s)) {
        s->forgotten = e->sequence;
        return;
    }
    s->ring[(s->first + s->n++) % s->size] = e;
    s->bytes += e->n;
    k->bytes += e->n;
    e->refs++;
}

uint64_t
events_kept_forgotten(const struct events_kept *k, const char *tenant)
{
    const struct tenant_events *own = find(k, tenant);
    if (tenant[0] != '\0')
        return own != NULL ? own->forgotten : k->forgotten;
    uint64_t last = k->forgotten;
    for (struct list *it = k->tenants.next; it != &k->tenants; it = it->next)
        if (list_entry(it, struct tenant_events, node)->forgotten > last)
            last = list_entry(it, struct tenant_events, node)->forgotten;
    return last;
}

// The index of a number, or of the next higher one.
static uint32_t
index_of(const struct tenant_events *s, uint64_t from)
{
    uint32_t low = 0;
    uint32_t high = s->n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (at(s, middle)->sequence < from)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void
events_walk_begin(struct events_walk *w, const struct events_kept *k, const char *tenant,
                  uint64_t from)
{
    w->n = 0;
    for (struct list *it = k->tenants.next; it != &k->tenants; it = it->next) {
        const struct tenant_events *s = list_entry(it, struct tenant_events, node);
        if (tenant[0] != '\0' && strcmp(s->tenant, tenant) != 0)
            continue;
        assert(w->n < EVENTS_TENANTS);
        w->position[w->n].of = s;
        w->position[w->n++].at = index_of(s, from);
    }
}

const struct event_packed *
events_walk_next(struct events_walk *w)
{
    const struct event_packed *next = NULL;
    uint32_t whose = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct tenant_events *s = w->position[i].of;
        if (w->position[i].at == s->n)
            continue;
        const struct event_packed *e = at(s, w->position[i].at);
        if (next == NULL || e->sequence < next->sequence) {
            next = e;
            whose = i;
        }
    }
    if (next != NULL)
        w->position[whose].at++;
    return next;
}
