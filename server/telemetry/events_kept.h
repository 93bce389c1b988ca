// SPDX-License-Identifier: Apache-2.0
// Recent events for clients that start at an earlier number: a ring for each tenant, so that no tenant displaces
// another's events. The total is bounded as well; when it is reached, the tenant with the most loses its oldest. Loop
// thread only.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "server/base/list.h"

struct event_packed;

enum {
    EVENTS_KEPT = 16384, // of one tenant
    EVENTS_KEPT_BYTES = 8 * 1024 * 1024,
    EVENTS_KEPT_BYTES_ALL = 64 * 1024 * 1024,
    EVENTS_TENANTS = 256, // above that, the ring of the tenant with the oldest last event is freed
};

struct events_kept {
    struct list tenants;
    uint32_t tenants_n;
    size_t bytes;
    uint64_t forgotten; // last number of freed rings
};

void events_kept_init(struct events_kept *k);
void events_kept_clear(struct events_kept *k);

// Keeps a reference to an event. Numbers only increase.
void events_kept_add(struct events_kept *k, struct event_packed *e);

// The last number of a tenant ("": of any) that existed and is no longer kept; 0: all are kept.
uint64_t events_kept_forgotten(const struct events_kept *k, const char *tenant);

// Walks over the kept events of a tenant ("": of all), oldest first, from a number on. Nothing may be added during the
// walk.
struct events_walk {
    struct {
        const struct tenant_events *of;
        uint32_t at;
    } position[EVENTS_TENANTS];
    uint32_t n;
};
void events_walk_begin(struct events_walk *w, const struct events_kept *k, const char *tenant,
                       uint64_t from);
const struct event_packed *events_walk_next(struct events_walk *w); // NULL: the end

// Releases a reference. Accepts NULL.
void event_drop(struct event_packed *e);
