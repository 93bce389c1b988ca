// SPDX-License-Identifier: Apache-2.0
// The common part of all engines (transport.h): the receiver of events, the listeners, and the end. An engine's struct
// begins with it.
#pragma once

#include "server/base/list.h"
#include "transport.h"

struct transport {
    const struct transport_events *events;
    void *cookie;
    struct list listeners; // by their nodes
    size_t alive;          // listeners and streams; transport_gone() subtracts one
    // handles of the engine itself that libuv has not closed yet
    unsigned handles;
    bool shutting, ended;
    void (*close_listener)(struct list *node); // it was removed from the list
    void (*end)(struct transport *t); // called once, when it shuts down and nothing is alive
};

// Log lines about peers: 10 in 10 seconds; further ones are counted.
struct transport_log {
    uint64_t from_ns;
    unsigned n;
};
void transport_log(struct transport_log *l, const char *event, const char *what, const char *why);

void transport_add_listener(struct transport *t, struct list *node);
void transport_gone(struct transport *t);

// Moves all nodes of `from` into `to`, which is not initialized yet.
void transport_take(struct list *to, struct list *from);

// Of an idle handle, which only prevents the loop from waiting before the engine's prepare handle.
void transport_again(uv_idle_t *again);

// The engine has freed everything: frees it and calls on_shut.
void transport_ended(struct transport *t);

// The close callback of an engine's own handles, whose data is the engine: the last one ends it.
void transport_handle_closed(uv_handle_t *handle);

// transport_ops.shut of every engine.
void transport_shut(struct transport *t);

// Copies what follows after `skip` bytes of the list, at most `room`. Returns the number of bytes.
size_t transport_gather(const struct iovec *iov, unsigned n, size_t skip, uint8_t *to, size_t room);
