// SPDX-License-Identifier: Apache-2.0
// The event hub: all events of sandboxes, numbered, for subscribers.
//
//   events_publish --> packed once --> its tenant's ring of recent events (events_kept.c, for subscriptions from an earlier number)
//                                  \-> ring of each subscriber whose filter it passes --wake--> events_peek, events_taken
//                                  \-> each sink (events_sinks.c): receivers in the broker, such as the feed
//
// A subscriber never delays others: if its ring is full, it gets a gap at that position among the events. Numbers
// start at 1 in each run of the broker, so they are valid only together with its instance. A client that returns with
// a number of another instance has missed the end of that run, which is also a gap, and gets all kept events of this
// run. Loop thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "event_packed.h"
#include "events_sinks.h"
#include "proto/err.h"
#include "server/base/idtable.h"
#include "stockade/v1/telemetry_service.pb-c.h"

struct events;
struct events_reader;

enum {
    EVENTS_QUEUED = 4096, // for one subscriber
    EVENTS_QUEUED_BYTES = 1024 * 1024,
    EVENTS_BATCH = 256,
    EVENTS_BATCH_BYTES = 56 * 1024,
    EVENTS_READERS = 256,
    EVENTS_READERS_PER_TENANT = 32,
    EVENTS_SANDBOXES = 64, // of one filter
    EVENT_BYTES = 8 * 1024,
    EVENT_KIND_MAX = 127,
    EVENTS_INSTANCE = 17, // bytes of an instance with its NUL: 16 hex digits
};

struct event_filter {
    char sandbox_id[EVENTS_SANDBOXES][ID_TEXT_MAX + 1];
    uint32_t sandboxes_n;             // 0: all
    char process_id[ID_TEXT_MAX + 1]; // "": all
    char tenant[32];                  // "": all
    uint64_t kinds[2];                // bits; none: all
    uint32_t severity;                // at least
};

struct event_gap {
    uint64_t from, to; // from 0: no gap; to 0: the end of that run of the broker
    uint64_t count;
    const char *reason;
};

// The next items of a subscriber: the gap, then the events.
struct events_batch {
    struct event_gap gap;
    uint32_t n;
    const struct event_packed *event[EVENTS_BATCH]; // borrowed until events_taken
};

// Creates the hub. Free it with events_free() when nobody is subscribed. NULL: out of memory.
struct events *events_new(uv_loop_t *loop);
void events_free(struct events *h);

// Publishes an event: numbers it (m->sequence), sets the time if it has none, packs it and puts it into the rings of
// its tenant and subscribers, without calling them. *m is borrowed. An event that cannot be packed (out of memory,
// larger than EVENT_BYTES) leaves a gap in the numbers and is counted (METRIC_EVENTS_FAILED).
void events_publish(struct events *h, Stockade__V1__Event *m);

// The id of this run of the broker: 16 hex digits.
const char *events_instance(const struct events *h);

// The last number.
uint64_t events_last(const struct events *h);

// A subscription.
struct events_listener {
    const char *owner; // the tenant that it counts towards
    // There may be new events. Called on the loop, never from within a call here; may unsubscribe.
    void (*wake)(void *cookie);
    void *cookie;
};

// Subscribes. from 0: only new events. instance: the run of the broker that `from` belongs to; "": this one.
// OUT_OF_RANGE: `from` is above the next number; RESOURCE_EXHAUSTED. Free it with events_unsubscribe().
int events_subscribe(struct events *h, const struct event_filter *f, uint64_t from,
                     const char *instance, const struct events_listener *l,
                     struct events_reader **out, struct err *e);
void events_unsubscribe(struct events_reader *r); // accepts NULL

// The next items; false: none for now. Returns the same until events_taken().
bool events_peek(struct events_reader *r, struct events_batch *out);
void events_taken(struct events_reader *r, const struct events_batch *b);

// True: it has received all kept events.
bool events_caught_up(const struct events_reader *r);

bool event_passes(const struct event_filter *f, const struct event_packed *e);

// Wakes every subscriber.
void events_wake_all(struct events *h);

// Adds a sink: it gets the events that are published from now on, after the sinks that were added before it. *Borrowed*
// until events_sink_remove(). RESOURCE_EXHAUSTED beyond EVENTS_SINKS.
int events_sink_add(struct events *h, struct events_sink *s, struct err *e);

// Removes a sink, at any time; it is not called any more. Does nothing if it was not added; its node must be initialized.
void events_sink_remove(struct events *h, struct events_sink *s);

// The name of a kind, such as "DENIED" for EVENT_KIND_DENIED; "OTHER" for an unknown one. The name of a severity, such
// as "NOTICE".
const char *event_kind_name(uint32_t kind);
const char *event_severity_name(uint32_t severity);
