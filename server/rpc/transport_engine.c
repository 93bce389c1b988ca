// SPDX-License-Identifier: Apache-2.0
// See transport_engine.h.
#include "transport_engine.h"

#include <stdlib.h>

void
transport_add_listener(struct transport *t, struct list *node)
{
    list_append(&t->listeners, node);
    t->alive++;
}

static void
end_if_empty(struct transport *t)
{
    if (!t->shutting || t->alive > 0 || t->ended)
        return;
    t->ended = true;
    t->end(t);
}

void
transport_gone(struct transport *t)
{
    t->alive--;
    end_if_empty(t);
}

void
transport_ended(struct transport *t)
{
    const struct transport_events *events = t->events;
    void *cookie = t->cookie;
    free(t);
    events->on_shut(cookie);
}

void
transport_shut(struct transport *t)
{
    t->shutting = true;
    list_each(it, &t->listeners)
    {
        list_remove(it);
        t->close_listener(it);
    }
    end_if_empty(t);
}
