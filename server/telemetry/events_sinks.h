// SPDX-License-Identifier: Apache-2.0
// Receivers of every event in the broker, such as the feed: a list that events.c gives each event to. Add and remove them
// with events_sink_add() and events_sink_remove() (events.h). Loop thread only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "server/base/list.h"

struct err;
struct event_packed;

enum { EVENTS_SINKS = 8 };

// A receiver. Embedded in its owner, who sets the first three fields and initializes the node.
struct events_sink {
    const char *name; // constant, such as "feed": the label of METRIC_SINK_FAILED
    // Called inside events_publish(), so it must not block or publish. It may add and remove sinks, itself included.
    // Negative: it could not take this event. That is counted, and changes nothing for other sinks and other events.
    int (*on_event)(void *cookie, const struct event_packed *e);
    void *cookie;
    struct list node;
    uint32_t number;
};

// ---- for events.c

struct event_sinks {
    struct list all;   // in the order in which they were added
    struct list *next; // while an event is given: who gets it next
    struct list *end;  // the same: the first sink that was added meanwhile, or the head
    uint32_t used;     // bits of numbers
    bool giving;
};

void event_sinks_init(struct event_sinks *s);
int event_sinks_add(struct event_sinks *s, struct events_sink *one, struct err *e);
void event_sinks_remove(struct event_sinks *s, struct events_sink *one);

// Gives an event to each sink.
void event_sinks_give(struct event_sinks *s, const struct event_packed *e);
