// SPDX-License-Identifier: Apache-2.0
// What is the same in every engine (transport.h): whom it tells, its listeners, and when it is at its end. An engine's own
// struct begins with this one.
#pragma once

#include "list.h"
#include "transport.h"

struct transport {
    const struct transport_events *events;
    void *cookie;
    struct list listeners; // by the nodes that they lie in
    size_t alive;          // listeners and streams; one that is gone is told with transport_gone()
    bool shutting, ended;
    void (*close_listener)(struct list *node); // it is in the list no more
    void (*end)(struct transport
                    *t); // once: it is shutting and nothing is alive; leads to transport_told()
};

void transport_add_listener(struct transport *t, struct list *node);
void transport_gone(struct transport *t);

// The engine has let go of everything: frees it and tells on_shut.
void transport_told(struct transport *t);

// transport_ops.shut of every engine.
void transport_shut(struct transport *t);
