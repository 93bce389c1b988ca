// SPDX-License-Identifier: Apache-2.0
// See events_sinks.h. Each callback may add and remove any sink, so the walk keeps its place in the list itself, where
// additions and removals adjust it.
#include "events_sinks.h"

#include <assert.h>

#include "proto/err.h"
#include "server/base/metrics.h"

_Static_assert((int)EVENTS_SINKS <= (int)METRIC_VALUES_SINK, "a value for each sink");

void
event_sinks_init(struct event_sinks *s)
{
    *s = (struct event_sinks){0};
    list_init(&s->all);
}

int
event_sinks_add(struct event_sinks *s, struct events_sink *one, struct err *e)
{
    uint32_t number = 0;
    while (number < EVENTS_SINKS && (s->used >> number & 1) != 0)
        number++;
    if (number == EVENTS_SINKS)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "receive events in %s: there are %d receivers",
                       one->name, EVENTS_SINKS);
    s->used |= UINT32_C(1) << number;
    one->number = number;
    metrics_name_value(METRIC_BY_SINK, number, one->name);
    list_append(&s->all, &one->node);
    if (s->giving && s->end == &s->all) {
        s->next = s->next == &s->all ? &one->node : s->next; // all others had their turn
        s->end = &one->node;
    }
    return 0;
}

void
event_sinks_remove(struct event_sinks *s, struct events_sink *one)
{
    if (list_empty(&one->node))
        return;
    if (s->next == &one->node)
        s->next = one->node.next;
    if (s->end == &one->node)
        s->end = one->node.next;
    list_remove(&one->node);
    s->used &= ~(UINT32_C(1) << one->number);
}

void
event_sinks_give(struct event_sinks *s, const struct event_packed *e)
{
    assert(!s->giving); // a sink must not publish
    s->giving = true;
    s->next = s->all.next;
    s->end = &s->all;
    while (s->next != s->end) {
        struct events_sink *one = list_entry(s->next, struct events_sink, node);
        uint32_t number = one->number;
        s->next = s->next->next;
        if (one->on_event(one->cookie, e) < 0)
            metrics_add_by(METRIC_SINK_FAILED, number, 0, 1);
    }
    s->giving = false;
}
