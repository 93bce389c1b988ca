// SPDX-License-Identifier: Apache-2.0
// Who waits for a sandbox of one template, in turns: each tenant has a line of its own, and the lines take turns, so a tenant
// with a thousand requests holds up another's one by a single sandbox. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "list.h"

struct pool_queue {
    struct list lines; // the next one first
    uint32_t n;        // places in all of them
};

// One tenant's line; freed with its last place.
struct pool_line {
    struct list node;   // in the queue
    struct list places; // oldest first
    const void *who;
    uint32_t n;
};

// In what waits.
struct pool_place {
    struct list node;
    struct pool_line *line; // NULL: it is in no queue
};

void pool_queue_init(struct pool_queue *q);

// Adds a place at the end of who's line. A line that is new is the last to have its turn. -ENOMEM or 0.
int pool_queue_add(struct pool_queue *q, struct pool_place *p, const void *who);

// Takes it out; fine when it is in none.
void pool_queue_remove(struct pool_queue *q, struct pool_place *p);

// Whose turn it is, and takes it out: that line's next turn is after all others'. NULL: nobody waits.
struct pool_place *pool_queue_take(struct pool_queue *q);

// How many who has.
uint32_t pool_queue_of(const struct pool_queue *q, const void *who);

// The longest line. NULL: nobody waits.
struct pool_line *pool_queue_longest(const struct pool_queue *q);

// The place that came last in a line.
struct pool_place *pool_line_last(const struct pool_line *line);

// Calls fn with the first place of each line until it takes one out (and says true); true: one did.
bool pool_queue_each_first(struct pool_queue *q, bool (*fn)(void *cookie, struct pool_place *p),
                           void *cookie);
