// SPDX-License-Identifier: Apache-2.0
// A call that waits for an operation of the core: what its callback needs, and what happens if the caller goes first.
//
//   p = pending_new(s, c, answer, unwait);  r = core_begin(..., on_done, p, &op, &e);  pending_begun(p, r, op, &e);
//
// The callback of the core ends the call and frees the pending with pending_end().
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "proto/err.h"

struct call;
struct server;

struct pending {
    struct server *s;
    struct call *call;
    const ProtobufCMessageDescriptor *answer; // NULL: the callback knows it
    void (*unwait)(void *op);                 // the core does not call back any more
    void *op;
};

// NULL: out of memory, and the call has failed.
struct pending *pending_new(struct server *s, struct call *c,
                            const ProtobufCMessageDescriptor *answer, void (*unwait)(void *op));

// r < 0: the core refused, and the call fails with *e. Otherwise op is what unwait gets.
void pending_begun(struct pending *p, int r, void *op, const struct err *e);

// The call fails (e), or was ended by the caller of this function.
void pending_end(struct pending *p, const struct err *e);
