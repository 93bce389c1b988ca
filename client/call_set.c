// SPDX-License-Identifier: Apache-2.0
// See call_set.h. The buckets need no hash function: ids are consecutive numbers that this library chooses.
#include "call_set.h"

#include <errno.h>
#include <stdlib.h>

#include "call.h"

enum { BUCKETS_MIN = 16 };

static struct call **
bucket_of(struct call **buckets, size_t n, uint64_t id)
{
    return &buckets[id & (n - 1)];
}

// Doubles the buckets when there are more calls than buckets.
static int
grow_buckets(struct call_set *set)
{
    if (set->n < set->buckets_n)
        return 0;
    size_t n = set->buckets_n != 0 ? 2 * set->buckets_n : BUCKETS_MIN;
    struct call **grown = calloc(n, sizeof(struct call *));
    if (grown == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < set->buckets_n; i++) {
        while (set->buckets[i] != NULL) {
            struct call *c = set->buckets[i], **to = bucket_of(grown, n, c->id);
            set->buckets[i] = c->bucket_next;
            c->bucket_next = *to;
            *to = c;
        }
    }
    free(set->buckets);
    set->buckets = grown;
    set->buckets_n = n;
    return 0;
}

static int
grow_heap(struct call_set *set)
{
    if (set->n < set->heap_max)
        return 0;
    size_t max = set->heap_max != 0 ? 2 * set->heap_max : BUCKETS_MIN;
    struct call **grown = reallocarray(set->heap, max, sizeof(struct call *));
    if (grown == NULL)
        return -ENOMEM;
    set->heap = grown;
    set->heap_max = max;
    return 0;
}

int
call_set_add(struct call_set *set, struct call *c)
{
    if (grow_buckets(set) < 0 || grow_heap(set) < 0)
        return -ENOMEM;
    struct call **to = bucket_of(set->buckets, set->buckets_n, c->id);
    c->bucket_next = *to;
    *to = c;
    set->n++;
    return 0;
}

void
call_set_remove(struct call_set *set, struct call *c)
{
    call_set_deadline(set, c, 0);
    struct call **link = bucket_of(set->buckets, set->buckets_n, c->id);
    while (*link != c)
        link = &(*link)->bucket_next;
    *link = c->bucket_next;
    set->n--;
}

struct call *
call_set_find(const struct call_set *set, uint64_t id)
{
    if (set->buckets_n == 0)
        return NULL;
    struct call *c = *bucket_of(set->buckets, set->buckets_n, id);
    while (c != NULL && c->id != id)
        c = c->bucket_next;
    return c;
}

// ---- Deadlines. heap_at of a call is its index + 1; 0: it is not in the heap.

static void
put(struct call_set *set, size_t i, struct call *c)
{
    set->heap[i] = c;
    c->heap_at = i + 1;
}

static void
move_up(struct call_set *set, size_t i, struct call *c)
{
    while (i > 0 && set->heap[(i - 1) / 2]->deadline_ns > c->deadline_ns) {
        put(set, i, set->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put(set, i, c);
}

static void
move_down(struct call_set *set, size_t i, struct call *c)
{
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= set->heap_n)
            break;
        if (child + 1 < set->heap_n &&
            set->heap[child + 1]->deadline_ns < set->heap[child]->deadline_ns)
            child++;
        if (set->heap[child]->deadline_ns >= c->deadline_ns)
            break;
        put(set, i, set->heap[child]);
        i = child;
    }
    put(set, i, c);
}

static void
take_out(struct call_set *set, struct call *c)
{
    size_t i = c->heap_at - 1;
    struct call *last = set->heap[--set->heap_n];
    c->heap_at = 0;
    if (last == c)
        return;
    if (last->deadline_ns < c->deadline_ns)
        move_up(set, i, last);
    else
        move_down(set, i, last);
}

void
call_set_deadline(struct call_set *set, struct call *c, uint64_t deadline_ns)
{
    if (c->heap_at != 0)
        take_out(set, c);
    c->deadline_ns = deadline_ns;
    if (deadline_ns != 0)
        move_up(set, set->heap_n++, c);
}

struct call *
call_set_first(const struct call_set *set)
{
    return set->heap_n > 0 ? set->heap[0] : NULL;
}

void
call_set_each(const struct call_set *set, void (*fn)(struct call *c, void *cookie), void *cookie)
{
    for (size_t i = 0; i < set->buckets_n; i++)
        for (struct call *c = set->buckets[i], *next = NULL; c != NULL; c = next) {
            next = c->bucket_next;
            fn(c, cookie);
        }
}

void
call_set_clear(struct call_set *set)
{
    free(set->buckets);
    free(set->heap);
    *set = (struct call_set){0};
}
