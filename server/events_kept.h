// SPDX-License-Identifier: Apache-2.0
// The events that are kept for those who ask from a number on: a ring for each tenant, so that none pushes out what is
// another's. All of them together are bounded as well; whoever has most gives way then. Loop thread only.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "list.h"

struct event_packed;

enum {
    EVENTS_KEPT = 16384, // of one tenant
    EVENTS_KEPT_BYTES = 8 * 1024 * 1024,
    EVENTS_KEPT_BYTES_ALL = 64 * 1024 * 1024,
    EVENTS_TENANTS = 256, // above that the tenant whose last event is the oldest gives way
};

struct events_kept {
    struct list shelves;
    uint32_t shelves_n;
    size_t bytes;
    uint64_t forgotten; // last number of shelves that are gone
};

void events_kept_init(struct events_kept *k);
void events_kept_clear(struct events_kept *k);

// Keeps a reference to it. Numbers only go up.
void events_kept_add(struct events_kept *k, struct event_packed *e);

// The last number of a tenant ("": of any) that was there and is no longer kept; 0: all of them are.
uint64_t events_kept_forgotten(const struct events_kept *k, const char *tenant);

// A walk over what is kept of a tenant ("": of all), oldest first, from a number on. Nothing may be added meanwhile.
struct events_walk {
    struct {
        const struct shelf *shelf;
        uint32_t at;
    } place[EVENTS_TENANTS];
    uint32_t n;
};
void events_walk_begin(struct events_walk *w, const struct events_kept *k, const char *tenant,
                       uint64_t from);
const struct event_packed *events_walk_next(struct events_walk *w); // NULL: the end

// Gives up a reference; NULL is fine.
void event_drop(struct event_packed *e);
