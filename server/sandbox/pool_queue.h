// SPDX-License-Identifier: Apache-2.0
// Requests that wait for a sandbox of one template: each tenant has a queue of its own, and the queues are served in
// turn, so a tenant with a thousand requests delays another one by a single sandbox. A tenant of weight 4 has four turns for each turn
// of one of weight 1 (stride scheduling: each turn moves a queue on by 1/weight, and the one that is least far is next). Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "server/base/list.h"

struct pool_queue {
    struct list lines; // next one first
    uint32_t n;        // entries in all of them
    uint64_t at;       // how far the queue was that had the last turn
};

// One tenant's queue; freed with its last entry.
struct pool_line {
    struct list node;    // in the queue
    struct list entries; // oldest first
    const void *who;
    uint32_t n;
    uint32_t weight;
    uint64_t at; // its next turn; the queues are sorted by it
};

// Embedded in a waiting request.
struct pool_entry {
    struct list node;
    struct pool_line *line; // NULL: in no queue
};

void pool_queue_init(struct pool_queue *q);

// Adds an entry at the end of the tenant's queue. Among queues of one weight a new one is served last. weight: at least 1, from now on.
// Returns -ENOMEM or 0.
struct pool_owner {
    const void *who;
    uint32_t weight;
};
int pool_queue_add(struct pool_queue *q, struct pool_entry *p, struct pool_owner owner);

// Removes an entry. Does nothing if it is in no queue.
void pool_queue_remove(struct pool_queue *q, struct pool_entry *p);

// Removes and returns the next entry; its queue has moved on by one turn. NULL: the queues are empty.
struct pool_entry *pool_queue_take(struct pool_queue *q);

// The same with the first entry that may be served now, in the order of the queues. may: NULL: each.
struct pool_entry *pool_queue_take_if(struct pool_queue *q,
                                      bool (*may)(void *cookie, struct pool_entry *p),
                                      void *cookie);

// Number of entries of a tenant.
uint32_t pool_queue_of(const struct pool_queue *q, const void *who);

// The longest queue. NULL: the queues are empty.
struct pool_line *pool_queue_longest(const struct pool_queue *q);

// The newest entry of a queue.
struct pool_entry *pool_line_last(const struct pool_line *line);

// Calls fn with the first entry of each queue until it removes one (and returns true). True: one was removed.
bool pool_queue_each_first(struct pool_queue *q, bool (*fn)(void *cookie, struct pool_entry *p),
                           void *cookie);
